//! HELLO: one round trip, restarts, keys that change, configurations that differ.

use weir_stream::{
    ClusterKeys, DatagramRefusal, Fingerprint, FingerprintPart, Lane, PeerLinkStatus, ShardId,
    StreamOptions,
};

use crate::network::{Cluster, Faults, keys, small_options};

const SHARD: ShardId = ShardId(1);
const OTHER_SHARD: ShardId = ShardId(2);
const LANE: Lane = Lane::ALL[0];

fn two(delay_us: u64) -> Cluster {
    Cluster::new(2, 13, Faults { delay_us, ..Faults::default() }, small_options())
}

fn status(cluster: &Cluster, node: usize) -> PeerLinkStatus {
    let node = &cluster.nodes[node];
    let peer = node.peers.iter().flatten().next().unwrap();
    node.endpoint.peer_status(*peer, cluster.now_us).unwrap()
}

fn keys_of(digits: &[&str]) -> ClusterKeys {
    let lines: Vec<String> = digits.iter().map(|digit| digit.repeat(64)).collect();
    ClusterKeys::parse(&lines.join("\n")).unwrap()
}

#[test]
fn a_session_takes_one_round_trip() {
    let mut cluster = two(10_000);
    let start_us = cluster.now_us;
    while !(status(&cluster, 0).version.is_some() && status(&cluster, 1).version.is_some()) {
        assert!(cluster.now_us < start_us + 22_000, "a session takes two ways and a few turns");
        cluster.step();
    }
    assert_eq!(status(&cluster, 0).boot, Some(cluster.nodes[1].boot));
    assert_eq!(status(&cluster, 1).boot, Some(cluster.nodes[0].boot));
}

/// Loss of nearly every HELLO delays the session and does not prevent it.
#[test]
fn a_session_is_set_up_on_a_bad_network() {
    for seed in 0..20 {
        let faults =
            Faults { loss_percent: 60, repeat_percent: 30, delay_us: 500, jitter_us: 9_000 };
        let mut cluster = Cluster::new(2, seed, faults, small_options());
        while !(status(&cluster, 0).version.is_some() && status(&cluster, 1).version.is_some()) {
            assert!(cluster.now_us < 10_000_000);
            cluster.step();
        }
    }
}

/// A new boot id: the streams of the old incarnation are void in both directions, and the copy
/// starts again for the new one.
#[test]
fn a_restarted_peer_starts_with_nothing() {
    let mut cluster = two(200);
    cluster.copy(0, 1, SHARD, LANE);
    (0..50).for_each(|_| cluster.change(0, SHARD, LANE, 100));
    cluster.settle(1_000_000);
    cluster.restart(1);
    cluster.settle(1_000_000);
    cluster.check_equal();
    assert_eq!(status(&cluster, 0).counters.restarts, 1);
    assert_eq!(status(&cluster, 0).boot, Some(cluster.nodes[1].boot));
    cluster.restart(0);
    cluster.run(300_000);
    assert_eq!(status(&cluster, 1).counters.restarts, 1);
    assert!(cluster.nodes[1].world.resets >= 2, "the sink was notified");
}

/// A ticket for a peer that was removed is void, though the peer has come back at the same index.
#[test]
fn a_ticket_of_a_peer_that_was_removed_is_void() {
    let mut cluster = two(200);
    cluster.copy(0, 1, SHARD, LANE);
    (0..50).for_each(|_| cluster.change(0, SHARD, LANE, 100));
    cluster.settle(1_000_000);
    cluster.change(0, SHARD, LANE, 100);
    let ticket = cluster.nodes[0].tickets.last().expect("a change has one").0;
    let is_on_its_way = |cluster: &Cluster| {
        let node = &cluster.nodes[0];
        let peer = node.peers[1].expect("another worker");
        (node.endpoint.is_on_its_way(&ticket, peer), node.endpoint.is_void(&ticket))
    };
    assert_eq!(is_on_its_way(&cluster), (true, false));
    cluster.add_anew(0, 1);
    while !cluster.is_synced() {
        assert_eq!(is_on_its_way(&cluster), (false, true));
        cluster.step();
    }
    assert_eq!(is_on_its_way(&cluster), (false, true));
}

