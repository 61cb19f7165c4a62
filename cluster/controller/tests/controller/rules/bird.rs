//! Nodes whose BIRD announces nothing: they run, their peers hear them, and they get no traffic.

use weir_controller::records::ControllerState;
use weir_controller::state::BirdDown;
use weir_map::MemberState;

use super::{life, whats, world};
use crate::fleet::World;

/// Kills the node's BIRD, or brings it back.
fn bird(world: &mut World, node: usize, is_down: bool) {
    let sides = ["access", "internet"].map(|side| BirdDown::new(side, "no-answer").unwrap());
    world.nodes[node].bird_down = if is_down { sides.into() } else { Vec::new() };
}

fn synced_beside(world: &World, node: usize) -> usize {
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
fn a_node_whose_bird_is_down_is_emptied_and_filled_again_when_it_is_back() {
    let mut world = world(4, 20);
    assert!(world.primaries(1) > 0);
    bird(&mut world, 1, true);
    world.turns(30_000);
    assert_eq!((world.primaries(1), synced_beside(&world, 1)), (0, 2));
    let report = world.report();
    assert_eq!((report.unprotected, report.nodes[1].cut_off.as_slice()), (0, &[0, 1][..]));
    let (life_now, why) = life(&world, 1);
    assert_eq!(life_now, "cut-off");
    let expected = "worker 0 is cut off: BIRD does not answer (access side), BIRD does not answer \
                    (internet side); worker 1";
    assert!(why.starts_with(expected), "{why}");
    assert!(whats(&world).contains(&"worker 1 is cut off".to_owned()));

    bird(&mut world, 1, false);
    world.settle();
    assert!(whats(&world).contains(&"worker 1 is back".to_owned()));
    let report = world.report();
    assert_eq!((report.state, report.whole), (ControllerState::Resting, 20));
    assert!(world.primaries(1) > 0);
}

#[test]
fn copies_on_a_node_whose_bird_is_down_do_not_count_as_protection() {
    let mut world = world(2, 8);
    bird(&mut world, 1, true);
    world.turns(30_000);
    assert_eq!((world.primaries(0), world.primaries(1)), (8, 0));
    assert_eq!(world.report().unprotected, 8);
    assert_eq!(world.held(1), 8, "the only other copies stay");
}

#[test]
fn a_drain_does_not_bring_shards_to_a_node_whose_bird_is_down() {
    let mut world = world(4, 20);
    bird(&mut world, 1, true);
    world.turns(30_000);
    let before = world.held(1);
    world.drain(2, false);
    world.turns(300_000);
    assert_eq!((world.held(2), world.primaries(1)), (0, 0));
    assert!(world.held(1) <= before);
}

#[test]
fn a_stopping_node_promotes_no_worker_of_a_node_whose_bird_is_down() {
    let mut world = world(2, 8);
    bird(&mut world, 1, true);
    world.turns(30_000);
    world.stop(0);
    world.turns(30_000);
    assert_eq!((world.primaries(0), world.primaries(1)), (8, 0));
    bird(&mut world, 1, false);
    world.turns(10_000);
    assert_eq!((world.primaries(0), world.primaries(1)), (0, 8));
}

/// A fault of all nodes at once, as when a switch restarts, is no reason to move anything.
#[test]
fn nothing_moves_when_all_birds_go_down_shortly_after_each_other() {
    for nodes in [2, 3, 5] {
        let mut world = world(nodes, 20);
        let before = world.entries();
        for node in 0..nodes {
            bird(&mut world, node, true);
            world.turns(1_500);
        }
        world.turns(120_000);
        assert_eq!(world.entries(), before);
        let report = world.report();
        assert_eq!((report.state, report.unprotected), (ControllerState::Halted, 20));
        for node in 0..nodes {
            bird(&mut world, node, false);
            world.turns(1_500);
        }
        world.turns(120_000);
        assert_eq!(world.entries(), before);
        assert_eq!(world.report().whole, 20);
    }
}

#[test]
fn a_node_whose_bird_is_not_watched_after_a_restart_keeps_its_shards() {
    let mut world = world(3, 12);
    let before = world.entries();
    bird(&mut world, 1, true);
    world.turns(1_000);
    // The node was restarted without the configuration key that watches BIRD.
    bird(&mut world, 1, false);
    world.turns(60_000);
    assert_eq!(world.entries(), before);
}
