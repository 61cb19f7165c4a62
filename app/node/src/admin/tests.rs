//! Tests the admin API over a real socket. A thread stands in for the worker and answers the
//! requests in its mailbox.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use weir_admin::api::{
    Flushed, MemberStatus, Problem, RoleStatus, Session, ShardStatus, Status, SubscriberStatus,
    Verdict,
};
use weir_admin::client::{Client, ClientError, query_value};
use weir_admin::{CaptureTally, TracedPacket};
use weir_controller::records::NodeAnswer;
use weir_engine::{Direction, DropReason, FrameCopy, PacketTrace, Side, TracedStep};

use super::{AdminSocket, serve, sessions_route};
use crate::capture::CapturePoint;
use crate::cluster::MemberSnapshot;
use crate::node::Node;
use crate::request::{Mailbox, WorkerRequest};
use crate::sample_node::{sample_node, session, session6, show_homes, show_subscriber};

const SESSIONS: u16 = 2500;

/// A serving node; ends with the test.
struct Serving {
    client: Client,
    is_over: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
    folder: tempfile::TempDir,
    node: Arc<Node>,
}

impl Serving {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.sock");
        let (node, mailbox) = sample_node();
        let socket = AdminSocket::claim(&path, None).unwrap();
        let listener = socket.listener().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let worker = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || answer(mailbox, &is_over)
        });
        let served = Arc::clone(&node);
        std::thread::spawn(move || {
            let _socket = socket;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(serve(listener, served))
        });
        Self { client: Client::new(path), is_over, worker: Some(worker), folder, node }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.worker.take().unwrap().join().unwrap();
    }
}

/// A worker that knows one home with many sessions and sees one frame per turn while it is
/// captured.
fn answer(mut mailbox: Mailbox, is_over: &AtomicBool) {
    let mut captures: Option<Box<CapturePoint>> = None;
    let mut listed = 0;
    while !is_over.load(Ordering::Relaxed) {
        if captures.as_ref().is_some_and(|point| point.is_closed()) {
            captures = None;
        }
        if let Some(point) = &mut captures {
            let at = std::time::Duration::from_secs(1);
            point.copy(Side::Access, Direction::Receive, at, [&[0; 60][..]].into_iter());
        }
        match mailbox.take() {
            None => std::thread::yield_now(),
            Some(WorkerRequest::Sessions { mut page, reply, .. }) => {
                let room = (page.sessions.capacity() as u16).min(SESSIONS - listed);
                page.sessions.extend((listed..listed + room).map(session));
                listed += room;
                page.has_more = listed < SESSIONS;
                reply.send(page).unwrap();
            }
            Some(WorkerRequest::Subscriber { name, mut page, reply }) => {
                show_subscriber(name, &mut page);
                reply.send(page).unwrap();
            }
            Some(WorkerRequest::Homes { mut page, shard, reply }) => {
                show_homes(shard, &mut page);
                reply.send(page).unwrap();
            }
            Some(WorkerRequest::Flush { reply, .. }) => reply.send(12).unwrap(),
            Some(WorkerRequest::Capture { point, reply }) => {
                let is_free = captures.is_none();
                if is_free {
                    captures = Some(point);
                }
                reply.send(is_free).unwrap();
            }
            Some(WorkerRequest::RuleHits { mut counts, reply }) => {
                counts.hits.iter_mut().zip(7..).for_each(|(sum, hits)| *sum += hits);
                reply.send(counts).unwrap();
            }
            Some(WorkerRequest::RuleLog { page, reply }) => reply.send(page).unwrap(),
            Some(WorkerRequest::SwapLive(swap)) => drop(swap.reply.send(swap.settings)),
            Some(WorkerRequest::Trace { mut point, reply }) => {
                while point.filter().is_some() {
                    point.take(sample_trace());
                }
                reply.send(true).unwrap();
            }
        }
    }
}

