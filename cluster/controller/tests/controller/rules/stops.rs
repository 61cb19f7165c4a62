//! Nodes that end in an orderly way.

use weir_controller::state::ControllerOptions;

use super::{life, lose, options, whats, world};
use crate::fleet::World;

#[test]
fn a_stopping_node_gives_its_roles_away_at_any_pace_of_moves() {
    let mut world = World::new(3, 30, 1, ControllerOptions { moves_per_min: 1, ..options() });
    world.elect(0);
    world.settle();
    let (held, moves) = (world.held(0), world.moves_ms.len());
    assert!(world.primaries(0) > 5);
    world.stop(0);
    world.turns(1_000);
    assert_eq!((world.primaries(0), world.held(0), world.moves_ms.len()), (0, held, moves));
    assert_eq!(life(&world, 0), ("stopping".into(), "it says that it is about to end".into()));
    let events = world.events();
    let promotion = events.iter().rfind(|event| event.what.contains("becomes primary")).unwrap();
    assert_eq!(promotion.why, "n0 is stopping");
    // A stopping node stays a member while it is registered, so every shard keeps its copy.
    world.turns(300_000);
    assert_eq!((world.primaries(0), world.held(0), world.moves_ms.len()), (0, held, moves));
    assert_eq!(world.report().unprotected, 0);
}

#[test]
fn a_node_that_fences_itself_counts_as_fenced_by_the_operator() {
    let mut world = world(3, 9);
    world.stop(0);
    world.turns(2_000);
    world.declare_ended(0);
    // The node is still registered: its statement is no lie, and nothing is taken from it yet.
    let held = world.held(0);
    world.turns(5_000);
    assert_eq!((world.held(0), world.report().notes), (held, vec![]));
    lose(&mut world, 0);
    world.turns(3_000);
    assert_eq!((world.held(0), world.intent(0).fence), (0, None));
    assert!(world.entries().iter().all(|(_, entry)| !entry.is_moving()));
    assert_eq!(world.report().unprotected, 0);
    assert!(whats(&world).contains(&"the fence is done".to_owned()));
}

#[test]
fn orderly_restarts_put_no_node_on_trial() {
    let mut world = world(4, 20);
    for is_seen_gone in [true, false, true, false] {
        world.stop(0);
        world.turns(2_000);
        world.declare_ended(0);
        if is_seen_gone {
            lose(&mut world, 0);
            world.turns(5_000);
        }
        world.start(0);
        world.turns(1_000);
    }
    assert_eq!(life(&world, 0), ("alive".into(), String::new()));
    world.settle();
    assert!(world.held(0) >= 8, "{}", world.held(0));
}

#[test]
fn a_freeze_does_not_keep_the_roles_of_a_node_that_stops() {
    let mut world = world(3, 12);
    world.freeze(true);
    world.stop(0);
    world.turns(2_000);
    assert_eq!(world.primaries(0), 0);
    let mut control = world.control();
    control.freeze.as_mut().unwrap().is_total = true;
    world.set_control(&control);
    world.stop(1);
    let before = world.entries();
    world.turns(5_000);
    assert_eq!(world.entries(), before);
}