/// Streams of a peer that was removed and added again restart at both ends. Otherwise the other end
/// would take them for its old ones, refuse each datagram as of an earlier epoch, and never get a
/// copy (simulator seed 66).
#[test]
fn a_peer_that_was_added_again_starts_with_nothing() {
    let mut cluster = two(200);
    cluster.copy(0, 1, SHARD, LANE);
    cluster.copy(1, 0, OTHER_SHARD, LANE);
    for round in 0..3 {
        (0..50).for_each(|_| cluster.change(0, SHARD, LANE, 100));
        (0..50).for_each(|_| cluster.change(1, OTHER_SHARD, LANE, 100));
        cluster.settle(1_000_000);
        cluster.check_equal();
        cluster.add_anew(round % 2, 1 - round % 2);
    }
    cluster.settle(1_000_000);
    cluster.check_equal();
    assert_eq!(status(&cluster, 0).counters.restarts, 0, "no worker has a new incarnation");
}

/// A copy ordered for one incarnation of a peer does not go to another.
#[test]
fn a_copy_goes_only_to_the_ordered_incarnation() {
    let mut cluster = two(200);
    cluster.copy(0, 1, SHARD, LANE);
    cluster.settle(1_000_000);
    let replacement = cluster.boot_with(1, Fingerprint::default(), keys());
    cluster.nodes[1] = replacement;
    cluster.run(500_000);
    assert!(status(&cluster, 0).version.is_some() && !cluster.is_synced());
}

#[test]
fn a_different_configuration_is_refused_by_name() {
    for part in FingerprintPart::ALL {
        let mut cluster = two(200);
        let other = Fingerprint::default().with(part, 77);
        cluster.nodes[1] = cluster.boot_with(1, other, keys());
        cluster.run(200_000);
        for node in 0..2 {
            let status = status(&cluster, node);
            assert_eq!((status.version.is_some(), status.difference), (false, Some(part)));
            assert!(status.counters.refused.of(DatagramRefusal::Fingerprint) > 0);
        }
        cluster.nodes[1] = cluster.boot_with(1, Fingerprint::default(), keys());
        cluster.run(200_000);
        assert_eq!(status(&cluster, 0).difference, None);
        assert!(status(&cluster, 0).version.is_some());
    }
}

#[test]
fn a_different_key_is_a_bad_mac() {
    let mut cluster = two(200);
    cluster.nodes[1] = cluster.boot_with(1, Fingerprint::default(), keys_of(&["7"]));
    cluster.run(300_000);
    for node in 0..2 {
        assert!(status(&cluster, node).version.is_none());
        assert!(status(&cluster, node).counters.refused.of(DatagramRefusal::BadMac) > 0);
    }
}

/// Both keys on every worker, then the new one first, then the old one removed, worker after
/// worker: no stream falls out of sync.
#[test]
fn keys_change_without_a_pause() {
    let (old, new) = ("5a".repeat(32), "c3".repeat(32));
    let both =
        |first: &str, second: &str| ClusterKeys::parse(&format!("{first}\n{second}")).unwrap();
    let mut cluster = two(200);
    cluster.copy(0, 1, SHARD, LANE);
    cluster.settle(1_000_000);
    let alone = ClusterKeys::parse(&new).unwrap();
    for keys in [both(&old, &new), both(&new, &old), alone] {
        for node in 0..2 {
            let now_us = cluster.now_us;
            cluster.nodes[node].endpoint.set_keys(keys.clone(), now_us);
            for _ in 0..400 {
                cluster.change(0, SHARD, LANE, 500);
                cluster.step();
            }
        }
    }
    cluster.settle(1_000_000);
    cluster.check_equal();
    for node in 0..2 {
        let counters = status(&cluster, node).counters;
        assert_eq!((counters.resyncs, counters.restarts), (0, 0));
        assert!(counters.sessions >= 2, "a new session uses the new key");
        assert_eq!(counters.heartbeats_missed, 0);
    }
}

/// A worker that signs and does not encrypt understands one that does.
#[test]
fn encryption_is_each_senders_choice() {
    let mut cluster = Cluster::new(
        2,
        17,
        Faults::default(),
        StreamOptions { is_encrypted: false, ..small_options() },
    );
    cluster.options.is_encrypted = true;
    cluster.restart(1);
    cluster.network.recorder = Some(Vec::new());
    cluster.copy(0, 1, SHARD, LANE);
    cluster.copy(1, 0, SHARD, LANE);
    for _ in 0..50 {
        cluster.change(0, SHARD, LANE, 100);
        cluster.change(1, SHARD, LANE, 100);
        cluster.step();
    }
    cluster.settle(1_000_000);
    cluster.check_equal();
    let sent = cluster.network.recorder.take().unwrap();
    let records = |kind: u8, from| sent.iter().any(|sent| sent.0 == from && sent.2[3] == kind);
    assert!(records(0x02, 0) && records(0x82, 1) && !records(0x82, 0) && !records(0x02, 1));
}
