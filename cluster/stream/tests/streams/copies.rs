//! Copy, falling out of sync, and scrub.

use weir_stream::{
    CopyState, Lane, PeerId, PeerLinkStatus, RecordKind, ShardId, StreamOptions, StreamRecord,
    TurnLoad,
};

use crate::network::{Cluster, Faults, small_options};
use crate::world::Slot;

const SHARD: ShardId = ShardId(3);
const LANE: Lane = Lane::ALL[0];

fn two(options: StreamOptions) -> Cluster {
    Cluster::new(2, 5, Faults { delay_us: 100, ..Faults::default() }, options)
}

fn fill(cluster: &mut Cluster, slots: u32) {
    let slot = |number: u32| Slot { version: 1 + number, body: Some(vec![number as u8; 50]) };
    cluster.nodes[0].world.own.insert((SHARD, LANE), (0..slots).map(slot).collect());
}

fn status(cluster: &Cluster, node: usize, peer: usize) -> PeerLinkStatus {
    let node = &cluster.nodes[node];
    node.endpoint.peer_status(node.peers[peer].unwrap(), cluster.now_us).unwrap()
}

/// An existing table is copied while it changes; the progress rises to the end.
#[test]
fn a_copy_runs_while_traffic_flows() {
    let mut cluster = two(small_options());
    fill(&mut cluster, 20_000);
    cluster.copy(0, 1, SHARD, LANE);
    let id = cluster.nodes[0].copies[0].0;
    let progress = |cluster: &Cluster| cluster.nodes[0].endpoint.copy_status(id).unwrap();
    assert_eq!(progress(&cluster).state, CopyState::Empty);
    let mut done = 0;
    while progress(&cluster).state != CopyState::Synced {
        assert!(cluster.now_us < 20_000_000);
        cluster.change(0, SHARD, LANE, 20_000);
        cluster.step();
        assert!(progress(&cluster).slots_done >= done);
        done = progress(&cluster).slots_done;
        let is_there = cluster.nodes[1].world.finished.contains(&(PeerId(0), SHARD, LANE));
        assert!(progress(&cluster).state != CopyState::Synced || is_there);
    }
    assert_eq!((done, progress(&cluster).slots_total), (20_000, 20_000));
    cluster.settle(1_000_000);
    cluster.check_equal();
}

/// Hastened records go at once, all lanes together; the next ones no sooner than the pace allows,
/// though much sooner than records that are not hastened.
#[test]
fn hastened_records_leave_at_their_pace_all_lanes_together() {
    const PACE_US: u64 = 50;
    let options = StreamOptions { scrub_us: 0, heartbeat_us: 1_000_000, ..small_options() };
    let mut cluster = two(StreamOptions { silence_us: 5_000_000, ..options });
    cluster.run(500_000);
    cluster.step_us = 10;
    let peer = cluster.nodes[0].peers[1].unwrap();
    let send = |cluster: &mut Cluster, slot: u32, pace_us: Option<u64>| {
        let record = StreamRecord {
            kind: RecordKind::OwnerUpdate,
            shard: SHARD,
            slot,
            version: 1,
            body: &[1],
        };
        let now_us = cluster.now_us;
        let endpoint = &mut cluster.nodes[0].endpoint;
        Lane::ALL[..3]
            .iter()
            .for_each(|&lane| endpoint.append_untracked(&[peer], lane, &record, now_us));
        if let Some(pace_us) = pace_us {
            endpoint.hasten(peer, now_us, pace_us);
        }
        let sent = |cluster: &Cluster| status(cluster, 0, 1).counters.datagrams_sent;
        let before = sent(cluster);
        while sent(cluster) == before {
            cluster.step();
        }
        assert_eq!(sent(cluster), before + 3, "all lanes in the same poll");
        cluster.now_us - now_us
    };
    let first_us = send(&mut cluster, 0, Some(PACE_US));
    assert!(first_us <= 20, "{first_us} us");
    let second_us = send(&mut cluster, 1, Some(PACE_US));
    assert!((PACE_US - 20..=PACE_US + 20).contains(&second_us), "{second_us} us");
    let idle_us = send(&mut cluster, 2, None);
    assert!(idle_us >= 200, "{idle_us} us");
}

