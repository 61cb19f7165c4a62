//! A TCP proxy in front of etcd: the faulty network of a test.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::etcd::Etcd;

struct Line {
    streams: [TcpStream; 2],
    /// Drops all data.
    is_hole: AtomicBool,
    /// Drops all data from etcd.
    has_no_answers: AtomicBool,
}

#[derive(Default)]
struct Shared {
    lines: Mutex<Vec<Arc<Line>>>,
    delay_ms: AtomicU64,
    is_cut: AtomicBool,
    is_hole: AtomicBool,
    is_ended: AtomicBool,
}

pub(crate) struct Proxy {
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
}

impl Proxy {
    /// Starts a proxy in front of `etcd`.
    pub(crate) fn before(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind((etcd.address(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let target = format!("{}:{}", etcd.address(), etcd.port());
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_ended.load(Relaxed) {
                    return;
                }
                if accepting.is_cut.load(Relaxed) {
                    continue;
                }
                if let Ok(other) = TcpStream::connect(&target) {
                    join(&accepting, stream, other);
                }
            }
        });
        Self { shared, address }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Delays each piece of data by this time, in both directions.
    pub(crate) fn delay(&self, delay: Duration) {
        self.shared.delay_ms.store(delay.as_millis() as u64, Relaxed);
    }

    /// Ends every connection, and accepts none until [`mend`](Self::mend).
    pub(crate) fn cut(&self) {
        self.shared.is_cut.store(true, Relaxed);
        for line in self.shared.lines.lock().unwrap().drain(..) {
            line.close();
        }
    }

    pub(crate) fn mend(&self) {
        self.shared.is_cut.store(false, Relaxed);
        self.shared.is_hole.store(false, Relaxed);
    }

    /// Silences the current connections, which stay open; new ones work.
    pub(crate) fn silence(&self) {
        for line in self.shared.lines.lock().unwrap().iter() {
            line.is_hole.store(true, Relaxed);
        }
    }

    /// Drops the answers on the current connections, while requests arrive; new ones work.
    pub(crate) fn swallow_answers(&self) {
        for line in self.shared.lines.lock().unwrap().iter() {
            line.has_no_answers.store(true, Relaxed);
        }
    }

    /// Silences all connections; new ones work only after [`mend`](Self::mend).
    pub(crate) fn silence_all(&self) {
        self.shared.is_hole.store(true, Relaxed);
        self.silence();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.shared.is_ended.store(true, Relaxed);
        // This connection wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Line {
    fn close(&self) {
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn join(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) {
    let line = Arc::new(Line {
        streams: [client.try_clone().unwrap(), server.try_clone().unwrap()],
        is_hole: AtomicBool::new(shared.is_hole.load(Relaxed)),
        has_no_answers: AtomicBool::new(false),
    });
    shared.lines.lock().unwrap().push(Arc::clone(&line));
    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
    for (is_answer, (from, to)) in [(false, (client, server)), (true, back)] {
        let (shared, line) = (Arc::clone(shared), Arc::clone(&line));
        thread::spawn(move || carry(&shared, &line, is_answer, from, to));
    }
}

fn carry(shared: &Shared, line: &Line, is_answer: bool, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16384];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if line.is_hole.load(Relaxed) || is_answer && line.has_no_answers.load(Relaxed) {
            continue;
        }
        // The delay is the fault itself, not a wait for a condition.
        thread::sleep(Duration::from_millis(shared.delay_ms.load(Relaxed)));
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    line.close();
}
