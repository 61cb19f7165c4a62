//! Each rule, on an example that an operator would ask about.

mod bird;
mod cut_off;
mod load;
mod log_lines;
mod orders;
mod restored_etcd;
mod still;
mod stops;

use weir_controller::records::{Control, ControllerState, Meta, OrderAuthor};
use weir_controller::state::{ControllerEvent, ControllerOptions};
use weir_etcd::{Key, MirrorEvent};
use weir_map::ShardEntry;

use crate::fleet::{Fate, World, name};

fn options() -> ControllerOptions {
    ControllerOptions {
        moves_per_min: 10,
        balance_wait_ms: 5_000,
        ..ControllerOptions::new("c", 0xabc)
    }
}

/// Creates a world whose map is whole and at rest.
fn world(nodes: usize, shards: u32) -> World {
    let mut world = World::new(nodes, shards, 1, options());
    world.elect(0);
    world.settle();
    world
}

fn whats(world: &World) -> Vec<String> {
    world.events().into_iter().map(|event| event.what).collect()
}

fn life(world: &World, node: usize) -> (String, String) {
    let report = world.report();
    let node = report.nodes.into_iter().find(|it| it.node == format!("n{node}")).unwrap();
    (node.life, node.why)
}

fn lose(world: &mut World, node: usize) {
    world.kill(node);
    world.expire(node);
}

/// Lets the node be lost and come back, `times` times.
fn flap(world: &mut World, node: usize, times: usize) {
    for _ in 0..times {
        lose(world, node);
        world.turns(5_000);
        world.start(node);
        world.turns(1_000);
    }
}

#[test]
fn a_new_cluster_gets_an_identity_and_a_map() {
    let world = world(3, 12);
    assert_eq!(world.entries().len(), 12);
    let meta: Meta = serde_json::from_slice(world.etcd.value(&Key::Meta).unwrap()).unwrap();
    assert_eq!(meta.cluster_id, format!("{:032x}", 0xabc));
    let report = world.report();
    assert_eq!((report.state, report.whole, report.unprotected), (ControllerState::Resting, 12, 0));
}

#[test]
fn a_map_at_rest_is_not_written() {
    let mut world = world(3, 12);
    let position = world.etcd.position();
    world.turns(10 * 60_000);
    assert_eq!(world.etcd.position(), position);
}

#[test]
fn a_dead_node_is_replaced_at_once_and_a_suspect_one_is_not() {
    let mut world = world(4, 20);
    let before = world.entries();
    // The node lost only etcd: its peers hear it.
    world.nodes[1].is_cut = true;
    world.expire(1);
    world.turns(120_000);
    assert_eq!(world.entries(), before);
    let (life_now, why) = life(&world, 1);
    assert_eq!(life_now, "suspect");
    assert!(why.contains("hears it"), "{why}");

    world.kill(1);
    world.turns(5_000);
    for (shard, entry) in world.entries() {
        let synced = entry.members().iter().filter(|it| world.runs(&it.incarnation)).count();
        assert_eq!(synced, 2, "{shard}: {entry:?}");
    }
    assert!(whats(&world).contains(&"the node is dead".to_owned()));
}

#[test]
fn nothing_moves_when_over_a_third_of_the_nodes_is_gone_and_it_is_reported() {
    let mut world = world(5, 20);
    let before = world.entries();
    lose(&mut world, 0);
    lose(&mut world, 1);
    world.turns(120_000);
    assert_eq!(world.entries(), before);
    let report = world.report();
    assert_eq!(report.state, ControllerState::Halted);
    assert!(report.why.starts_with("2 of 5 nodes look gone"), "{}", report.why);
    world.start(0);
    world.start(1);
    world.settle();
    let report = world.report();
    assert_eq!((report.state, report.unprotected), (ControllerState::Resting, 0));
}

/// A node that no peer hears may still run and assign ports: only a fence takes its lanes.
#[test]
fn lanes_of_a_lost_node_wait_for_its_fence_however_long_it_is_gone() {
    let mut world = world(3, 9);
    lose(&mut world, 0);
    let frozen = |world: &World| {
        let entries = world.entries();
        let is_frozen = |entry: &ShardEntry| entry.lanes().iter().any(|lane| lane.moving.is_some());
        entries.iter().filter(|(_, entry)| is_frozen(entry)).count()
    };
    world.turns(60_000);
    let waiting = frozen(&world);
    assert!(waiting > 0);
    world.turns(7_200_000);
    assert_eq!(frozen(&world), waiting);
}

#[test]
fn a_new_node_is_filled_only_after_the_imbalance_has_lasted() {
    let mut world =
        World::new(3, 30, 1, ControllerOptions { balance_wait_ms: 60_000, ..options() });
    world.elect(0);
    world.settle();
    world.add_node();
    world.turns(55_000);
    assert_eq!(world.held(3), 0);
    world.settle();
    assert!(world.held(3) >= 12, "{}", world.held(3));
}

