use std::time::Duration;

use super::*;
use crate::revision::{HistoryPosition, LeaseId, Revision};

const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a link to two endpoints, which begins with the first.
fn link(now: Instant) -> EtcdLink<u32> {
    let endpoints = vec!["http://a".to_owned(), "http://b".to_owned()];
    let options = EtcdOptions::new("north".parse().unwrap(), endpoints, 2);
    EtcdLink::new(options, Contact::new(now))
}

fn found() -> Result<EtcdAnswer, RequestFailure> {
    let position = HistoryPosition { cluster_id: 1, revision: Revision(1), raft_term: 2 };
    Ok(EtcdAnswer::Range { position, found: Vec::new(), has_more: false })
}

fn broken() -> RequestFailure {
    RequestFailure::Failed { cause: Cause::Unreachable, detail: "refused".to_owned() }
}

/// Takes the order to connect: the id of its probe, and its endpoint.
fn connect(link: &mut EtcdLink<u32>) -> (RequestId, usize) {
    match link.next_order() {
        Some(TransportOrder::Connect { id, endpoint, .. }) => (id, endpoint),
        other => panic!("{other:?}"),
    }
}

fn asked(link: &mut EtcdLink<u32>) -> RequestId {
    match link.next_order() {
        Some(TransportOrder::Ask { id, .. }) => id,
        other => panic!("{other:?}"),
    }
}

fn connected(link: &mut EtcdLink<u32>, now: Instant) -> usize {
    let (id, endpoint) = connect(link);
    link.event(now, TransportEvent::Answered { request: id, answer: found() });
    endpoint
}

fn error(link: &mut EtcdLink<u32>) -> (u32, Error) {
    match link.next_done() {
        Some(CompletedRequest { tag, got: Err(Failed::Etcd(error)) }) => (tag, error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_wait_for_one_connection_and_share_it() {
    let now = Instant::now();
    let mut link = link(now);
    link.ask(now, 1, EtcdRequest::get("/x"));
    link.ask(now, 2, EtcdRequest::KeepAlive(LeaseId(1)));
    assert_eq!(connected(&mut link, now), 0);
    let (first, second) = (asked(&mut link), asked(&mut link));
    link.event(
        now,
        TransportEvent::Answered { request: second, answer: Err(RequestFailure::NoSuchLease) },
    );
    link.event(now, TransportEvent::Answered { request: first, answer: found() });
    let done: Vec<_> = std::iter::from_fn(|| link.next_done()).collect();
    assert!(
        matches!(
            &done[..],
            [
                CompletedRequest { tag: 2, got: Err(Failed::NoSuchLease) },
                CompletedRequest { tag: 1, got: Ok(Got::Answer(EtcdAnswer::Range { .. })) },
            ]
        ),
        "{done:?}"
    );
    assert_eq!((link.next_order(), link.deadline()), (None, None));
    assert_eq!(link.contact().last_error(), None);
}

#[test]
fn requests_fail_at_once_until_the_next_member_is_tried() {
    let now = Instant::now();
    let mut link = link(now);
    link.ask(now, 1, EtcdRequest::get("/x"));
    let (id, endpoint) = connect(&mut link);
    assert_eq!(endpoint, 0);
    link.event(now, TransportEvent::Answered { request: id, answer: Err(broken()) });
    link.ask(now, 2, EtcdRequest::Grant { ttl_sec: 9 });
    for (tag, operation) in [(1, "get /x"), (2, "grant a lease")] {
        let (of, error) = error(&mut link);
        assert_eq!(
            (of, error.operation.as_str(), error.cause),
            (tag, operation, Cause::Unreachable)
        );
        assert!(!error.may_have_happened && error.endpoint == "http://a", "{error}");
    }
    assert_eq!(link.next_order(), None, "no connection is tried during the wait");
    link.ask(now + link.options.retry_max, 3, EtcdRequest::get("/x"));
    assert_eq!(connect(&mut link).1, 1);
}

#[test]
fn a_request_without_an_answer_is_given_up_with_its_connection() {
    let now = Instant::now();
    let mut link = link(now);
    link.ask(now, 1, EtcdRequest::get("/x"));
    connected(&mut link, now);
    let late = asked(&mut link);
    assert_eq!(link.deadline(), Some(now + TIMEOUT));
    link.tick(now + TIMEOUT);
    assert_eq!(link.next_order(), Some(TransportOrder::Forget(late)));
    let (_, error) = error(&mut link);
    assert!(error.cause == Cause::Timeout && error.may_have_happened, "{error}");
    assert_eq!(link.contact().last_error(), Some(error));
    // The late answer is dropped, and the next request uses the next endpoint.
    link.event(now + TIMEOUT, TransportEvent::Answered { request: late, answer: found() });
    assert!(link.next_done().is_none());
    link.ask(now + TIMEOUT, 2, EtcdRequest::get("/x"));
    assert_eq!(connected(&mut link, now + TIMEOUT), 1);
}

#[test]
fn a_connection_attempt_may_take_half_the_time_of_a_request() {
    let now = Instant::now();
    let mut link = link(now);
    link.ask(now, 1, EtcdRequest::get("/x"));
    let (probe, _) = connect(&mut link);
    assert_eq!(link.deadline(), Some(now + TIMEOUT / 2));
    link.tick(now + TIMEOUT / 2);
    assert_eq!(link.next_order(), Some(TransportOrder::Forget(probe)));
    let (_, error) = error(&mut link);
    assert!(error.cause == Cause::Timeout && !error.may_have_happened, "{error}");
}

#[test]
fn events_of_a_watch_are_returned_once_it_is_open() {
    let now = Instant::now();
    let mut link = link(now);
    link.ask(now, 1, EtcdRequest::Watch { prefix: "/x/".into(), from: Revision(3) });
    connected(&mut link, now);
    let watch = asked(&mut link);
    assert_eq!(
        link.event(now, TransportEvent::Watched { watch, event: WatchEvent::Created }),
        None
    );
    let Some(CompletedRequest { got: Ok(Got::Opened { watch: opened, generation }), .. }) =
        link.next_done()
    else {
        panic!("the watch is not open")
    };
    assert_eq!(opened, watch);
    let event = link.event(now, TransportEvent::Watched { watch, event: WatchEvent::Progress });
    assert_eq!(event, Some((watch, WatchEvent::Progress)));
    link.distrust(generation);
    link.ask(now, 2, EtcdRequest::get("/x"));
    assert_eq!(connect(&mut link).1, 1);
}
