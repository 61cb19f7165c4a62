//! The admin interface of a node as controllers query it, and the parsing of its answers.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weir_controller::ask::HttpReports;
use weir_controller::run::Reports;
use weir_controller::state::{BirdDown, NodeDoubts, NodeReport, NodeTroubles};
use weir_map::{BootId, Epoch, Incarnation, NodeId, ShardEntry, ShardId, Term};

/// Serves every request on every connection with the current bytes of `answer`, until the test's
/// process ends.
pub(crate) fn serve(answer: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || respond(stream.unwrap(), &*answer));
        }
    });
    address
}

fn respond(mut stream: TcpStream, answer: &dyn Fn() -> Vec<u8>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    assert_eq!(first, "GET /report HTTP/1.1");
    lines.find(|line| line.as_ref().is_ok_and(String::is_empty));
    // The client may have closed the connection meanwhile.
    let _ = stream.write_all(&answer());
}

/// A complete response with this body.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn ask(admin: Option<SocketAddr>) -> Option<NodeReport> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = NodeId::new("n1").unwrap();
    let ask = async {
        tokio::time::timeout(Duration::from_secs(20), HttpReports.ask(&node, admin)).await
    };
    runtime.block_on(ask).expect("the question ends within its time-out")
}

fn answered(bytes: Vec<u8>) -> Option<NodeReport> {
    ask(Some(serve(move || bytes.clone())))
}

#[test]
fn a_report_is_parsed_with_all_its_fields() {
    let worker = |node: &str| {
        format!(r#"{{"shard":9,"worker":"{node}/1","boot_id":"{:032x}","term":4,"new":1}}"#, 77)
    };
    let (own, foreign) = (worker("n1"), worker("n2"));
    let acting = Incarnation { worker: "n1/1".parse().unwrap(), boot_id: BootId(77) };
    let held = ShardEntry::create(acting.clone());
    let entry = held.to_json();
    let body = format!(
        r#"{{"node":"n1","hears":{{"n2":true,"n3":false}},"loads":{{"9":1000,"12":0}},"broken":[1],"bird_down":[{{"side":"internet","cause":"no-session"}},{{"side":"access","cause":"later"}},{{"side":"third","cause":"no-answer"}}],"acting":[{foreign},{own}],"new":{{}},"doubts":[{{"shard":7,"known":5}},{{"shard":9,"known":3,"entry":{entry}}}],"doubts_total":2,"is_still":true,"troubles":["epochs are not kept"]}}"#
    );
    let node = |name: &str| NodeId::new(name).unwrap();
    let doubts = [(ShardId(7), (Epoch(5), None)), (ShardId(9), (Epoch(3), Some(held)))];
    let report = NodeReport {
        node: node("n1"),
        hears: [(node("n2"), true), (node("n3"), false)].into(),
        loads: vec![(ShardId(9), 1000), (ShardId(12), 0)],
        broken: vec![1],
        // An unknown cause of a later version counts, an unknown side does not.
        bird_down: ["access later", "internet no-session"]
            .map(|it| {
                it.split_once(' ').and_then(|(side, cause)| BirdDown::new(side, cause)).unwrap()
            })
            .into(),
        // A node reports only its own workers.
        acting: vec![(ShardId(9), acting, Term(4))],
        doubts: NodeDoubts { shards: doubts.into(), are_all: true },
        generation: None,
        troubles: NodeTroubles { is_still: true, why: vec!["epochs are not kept".into()] },
    };
    assert_eq!(answered(ok(&body)), Some(report));
    let silent = answered(ok(r#"{"node":"n1"}"#)).unwrap();
    assert_eq!((silent.hears.len(), silent.loads.len(), silent.acting.len()), (0, 0, 0));
    assert_eq!(silent.doubts, NodeDoubts::default(), "a missing list is incomplete");
    let unreadable =
        ok(r#"{"node":"n1","doubts":[{"shard":9,"known":3,"entry":{}}],"doubts_total":1}"#);
    assert_eq!(answered(unreadable).unwrap().doubts, NodeDoubts::default());
}

#[test]
fn an_answer_that_is_not_the_nodes_own_report_is_rejected() {
    assert_eq!(ask(None), None, "the record names no address");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(ask(Some(nobody)), None);
    for bytes in [
        ok(r#"{"node":"n2","hears":{"n1":false}}"#),
        ok(r#"{"node":"n1","hears":{"a/b":true}}"#),
        ok(r#"{"hears":{}}"#),
        ok("{"),
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 13\r\n\r\n{\"node\":\"n1\"}".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"node\":\"n1\"}".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        Vec::new(),
    ] {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(answered(bytes), None, "{text}");
    }
}

#[test]
fn an_answer_that_is_too_long_is_rejected() {
    let mut bytes = b"HTTP/1.1 200 OK\r\n\r\n{\"node\":\"n1\"}".to_vec();
    assert!(answered(bytes.clone()).is_some(), "a body may end with its connection");
    bytes.resize(5 << 20, b' ');
    assert_eq!(answered(bytes), None);
}