/// The copy keeps to its rate: 20,000 records of 64 bytes at 1 MB/s take more than a second.
#[test]
fn a_copy_keeps_to_its_rate() {
    let mut cluster = two(StreamOptions { copy_bytes_per_sec: 1_000_000, ..small_options() });
    fill(&mut cluster, 20_000);
    cluster.copy(0, 1, SHARD, LANE);
    let start_us = cluster.now_us;
    cluster.settle(3_000_000);
    let took_us = cluster.now_us - start_us;
    assert!((1_250_000..1_500_000).contains(&took_us), "{took_us} us");
}

/// A worker that takes a full burst in each turn.
const BUSY: TurnLoad = TurnLoad { packets: 64, is_full: true };
const NOT_BUSY: TurnLoad = TurnLoad { packets: 63, is_full: false };

/// Returns how long the copy of 40,000 records of 64 bytes to each of some workers' replica takes.
fn copy_time_us(load: [TurnLoad; 2], senders: usize, step_us: u64) -> u64 {
    let faults = Faults { delay_us: 100, ..Faults::default() };
    let options = StreamOptions { scrub_us: 0, log_datagrams: 1_024, ..small_options() };
    let mut cluster =
        Cluster::new(1 + senders, 5, faults, StreamOptions { buffers: 4_096, ..options });
    cluster.run(200_000);
    cluster.step_us = step_us;
    cluster.nodes[0].load = load[1];
    for sender in 1..=senders {
        let slot = |number: u32| Slot { version: 1 + number, body: Some(vec![number as u8; 50]) };
        let shard = ShardId(sender as u32);
        let slab = (0..40_000 / senders as u32).map(slot).collect();
        cluster.nodes[sender].load = load[0];
        cluster.nodes[sender].world.own.insert((shard, LANE), slab);
    }
    // Both ends know of the load.
    cluster.run(50_000);
    let start_us = cluster.now_us;
    (1..=senders).for_each(|sender| cluster.copy(sender, 0, ShardId(sender as u32), LANE));
    while !cluster.is_synced() {
        cluster.step();
        assert!(cluster.now_us < start_us + 5_000_000, "the copy ends");
    }
    cluster.check_equal();
    cluster.now_us - start_us
}

/// 2.56 MB at 50 MB/s, less the 0.5 MB that were saved up.
#[test]
fn a_copy_between_workers_with_room_keeps_to_the_limit_alone() {
    let took_us = copy_time_us([NOT_BUSY; 2], 1, 50);
    assert!((40_000..52_000).contains(&took_us), "{took_us} us");
}

/// In a turn of 64 packets the sender earns 64 bytes, in 40,000 of these the copy.
#[test]
fn a_copy_of_a_busy_sender_yields_to_packets() {
    let took_us = copy_time_us([BUSY, NOT_BUSY], 1, 10);
    assert!((380_000..410_000).contains(&took_us), "{took_us} us");
}

/// The receiver accepts half a byte per packet: 3.2 MB a second.
#[test]
fn a_copy_to_a_busy_receiver_yields_to_packets() {
    let took_us = copy_time_us([NOT_BUSY, BUSY], 1, 10);
    assert!((760_000..840_000).contains(&took_us), "{took_us} us");
    let took_us = copy_time_us([NOT_BUSY, BUSY], 2, 10);
    assert!((700_000..840_000).contains(&took_us), "{took_us} us from two senders");
}

/// Turns are long and full on both sides: a twentieth of the limit is left.
#[test]
fn a_copy_between_overloaded_workers_ends_at_a_twentieth_of_the_limit() {
    let took_us = copy_time_us([BUSY; 2], 1, 250);
    assert!((950_000..1_100_000).contains(&took_us), "{took_us} us");
}

