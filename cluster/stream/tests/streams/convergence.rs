//! Whatever the network does: in the end copies are equal, and acknowledged records are at the
//! replica.

use std::collections::BTreeSet;

use bolero::check;
use weir_stream::{Lane, ShardId, VERSION_MAX, VERSION_MIN};

use crate::network::{Cluster, Faults, Random, small_options};

fn faults(random: &mut Random) -> Faults {
    Faults {
        loss_percent: [0, 1, 10, 40][random.below(4) as usize],
        repeat_percent: [0, 1, 20][random.below(3) as usize],
        delay_us: random.below(3_000),
        jitter_us: [0, 500, 10_000][random.below(3) as usize],
    }
}

/// Runs two or three workers, each the owner of some slabs, through a random history; half of the
/// histories are upgrades.
fn history(seed: u64) -> Cluster {
    let mut random = Random(seed);
    let workers = 2 + random.below(2) as usize;
    let mut options = small_options();
    if !seed.is_multiple_of(2) {
        options.versions = VERSION_MIN..=VERSION_MAX - 1;
    }
    let mut cluster = Cluster::new(workers, random.next(), faults(&mut random), options);
    let lane = Lane::ALL[0];
    for owner in 0..workers {
        for shard in 0..=random.below(2) as u32 {
            cluster.copy(owner, (owner + 1) % workers, ShardId(shard), lane);
        }
    }
    for _ in 0..60 {
        let event = random.below(40);
        let (a, b) = (random.below(workers as u64) as usize, random.below(workers as u64) as usize);
        match event {
            0 => cluster.restart(a),
            1 | 2 if a != b => cluster.network.parted.push((a, b)),
            3..=6 => cluster.network.parted.clear(),
            7 => cluster.network.faults = faults(&mut random),
            8 => cluster.nodes[a].world.is_full ^= true,
            _ => {}
        }
        for _ in 0..random.below(200) {
            let shard = ShardId(random.below(2) as u32);
            cluster.change(a, shard, lane, 1500);
        }
        for _ in 0..1 + random.below(20) {
            cluster.step();
        }
    }
    cluster
}

#[test]
fn copies_are_equal_in_the_end() {
    check!().with_type::<u64>().for_each(|&seed| {
        let mut cluster = history(seed);
        cluster.network.parted.clear();
        cluster.network.faults.loss_percent = cluster.network.faults.loss_percent.min(10);
        cluster.nodes.iter_mut().for_each(|node| node.world.is_full = false);
        cluster.settle(60_000_000);
        cluster.check_equal();
        // No buffer is in use when everything is acknowledged.
        cluster.network.faults = Faults::default();
        let is_empty = |cluster: &Cluster| {
            cluster.nodes.iter().all(|node| node.endpoint.buffers_used().0 == 0)
        };
        for _ in 0..100_000 {
            if is_empty(&cluster) {
                return;
            }
            cluster.step();
        }
        panic!("buffers are never all free");
    });
}

/// Checks the histories themselves: they would show nothing of an upgrade otherwise.
#[test]
fn histories_of_upgrades_have_sessions_of_both_versions() {
    let mut spoken = BTreeSet::new();
    for seed in [1, 3, 5, 7, 9, 11] {
        let cluster = history(seed);
        for node in &cluster.nodes {
            let statuses = node.peers.iter().flatten();
            let statuses = statuses.filter_map(|&it| node.endpoint.peer_status(it, cluster.now_us));
            spoken.extend(statuses.filter_map(|status| status.version));
        }
    }
    assert!(spoken.contains(&VERSION_MAX) && spoken.contains(&(VERSION_MAX - 1)), "{spoken:?}");
}

/// The same seed gives the same history: nothing depends on a clock or on the order of a hash
/// table.
#[test]
fn a_seed_repeats_itself() {
    let state = |seed| {
        let cluster = history(seed);
        let counters = |node: &crate::network::Node| {
            let peer = node.peers.iter().flatten().next().unwrap();
            node.endpoint.peer_status(*peer, cluster.now_us).unwrap().counters
        };
        cluster.nodes.iter().map(counters).collect::<Vec<_>>()
    };
    for seed in 0..5 {
        assert_eq!(state(seed), state(seed));
    }
}

/// On a good network every record is acknowledged, and none is sent twice.
#[test]
fn a_good_network_repeats_nothing() {
    let mut cluster =
        Cluster::new(2, 7, Faults { delay_us: 300, ..Faults::default() }, small_options());
    let (shard, lane) = (ShardId(1), Lane::ALL[0]);
    cluster.copy(0, 1, shard, lane);
    cluster.settle(1_000_000);
    for _ in 0..500 {
        cluster.change(0, shard, lane, 1000);
        cluster.step();
    }
    cluster.settle(1_000_000);
    cluster.check_equal();
    assert!(cluster.acknowledged >= 500);
    let status = cluster.nodes[0]
        .endpoint
        .peer_status(cluster.nodes[0].peers[1].unwrap(), cluster.now_us)
        .unwrap();
    assert_eq!((status.counters.retransmissions, status.counters.resyncs), (0, 0));
    assert_eq!((status.counters.refused.total(), status.counters.heartbeats_missed), (0, 0));
    assert!((550..1_200).contains(&status.round_trip_us), "{} us", status.round_trip_us);
    assert!(status.silent_ms <= 11);
}

/// On a lossy link datagrams are sent again until they arrive, and nothing is copied again.
#[test]
fn loss_alone_does_not_cost_a_copy() {
    let faults = Faults { loss_percent: 20, repeat_percent: 10, delay_us: 200, jitter_us: 2_000 };
    let mut cluster = Cluster::new(2, 11, faults, small_options());
    let (shard, lane) = (ShardId(1), Lane::ALL[0]);
    cluster.copy(0, 1, shard, lane);
    cluster.settle(5_000_000);
    for _ in 0..2_000 {
        cluster.change(0, shard, lane, 1000);
        cluster.step();
    }
    cluster.settle(5_000_000);
    cluster.check_equal();
    let now_us = cluster.now_us;
    let counters = |node: usize, peer: usize| {
        let node = &cluster.nodes[node];
        node.endpoint.peer_status(node.peers[peer].unwrap(), now_us).unwrap().counters
    };
    assert!(counters(0, 1).retransmissions > 0);
    assert_eq!(counters(0, 1).resyncs, 0);
    assert!(
        counters(1, 0).gaps > 0
            && counters(1, 0).refused.of(weir_stream::DatagramRefusal::Replayed) > 0
    );
}
