//! Nodes that run but are stalled: the controller moves nothing there, and the operator sees the
//! reason.

use weir_controller::state::NodeTroubles;

use super::{lose, world};

#[test]
fn a_drain_waits_while_the_nodes_route_guard_is_stalled() {
    let mut world = world(4, 12);
    let held = world.held(0);
    assert!(held > 0);
    let why = vec!["the guard of the routes stands still".to_owned()];
    world.nodes[0].troubles = NodeTroubles { is_still: true, why };
    world.turns(2_000);
    world.drain(0, false);
    world.turns(60_000);
    assert_eq!(world.held(0), held, "nothing is moved");
    let report = world.report();
    let node = report.nodes.iter().find(|node| node.node == "n0").unwrap();
    assert!(node.waits.contains("stands still"), "{node:?}");
    assert!(report.notes.contains(&"n0: the guard of the routes stands still".to_owned()));

    world.nodes[0].troubles = NodeTroubles::default();
    world.settle();
    assert_eq!(world.held(0), 0);
    assert_eq!(world.report().notes, [""; 0]);
}

#[test]
fn a_failure_is_repaired_although_a_node_is_stalled() {
    let mut world = world(4, 12);
    world.nodes[0].troubles = NodeTroubles { is_still: true, why: Vec::new() };
    world.turns(2_000);
    lose(&mut world, 1);
    world.settle();
    let report = world.report();
    assert_eq!((report.unprotected, world.primaries(1)), (0, 0), "{report:?}");
}

#[test]
fn a_lasting_trouble_is_reported_once() {
    let mut world = world(3, 6);
    world.nodes[0].troubles = NodeTroubles { is_still: false, why: vec!["epochs".into()] };
    world.turns(5_000);
    let position = world.etcd.position();
    world.turns(60_000);
    assert_eq!(world.etcd.position(), position);
}
