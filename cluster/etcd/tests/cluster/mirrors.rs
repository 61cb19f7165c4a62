//! A mirror stays a true copy of the keys through all faults of etcd and the network.

use std::time::Duration;

use weir_etcd::{Key, KeyRange, MirrorEvent, Revision, ShardId};

use crate::bench::{Copy, cluster, options, start, wait, write, write_shard};
use crate::etcd::{Etcd, wait_for};
use crate::proxy::Proxy;

#[test]
fn events_come_in_the_order_of_etcd_without_unknown_keys() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let first = write(&cluster, 1, "a");
    etcd.control(&["put", "/weir/north/shards/x", "?"]);
    etcd.control(&["put", "/weir/south/shards/5", "another cluster"]);
    let mut mirror = cluster.mirror(KeyRange::Shards, None);
    let put = |shard, value: &str, mod_revision| {
        Some(MirrorEvent::Put {
            key: Key::Shard(ShardId(shard)),
            value: value.into(),
            mod_revision,
        })
    };
    assert_eq!(wait(&cluster, "list", mirror.next_event()), put(1, "a", first));
    let complete = wait(&cluster, "list", mirror.next_event());
    let Some(MirrorEvent::SnapshotComplete { position }) = complete else { panic!("{complete:?}") };
    assert_eq!(position.revision, Revision(first.0 + 2));
    let second = write(&cluster, 2, "b");
    let third = write(&cluster, 1, "c");
    etcd.control(&["del", "/weir/north/shards/2"]);
    assert_eq!(wait(&cluster, "event", mirror.next_event()), put(2, "b", second));
    assert_eq!(wait(&cluster, "event", mirror.next_event()), put(1, "c", third));
    let deleted = Some(MirrorEvent::Delete { key: Key::Shard(ShardId(2)) });
    assert_eq!(wait(&cluster, "event", mirror.next_event()), deleted);
    assert_eq!(cluster.counts().unknown_keys_total, 1);
}

/// Returns a mirror that has reported shard 1 = "a".
fn mirror_of(cluster: &weir_etcd::EtcdCluster) -> (weir_etcd::Mirror, Copy) {
    write(cluster, 1, "a");
    let mut mirror = cluster.mirror(KeyRange::All, None);
    let mut copy = Copy::default();
    copy.until(cluster, &mut mirror, "first list", |copy| copy.position.is_some());
    assert!(copy.has(1, "a"));
    (mirror, copy)
}

#[test]
fn a_restarted_etcd_is_listed_again() {
    let mut etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let (mut mirror, mut copy) = mirror_of(&cluster);
    etcd.kill();
    copy.until(&cluster, &mut mirror, "notice", |copy| copy.is_stale);
    etcd.run();
    etcd.control(&["put", "/weir/north/shards/2", "b"]);
    etcd.control(&["del", "/weir/north/shards/1"]);
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(2, "b") && copy.keys.len() == 1);
    assert_eq!(copy.restores, 0);
}

#[test]
fn a_stalled_etcd_makes_the_mirror_stale_until_it_continues() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let (mut mirror, mut copy) = mirror_of(&cluster);
    etcd.pause();
    copy.until(&cluster, &mut mirror, "notice", |copy| copy.is_stale);
    etcd.resume();
    copy.until(&cluster, &mut mirror, "list", |copy| !copy.is_stale);
    write(&cluster, 2, "b");
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(2, "b"));
    assert_eq!(copy.restores, 0);
}

#[test]
fn a_silently_stalled_watch_is_detected_by_its_missing_progress() {
    let etcd = Etcd::start();
    let proxy = Proxy::before(&etcd);
    let (cluster, direct) = (cluster(proxy.endpoint()), cluster(etcd.endpoint()));
    let (mut mirror, mut copy) = mirror_of(&cluster);
    write(&direct, 2, "a");
    copy.until(&cluster, &mut mirror, "running watch", |copy| copy.has(2, "a"));
    proxy.silence();
    write(&direct, 2, "b");
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(2, "b"));
    assert_eq!(cluster.counts().stalls_total, 1);
}

#[test]
fn a_mirror_follows_a_slow_etcd() {
    let etcd = Etcd::start();
    let proxy = Proxy::before(&etcd);
    proxy.delay(Duration::from_millis(60));
    let cluster = cluster(proxy.endpoint());
    let (mut mirror, mut copy) = mirror_of(&cluster);
    for value in ["b", "c", "d"] {
        write(&cluster, 2, value);
    }
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(2, "d"));
    assert_eq!((copy.restores, cluster.counts().stalls_total), (0, 0));
}

