//! The operator's orders: fences, drains, a rebalance, a freeze, the retirement of shards.

use weir_controller::records::{Control, ControllerState, OrderAuthor};
use weir_controller::state::ControllerOptions;

use super::{lose, options, whats, world};
use crate::fleet::World;

#[test]
fn a_fence_gives_the_lanes_of_a_dead_node_to_the_survivors() {
    let mut world = world(3, 9);
    lose(&mut world, 0);
    world.turns(20_000);
    assert!(world.held(0) > 0, "its lanes are frozen until it is fenced");
    world.fence(0);
    world.turns(20_000);
    assert_eq!(world.held(0), 0);
    assert!(world.entries().iter().all(|(_, entry)| !entry.is_moving()));
    assert_eq!(world.intent(0).fence, None, "the order is done");
    assert!(whats(&world).contains(&"the fence is done".to_owned()));
}

#[test]
fn a_fence_of_a_node_that_still_runs_is_the_first_note() {
    let mut world = world(4, 9);
    world.nodes[0].is_cut = true;
    world.expire(0);
    world.turns(2_000);
    // The node still runs: only this test may stop it here.
    world.nodes[0].is_up = false;
    world.fence(0);
    world.nodes[0].is_up = true;
    world.register(0);
    world.turns(20_000);
    assert!(world.report().notes[0].starts_with("n0 was fenced, but it runs"));
}

#[test]
fn a_drain_empties_the_node_at_its_pace_and_an_undrain_fills_it() {
    let mut world = world(4, 40);
    world.drain(2, false);
    let held = world.held(2);
    world.turns(30_000);
    assert!(world.held(2) < held && world.held(2) > 0);
    let report = world.report();
    let node = report.nodes.iter().find(|node| node.node == "n2").unwrap();
    assert_eq!((node.is_drained, node.shards), (true, world.held(2)));
    assert_eq!(node.waits, "at most 10 moves begin in a minute");
    world.settle();
    assert_eq!(world.held(2), 0);
    world.undrain(2);
    world.settle();
    assert!(world.held(2) >= held - 4, "{} of {held}", world.held(2));
}

#[test]
fn a_drain_that_would_leave_single_copies_waits_unless_it_is_forced() {
    let mut world = world(2, 6);
    world.drain(0, false);
    world.turns(60_000);
    assert_eq!(world.held(0), 6);
    let waits = world.report().nodes[0].waits.clone();
    assert!(waits.contains("2 copies on as many nodes, and 1 would be left"), "{waits}");
    world.drain(0, true);
    world.settle();
    assert_eq!(world.held(0), 0);
    world.drain(1, true);
    world.turns(60_000);
    assert_eq!(world.held(1), 6, "the last node is never emptied");
}

#[test]
fn the_older_of_two_drains_goes_first() {
    let mut world = world(3, 9);
    world.drain(1, false);
    world.ms += 1;
    world.drain(0, false);
    world.settle();
    assert_eq!(world.held(1), 0);
    assert!(world.held(0) > 0);
}

#[test]
fn a_rebalance_does_not_wait_and_ends_by_itself() {
    let mut world =
        World::new(3, 30, 1, ControllerOptions { balance_wait_ms: 3_600_000, ..options() });
    world.elect(0);
    world.turns(60_000);
    world.add_node();
    world.turns(60_000);
    assert_eq!(world.held(3), 0);
    let order = OrderAuthor { by: "ann".into(), at_ms: 0 };
    world.set_control(&Control { rebalance: Some(order), ..Control::default() });
    world.turns(600_000);
    assert!(world.held(3) >= 12, "{}", world.held(3));
    assert_eq!(world.control().rebalance, None);
}

#[test]
fn only_consequences_of_failures_are_written_while_frozen() {
    let mut world = world(4, 20);
    world.freeze(true);
    world.drain(3, false);
    lose(&mut world, 0);
    world.turns(120_000);
    let lost = |world: &World| {
        let entries = world.entries();
        entries.iter().filter(|(_, it)| it.members().len() == 2).count()
    };
    assert_eq!(lost(&world), 20, "no copy begins");
    assert!(whats(&world).iter().any(|what| what.contains("becomes primary")));
    let report = world.report();
    assert_eq!((report.state, report.why.as_str()), (ControllerState::Frozen, "frozen by ann"));
    assert!(report.unprotected > 0);
    world.freeze(false);
    world.turns(60_000);
    assert_eq!(world.report().unprotected, 0);
}

#[test]
fn a_shard_that_is_not_desired_stays_until_it_is_retired() {
    let mut world = world(3, 5);
    world.desire(1..=4, 1);
    world.turns(120_000);
    assert_eq!(world.entries().len(), 5);
    // A shard that is still desired stays, even if it is to be retired.
    world.set_control(&Control { retire: vec![4, 5], ..Control::default() });
    world.turns(10_000);
    let left: Vec<u32> = world.entries().into_iter().map(|(id, _)| id).collect();
    assert_eq!((left, world.control().retire), (vec![1, 2, 3, 4], vec![]));
}
