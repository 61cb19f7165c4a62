//! Floods every channel while no thread reads.

use std::sync::mpsc::channel;

use weir_etcd::Key;
use weir_map::{Epoch, ShardId};
use weir_node_core::{GUARD_EVENTS_MAX, GuardReport};
use weir_replication::{CopyCounts, ReplicationCounters};
use weir_stream::Refusals;

use super::*;

const DEADLINE: Duration = Duration::from_secs(60);

fn drain(receiver: &mut InboxReceiver) -> Vec<Inbox> {
    std::iter::from_fn(|| receiver.try_recv()).collect()
}

fn event(number: u64) -> WorkerEvent {
    WorkerEvent::Granted { shard: ShardId(1), lane: 0, since: Epoch(number) }
}

fn status() -> Box<ReplicationReport> {
    Box::new(ReplicationReport {
        peers: Vec::new(),
        outgoing: CopyCounts::default(),
        lanes_followed: 0,
        lanes_awaited: 0,
        lanes_full: 0,
        counters: ReplicationCounters::default(),
        shards_short: Vec::new(),
        refused: Refusals::default(),
        buffers_used: 0,
        buffers_total: 0,
    })
}

#[test]
fn a_flood_keeps_the_newest_states_and_counts_lost_events() {
    let (sender, mut receiver) = inbox();
    let lost = 7;
    for number in 0..GUARD_EVENTS_MAX + lost {
        let why = number.to_string();
        sender.send_bird(Vec::new()).unwrap();
        sender.send_keys(Err(why.clone())).unwrap();
        sender.send(Notice::Saved(Err(why.clone()))).unwrap();
        sender.send(Notice::Guard(GuardReport::Log { text: why })).unwrap();
    }
    assert_eq!(receiver.lost_total(), lost as u64);
    let newest = (GUARD_EVENTS_MAX + lost - 1).to_string();
    let messages = drain(&mut receiver);
    assert_eq!(messages.len(), 3 + GUARD_EVENTS_MAX, "{messages:?}");
    for message in &messages {
        let is_newest = match message {
            Inbox::Keys(Err(why)) | Inbox::Event(CoreEvent::Saved(Err(why))) => *why == newest,
            Inbox::Bird(_) | Inbox::Event(CoreEvent::Guard(GuardReport::Log { .. })) => true,
            other => panic!("{other:?}"),
        };
        assert!(is_newest, "{message:?}");
    }
}

#[test]
fn worker_without_room_keeps_its_events_and_reports_its_rejoin_later() {
    let (_sender, mut receiver) = inbox();
    let mut worker = receiver.add_worker();
    let mut sent = 0;
    while worker.has_room() {
        worker.send_event(event(sent), None);
        sent += 1;
    }
    assert_eq!((sent, receiver.lost_total()), (WORKER_EVENTS_MAX as u64, 0));
    worker.rejoined(Fence::default(), 10);
    worker.rejoined(Fence::default(), 20);
    assert!(!worker.has_room());
    assert_eq!(receiver.lost_total(), 1, "two stalls are reported as one");
    let epochs = drain(&mut receiver).into_iter().map(|message| match message {
        Inbox::Worker { worker: 0, event: WorkerEvent::Granted { since, .. }, .. } => since.0,
        other => panic!("{other:?}"),
    });
    assert_eq!(epochs.collect::<Vec<_>>(), (0..sent).collect::<Vec<_>>());
    assert!(worker.has_room());
    let messages = drain(&mut receiver);
    assert!(
        matches!(messages[..], [Inbox::Event(CoreEvent::Rejoined { worker: 0, waited: 30, .. })]),
        "{messages:?}"
    );
}

