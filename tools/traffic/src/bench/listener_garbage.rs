//! Connections to weir's listeners beside a flood: random bytes on each, or alternatively valid
//! requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::context::pin;
use crate::permutation;

/// Time between two connections. weir's answering threads share their core with the generator, so
/// few connections take 1 % of it.
const EVERY: Duration = Duration::from_millis(20);
/// Longest time that an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(100);
const GARBAGE_LEN: usize = 2048;
const REQUEST: &[u8] = b"GET /none HTTP/1.0\r\nHost: weir\r\n\r\n";

/// A thread that connects repeatedly; dropping it ends the thread.
#[derive(Debug)]
pub(super) struct ListenerGarbage {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ListenerGarbage {
    /// Starts the thread, pinned to `core`, so that it takes no time from the device. `is_sound`:
    /// valid requests instead of garbage.
    pub(super) fn start(admin: &Path, metrics: SocketAddr, core: usize, is_sound: bool) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (admin, its_ends) = (admin.to_owned(), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            pin(core);
            connect(&admin, metrics, is_sound, &its_ends);
        });
        ListenerGarbage { ends, thread: Some(thread) }
    }
}

impl Drop for ListenerGarbage {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn connect(admin: &PathBuf, metrics: SocketAddr, is_sound: bool, ends: &AtomicBool) {
    let mut random = 1;
    while !ends.load(Ordering::Relaxed) {
        let garbage = garbage(&mut random);
        let bytes = if is_sound { REQUEST } else { &garbage };
        // A listener may refuse or reset the connection.
        let _ = TcpStream::connect_timeout(&metrics, PATIENCE).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            write(stream, bytes)
        });
        let _ = UnixStream::connect(admin).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            write(stream, bytes)
        });
        thread::sleep(EVERY);
    }
}

/// Returns random bytes that contain an empty line, so that they look like the end of a request.
fn garbage(random: &mut u64) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..GARBAGE_LEN / 8).flat_map(|_| permutation::next(random).to_le_bytes()).collect();
    let at = permutation::next(random) as usize % (bytes.len() - 4);
    bytes[at..at + 4].copy_from_slice(b"\r\n\r\n");
    bytes
}

fn write(mut stream: impl Read + Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    let mut answer = [0; 512];
    while stream.read(&mut answer)? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Returns the bytes of the first connection to each listener.
    fn received(is_sound: bool) -> [Vec<u8>; 2] {
        let folder = tempfile::tempdir().unwrap();
        let admin = folder.path().join("admin.sock");
        let unix = UnixListener::bind(&admin).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let _garbage = ListenerGarbage::start(&admin, tcp.local_addr().unwrap(), 0, is_sound);
        let mut first = vec![0; REQUEST.len()];
        tcp.accept().unwrap().0.read_exact(&mut first).unwrap();
        let mut second = vec![0; REQUEST.len()];
        unix.accept().unwrap().0.read_exact(&mut second).unwrap();
        [first, second]
    }

    #[test]
    fn both_listeners_get_garbage_or_sound_requests() {
        assert_eq!(received(true), [REQUEST, REQUEST]);
        for bytes in received(false) {
            assert_ne!(bytes, REQUEST);
        }
    }

    #[test]
    fn garbage_differs_each_time_and_has_an_empty_line() {
        let mut random = 7;
        let (first, second) = (garbage(&mut random), garbage(&mut random));
        assert_ne!(first, second);
        assert!(first.windows(4).any(|bytes| bytes == b"\r\n\r\n"));
    }
}