#[test]
fn status_shards_and_metrics_are_answered_without_the_worker() {
    let serving = Serving::start();
    let status: Status = serving.client.get("/status").unwrap();
    assert_eq!((status.verdict, status.node.as_str()), (Verdict::Down, "n1"));
    assert_eq!(status.reasons[0], "worker 0: access gateway 10.1.0.2 does not answer ARP");
    let shards: Vec<ShardStatus> = serving.client.get("/shards").unwrap();
    assert_eq!((shards[0].shard, shards[0].blocks_free), (7, 60));
    assert_eq!(shards[0].public6, ["2001:db8:7::/48"]);
    assert!(serving.client.get_text("/metrics").unwrap().contains("weir_flows{worker=\"0\"} 3"));
}

#[test]
fn the_status_of_a_member_judges_its_part_in_the_cluster() {
    let serving = Serving::start();
    let alone: Status = serving.client.get("/status").unwrap();
    assert_eq!(alone.membership, None);
    serving.node.member.set(Arc::default()).unwrap();
    let member: Status = serving.client.get("/status").unwrap();
    let membership = member.membership.unwrap();
    assert!(!membership.is_registered);
    assert!(membership.risks[0].starts_with("not registered in etcd"), "{membership:?}");
    assert!(member.reasons.ends_with(&membership.risks), "{:?}", member.reasons);
}

#[test]
fn sessions_come_page_by_page_up_to_the_limit() {
    let serving = Serving::start();
    let mut text = Vec::new();
    let collect = |bytes: &[u8]| {
        text.extend_from_slice(bytes);
        Ok(ControlFlow::Continue(()))
    };
    serving.client.stream("/sessions?limit=2000&subscriber=10.200.0.1", None, collect).unwrap();
    let lines: Vec<Session> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2000);
    assert_eq!(lines[1999].inside.to_string(), "192.168.1.2:1999");
    assert_eq!(lines[0].subscriber.to_string(), "10.200.0.1");
}

