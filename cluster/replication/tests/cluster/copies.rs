//! Copies: complete while traffic flows, asked for when they are missing, restarted when changes
//! were lost.

use weir_map::ShardId;
use weir_replication::{WorkerCommand, WorkerEvent};

use crate::cluster::{Cluster, no_duties};
use crate::member::{SHARD, address, peer_id};
use crate::network::Faults;
use crate::plan::Plan;

/// Two workers, each with its lanes, open flows while they copy to each other.
#[test]
fn copies_are_complete_while_traffic_flows() {
    for (seed, faults) in [(1, Faults::NONE), (2, Faults::MANY), (3, Faults::MANY)] {
        let mut cluster = Cluster::new(2, seed, faults);
        let plan = Plan::new(&[0, 1]);
        // Some flows exist before the copy.
        plan.order_one(&mut cluster, 0);
        for home in 0..50 {
            assert!(cluster.up(0, home, 5_000).is_some());
        }
        plan.order_one(&mut cluster, 1);
        for turn in 0..4_000_u32 {
            let worker = (turn % 2) as usize;
            cluster.up(worker, turn % 100 + 100 * worker as u32, (6_000 + turn / 100) as u16);
            cluster.step();
        }
        cluster.run_until("both have copies", |cluster| (0..2).all(|one| cluster.is_done(one)));
        cluster.run(500_000);
        assert_eq!(cluster.flows(0), 50 + 4_000);
        cluster.check_equal();
    }
}

/// The owner copies before the other worker has the shard: the copy that this worker asks for again
/// is complete.
#[test]
fn a_copy_that_came_too_early_is_asked_for() {
    let mut cluster = Cluster::new(2, 4, Faults::NONE);
    let plan = Plan::new(&[0, 1]);
    cluster.order(1, WorkerCommand::RemoveShard(ShardId(SHARD)));
    plan.order_one(&mut cluster, 0);
    for home in 0..50 {
        assert!(cluster.up(0, home, 5_000).is_some());
    }
    cluster.run(500_000);
    let unknown = cluster.worker(1).status().counters.records_unknown_total;
    assert!(unknown >= 50, "{unknown} records of an unknown shard came");
    cluster.add_shard(1);
    plan.order_one(&mut cluster, 1);
    let asked_us = cluster.now_us;
    cluster.run_until("the copy is there", |cluster| cluster.is_done(1));
    assert!(cluster.now_us - asked_us < 1_000_000);
    cluster.run(100_000);
    cluster.check_equal();
    assert!(cluster.worker(0).status().counters.copies_restarted_total > 0);
}

/// More flows begin than the journal holds before a turn reads it.
#[test]
fn lost_changes_are_copied() {
    let mut cluster = Cluster::new(2, 5, Faults::NONE);
    cluster.make.flows_max = 100_000;
    for worker in 0..2 {
        cluster.start(worker);
        cluster.add_shard(worker);
    }
    Plan::new(&[0, 1]).order(&mut cluster);
    cluster.run_until("both have copies", |cluster| (0..2).all(|one| cluster.is_done(one)));
    for home in 0..200 {
        for port in 0..350 {
            cluster.begin(0, home, 5_000 + port);
        }
    }
    assert!(cluster.given.len() > 66_000, "{}", cluster.given.len());
    cluster.step();
    assert!(cluster.worker(0).status().counters.lanes_lost_total > 0);
    cluster.run_until("the copy is lost", |cluster| !cluster.is_done(1));
    cluster.run_until("the copy is there again", |cluster| cluster.is_done(1));
    cluster.run(2_000_000);
    cluster.check_equal();
}

/// A worker whose tables are too small has no complete copy, and reports so; when there is room it
/// has one.
#[test]
fn a_copy_that_does_not_fit_is_not_done() {
    let mut cluster = Cluster::new(2, 6, Faults::NONE);
    cluster.make.flows_max = 1_000;
    cluster.start(1);
    cluster.add_shard(1);
    let plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    for home in 0..200 {
        for port in 0..10 {
            cluster.up(0, home, 5_000 + port);
        }
    }
    cluster.run(3_000_000);
    assert!(!cluster.is_done(1));
    assert!(cluster.worker(1).status().lanes_full > 0);
    assert!(cluster.is_done(0), "the small worker's lane fits the large worker");
}

/// A removed shard is reported as removed; when it is added again it is copied again.
#[test]
fn a_removed_shard_is_copied_again_when_it_returns() {
    let mut cluster = Cluster::new(2, 7, Faults::MANY);
    let plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    for home in 0..100 {
        cluster.up(0, home, 5_000);
        cluster.up(1, 100 + home, 5_000);
    }
    cluster.run_until("both have copies", |cluster| (0..2).all(|one| cluster.is_done(one)));
    let mut alone = Plan::new(&[0]);
    alone.epoch = 9;
    cluster.order(1, WorkerCommand::RemoveShard(ShardId(SHARD)));
    alone.order(&mut cluster);
    let removed = WorkerEvent::ShardRemoved(ShardId(SHARD));
    cluster.run_until("it is gone", |cluster| cluster.worker(1).news.contains(&removed));
    assert_eq!(cluster.worker(1).engine().nat().admin().gauges().flows, 0);
    cluster.worker(1).news.clear();
    cluster.add_shard(1);
    let mut again = Plan::new(&[0, 1]);
    again.lanes = alone.lanes;
    again.order(&mut cluster);
    cluster.run_until("the copy is there again", |cluster| cluster.is_done(1));
    cluster.run(500_000);
    cluster.check_equal();
}

/// Copies, changes and losses do not allocate: only commands do, and events that are not fetched.
#[test]
fn a_turn_allocates_nothing() {
    let mut cluster = Cluster::new(2, 9, Faults::MANY);
    let plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    cluster.run(100_000);
    (0..2).for_each(|worker| cluster.worker(worker).warm_up());
    cluster.allocations = 0;
    for turn in 0..4_000_u32 {
        cluster.up((turn % 2) as usize, turn % 200, (6_000 + turn / 200) as u16);
        if turn % 1_000 == 999 {
            // The stream falls out of sync: the lanes are copied again.
            cluster.network.parted.push(address(1));
            cluster.run(6_000_000);
            cluster.network.parted.clear();
        }
        cluster.step();
    }
    cluster.run_until("both have copies", |cluster| (0..2).all(|one| cluster.is_done(one)));
    assert_eq!(cluster.allocations, 0);
}

/// Commands that name an unknown peer wait for it.
#[test]
fn orders_wait_for_their_peer() {
    let mut cluster = Cluster::new(2, 8, Faults::NONE);
    for (worker, other) in [(0, 1), (1, 0)] {
        cluster.order(worker, WorkerCommand::RemovePeer(peer_id(other)));
    }
    let plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    cluster.up(0, 1, 5_000);
    cluster.run(500_000);
    assert!(!cluster.is_done(1));
    for (worker, other) in [(0, 1), (1, 0)] {
        let (peer, address) = (peer_id(other), address(other));
        cluster.order(worker, WorkerCommand::AddPeer { peer, address });
    }
    cluster.run_until("both have copies", |cluster| (0..2).all(|one| cluster.is_done(one)));
    cluster.check_equal();
    // Without duties nothing is awaited and nothing goes out.
    for worker in 0..2 {
        cluster.duties(worker, no_duties(SHARD));
    }
    cluster.run(100_000);
    let status = cluster.worker(0).status();
    assert_eq!((status.lanes_awaited, status.outgoing.synced), (0, 0));
}