#[test]
fn the_imbalance_timer_restarts_while_a_node_is_cut_off_from_etcd() {
    let mut world =
        World::new(3, 30, 1, ControllerOptions { balance_wait_ms: 30_000, ..options() });
    world.elect(0);
    world.settle();
    world.add_node();
    world.turns(10_000);
    world.nodes[0].is_cut = true;
    world.expire(0);
    world.turns(60_000);
    world.nodes[0].is_cut = false;
    world.register(0);
    world.turns(25_000);
    assert_eq!(world.held(3), 0, "the imbalance timer restarts when the node is back");
    world.turns(60_000);
    assert!(world.held(3) > 0);
}

#[test]
fn a_flapping_node_gets_no_shards_for_longer_after_each_return() {
    let mut world = world(4, 20);
    flap(&mut world, 0, 3);
    let held = world.held(0);
    world.turns(40_000);
    assert_eq!(world.held(0), held, "on trial for a minute");
    assert!(life(&world, 0).1.contains("lost several times"));
    world.settle();
    assert!(world.held(0) > held);
}

#[test]
fn a_rebalance_fills_a_flapping_node_without_delay() {
    let mut world = world(4, 20);
    flap(&mut world, 0, 6);
    world.drain(0, false);
    world.turns(60_000);
    world.undrain(0);
    world.turns(120_000);
    assert_eq!(world.held(0), 0, "on trial for eight minutes");
    let order = OrderAuthor { by: "ann".into(), at_ms: 0 };
    world.set_control(&Control { rebalance: Some(order), ..world.control() });
    world.turns(180_000);
    assert!(world.held(0) >= 8, "{}", world.held(0));
    assert_eq!(world.control().rebalance, None);
}

#[test]
fn nothing_moves_without_a_desired_state() {
    let mut world = world(3, 5);
    world.etcd.delete(Key::Desired);
    world.add_node();
    world.turns(120_000);
    assert_eq!(world.held(3), 0);
    assert!(world.report().why.contains("weir apply"));
}

#[test]
fn values_that_cannot_be_read_are_not_taken_for_absent() {
    let mut world = world(4, 8);
    let before = world.entries();
    world.etcd.put(Key::Control, b"{".to_vec());
    world.add_node();
    world.etcd.put(Key::Node(name(1)), b"{}".to_vec());
    world.turns(120_000);
    assert_eq!(world.entries(), before);
    assert_eq!(life(&world, 1).0, "suspect");
    assert_eq!(world.report().state, ControllerState::Frozen);
}

#[test]
fn a_cluster_of_a_newer_version_is_left_alone() {
    let mut world = world(3, 5);
    world.etcd.put(Key::Meta, br#"{"format":2,"cluster_id":"x"}"#.to_vec());
    lose(&mut world, 0);
    let position = world.etcd.position();
    world.turns(60_000);
    assert_eq!(world.etcd.position(), position);
}

#[test]
fn a_fleet_without_room_for_all_copies_is_reported() {
    let mut world = World::new(2, 12, 1, options());
    world.shards_max = 5;
    (0..2).for_each(|node| world.start(node));
    world.elect(0);
    world.settle();
    let report = world.report();
    let note = "since no worker has room for one more";
    assert!(report.notes.iter().any(|it| it.contains(note)), "{:?}", report.notes);
}

#[test]
fn a_write_of_unknown_outcome_is_read_before_the_next() {
    for fate in [Fate::WrittenUnanswered, Fate::LostUnanswered, Fate::Unavailable] {
        let mut world = world(3, 6);
        lose(&mut world, 0);
        for _ in 0..20 {
            world.fate = fate;
            world.turn();
        }
        world.settle();
        let numbers: Vec<u64> = world.events().iter().map(|event| event.number).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert_eq!(world.report().unprotected, 0);
    }
}

#[test]
fn a_leader_without_events_decides_nothing() {
    let mut world = world(3, 6);
    world.handle(0, ControllerEvent::Mirror(MirrorEvent::Stale));
    lose(&mut world, 0);
    let before = world.entries();
    world.turns(60_000);
    assert_eq!(world.entries(), before);
    let position = world.etcd.position();
    world.handle(0, ControllerEvent::Mirror(MirrorEvent::SnapshotComplete { position }));
    world.turns(60_000);
    assert_ne!(world.entries(), before);
}

#[test]
fn a_new_leader_continues_a_drain_within_the_same_limit_of_moves() {
    let mut world = world(4, 40);
    world.drain(2, false);
    world.turns(20_000);
    let begun = world.moves_ms.len();
    world.depose(0);
    world.elect(1);
    // The moves of the minute are used up, whichever controller leads.
    world.turns(30_000);
    assert_eq!(world.moves_ms.len(), begun);
    world.settle();
    assert_eq!(world.held(2), 0);
}