#[test]
fn worker_waits_for_no_lock_that_the_reader_holds() {
    let (_sender, mut receiver) = inbox();
    let mut worker = receiver.add_worker();
    let (shared, report) = (Arc::clone(&receiver.shared), Arc::clone(&worker.report));
    let held = (shared.waiting.lock().unwrap(), report.lock().unwrap());
    assert!(worker.has_room());
    worker.send_event(event(1), None);
    worker.rejoined(Fence::default(), 0);
    assert!(!worker.report(status()), "the reader holds the lock");
    drop(held);
    assert!(worker.report(status()) && worker.report(status()));
    let messages = drain(&mut receiver);
    let [
        Inbox::Worker { .. },
        Inbox::Event(CoreEvent::Rejoined { .. }),
        Inbox::Replication { worker: 0, .. },
    ] = messages[..]
    else {
        panic!("{messages:?}")
    };
}

#[test]
fn mirror_waits_for_room_and_no_event_of_it_is_lost() {
    let (sender, mut receiver) = inbox();
    let events = 3 * ETCD_EVENTS_MAX;
    let (began, has_begun) = channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for id in 0..events {
                if id == ETCD_EVENTS_MAX {
                    began.send(()).unwrap();
                }
                let key = Key::Shard(ShardId(id as u32));
                sender.send_etcd(MirrorEvent::Delete { key }).await.unwrap();
            }
        });
    });
    has_begun.recv_timeout(DEADLINE).unwrap();
    assert_eq!(receiver.etcd.len(), ETCD_EVENTS_MAX);
    assert!(!thread.is_finished());
    for id in 0..events {
        match receiver.recv_timeout(DEADLINE) {
            Some(Inbox::Event(CoreEvent::Mirror(MirrorEvent::Delete {
                key: Key::Shard(next),
            }))) => {
                assert_eq!(next.0 as usize, id);
            }
            other => panic!("{other:?} instead of event {id}"),
        }
    }
    thread.join().unwrap();
}

#[test]
fn a_flood_on_one_channel_holds_up_no_other() {
    let (sender, mut receiver) = inbox();
    let (mut busy, mut quiet) = (receiver.add_worker(), receiver.add_worker());
    while busy.has_room() {
        busy.send_event(event(0), None);
    }
    quiet.send_event(WorkerEvent::ShardAdded(ShardId(9)), Some(ShardIndex(2)));
    sender.send(Notice::End).unwrap();
    let first: Vec<Inbox> = (0..3).filter_map(|_| receiver.try_recv()).collect();
    assert!(first.iter().any(|it| matches!(it, Inbox::Event(CoreEvent::End))), "{first:?}");
    assert!(first.iter().any(|it| matches!(it, Inbox::Worker { worker: 1, .. })), "{first:?}");
}

#[test]
fn a_message_on_any_channel_ends_a_long_wait() {
    let (sender, mut receiver) = inbox();
    let mut worker = receiver.add_worker();
    let (took, taken) = channel();
    let thread = thread::spawn(move || {
        while let Some(message) = receiver.recv_timeout(20 * DEADLINE) {
            let is_end = matches!(message, Inbox::Event(CoreEvent::End));
            took.send(message).unwrap();
            if is_end {
                return;
            }
        }
    });
    let next = || taken.recv_timeout(DEADLINE).expect("the reader was not woken");
    worker.send_event(event(1), None);
    assert!(matches!(next(), Inbox::Worker { .. }));
    worker.rejoined(Fence::default(), 0);
    assert!(matches!(next(), Inbox::Event(CoreEvent::Rejoined { .. })));
    while !worker.report(status()) {}
    assert!(matches!(next(), Inbox::Replication { .. }));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(sender.send_etcd(MirrorEvent::Stale)).unwrap();
    assert!(matches!(next(), Inbox::Event(CoreEvent::Mirror(MirrorEvent::Stale))));
    sender.send(Notice::End).unwrap();
    assert!(matches!(next(), Inbox::Event(CoreEvent::End)));
    thread.join().unwrap();
    assert_eq!(sender.send(Notice::Saved(Ok(()))), Err(Gone));
}
