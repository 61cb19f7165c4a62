//! Tests both listeners over real sockets: an honest client is answered while threads attack.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::subscriber::set_default;
use weir_process::http::{ConnectionRefusal, ListenerLimits, listen};

use super::{metrics_server, routes};
use crate::node::Node;
use crate::request::{Mailbox, WorkerRequest};
use crate::sample_node::{sample_node, session};

/// Longer than any limit here; an answer that takes longer counts as missing.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);
const GET_METRICS: &[u8] =
    b"GET /metrics HTTP/1.1\r\nHost: weir\r\nAccept: application/openmetrics-text\r\n\
    Connection: close\r\n\r\n";

/// The shipped limits, with times that a test can wait for.
const LIMITS: ListenerLimits = ListenerLimits {
    head_timeout: Duration::from_millis(400),
    idle_timeout: Duration::from_millis(400),
    stall_timeout: Duration::from_millis(400),
    ..ListenerLimits::METRICS
};
/// No time runs out: a connection that ends has another reason.
const PATIENT: ListenerLimits = ListenerLimits {
    head_timeout: PATIENCE,
    idle_timeout: PATIENCE,
    stall_timeout: PATIENCE,
    ..ListenerLimits::METRICS
};

/// Both listeners of a node; they and its worker end with the test.
struct Serving {
    node: Arc<Node>,
    metrics: SocketAddr,
    socket: PathBuf,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Serving {
    fn start(limits: ListenerLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("n1.sock");
        let (node, mailbox) = sample_node();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (tcp, unix) = {
            let _context = runtime.enter();
            let tcp = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let tcp = listen(tcp).unwrap();
            (tcp, tokio::net::UnixListener::bind(&socket).unwrap())
        };
        let metrics = tcp.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let worker = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || sessions_without_end(mailbox, &is_over)
        });
        let server = thread::spawn({
            let (is_over, node) = (Arc::clone(&is_over), Arc::clone(&node));
            move || {
                runtime.block_on(async {
                    let of_metrics = metrics_server::server(Arc::clone(&node), limits);
                    tokio::spawn(async move { match of_metrics.serve_tcp(tcp).await {} });
                    let of_admin = routes::server(&node, limits);
                    tokio::spawn(async move { match of_admin.serve_unix(unix).await {} });
                    while !is_over.load(Relaxed) {
                        tokio::time::sleep(LOOK).await;
                    }
                });
            }
        });
        let threads = vec![worker, server];
        Self { node, metrics, socket, is_over, threads, _folder: folder }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.metrics).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn connect_unix(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends some bytes and returns all that the server answers until it closes.
    fn speak(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may refuse and close before it has read all bytes.
        let _ = stream.write_all(bytes);
        text_of(&mut stream)
    }

    fn refused(&self, refusal: ConnectionRefusal) -> u64 {
        self.node.http.metrics.refused(refusal)
    }

    fn assert_honest_clients_are_answered(&self) {
        let answer = self.speak(GET_METRICS);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        let mut stream = self.connect_unix();
        stream.write_all(GET_METRICS).unwrap();
        assert!(text_of(&mut stream).ends_with("# EOF\n"));
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let result = thread.join();
            assert!(result.is_ok() || thread::panicking());
        }
    }
}

