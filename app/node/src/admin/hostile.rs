//! Fuzzes the admin API: arbitrary bytes on a connection, and requests made of valid pieces.

mod pieces;
mod wire;

use std::time::Duration;

use bolero::check;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request as HttpRequest, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;
use weir_admin::HomeName;
use weir_admin::api::{
    DropCount, Flushed, Problem, Session, ShardStatus, Status, SubscriberStatus,
};

use crate::sample_node::HOME;
use pieces::{Asked, Part, put};
use wire::Server;

/// Scheduler turns after which the server has nothing left to do.
const TURNS: usize = 24;
/// An answer that takes longer counts as missing.
const PATIENCE: Duration = Duration::from_secs(20);

/// Each request gets the answer it asked for, or a problem that names the fault.
#[test]
fn request() {
    let server = Server::start();
    check!().with_type::<Asked>().for_each(|asked| {
        server.runtime.block_on(async {
            let exchange = tokio::time::timeout(PATIENCE, exchange(&server, asked));
            exchange.await.expect("the server answers in time");
        });
    });
}

async fn exchange(server: &Server, asked: &Asked) {
    let (path, (query, pairs)) = (asked.path(), asked.query());
    let request = HttpRequest::builder()
        .method(asked.method())
        .uri(format!("{path}{query}"))
        .header(header::HOST, "weir")
        .body(Full::new(Bytes::copy_from_slice(&asked.body)));
    // No HTTP client sends an invalid URI; the fuzz target `connection` may send its bytes.
    let Ok(request) = request else { return };
    let stream = TokioIo::new(server.connect(asked.uid()));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.expect("the server answers every request");
    let (code, method) = (response.status().as_u16(), asked.method());
    assert!([200, 400, 403, 404, 405].contains(&code), "{code} to {method} {path}{query}");
    if code != 200 {
        let problem = problem(response, method == "HEAD").await;
        if let Some(error) = problem.filter(|_| code == 400) {
            let is_of_path = path.starts_with("/subscriber/");
            let names = |(key, value): &(&str, String)| {
                error.contains(key) || !value.is_empty() && error.contains(value)
            };
            assert!(is_of_path || pairs.iter().any(names), "{error}: {path}{query}");
        }
    } else {
        assert!(asked.is_root || method == "GET" || method == "HEAD", "{method} {path}");
        if method != "HEAD" {
            check_answer(&path, response).await;
        }
    }
    // The server notices the abort in its own time; a capture ends by it.
    connection.abort();
}

/// Returns the error text of a refusal; `None` where the method forbids a body.
async fn problem(response: Response<Incoming>, is_head: bool) -> Option<String> {
    let kind = response.headers().get(header::CONTENT_TYPE).cloned();
    assert_eq!(kind.expect("a refusal has a content type"), "application/json");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    if is_head {
        assert!(body.is_empty());
        return None;
    }
    let problem: Problem = serde_json::from_slice(&body).expect("a problem");
    assert!(!problem.error.is_empty());
    Some(problem.error)
}

/// Checks that the commands can parse the answer.
async fn check_answer(path: &str, response: Response<Incoming>) {
    if path == "/capture" {
        return;
    }
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    match path {
        "/status" => drop(serde_json::from_slice::<Status>(&body).expect(path)),
        "/shards" => drop(serde_json::from_slice::<Vec<ShardStatus>>(&body).expect(path)),
        "/drops" => drop(serde_json::from_slice::<Vec<DropCount>>(&body).expect(path)),
        "/metrics" => assert!(body.starts_with(b"# HELP weir_build")),
        "/sessions" => {
            for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                serde_json::from_slice::<Session>(line).expect(path);
            }
        }
        "/trace" => assert!(body.is_empty(), "the worker has no packets"),
        "/subscribers" => {
            for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                serde_json::from_slice::<SubscriberStatus>(line).expect(path);
            }
        }
        _ if path.ends_with("/flush") => {
            assert_eq!(serde_json::from_slice::<Flushed>(&body).expect(path).mappings, 1);
        }
        _ => {
            assert!(path.starts_with("/subscriber/"), "{path}");
            let found: Vec<SubscriberStatus> = serde_json::from_slice(&body).expect(path);
            assert_eq!(found[0].subscriber, HomeName::Ipv4(HOME.into()));
        }
    }
}

/// Whatever bytes come over a connection, the answer is HTTP and no failure of the server, the
/// connection ends when the other end closes it, and the next connection is served.
#[test]
fn connection() {
    let server = Server::start();
    check!().with_type::<(Vec<Part>, Vec<(u16, u8)>, bool)>().for_each(
        |(parts, edits, is_root)| {
            let mut bytes = Vec::new();
            parts.iter().take(6).for_each(|part| put(&mut bytes, part));
            for (at, value) in edits.iter().take(4) {
                let at = usize::from(*at) % bytes.len().max(1);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = *value);
            }
            server.runtime.block_on(async {
                let uid = if *is_root { 0 } else { 1000 };
                let answer = tokio::time::timeout(PATIENCE, speak(&server, uid, &bytes));
                let answer = answer.await.expect("the connection ends in time");
                answers(&answer, bytes.windows(12).any(|part| part == b"PRI * HTTP/2"));
                if parts.len().is_multiple_of(4) {
                    let next = b"GET /shards HTTP/1.1\r\nHost: x\r\n\r\n";
                    let next = speak(&server, 0, next).await;
                    assert!(next.starts_with(b"HTTP/1.1 200 OK\r\n"));
                }
            });
        },
    );
}

/// Sends the bytes and returns what the server answers until it has nothing more to do.
async fn speak(server: &Server, uid: u32, bytes: &[u8]) -> Vec<u8> {
    let mut stream = server.connect(uid);
    // The server may refuse and close before it has read all bytes.
    let _ = stream.write_all(bytes).await;
    turns().await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    // A capture ends when its reader disconnects. If more requests wait behind it, the server does
    // not always see that this end has stopped writing.
    if bytes.windows(8).any(|part| part == b"/capture") {
        tokio::select! {
            biased;
            _ = stream.read_to_end(&mut answer) => {}
            () = turns() => {}
        }
    } else {
        let _ = stream.read_to_end(&mut answer).await;
    }
    answer
}

/// Lets the other tasks run.
async fn turns() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}

/// Checks that the first answer is HTTP, and so is each answer that follows one of known length.
/// The last of several may be cut off, since the other end has closed the connection.
fn answers(mut bytes: &[u8], is_http2: bool) {
    let mut is_first = true;
    while !bytes.is_empty() {
        let Some(head) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else {
            assert!(!is_first, "{}", String::from_utf8_lossy(bytes));
            return;
        };
        let text = std::str::from_utf8(&bytes[..head]).expect("a head of text");
        let code = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
        let code: u16 = code.and_then(|code| code.parse().ok()).expect(text);
        assert!((100..500).contains(&code) || is_http2 && code == 505, "{text}");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let Some(length) = length.and_then(|length| length.parse::<usize>().ok()) else { return };
        bytes = bytes.get(head + 4 + length..).unwrap_or_default();
        // An answer to HEAD has a length and no body.
        if !bytes.starts_with(b"HTTP/1.") {
            return;
        }
        is_first = false;
    }
}