/// Thousands of empty slabs: several copies begin in each poll, and none waits for another's
/// acknowledgement.
#[test]
fn many_empty_slabs_are_copied_at_once() {
    const SHARDS: u32 = 1_000;
    let options = StreamOptions { copies_max: 8 * SHARDS as usize, scrub_us: 0, ..small_options() };
    let faults = Faults { delay_us: 5_000, ..Faults::default() };
    let mut cluster = Cluster::new(2, 5, faults, options);
    cluster.run(200_000);
    for shard in (0..SHARDS).map(ShardId) {
        Lane::ALL.into_iter().for_each(|lane| cluster.copy(0, 1, shard, lane));
    }
    let start_us = cluster.now_us;
    let is_done = |cluster: &Cluster| cluster.nodes[1].world.finished.len() == 8_000;
    while !is_done(&cluster) {
        assert!(cluster.now_us < start_us + 1_000_000, "8,000 in a second");
        cluster.run(10_000);
    }
    cluster.run(20_000);
    assert!(cluster.is_synced());
    // All of them again, as the peer has a new incarnation.
    cluster.restart(1);
    let start_us = cluster.now_us;
    while !is_done(&cluster) {
        assert!(cluster.now_us < start_us + 1_500_000, "8,000 again in 1.5 s");
        cluster.run(10_000);
    }
}

/// A peer that does not answer holds up no other peer; when it is back it is copied to again,
/// deletes included.
#[test]
fn a_silent_peer_falls_out_of_sync_and_is_copied_to_again() {
    let mut cluster = two(small_options());
    fill(&mut cluster, 1_000);
    cluster.copy(0, 1, SHARD, LANE);
    cluster.settle(2_000_000);
    cluster.network.parted.push((0, 1));
    for _ in 0..20_000 {
        cluster.change(0, SHARD, LANE, 1_000);
    }
    // No slot from 500 on is live any more, and the replica has not been notified.
    for slot in &mut cluster.nodes[0].world.own.get_mut(&(SHARD, LANE)).unwrap()[500..] {
        *slot = Slot { version: slot.version + 1, body: None };
    }
    cluster.run(500_000);
    let before = status(&cluster, 0, 1);
    assert_eq!(before.counters.resyncs, 1);
    assert!(before.silent_ms >= 490);
    assert_eq!(before.lag.records, 0, "records that the copy will bring do not lag");
    assert_eq!(cluster.nodes[0].endpoint.buffers_used().0, 0);
    assert!(!cluster.is_synced());
    cluster.network.parted.clear();
    cluster.settle(3_000_000);
    cluster.check_equal();
    assert_eq!(status(&cluster, 0, 1).boot, before.boot, "the peer was not restarted");
    assert!(status(&cluster, 0, 1).counters.heartbeats_missed >= 40);
}

/// Few changes do not fill a log: after a time the peer is given up anyway, and its buffers are
/// freed.
#[test]
fn a_peer_that_is_silent_for_long_is_given_up() {
    let mut cluster = two(small_options());
    fill(&mut cluster, 100);
    cluster.copy(0, 1, SHARD, LANE);
    cluster.settle(2_000_000);
    cluster.network.parted.push((0, 1));
    (0..20).for_each(|_| cluster.change(0, SHARD, LANE, 100));
    cluster.run(4_000_000);
    assert_eq!(status(&cluster, 0, 1).counters.resyncs, 0);
    assert!(cluster.nodes[0].endpoint.buffers_used().0 > 0);
    cluster.run(2_000_000);
    assert!(status(&cluster, 0, 1).counters.resyncs > 0);
    assert_eq!(cluster.nodes[0].endpoint.buffers_used().0, 0);
    cluster.network.parted.clear();
    cluster.settle(2_000_000);
    cluster.check_equal();
}

/// A silent peer does not cost another peer its stream.
#[test]
fn a_silent_peer_does_not_starve_another() {
    let mut cluster = Cluster::new(
        3,
        9,
        Faults { delay_us: 100, ..Faults::default() },
        StreamOptions { buffers: 160, log_datagrams: 256, scrub_us: 0, ..small_options() },
    );
    for peer in [1, 2] {
        cluster.copy(0, peer, SHARD, LANE);
    }
    cluster.settle(2_000_000);
    cluster.network.parted.push((0, 2));
    for _ in 0..400 {
        (0..10).for_each(|_| cluster.change(0, SHARD, LANE, 1_000));
        cluster.step();
    }
    cluster.run(20_000);
    assert_eq!(status(&cluster, 0, 1).counters.resyncs, 0);
    assert_eq!(status(&cluster, 0, 2).counters.resyncs, 1);
    assert_eq!(status(&cluster, 0, 1).lag.records, 0);
}