fn sessions_without_end(mut mailbox: Mailbox, is_over: &AtomicBool) {
    while !is_over.load(Relaxed) {
        match mailbox.take() {
            Some(WorkerRequest::Sessions { mut page, reply, .. }) => {
                let room = page.sessions.capacity() as u16;
                page.sessions.extend((0..room).map(session));
                page.has_more = true;
                let _ = reply.send(page);
            }
            Some(_) => unreachable!("the tests ask for sessions alone"),
            None => thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// Reads until the server closes the connection, with or without a reset.
fn text_of(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("no end of the connection: {error}"),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait_for(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < end, "no {what}");
        thread::sleep(LOOK);
    }
}

/// Calls `attack` from some threads, over and over, while `defend` runs.
fn under_attack(attack: impl Fn(usize) -> io::Result<()> + Sync, defend: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let begun = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..4 {
            let (attack, is_over, begun) = (&attack, &is_over, &begun);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    // An attacker that is cut off begins again.
                    let _ = attack(number);
                    begun.fetch_add(1, Relaxed);
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("attack", || begun.load(Relaxed) >= 8);
            defend();
        }));
        is_over.store(true, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn slow_heads_are_cut_and_do_not_lock_out_other_clients() {
    let serving = Serving::start(LIMITS);
    let attack = |_| {
        // More connections than may be open.
        let mut streams: Vec<_> =
            (0..48).map(|_| TcpStream::connect(serving.metrics)).collect::<Result<_, _>>()?;
        for byte in b"GET /metrics HTTP/1.1\r\nX: yyyy" {
            streams.iter_mut().for_each(|stream| drop(stream.write_all(&[*byte])));
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    };
    under_attack(attack, || (0..20).for_each(|_| serving.assert_honest_clients_are_answered()));
    assert!(serving.refused(ConnectionRefusal::Displaced) > 0);
    // Without a newer connection, the timeout ends a slow one.
    let mut slow = serving.connect();
    slow.write_all(b"GET /met").unwrap();
    assert_eq!(text_of(&mut slow), "");
    wait_for("count", || serving.refused(ConnectionRefusal::HeadTimeout) > 0);
}

#[test]
fn ten_thousand_connections_do_not_lock_out_other_clients() {
    let serving = Serving::start(PATIENT);
    let opened = AtomicUsize::new(0);
    let attack = |_| {
        let mut held = Vec::new();
        for _ in 0..300 {
            held.push(TcpStream::connect(serving.metrics)?);
            opened.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    under_attack(attack, || {
        while opened.load(Relaxed) < 10_000 {
            serving.assert_honest_clients_are_answered();
        }
    });
    let at_most = LIMITS.connections_per_remote_max as u64;
    wait_for("limit", || serving.node.http.metrics.open() <= at_most);
    // More connections were open at once than may be, so some were displaced.
    assert!(serving.refused(ConnectionRefusal::Displaced) > 0);
    serving.assert_honest_clients_are_answered();
}

#[test]
fn half_closed_connections_and_garbage_do_not_lock_out_other_clients() {
    let serving = Serving::start(LIMITS);
    let attack = |number| {
        let mut stream = TcpStream::connect(serving.metrics)?;
        let bytes: Vec<u8> = (0..600_u32).map(|at| (at * at / (7 + number as u32)) as u8).collect();
        stream.write_all(&bytes)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut silent = TcpStream::connect(serving.metrics)?;
        silent.write_all(b"GET /metrics HTTP/1.1\r\n")?;
        silent.shutdown(std::net::Shutdown::Write)
    };
    under_attack(attack, || (0..50).for_each(|_| serving.assert_honest_clients_are_answered()));
    wait_for("count", || serving.refused(ConnectionRefusal::Malformed) > 0);
    wait_for("end of all connections", || serving.node.http.metrics.open() == 0);
}

#[test]
fn a_reader_that_does_not_read_its_answer_is_cut() {
    let serving = Serving::start(ListenerLimits { idle_timeout: PATIENCE, ..LIMITS });
    let mut slow = serving.connect_unix();
    slow.write_all(b"GET /sessions HTTP/1.1\r\nHost: weir\r\n\r\n").unwrap();
    let numbers = &serving.node.http.admin;
    wait_for("cut", || numbers.refused(ConnectionRefusal::SlowReader) == 1);
    wait_for("end", || numbers.open() == 0);
    // A client that reads gets far more than any buffer holds, for longer than any timeout.
    let mut fast = serving.connect_unix();
    fast.write_all(b"GET /sessions HTTP/1.1\r\nHost: weir\r\n\r\n").unwrap();
    let (began, mut taken, mut buffer) = (Instant::now(), 0, vec![0; 1 << 20]);
    while taken < 32 << 20 || began.elapsed() < 3 * LIMITS.stall_timeout {
        let count = fast.read(&mut buffer).unwrap();
        assert!(count > 0, "cut after {taken} bytes");
        taken += count;
    }
    assert_eq!(numbers.refused(ConnectionRefusal::SlowReader), 1);
}

#[test]
fn a_reader_that_takes_a_byte_now_and_then_is_cut() {
    let serving = Serving::start(LIMITS);
    let mut slow = serving.connect_unix();
    slow.write_all(b"GET /sessions HTTP/1.1\r\nHost: weir\r\n\r\n").unwrap();
    let mut byte = [0];
    wait_for("cut", || {
        let _ = slow.read(&mut byte);
        serving.node.http.admin.refused(ConnectionRefusal::SlowReader) == 1
    });
}

#[test]
fn a_connection_without_a_further_request_is_closed() {
    let serving = Serving::start(LIMITS);
    let mut stream = serving.connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n").unwrap();
    assert!(text_of(&mut stream).starts_with("HTTP/1.1 200 OK"));
    wait_for("count", || serving.refused(ConnectionRefusal::Idle) == 1);
    assert_eq!(serving.refused(ConnectionRefusal::HeadTimeout), 0);
}

#[test]
fn the_preface_of_http_2_is_refused_with_its_code() {
    let serving = Serving::start(PATIENT);
    let answer = serving.speak(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    assert!(answer.starts_with("HTTP/1.1 505 HTTP Version Not Supported\r\n"), "{answer}");
    wait_for("count", || serving.refused(ConnectionRefusal::Http2) == 1);
    assert_eq!(serving.refused(ConnectionRefusal::Malformed), 0);
}

#[test]
fn heads_and_bodies_that_are_too_large_are_refused() {
    let serving = Serving::start(PATIENT);
    let start = |code: &str| format!("HTTP/1.1 {code}");
    let head = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(32 << 10));
    let fields = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(65));
    for bytes in [head, fields] {
        let answer = serving.speak(bytes.as_bytes());
        assert!(answer.starts_with(&start("431")), "{answer}");
    }
    wait_for("count", || serving.refused(ConnectionRefusal::Malformed) == 2);
    // One body declares its size, the other arrives in chunks.
    let length = "GET /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n".to_owned();
    let chunk = format!("1000\r\n{}\r\n", "z".repeat(0x1000));
    let chunks =
        format!("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(8));
    for bytes in [length, chunks] {
        let answer = serving.speak(bytes.as_bytes());
        assert!(answer.starts_with(&start("413")), "{answer}");
    }
    assert_eq!(serving.refused(ConnectionRefusal::BodyTooLarge), 2);
}

#[test]
fn a_body_that_never_comes_ends_by_time() {
    let serving = Serving::start(LIMITS);
    assert_eq!(serving.speak(b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), "");
    wait_for("count", || serving.refused(ConnectionRefusal::HeadTimeout) == 1);
    let answer = serving.speak(b"GET /metrics HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello");
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
}

#[test]
fn a_worker_that_does_not_answer_holds_a_request_for_a_bounded_time() {
    let limits = ListenerLimits { answer_timeout: Duration::from_millis(100), ..PATIENT };
    let (node, _mailbox) = sample_node();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("n1.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = thread::spawn({
        let listener = runtime.block_on(async { tokio::net::UnixListener::bind(&socket).unwrap() });
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let server = routes::server(&node, limits);
        runtime.spawn(async move { match server.serve_unix(listener).await {} });
        move || {
            let request =
                b"GET /subscriber/10.200.0.1 HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n";
            stream.write_all(request).unwrap();
            text_of(&mut stream)
        }
    });
    runtime.block_on(async {
        while !client.is_finished() {
            tokio::time::sleep(LOOK).await;
        }
    });
    let answer = client.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(node.http.admin.refused(ConnectionRefusal::AnswerTimeout), 1);
}

#[test]
fn head_answers_as_get_without_a_body_and_only_changes_are_logged() {
    let (node, mut mailbox) = sample_node();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _logging = set_default(subscriber);
    let is_root = nix::unistd::geteuid().is_root();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("n1.sock");
    let listener = runtime.block_on(async { tokio::net::UnixListener::bind(&socket).unwrap() });
    let server = routes::server(&node, PATIENT);
    runtime.spawn(async move { match server.serve_unix(listener).await {} });
    let mut ask = |method: &str, path: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n");
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let client = thread::spawn(move || text_of(&mut stream));
        runtime.block_on(async {
            while !client.is_finished() {
                if let Some(WorkerRequest::Flush { reply, .. }) = mailbox.take() {
                    let _ = reply.send(1);
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        let answer = client.join().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        // The dates of two answers may differ.
        let head: Vec<_> = head.lines().filter(|line| !line.starts_with("date")).collect();
        (head.join("\n"), body.to_owned())
    };
    for path in ["/shards", "/drops", "/nothing"] {
        let (head, body) = ask("HEAD", path);
        assert_eq!(body, "", "{path}");
        assert_eq!(head, ask("GET", path).0, "{path}");
    }
    assert!(!log.text().contains("admin-change"), "{}", log.text());
    ask("POST", "/subscriber/10.200.0.1/flush");
    assert_eq!(log.text().contains("admin-change"), is_root, "{}", log.text());
}

/// Collects the log output.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
