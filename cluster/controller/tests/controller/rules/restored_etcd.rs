//! An etcd that was restored from a backup.

use weir_controller::records::{Control, OrderAuthor};
use weir_controller::state::ControllerEvent;
use weir_etcd::{MirrorEvent, RestoreReason, Revision};
use weir_map::ShardEntry;

use super::{lose, whats, world};
use crate::fleet::World;

/// Lets the leader's mirror find a restored etcd, and list it.
fn deliver_restored(world: &mut World) {
    let position = world.etcd.position();
    let reason = RestoreReason::Revision { before: Revision(9), now: Revision(5) };
    world.handle(0, ControllerEvent::Mirror(MirrorEvent::Restored { reason, position }));
    for (key, held) in world.etcd.keys.clone() {
        let put = MirrorEvent::Put { key, value: held.value, mod_revision: held.mod_revision };
        world.handle(0, ControllerEvent::Mirror(put));
    }
    world.handle(0, ControllerEvent::Mirror(MirrorEvent::SnapshotComplete { position }));
}

#[test]
fn a_restored_etcd_freezes_everything_until_an_operator_has_looked() {
    let mut world = world(4, 8);
    deliver_restored(&mut world);
    world.turns(2_000);
    let freeze = world.control().freeze.expect("frozen");
    assert!(freeze.is_total && freeze.why.contains("backup"));
    let before = world.entries();
    lose(&mut world, 0);
    world.start(0);
    world.turns(60_000);
    assert_eq!(world.entries(), before, "not even a fence is written");
    world.freeze(false);
    world.turns(60_000);
    assert_ne!(world.entries(), before);
}

/// Moves shards off node 0, then sets etcd back: returns the entries before and after the moves.
fn set_back(world: &mut World) -> [Vec<(u32, ShardEntry)>; 2] {
    let old = world.entries();
    world.drain(0, false);
    world.settle();
    let new = world.entries();
    world.set_back(&old);
    deliver_restored(world);
    [old, new]
}

fn check_goes_on(before: &[(u32, ShardEntry)], world: &World) {
    for ((shard, before), (_, after)) in before.iter().zip(world.entries()) {
        let is_same = *before == after;
        assert!(is_same || after.rebased() > Some(before.epoch()), "{shard}: {after:?}");
        assert_eq!(before.members(), after.members());
        assert_eq!(before.term(), after.term());
    }
}

#[test]
fn a_map_that_was_set_back_continues_with_the_entries_of_its_nodes() {
    let mut world = world(4, 8);
    let [old, new] = set_back(&mut world);
    assert_ne!(old, new);
    world.turns(10_000);
    assert_eq!(world.entries(), old, "a shard in doubt waits for all nodes to read etcd");
    assert!(world.report().in_doubt > 0);
    world.turns(20_000);
    assert!(world.control().freeze.expect("frozen").is_total);
    check_goes_on(&new, &world);
    assert_eq!(world.report().in_doubt, 0);
    assert!(whats(&world).iter().any(|what| what.starts_with("goes on with the newest entry")));
    world.freeze(false);
    world.undrain(0);
    world.settle();
    assert_eq!(world.report().whole, 8);
}

#[test]
fn a_missing_node_is_named_until_it_is_fenced_or_a_rebase_is_ordered() {
    for is_fenced in [true, false] {
        let mut world = world(4, 8);
        let [old, new] = set_back(&mut world);
        lose(&mut world, 1);
        world.turns(30_000);
        let report = world.report();
        let lost = |entry: &ShardEntry| {
            let mut nodes = entry.members().iter().map(|it| &it.incarnation.worker.node);
            nodes.any(|node| node.as_str() == "n1")
        };
        let both = || old.iter().zip(&new).filter(|(old, new)| old != new);
        let stuck = both().filter(|(old, new)| lost(&old.1) || lost(&new.1)).count();
        assert!(stuck > 0 && stuck < both().count(), "{stuck}");
        assert_eq!((report.in_doubt, report.doubts.len()), (stuck, stuck));
        assert!(report.doubts[0].contains("`weir fence n1`"), "{:?}", report.doubts);
        assert_eq!(report.missing.keys().collect::<Vec<_>>(), ["n1"]);
        if is_fenced {
            world.declare_ended(1);
        } else {
            let order = OrderAuthor { by: "ann".into(), at_ms: 0 };
            world.set_control(&Control { rebase: Some(order), ..world.control() });
        }
        world.turns(30_000);
        check_goes_on(&new, &world);
        assert_eq!((world.report().in_doubt, world.control().rebase), (0, None));
        world.declare_ended(1);
        world.freeze(false);
        world.undrain(0);
        world.settle();
        assert_eq!(world.report().whole, 8);
    }
}
