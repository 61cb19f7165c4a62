//! Workers that no node reaches: the faults that are distinguished, and the moves that follow.

use weir_controller::records::ControllerState;
use weir_controller::state::ControllerOptions;
use weir_map::MemberState;

use super::{life, options, whats, world};
use crate::fleet::World;

/// Takes the node's access side down: neither its homes nor other nodes reach it.
fn cut_off(world: &mut World, node: usize, is_cut_off: bool) {
    world.nodes[node].is_unreachable = is_cut_off;
    world.nodes[node].is_deaf = is_cut_off;
    world.nodes[node].broken = if is_cut_off { vec![0, 1] } else { Vec::new() };
}

/// Returns the lowest number, over all shards, of synced members on other nodes than this one.
fn fewest_copies_beside(world: &World, node: usize) -> usize {
    let node = format!("n{node}");
    let copies = world.entries().into_iter().map(|(_, entry)| {
        let others = entry.members().iter().filter(|member| {
            let is_synced = member.state == MemberState::Synced;
            is_synced && member.incarnation.worker.node.as_str() != node
        });
        others.count()
    });
    copies.min().expect("the map has shards")
}

#[test]
fn a_cut_off_node_has_its_copies_replaced_and_keeps_its_lanes() {
    let mut world = world(4, 20);
    cut_off(&mut world, 1, true);
    world.turns(2_000);
    assert_eq!(fewest_copies_beside(&world, 1), 1, "a short fault moves nothing");
    world.turns(20_000);
    assert_eq!((fewest_copies_beside(&world, 1), world.primaries(1)), (2, 0));
    assert!(world.held(1) > 0, "its lanes wait until it is back");
    let (life_now, why) = life(&world, 1);
    assert_eq!(life_now, "cut-off");
    assert!(why.starts_with("worker 0 is cut off: one of its sides is down"), "{why}");
    assert_eq!(world.report().unprotected, 0);
    assert!(whats(&world).contains(&"worker 1 is cut off".to_owned()));

    cut_off(&mut world, 1, false);
    world.settle();
    assert!(whats(&world).contains(&"worker 1 is back".to_owned()));
    let report = world.report();
    assert_eq!((report.state, report.whole), (ControllerState::Resting, 20));
    assert!(world.entries().iter().all(|(_, entry)| !entry.is_moving()));
}

#[test]
fn a_node_that_no_peer_hears_is_cut_off_and_a_deaf_one_is_not() {
    let mut world = world(4, 20);
    let before = world.entries();
    world.nodes[1].is_deaf = true;
    world.turns(20_000);
    assert_eq!(world.entries(), before);
    world.nodes[1].is_deaf = false;
    world.nodes[1].is_unreachable = true;
    world.turns(20_000);
    assert_eq!(fewest_copies_beside(&world, 1), 2);
    let (_, why) = life(&world, 1);
    assert!(why.contains("no node that replicates with it hears it"), "{why}");
}

#[test]
fn two_nodes_that_do_not_hear_each_other_are_not_cut_off() {
    let mut world = world(2, 8);
    let before = world.entries();
    world.nodes[0].is_deaf = true;
    world.nodes[1].is_deaf = true;
    world.turns(60_000);
    assert_eq!(world.entries(), before);
}

#[test]
fn both_copies_stay_when_one_of_two_nodes_is_cut_off() {
    let mut world = world(2, 8);
    cut_off(&mut world, 1, true);
    world.turns(60_000);
    assert_eq!((world.held(0), world.held(1), world.primaries(0)), (8, 8, 8));
    assert_eq!(world.report().unprotected, 8);
}

#[test]
fn a_side_that_flaps_moves_nothing() {
    let mut world = world(4, 20);
    let before = world.entries();
    for _ in 0..5 {
        world.nodes[1].broken = vec![0];
        world.turns(1_500);
        world.nodes[1].broken = Vec::new();
        world.turns(1_500);
    }
    assert_eq!(world.entries(), before);
}

/// Otherwise a shard would move onto the worker, and leave it again at its next flap.
#[test]
fn the_imbalance_timer_restarts_while_a_side_flaps() {
    let mut world =
        World::new(3, 30, 1, ControllerOptions { balance_wait_ms: 30_000, ..options() });
    world.elect(0);
    world.settle();
    world.add_node();
    world.turns(25_000);
    for _ in 0..5 {
        world.nodes[1].broken = vec![0];
        world.turns(1_500);
        world.nodes[1].broken = Vec::new();
        world.turns(1_500);
    }
    world.turns(25_000);
    assert_eq!(world.held(3), 0, "the imbalance timer restarts at the last flap");
    world.turns(60_000);
    assert!(world.held(3) > 0);
}
