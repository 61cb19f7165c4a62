//! Lanes: their owners when a worker dies, when lanes move, when a worker comes back, when a writer
//! begins a new lineage.

use weir_map::{Epoch, ShardId};
use weir_nat::BlockEventKind;
use weir_replication::WorkerEvent;

use crate::cluster::{Cluster, no_duties};
use crate::member::{HOMES, SHARD, address};
use crate::network::Faults;
use crate::plan::{LanePlan, Plan};

fn all_done(cluster: &mut Cluster, plan: &Plan) {
    let members = plan.members.clone();
    cluster.run_until("all copies are there", |cluster| {
        members.iter().all(|&member| cluster.is_done(member))
    });
}

/// Opens about `count` flows at all members.
fn open(cluster: &mut Cluster, plan: &Plan, first_port: u16, count: u32) {
    for turn in 0..count {
        for (place, &member) in plan.members.iter().enumerate() {
            cluster.up(member, turn % 60 + 60 * place as u32, first_port + (turn / 60) as u16);
        }
        cluster.step();
    }
}

/// The other worker serves every flow at once as before, then creates in all lanes, and gives no
/// port twice.
#[test]
fn a_dead_workers_flows_and_lanes_are_taken_over() {
    for (seed, faults) in [(11, Faults::NONE), (12, Faults::MANY)] {
        let mut cluster = Cluster::new(2, seed, faults);
        let mut plan = Plan::new(&[0, 1]);
        plan.order(&mut cluster);
        all_done(&mut cluster, &plan);
        open(&mut cluster, &plan, 5_000, 2_000);
        cluster.run(300_000);
        let flows = cluster.given.clone();
        assert_eq!(flows.len(), 4_000);
        cluster.kill(0);
        for flow in flows.values() {
            let home = flow.outer - HOMES;
            assert_eq!(cluster.up(1, home, flow.inside_port), Some(*flow), "the flow is as before");
        }
        // Its own lane has room for some of them, the dead worker's lanes for the others.
        open(&mut cluster, &Plan::new(&[1]), 7_000, 500);
        plan.fence(&mut cluster, 0, 1);
        plan.order(&mut cluster);
        open(&mut cluster, &plan, 8_000, 3_000);
        assert!(cluster.flows(1) > 7_000, "{} flows", cluster.flows(1));
        let lanes = [0_u16, 1].map(|rest| {
            cluster.given.keys().filter(|(_, port)| (port / 64 % 8 == 0) == (rest == 0)).count()
        });
        assert!(
            lanes.iter().all(|&count| count > 500),
            "flows in its own lane and in the others: {lanes:?}"
        );
    }
}

/// Lanes move to and fro under traffic. A grant comes after all that was written; the third member
/// stays complete.
#[test]
fn a_grant_moves_a_lane() {
    for (seed, faults) in [(21, Faults::NONE), (22, Faults::MANY), (23, Faults::MANY)] {
        let mut cluster = Cluster::new(3, seed, faults);
        let mut plan = Plan::new(&[0, 1, 2]);
        plan.order(&mut cluster);
        all_done(&mut cluster, &plan);
        for (round, (lane, to)) in [(4, 1), (5, 2), (4, 2), (0, 0), (4, 0)].into_iter().enumerate()
        {
            let lost = cluster.worker(3 - 1).news.len();
            plan.move_lane(lane, to);
            // The commands come one after the other.
            for &member in &plan.members.clone() {
                plan.order_one(&mut cluster, member);
                open(&mut cluster, &plan, 5_000 + 100 * round as u16, 60);
            }
            cluster.run_until("the lane has moved", |cluster| {
                plan.settle_moves(cluster);
                plan.lanes[lane].from.is_none()
            });
            open(&mut cluster, &plan, 5_050 + 100 * round as u16, 60);
            let lost =
                cluster.worker(2).news[lost..].contains(&WorkerEvent::StreamLost(ShardId(SHARD)));
            assert!(!lost, "a move costs no member its copy");
        }
        cluster.run(500_000);
        all_done(&mut cluster, &plan);
        cluster.check_equal();
        for worker in 0..3 {
            let granted = |news: &&WorkerEvent| matches!(news, WorkerEvent::Granted { .. });
            assert!(cluster.worker(worker).news.iter().filter(granted).count() > 0);
        }
    }
}

