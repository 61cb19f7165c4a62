//! The collector of the benchmark: it receives IPFIX over TCP on the loopback address and counts
//! the events.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::BenchError;
use super::context::pin;
use super::ipfix_stream::{IpfixStream, Tally};

/// Time between two checks for a connection, and for the end.
const POLL: Duration = Duration::from_millis(10);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// A thread that accepts one connection after the other; dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Collector {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    collected: Mutex<Collected>,
}

/// State of the last connection: where weir is restarted because a port got no link, the previous
/// connection does not count.
#[derive(Debug, Default)]
struct Collected {
    tally: Tally,
    error: Option<String>,
}

impl Collector {
    /// Starts the thread, pinned to `core`, so that it takes no time from the device.
    pub(super) fn start(core: usize) -> Result<Self, BenchError> {
        let failed = |source| BenchError::io("the collector of the benchmark", source);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            pin(core);
            of_thread.accept(&listener);
        });
        Ok(Collector { address, shared, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts of the last connection so far.
    pub(super) fn tally(&self) -> Result<Tally, BenchError> {
        let collected = self.shared.collected();
        match &collected.error {
            None => Ok(collected.tally),
            Some(error) => Err(BenchError::Collector { error: error.clone() }),
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn accept(&self, listener: &TcpListener) {
        while !self.ends() {
            match listener.accept() {
                Ok((connection, _)) => {
                    *self.collected() = Collected::default();
                    if let Err(error) = self.take(connection) {
                        self.collected().error = Some(error.to_string());
                    }
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    /// Reads until the other end closes the connection, or the collector ends.
    fn take(&self, mut connection: TcpStream) -> io::Result<()> {
        connection.set_nonblocking(false)?;
        connection.set_read_timeout(Some(POLL))?;
        let mut stream = IpfixStream::default();
        let mut bytes = vec![0; READ_BYTES];
        while !self.ends() {
            match connection.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => {
                    stream.take(&bytes[..count]).map_err(io::Error::other)?;
                    self.collected().tally = stream.tally();
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A message with one template and one record of it: the begin of a session.
    const MESSAGE: [u8; 33] = [
        0, 10, 0, 33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // header
        0, 2, 0, 12, 1, 0, 0, 1, 0, 230, 0, 1, // template 256: natEvent
        1, 0, 0, 5, 4, // a record
    ];

    fn until(collector: &Collector, is_so: impl Fn(&Result<Tally, BenchError>) -> bool) {
        while !is_so(&collector.tally()) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn each_connection_starts_a_new_count_and_other_bytes_are_an_error() {
        let collector = Collector::start(0).unwrap();
        let mut first = TcpStream::connect(collector.address()).unwrap();
        first.write_all(&MESSAGE).unwrap();
        until(&collector, |tally| tally.as_ref().is_ok_and(|tally| tally.begun == 1));
        drop(first);
        let mut second = TcpStream::connect(collector.address()).unwrap();
        until(&collector, |tally| tally.as_ref().is_ok_and(|&tally| tally == Tally::default()));
        second.write_all(&[0; 16]).unwrap();
        until(&collector, Result::is_err);
        let error = collector.tally().unwrap_err().to_string();
        assert!(error.contains("version 0"), "{error}");
    }
}