#[test]
fn a_full_list_beside_a_good_watch_finds_no_difference() {
    let etcd = Etcd::start();
    let mut options = options(&[etcd.endpoint()]);
    options.list_interval = Duration::from_millis(10);
    let cluster = start(options);
    let (mut mirror, mut copy) = mirror_of(&cluster);
    for round in 0..200 {
        write(&cluster, round % 7, &round.to_string());
        if round % 5 == 0 {
            etcd.control(&["del", &format!("/weir/north/shards/{}", round % 7)]);
        }
    }
    write(&cluster, 99, "last");
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(99, "last"));
    let (_, store) = wait(&cluster, "list", cluster.store().list(KeyRange::All)).unwrap();
    let store = store.into_iter().map(|(key, found)| (key, found.value)).collect();
    assert_eq!(copy.keys, store);
    let counts = cluster.counts();
    assert_eq!((counts.list_differences_total, counts.stalls_total, copy.restores), (0, 0, 0));
}

#[test]
fn an_owner_that_misses_a_compaction_gets_the_whole_state_again() {
    let etcd = Etcd::start();
    let mut options = options(&[etcd.endpoint()]);
    options.queue_len = 1;
    let sleepy = start(options);
    let writer = cluster(etcd.endpoint());
    let (mut mirror, mut copy) = mirror_of(&sleepy);
    // The writes exceed what the connection and etcd's own queue (1,024 events) hold.
    let store = writer.store();
    wait(&writer, "writes", async {
        let tasks: Vec<_> = (0..8)
            .map(|shard| {
                let store = store.clone();
                tokio::spawn(async move {
                    for _ in 0..400 {
                        write_shard(store.clone(), 10 + shard, vec![b'x'; 4096]).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    write(&writer, 2, "last");
    etcd.control(&["compact", &etcd.revision().to_string()]);
    copy.until(&sleepy, &mut mirror, "last value", |copy| copy.has(2, "last"));
    assert_eq!(sleepy.counts().compactions_total, 1);
    assert_eq!((copy.keys.len(), copy.restores), (10, 0));
}

#[test]
fn a_restore_from_an_older_backup_is_reported() {
    let mut etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let (mut mirror, mut copy) = mirror_of(&cluster);
    let backup = etcd.back_up();
    write(&cluster, 1, "later");
    write(&cluster, 2, "later");
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(2, "later"));
    etcd.restore(&backup);
    copy.until(&cluster, &mut mirror, "restore", |copy| copy.restores == 1 && !copy.is_stale);
    copy.until(&cluster, &mut mirror, "old state", |copy| copy.has(1, "a"));
    assert_eq!(copy.keys.len(), 1);
    assert_eq!(cluster.counts().restores_total, 1);
}

#[test]
fn a_restore_is_reported_even_at_a_higher_revision_than_before() {
    let mut etcd = Etcd::start();
    let proxy = Proxy::before(&etcd);
    let cluster = cluster(proxy.endpoint());
    let (mut mirror, mut copy) = mirror_of(&cluster);
    let backup = etcd.back_up();
    write(&cluster, 1, "later");
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(1, "later"));
    proxy.cut();
    let before = etcd.revision();
    etcd.restore(&backup);
    while etcd.revision() <= before {
        etcd.control(&["put", "/weir/north/shards/3", "other"]);
    }
    proxy.mend();
    copy.until(&cluster, &mut mirror, "restore", |copy| copy.restores == 1);
    copy.until(&cluster, &mut mirror, "new state", |copy| copy.has(1, "a") && copy.has(3, "other"));
}

#[test]
fn a_process_that_stored_its_position_detects_a_restore_while_it_was_down() {
    let mut etcd = Etcd::start();
    let first = cluster(etcd.endpoint());
    let backup = etcd.back_up();
    let (mirror, copy) = mirror_of(&first);
    drop(mirror);
    etcd.restore(&backup);
    let second = cluster(etcd.endpoint());
    let mut mirror = second.mirror(KeyRange::All, copy.position);
    let event = wait(&second, "restore", mirror.next_event());
    assert!(matches!(event, Some(MirrorEvent::Restored { .. })), "{event:?}");
}

#[test]
fn a_mirror_ends_when_it_is_dropped() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let (mut mirror, mut copy) = mirror_of(&cluster);
    // The watch is open once it delivers a change.
    etcd.control(&["put", "/weir/north/shards/2", "b"]);
    copy.until(&cluster, &mut mirror, "change", |copy| copy.has(2, "b"));
    let alive = cluster.handle().metrics().num_alive_tasks();
    drop(mirror);
    wait_for("end of the task", || cluster.handle().metrics().num_alive_tasks() < alive);
}
