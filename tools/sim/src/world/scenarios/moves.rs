//! A node is drained, ends, or is added: no packet is lost.

use super::{LASTING_MS, REST_MS, Script};
use crate::fault::Fault;
use crate::world::World;

#[test]
fn a_drained_node_loses_nothing() {
    let mut script = Script::at_rest(3, 6, 1);
    let before = script.lost();
    script.strike(Fault::Drain { node: 0, ms: LASTING_MS });
    script.run_until(20_000, "empty", |world| world.statuses(0).is_empty());
    assert!(!script.world.roles(0).has_to_hand_over());
    script.assert_nothing_lost(&before);
    script.strike(Fault::Kill { node: 0, ms: LASTING_MS });
    script.run(3_000);
    script.assert_nothing_lost(&before);
}

#[test]
fn a_node_ends_once_it_has_handed_over_and_loses_nothing() {
    let mut script = Script::at_rest(2, 4, 1);
    let before = script.lost();
    assert!(script.world.roles(0).has_to_hand_over());
    script.strike(Fault::Restart { node: 0, ms: LASTING_MS });
    script.run_until(5_000, "ended", |world| world.nodes[0].process.is_none());
    script.run(2_000);
    script.assert_nothing_lost(&before);
}

#[test]
fn a_new_node_gets_its_share_and_nothing_is_lost() {
    let mut script = Script::new(3, 6, 1);
    // The third node has no power yet.
    script.world.nodes[2].is_up = false;
    let have_copies = |world: &World| {
        world.control.entries().len() == 6
            && (1..=6).all(|shard| world.synced(shard).count() == 2)
            && (0..2).all(|node| world.primaries(node) == 3 && world.roles(node).has_settled())
    };
    script.run(10_000);
    script.run_until(REST_MS, "two nodes with all copies", have_copies);
    script.run(1_000);
    let before = script.lost();
    script.world.power_on(2);
    // The map has not changed for long: the rest begins with the power.
    script.world.begin_rest();
    script.rest();
    assert_eq!(script.world.primaries(2), 2);
    assert_eq!(script.world.statuses(2).len(), 4);
    script.assert_nothing_lost(&before);
}