/// Returns the lines of an answer.
fn lines(client: &Client, path: &str) -> Vec<serde_json::Value> {
    let mut text = Vec::new();
    let collect = |bytes: &[u8]| {
        text.extend_from_slice(bytes);
        Ok(ControlFlow::Continue(()))
    };
    client.stream(path, None, collect).unwrap();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[test]
fn homes_are_listed_by_shard() {
    let serving = Serving::start();
    let homes = lines(&serving.client, "/subscribers");
    assert_eq!((homes.len(), &homes[0]["subscriber"]), (1, &"10.200.0.1".into()));
    assert_eq!(lines(&serving.client, "/subscribers?shard=7"), homes);
    assert!(lines(&serving.client, "/subscribers?shard=8").is_empty());
}

#[test]
fn sessions_and_subscribers_of_a_member_show_its_shard_role() {
    let serving = Serving::start();
    let sessions = "/sessions?limit=1";
    assert_eq!(lines(&serving.client, sessions)[0].get("role"), None);
    let snapshot = Arc::<MemberSnapshot>::default();
    let role = RoleStatus { shard: 7, role: "synced".into(), ..RoleStatus::default() };
    let status = MemberStatus { shards: vec![role], ..MemberStatus::default() };
    snapshot.show(status, NodeAnswer::default());
    serving.node.member.set(snapshot).unwrap();
    assert_eq!(lines(&serving.client, sessions)[0]["role"], "synced");
    assert_eq!(lines(&serving.client, "/subscribers")[0]["role"], "synced");
    let found: Vec<SubscriberStatus> = serving.client.get("/subscriber/10.200.0.1").unwrap();
    assert_eq!(found[0].role.as_deref(), Some("synced"));
}

#[test]
fn filters_of_sessions_are_understood_or_refused_with_their_name() {
    let serving = Serving::start();
    let all = "/sessions?limit=1&inside=192.168.0.0/16&public=203.0.113.1&remote=1.1.1.1:53&protocol=udp\
               &state=stream&older=1&younger=9";
    assert_eq!(lines(&serving.client, all).len(), 1);
    for filters in [
        "family=6&inside=2001:db8:1000::/48&remote=[2001:db8:9::1]:443",
        "family=4&remote=1.1.1.1",
        "subscriber=2001:db8:1000:100::/56",
        "subscriber=2001:db8:1000:100::7",
    ] {
        let serving = Serving::start();
        assert_eq!(
            lines(&serving.client, &format!("/sessions?limit=1&{filters}")).len(),
            1,
            "{filters}"
        );
    }
    for (query, word) in [
        ("inside=192.168.0.0/33", "inside"),
        ("public=x", "public"),
        ("remote=1.1.1.1:65536", "remote"),
        ("protocol=sctp", "icmp, tcp, udp"),
        ("state=new", "established"),
        ("older=-1", "older"),
        ("family=5", "4, 6"),
        ("subscriber=10.200.0", "2001:db8:1000:100::/56"),
        ("inside=2001:db8::/129", "inside: '2001:db8::/129' is not ADDRESS"),
        ("remote=2001:db8::1:65536", "[ADDRESS]:PORT"),
        ("public=2001:db8::1", "public"),
    ] {
        let refused =
            serving.client.stream(&format!("/sessions?{query}"), None, |_| unreachable!());
        let error = refused.unwrap_err();
        assert!(matches!(error, ClientError::Refused { code: 400, .. }), "{query}: {error:?}");
        assert!(error.to_string().contains(word), "{query}: {error}");
    }
}

#[test]
fn subscribers_are_shown_and_flushed() {
    let serving = Serving::start();
    let found: Vec<SubscriberStatus> = serving.client.get("/subscriber/10.200.0.1").unwrap();
    assert_eq!(found[0].blocks[0].port_last, 1279);
    let limits = &found[0].limits;
    assert_eq!((limits.blocks, limits.flows, limits.sessions), (Some(16), Some(4), None));
    // The user of the test decides: root may flush, any other user is refused.
    let flushed = serving.client.post::<Flushed>("/subscriber/10.200.0.1/flush");
    if nix::unistd::geteuid().is_root() {
        assert_eq!(flushed.unwrap().mappings, 12);
    } else {
        assert!(matches!(flushed, Err(ClientError::Refused { code: 403, .. })));
    }
}

#[test]
fn home_is_named_by_one_of_its_prefixes_and_shown_with_its_claims() {
    let serving = Serving::start();
    let by_address: Vec<SubscriberStatus> = serving.client.get("/subscriber/10.200.0.1").unwrap();
    for name in ["2001:db8:1000:1::/64", "2001:db8:1000:1::7"] {
        let path = format!("/subscriber/{}", query_value(name));
        let found: Vec<SubscriberStatus> = serving.client.get(&path).unwrap();
        assert_eq!(found, by_address, "{name}");
    }
    let [home] = &by_address[..] else { panic!("{by_address:?}") };
    assert_eq!((home.flows, home.flows6, home.claims[0].flows), (4, 1, 1));
    assert_eq!(home.claims[0].prefix.to_string(), "2001:db8:1000:1::/64");
    let unknown = serving.client.get_text("/subscriber/2001:db8:1000::%2F48").unwrap_err();
    let text = unknown.to_string();
    assert!(matches!(unknown, ClientError::Refused { code: 404, .. }), "{text}");
    assert!(text.starts_with("2001:db8:1000::/48 is of no home"), "{text}");
}

/// What a reader of former versions finds stays as it was; an IPv6 flow has no public endpoint.
#[test]
fn session_has_the_fields_of_its_family() {
    let ipv4 = lines(&Serving::start().client, "/sessions?limit=1").remove(0);
    let text = |value: &serde_json::Value, key: &str| value[key].as_str().map(str::to_owned);
    let ends = ["subscriber", "inside", "public", "remote"].map(|key| text(&ipv4, key).unwrap());
    assert_eq!(ends, ["10.200.0.1", "192.168.1.2:0", "203.0.113.1:0", "1.1.1.1:53"]);
    assert_eq!(ipv4["family"], 4);
    let (node, _mailbox) = sample_node();
    let ipv6 = sessions_route::session(0, &session6(9), &node.roles());
    let ipv6 = serde_json::to_value(ipv6).unwrap();
    let ends = ["inside", "public", "remote"].map(|key| text(&ipv6, key));
    let expected = [Some("[2001:db8:1000:1::7]:9"), None, Some("[2001:db8:9::1]:443")];
    assert_eq!(ends, expected.map(|end| end.map(str::to_owned)));
    assert_eq!(ipv6["family"], 6);
}

#[test]
fn wrong_requests_are_refused_with_a_sentence() {
    let serving = Serving::start();
    let cases = [
        ("/subscriber/10.9.9.9", 404),
        ("/subscriber/nobody", 400),
        ("/sessions?public=1.2.3", 400),
        ("/sessions?colour=red", 400),
        ("/capture?filter=prot%2053", 400),
        ("/capture?side=left", 400),
        ("/capture?worker=9", 404),
        ("/trace?worker=9", 404),
        ("/trace?protocol=sctp", 400),
        ("/trace?remote=nowhere", 400),
        ("/sessions?limit=many", 400),
        ("/subscriber/%ff", 400),
        ("/report", 404),
        ("/nothing", 404),
    ];
    for (path, expected) in cases {
        match serving.client.get_text(path) {
            Err(ClientError::Refused { code, error }) => {
                assert_eq!(code, expected, "{path}: {error}");
                // The client's own text for an answer without a sentence.
                assert!(!error.starts_with("the node answered"), "{path}: {error}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    // The code is 403 if the user of the test is not root.
    let posted = serving.client.post::<Problem>("/status");
    assert!(matches!(posted, Err(ClientError::Refused { code: 405 | 403, .. })), "{posted:?}");
    let gone = Client::new(serving.path("gone.sock")).get_text("/status");
    assert!(matches!(gone, Err(ClientError::Connect { .. })));
}

#[test]
fn a_capture_ends_by_count_and_frees_the_worker() {
    let serving = Serving::start();
    for _ in 0..3 {
        let mut tally = CaptureTally::default();
        // The worker notices the end of the last capture in its own time.
        let result = loop {
            let result = serving.client.stream("/capture?count=10", None, |bytes| {
                tally.add(bytes);
                Ok(ControlFlow::Continue(()))
            });
            if !matches!(result, Err(ClientError::Refused { code: 409, .. })) {
                break result;
            }
        };
        result.unwrap();
        assert_eq!(tally.packets(), 10);
    }
}

/// The way of a frame that is too short for its header.
fn sample_trace() -> PacketTrace {
    PacketTrace {
        at_ms: 1,
        side: Side::Access,
        frame: FrameCopy::new(&[0; 10]),
        step: TracedStep::Drop(DropReason::FrameTruncated),
        home: None,
        flow: None,
        before: None,
        after: None,
        is_rule_counted: false,
        dropped: Some(DropReason::FrameTruncated),
        is_held: false,
        outputs: [None; 2],
        outputs_total: 0,
    }
}

#[test]
fn trace_ends_by_count_with_the_steps_of_each_packet() {
    let serving = Serving::start();
    let text = serving.client.get_text("/trace?count=3&seconds=60&subscriber=10.200.0.1").unwrap();
    let packets: Vec<TracedPacket> = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(packets.len(), 3);
    let packet = &packets[0];
    assert_eq!((packet.worker, &*packet.side, &*packet.outcome), (0, "access", "dropped"));
    assert_eq!(packet.drop_reason.as_deref(), Some("frame-truncated"));
    let steps: Vec<&str> = packet.steps.iter().map(|step| &*step.step).collect();
    assert_eq!(steps, ["input", "key", "drop"]);
}
