//! Many shards: a turn looks at a bounded number of them.

use weir_map::{ShardId, Term};
use weir_replication::WorkerCommand;
use weir_replication::command::ShardDuties;
use weir_stream::StreamOptions;

use crate::cluster::{Cluster, options};
use crate::member::{Make, peer_id, small_setup};
use crate::network::Faults;
use crate::plan::Plan;

/// Each shard takes half a megabyte of records, so there are not more of them.
const SHARDS: u32 = 1_500;

/// Shards that one turn may look at one by one: few enough for some ten microseconds.
const LOOKS_MAX: u64 = 400;

/// Returns a worker's duties for one of the shards.
fn duties(cluster: &mut Cluster, plan: &Plan, worker: usize, shard: u32) -> ShardDuties {
    ShardDuties { shard: ShardId(shard), ..plan.duties(cluster, worker) }
}

fn order_all(cluster: &mut Cluster, plan: &Plan, worker: usize) {
    for shard in 1..=SHARDS {
        let duties = duties(cluster, plan, worker, shard);
        cluster.worker(worker).order(WorkerCommand::Duties(Box::new(duties)));
    }
}

fn start(cluster: &mut Cluster, worker: usize) {
    cluster.start(worker);
    for shard in 1..=SHARDS {
        cluster.order(worker, WorkerCommand::AddShard(Box::new(small_setup(shard))));
    }
}

fn cluster() -> (Cluster, Plan) {
    let mut cluster = Cluster::empty(2, 1, Faults::NONE);
    let (shards_max, copies_max) = (SHARDS as u16, 32 * SHARDS as usize);
    let options = StreamOptions { copies_max, ..options() };
    cluster.make = Make { shards_max, flows_max: 1_000, options, commit: None };
    (0..2).for_each(|worker| start(&mut cluster, worker));
    let plan = Plan::new(&[0, 1]);
    (0..2).for_each(|worker| order_all(&mut cluster, &plan, worker));
    (cluster, plan)
}

fn looked_at(cluster: &mut Cluster, worker: usize) -> u64 {
    cluster.worker(worker).status().counters.shards_looked_at_total
}

/// Runs a turn of both workers, and checks that neither looks at many shards.
fn step(cluster: &mut Cluster) {
    let before = [0, 1].map(|worker| looked_at(cluster, worker));
    cluster.step();
    for (worker, before) in before.into_iter().enumerate() {
        let looks = looked_at(cluster, worker) - before;
        assert!(looks <= LOOKS_MAX, "worker {worker} looks at {looks} shards");
    }
}

/// Runs until a worker follows all lanes that it is to follow. Returns the turns that this took.
fn turns_until_done(cluster: &mut Cluster, worker: usize) -> u64 {
    let began_us = cluster.now_us;
    let awaited = |cluster: &mut Cluster| {
        let status = cluster.worker(worker).status();
        (status.lanes_awaited, status.lanes_followed)
    };
    let lanes = if worker == 0 { 1 } else { 7 };
    let all = SHARDS as usize * lanes;
    while awaited(cluster) != (all, all) {
        step(cluster);
        assert!(cluster.now_us < began_us + 10_000_000, "{:?} of {all}", awaited(cluster));
    }
    (cluster.now_us - began_us) / 250
}

/// Copies of many empty shards, a second of rest, a worker that ends without an answer, and its
/// return.
#[test]
fn no_turn_is_long_with_many_shards() {
    let (mut cluster, plan) = cluster();
    for worker in 0..2 {
        let turns = turns_until_done(&mut cluster, worker);
        // Eight copies for each shard, five in each poll of two workers; and a round of counting.
        assert!(turns < 4 * u64::from(SHARDS), "{turns} turns");
    }
    let before = looked_at(&mut cluster, 0);
    (0..4_000).for_each(|_| step(&mut cluster));
    let looks = looked_at(&mut cluster, 0) - before;
    assert!(looks <= 10_000, "{looks} looks in a second of rest");

    // The announcements reach no peer: they take a part of each turn.
    let boot = cluster.boot(1);
    cluster.kill(1);
    for shard in 1..=SHARDS {
        let announced = Some((Term(2), vec![(peer_id(1), boot)]));
        let duties = ShardDuties { announced, ..duties(&mut cluster, &plan, 0, shard) };
        cluster.worker(0).order(WorkerCommand::Duties(Box::new(duties)));
    }
    for _ in 0..4_000 {
        let before = looked_at(&mut cluster, 0);
        cluster.step();
        let looks = looked_at(&mut cluster, 0) - before;
        assert!(looks <= LOOKS_MAX, "{looks} shards");
    }

    // The first datagram of its next incarnation makes all its former streams void.
    start(&mut cluster, 1);
    (0..400).for_each(|_| step(&mut cluster));
    (0..2).for_each(|worker| order_all(&mut cluster, &plan, worker));
    for worker in 0..2 {
        turns_until_done(&mut cluster, worker);
    }
}