/// The sender waits while the replica has no room, then goes on.
#[test]
fn a_sender_waits_for_a_full_sink() {
    let mut cluster = two(StreamOptions { scrub_us: 0, ..small_options() });
    cluster.copy(0, 1, SHARD, LANE);
    cluster.settle(1_000_000);
    cluster.nodes[1].world.is_full = true;
    cluster.run(50_000);
    for _ in 0..300 {
        cluster.change(0, SHARD, LANE, 1_000);
        cluster.step();
    }
    let lag = status(&cluster, 0, 1).lag;
    assert_eq!(lag.records, 300);
    assert!(lag.age_ms >= 70 && lag.bytes > 300 * 22);
    cluster.nodes[1].world.is_full = false;
    cluster.settle(1_000_000);
    cluster.check_equal();
    assert_eq!(status(&cluster, 0, 1).counters.resyncs, 0);
}

/// A byte that changed on the replica, a record that vanished, a surplus one, one far behind the
/// owner's last slot.
#[test]
fn the_scrub_finds_and_repairs_differences() {
    let mut cluster = two(StreamOptions { scrub_us: 2_000, ..small_options() });
    fill(&mut cluster, 5_000);
    cluster.copy(0, 1, SHARD, LANE);
    cluster.settle(2_000_000);
    cluster.run(200_000);
    assert!(status(&cluster, 0, 1).counters.scrubbed_extents > 5);
    assert_eq!(status(&cluster, 0, 1).counters.scrub_differences, 0);
    let original = cluster.nodes[0].world.own[&(SHARD, LANE)].clone();
    let copy = cluster.nodes[1].world.copies.get_mut(&(PeerId(0), SHARD, LANE)).unwrap();
    copy[10].body = None;
    copy[11].body.as_mut().unwrap()[7] ^= 1;
    copy[2_000] = Slot { version: 1, body: Some(vec![9]) };
    copy.resize(9_000, Slot::default());
    copy[8_999] = Slot { version: 1, body: Some(vec![1]) };
    cluster.run(500_000);
    cluster.check_equal();
    assert_eq!(cluster.nodes[0].world.own[&(SHARD, LANE)], original);
    assert_eq!(status(&cluster, 0, 1).counters.scrub_differences, 3);
}

/// Changes on their way are no differences.
#[test]
fn the_scrub_is_not_misled_by_traffic() {
    let faults = Faults { loss_percent: 5, delay_us: 500, jitter_us: 3_000, ..Faults::default() };
    let mut cluster =
        Cluster::new(2, 3, faults, StreamOptions { scrub_us: 2_000, ..small_options() });
    fill(&mut cluster, 2_000);
    cluster.copy(0, 1, SHARD, LANE);
    cluster.settle(2_000_000);
    for _ in 0..4_000 {
        cluster.change(0, SHARD, LANE, 2_000);
        cluster.step();
    }
    let counters = status(&cluster, 0, 1).counters;
    assert!(counters.scrubbed_extents > 15, "{}", counters.scrubbed_extents);
    assert_eq!(counters.scrub_differences, 0);
}

/// A restarted copy brings what no change brought; a stopped copy notifies the replica.
#[test]
fn a_copy_is_restarted_and_stopped() {
    let mut cluster = two(small_options());
    fill(&mut cluster, 2_000);
    cluster.copy(0, 1, SHARD, LANE);
    let id = cluster.nodes[0].copies[0].0;
    let state = |cluster: &Cluster| cluster.nodes[0].endpoint.copy_status(id).unwrap().state;
    for restarts in 0..3 {
        cluster.settle(2_000_000);
        assert_eq!(state(&cluster), CopyState::Synced);
        let slab = cluster.nodes[0].world.own.get_mut(&(SHARD, LANE)).unwrap();
        slab[restarts] = Slot { version: 9_999, body: Some(b"unheard".to_vec()) };
        cluster.nodes[0].endpoint.restart_copy(id);
        cluster.step();
        assert_ne!(state(&cluster), CopyState::Synced);
        // Restarted again at once, while it waits or walks.
        cluster.nodes[0].endpoint.restart_copy(id);
    }
    cluster.settle(2_000_000);
    cluster.check_equal();
    assert_eq!(status(&cluster, 0, 1).counters.resyncs, 0, "the stream went on");
    let now_us = cluster.now_us;
    cluster.nodes[0].endpoint.stop_copy(id, now_us);
    cluster.nodes[0].copies.clear();
    cluster.run(10_000);
    assert_eq!(cluster.nodes[1].world.finished, []);
}
