//! Frames over a stream socket that never blocks: a length in 4 bytes, then that many bytes.
//!
//! Neither end blocks in reading or writing: the guard of a stopped node continues to watch it.
//! Bytes that the socket does not take are kept, and an end that has kept too many reads no further
//! requests.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::protocol::ROUTE_BYTES_MAX;
use crate::route::ROUTES_MAX;

/// Longest frame in bytes: more than the routes of a worker take.
const FRAME_BYTES_MAX: usize = 1 << 22;
/// Most bytes kept for a peer that does not read.
const KEPT_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 16 << 10;

const _: () = assert!(FRAME_BYTES_MAX > ROUTES_MAX * ROUTE_BYTES_MAX + 64);

/// A socket, the bytes received over it and the bytes still to be sent.
#[derive(Debug)]
pub(crate) struct Frames {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    is_closed: bool,
}

impl Frames {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Vec::new(), output: Vec::new(), is_closed: false })
    }

    /// Returns the next frame that has arrived completely.
    ///
    /// # Errors
    /// `InvalidData` for a length above the longest frame.
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((length, rest)) = self.input.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "a frame longer than any"));
        }
        let Some(frame) = rest.get(..length).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.input.drain(..4 + length);
        Ok(Some(frame))
    }

    /// True if the peer is gone. Frames that arrived before may still be unread.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True if the peer leaves too many bytes unread.
    pub(crate) fn is_congested(&self) -> bool {
        self.output.len() > KEPT_BYTES_MAX
    }

    /// Sends a frame, or keeps it for the next [`wait`](Self::wait).
    ///
    /// # Errors
    /// `InvalidInput` for a frame that is too long. A peer that is gone is not an error here.
    pub(crate) fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > FRAME_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidInput, "more routes than fit a message"));
        }
        self.output.extend((frame.len() as u32).to_le_bytes());
        self.output.extend(frame);
        self.write()
    }

    /// Waits until the socket is readable or writable, or for `timeout` (`None`: without limit),
    /// then reads and writes as much as possible without blocking. Nothing is read from a congested
    /// peer.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.wait_or_wake(timeout, None).map(drop)
    }

    /// Waits as [`wait`](Self::wait) does, but also until `waker` is readable; returns whether it
    /// is.
    pub(crate) fn wait_or_wake(
        &mut self,
        timeout: Option<Duration>,
        waker: Option<BorrowedFd<'_>>,
    ) -> io::Result<bool> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLOUT, !self.output.is_empty());
        flags.set(PollFlags::POLLIN, !self.is_congested());
        let own = self.stream.as_fd();
        let mut descriptors = [own, waker.unwrap_or(own)].map(|fd| PollFd::new(fd, flags));
        descriptors[1].set_events(PollFlags::POLLIN);
        let count = 1 + usize::from(waker.is_some());
        match poll(&mut descriptors[..count], poll_timeout(timeout)) {
            Ok(0) | Err(Errno::EINTR) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let events = |at: usize| descriptors[at].revents().unwrap_or(PollFlags::empty());
        let is_ended = events(0).intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
        let is_woken = waker.is_some() && !events(1).is_empty();
        self.write()?;
        if !self.is_congested() || is_ended {
            self.read()?;
        }
        Ok(is_woken)
    }

    /// Closes the connection: the peer sees the end after the bytes that were sent.
    pub(crate) fn close(&mut self) {
        // The peer may be gone already: an error does not matter.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.is_closed = true;
    }

    fn read(&mut self) -> io::Result<()> {
        let mut chunk = [0; READ_BYTES];
        while self.input.len() <= FRAME_BYTES_MAX {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.is_closed = true;
                    return Ok(());
                }
                Ok(len) => self.input.extend(&chunk[..len]),
                Err(error) => return self.judge(error),
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(len) => drop(self.output.drain(..len)),
                Err(error) => return self.judge(error),
            }
        }
        Ok(())
    }

    fn judge(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                self.is_closed = true;
                self.output.clear();
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Converts a timeout, rounded up, so that a wait never becomes a busy loop.
fn poll_timeout(timeout: Option<Duration>) -> PollTimeout {
    timeout.map_or(PollTimeout::NONE, |timeout| {
        PollTimeout::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pair() -> (Frames, Frames) {
        let (one, other) = UnixStream::pair().unwrap();
        (Frames::new(one).unwrap(), Frames::new(other).unwrap())
    }

    #[test]
    fn frames_of_any_size_arrive_whole_and_in_order() {
        let (mut one, mut other) = pair();
        let sizes = [0, 1, 70_000, FRAME_BYTES_MAX, 3];
        for (at, size) in sizes.iter().enumerate() {
            one.send(&vec![at as u8; *size]).unwrap();
        }
        for (at, size) in sizes.iter().enumerate() {
            let frame = loop {
                if let Some(frame) = other.next().unwrap() {
                    break frame;
                }
                one.wait(Some(Duration::ZERO)).unwrap();
                other.wait(Some(SECOND)).unwrap();
            };
            assert_eq!(frame, vec![at as u8; *size]);
        }
        assert!(one.send(&vec![0; FRAME_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_closed_peer_is_noticed_after_its_last_frame() {
        let (mut one, mut other) = pair();
        one.send(b"last").unwrap();
        drop(one);
        while !other.is_closed() {
            other.wait(Some(SECOND)).unwrap();
        }
        assert_eq!(other.next().unwrap().as_deref(), Some(&b"last"[..]));
        other.send(b"too late").unwrap();
    }

    #[test]
    fn a_peer_that_never_reads_neither_blocks_nor_fills_the_memory() {
        let (mut one, mut other) = pair();
        let mut sent = 0;
        while !one.is_congested() {
            one.send(&[7; 1000]).unwrap();
            sent += 1;
        }
        other.send(b"a request").unwrap();
        one.wait(Some(Duration::ZERO)).unwrap();
        assert_eq!(one.next().unwrap(), None);
        let mut received = 0;
        while received < sent {
            one.wait(Some(Duration::ZERO)).unwrap();
            other.wait(Some(SECOND)).unwrap();
            while other.next().unwrap().is_some() {
                received += 1;
            }
        }
        one.wait(Some(SECOND)).unwrap();
        assert_eq!(one.next().unwrap().as_deref(), Some(&b"a request"[..]));
    }

    #[test]
    fn a_length_that_no_frame_has_is_an_error() {
        let (mut one, mut other) = pair();
        one.stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
        other.wait(Some(SECOND)).unwrap();
        assert_eq!(other.next().unwrap_err().kind(), ErrorKind::InvalidData);
    }

    /// However the bytes are cut, the frames are those in the bytes, up to a length that no frame
    /// has.
    #[test]
    fn stream() {
        type Sent = (Vec<Vec<u8>>, Vec<u8>, Vec<u16>);
        bolero::check!().with_type::<Sent>().for_each(|(sent, junk, cuts)| {
            let (mut one, mut other) = pair();
            let mut bytes = Vec::new();
            for frame in sent.iter().take(8) {
                bytes.extend((frame.len() as u32).to_le_bytes());
                bytes.extend(frame);
            }
            bytes.extend(junk);
            let mut expected = &bytes[..];
            let mut rest = &bytes[..];
            let mut cuts = cuts.iter().take(16).map(|cut| usize::from(*cut));
            while !rest.is_empty() {
                let (piece, after) =
                    rest.split_at(cuts.next().unwrap_or(rest.len()).min(rest.len()));
                one.stream.write_all(piece).unwrap();
                rest = after;
                other.wait(Some(Duration::ZERO)).unwrap();
                loop {
                    match other.next() {
                        Ok(Some(frame)) => {
                            let (length, after) = expected.split_first_chunk().unwrap();
                            assert_eq!(u32::from_le_bytes(*length) as usize, frame.len());
                            assert_eq!(frame, after[..frame.len()]);
                            expected = &after[frame.len()..];
                        }
                        Ok(None) => break,
                        Err(_) => {
                            let length = expected.first_chunk().unwrap();
                            assert!(u32::from_le_bytes(*length) as usize > FRAME_BYTES_MAX);
                            return;
                        }
                    }
                }
            }
            // No complete frame is left.
            if let Some((length, rest)) = expected.split_first_chunk() {
                assert!(u32::from_le_bytes(*length) as usize > rest.len());
            }
        });
    }
}