/// A worker comes back without records: it is copied to, gets lanes, and continues above the
/// versions written before.
#[test]
fn a_worker_comes_back() {
    for (seed, faults) in [(31, Faults::NONE), (32, Faults::MANY)] {
        let mut cluster = Cluster::new(2, seed, faults);
        let mut plan = Plan::new(&[0, 1]);
        plan.order(&mut cluster);
        open(&mut cluster, &plan, 5_000, 1_000);
        all_done(&mut cluster, &plan);
        cluster.run(200_000);
        for round in 0..3_u16 {
            let (gone, stays) = (usize::from(round % 2), usize::from(1 - round % 2));
            cluster.kill(gone);
            plan.fence(&mut cluster, gone, stays);
            plan.order(&mut cluster);
            open(&mut cluster, &plan, 6_000 + 1_000 * round, 300);
            cluster.start(gone);
            cluster.add_shard(gone);
            plan.members.push(gone);
            plan.order(&mut cluster);
            cluster.run_until("the copy is there", |cluster| cluster.is_done(gone));
            let boot = cluster.boot(gone);
            let met = |news: &WorkerEvent| matches!(news, WorkerEvent::PeerMet { boot: met, .. } if *met == boot);
            assert!(cluster.worker(stays).news.iter().any(met));
            plan.move_lane(3, gone);
            plan.move_lane(6, gone);
            plan.order(&mut cluster);
            cluster.run_until("the lanes are given", |cluster| {
                plan.settle_moves(cluster);
                plan.lanes.iter().all(|lane| lane.from.is_none())
            });
            open(&mut cluster, &plan, 6_500 + 1_000 * round, 300);
            cluster.run(500_000);
            cluster.check_equal();
        }
    }
}

/// The primary relays what it has of a dead worker's lanes, before that worker is fenced.
#[test]
fn frozen_lanes_are_relayed() {
    let mut cluster = Cluster::new(3, 41, Faults::MANY);
    let mut plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    all_done(&mut cluster, &plan);
    open(&mut cluster, &plan, 5_000, 500);
    cluster.run(300_000);
    cluster.kill(0);
    plan.members = vec![1, 2];
    plan.order(&mut cluster);
    open(&mut cluster, &Plan::new(&[1]), 7_000, 100);
    cluster.run_until("the third has it all", |cluster| cluster.is_done(2));
    cluster.run(300_000);
    cluster.check_equal();
    assert!(cluster.flows(2) > 1_000);
    // Then the relay dies, too; the third member has all flows.
    plan.fence(&mut cluster, 0, 1);
    plan.order(&mut cluster);
    open(&mut cluster, &plan, 8_000, 100);
    cluster.run(300_000);
    cluster.kill(1);
    plan.fence(&mut cluster, 1, 2);
    plan.order(&mut cluster);
    open(&mut cluster, &plan, 9_000, 500);
    assert!(cluster.flows(2) > 1_500);
}

/// The only owner of lanes has lost everything and writes again, with lower versions than a copy
/// has. The copy is discarded.
#[test]
fn a_new_lineage_of_the_only_writer_replaces_the_copy() {
    let mut cluster = Cluster::new(2, 51, Faults::MANY);
    let mut plan = Plan::new(&[0, 1]);
    for lane in &mut plan.lanes {
        *lane = LanePlan { owner: 0, from: None, taken: 1 };
    }
    // Each time that lanes are taken, their versions leap.
    for _ in 0..10 {
        let none = no_duties(SHARD);
        cluster.duties(0, none);
        plan.order_one(&mut cluster, 0);
    }
    plan.order(&mut cluster);
    open(&mut cluster, &Plan::new(&[0]), 5_000, 600);
    cluster.run_until("the copy is there", |cluster| cluster.is_done(1));
    let old = cluster.flows(1);
    cluster.kill(0);
    cluster.run(100_000);
    cluster.given.clear();
    cluster.start(0);
    cluster.add_shard(0);
    plan.order_one(&mut cluster, 0);
    open(&mut cluster, &Plan::new(&[0]), 6_000, 50);
    plan.order_one(&mut cluster, 1);
    cluster.run_until("the old one is lost", |cluster| !cluster.is_done(1));
    cluster.run_until("the new one is there", |cluster| cluster.is_done(1));
    open(&mut cluster, &Plan::new(&[0]), 6_100, 50);
    cluster.run(500_000);
    assert!(old > 500 && cluster.flows(1) == 100);
    cluster.check_equal();
    assert_eq!(cluster.worker(1).status().counters.lanes_forgotten_total, 8);
}

/// The last changes of a dead worker have reached one survivor, and the other is its heir: the heir
/// takes its lanes with those changes, before it gives any port.
#[test]
fn flows_known_to_any_survivor_are_kept() {
    for (seed, heir) in [(61, 2), (62, 1)] {
        let other = 3 - heir;
        let mut cluster = Cluster::new(3, seed, Faults::NONE);
        let mut plan = Plan::new(&[0, 1, 2]);
        plan.order(&mut cluster);
        all_done(&mut cluster, &plan);
        open(&mut cluster, &plan, 5_000, 300);
        cluster.run(100_000);
        cluster.network.cut.push((address(0), address(heir)));
        open(&mut cluster, &Plan::new(&[0]), 6_000, 3_000);
        cluster.run(20_000);
        let heard = [heir, other].map(|worker| cluster.flows(worker));
        assert!(heard[0] + 2_000 < heard[1], "{heard:?}");
        cluster.kill(0);
        plan.fence(&mut cluster, 0, heir);
        plan.order(&mut cluster);
        // At once, in the heir's own lane.
        open(&mut cluster, &Plan::new(&[heir]), 7_000, 500);
        cluster.check_unique();
        cluster.run_until("the lanes are taken", |cluster| {
            plan.settle_moves(cluster);
            plan.lanes.iter().all(|lane| lane.from.is_none())
        });
        open(&mut cluster, &Plan::new(&[heir]), 8_000, 4_000);
        cluster.check_unique();
        all_done(&mut cluster, &plan);
        cluster.run(500_000);
        cluster.check_unique();
        cluster.check_equal();
        cluster.check_kept();
        assert_eq!(cluster.worker(heir).status().counters.lanes_forgotten_total, 0);
        assert_eq!(cluster.worker(other).status().counters.lanes_forgotten_total, 0);
    }
}

/// Until the heir writes a lane, the lane is as its giver has it: the giver does not count as a
/// member without a copy.
#[test]
fn a_member_that_gives_a_relayed_lane_keeps_its_copy() {
    let mut cluster = Cluster::new(3, 71, Faults::NONE);
    let mut plan = Plan::new(&[0, 1, 2]);
    plan.order(&mut cluster);
    all_done(&mut cluster, &plan);
    open(&mut cluster, &plan, 5_000, 300);
    cluster.run(100_000);
    cluster.kill(0);
    plan.fence(&mut cluster, 0, 1);
    plan.order_one(&mut cluster, 2);
    let told = cluster.worker(2).news.len();
    // The heir is notified late.
    cluster.run(7_000_000);
    plan.order(&mut cluster);
    cluster.run_until("the lanes are taken", |cluster| {
        plan.settle_moves(cluster);
        plan.lanes.iter().all(|lane| lane.from.is_none())
    });
    cluster.run(7_000_000);
    all_done(&mut cluster, &plan);
    assert!(!cluster.worker(2).news[told..].contains(&WorkerEvent::StreamLost(ShardId(SHARD))));
    cluster.check_equal();
    cluster.check_kept();
}

/// The writer is silent, and its lane is relayed. The writer comes back, and the lane moves twice:
/// to the relay, and on to the member that the relay copied it to. No worker empties the lane
/// meanwhile.
#[test]
fn a_relay_that_takes_its_lane_notifies_its_readers() {
    const LANE: usize = 4;
    for (seed, faults) in [(61, Faults::NONE), (62, Faults::MANY)] {
        let mut cluster = Cluster::new(3, seed, faults);
        let mut plan = Plan::new(&[0, 1]);
        plan.order(&mut cluster);
        all_done(&mut cluster, &plan);
        open(&mut cluster, &plan, 5_000, 300);
        cluster.network.parted.push(address(0));
        plan.unheard = Some(0);
        plan.members.push(2);
        plan.order(&mut cluster);
        cluster.run_until("the third has it all", |cluster| cluster.is_done(2));
        // The giver is heard before all members know that it is.
        cluster.network.parted.clear();
        plan.move_lane(LANE, 1);
        plan.order(&mut cluster);
        for to in [1, 2] {
            cluster.run_until("the lane has moved", |cluster| {
                plan.settle_moves(cluster);
                plan.lanes[LANE].from.is_none()
            });
            open(&mut cluster, &Plan::new(&[to]), 5_500 + 500 * to as u16, 300);
            if to == 1 {
                plan.unheard = None;
                plan.move_lane(LANE, 2);
                plan.order(&mut cluster);
            }
        }
        cluster.run(1_000_000);
        all_done(&mut cluster, &plan);
        cluster.check_equal();
        for worker in 0..3 {
            assert_eq!(cluster.worker(worker).status().counters.lanes_forgotten_total, 0);
        }
    }
}

/// Each ownership of a lane has its epoch in the block log, and names the one that it continues.
#[test]
fn the_block_log_names_the_ownership_that_a_lane_continues() {
    let mut cluster = Cluster::new(2, 91, Faults::NONE);
    let mut plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    all_done(&mut cluster, &plan);
    open(&mut cluster, &plan, 5_000, 120);
    let taken = |cluster: &mut Cluster, worker: usize| {
        let events = std::iter::from_fn(|| {
            cluster.worker(worker).engine().nat_mut().admin_mut().next_event()
        });
        let taken = events.filter_map(|event| match event.kind {
            BlockEventKind::Taken { before } => Some((event.lane, event.epoch, before)),
            _ => None,
        });
        taken.collect::<Vec<_>>()
    };
    let first: Vec<_> = (1..8).map(|lane| (lane, Epoch(1), None)).collect();
    assert_eq!(taken(&mut cluster, 0), first);
    assert_eq!(taken(&mut cluster, 1), [(0, Epoch(1), None)]);

    plan.move_lane(4, 1);
    let moved = Epoch(plan.epoch);
    plan.order(&mut cluster);
    cluster.run_until("the lane has moved", |cluster| {
        plan.settle_moves(cluster);
        plan.lanes[4].from.is_none()
    });
    assert_eq!(taken(&mut cluster, 1), [(4, moved, Some(Epoch(1)))]);
    open(&mut cluster, &plan, 5_100, 120);
    cluster.run(100_000);

    cluster.kill(1);
    plan.fence(&mut cluster, 1, 0);
    plan.order(&mut cluster);
    let now = Epoch(plan.epoch);
    assert_eq!(taken(&mut cluster, 0), [(0, now, Some(Epoch(1))), (4, now, Some(moved))]);
}
