//! Each rule on an example that an operator would ask about.

use weir_cluster::{Key, MirrorEvent, RestoreReason, Revision};
use weir_controller::records::{Control, ControllerState, Meta, Order};
use weir_controller::state::{Event, Options};
use weir_shard::{MemberState, ShardEntry};

use crate::fleet::{Fate, World, name};

fn options() -> Options {
    Options { moves_per_min: 10, balance_wait_ms: 5_000, ..Options::new("c", 0xabc) }
}

/// A map that is whole and at rest.
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
fn at_rest_nothing_is_written() {
    let mut world = world(3, 12);
    let place = world.etcd.place();
    world.turns(10 * 60_000);
    assert_eq!(world.etcd.place(), place);
}

#[test]
fn a_dead_node_is_replaced_at_once_and_a_suspect_one_is_not() {
    let mut world = world(4, 20);
    let before = world.entries();
    // It lost etcd only: its peers hear it.
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

/// The node's access side is down: neither its homes nor other nodes reach it.
fn cut_off(world: &mut World, node: usize, is_cut_off: bool) {
    world.nodes[node].is_unheard = is_cut_off;
    world.nodes[node].is_deaf = is_cut_off;
    world.nodes[node].broken = if is_cut_off { vec![0, 1] } else { Vec::new() };
}

/// Synced members of each shard that are on other nodes than this one; the fewest of all shards.
fn fewest_copies_beside(world: &World, node: usize) -> usize {
    let node = format!("n{node}");
    let copies = world.entries().into_iter().map(|(_, entry)| {
        let others = entry.members().iter().filter(|member| {
            let is_synced = member.state == MemberState::Synced;
            is_synced && member.incarnation.worker.node.as_str() != node
        });
        others.count()
    });
    copies.min().expect("shards")
}

#[test]
fn the_copies_of_a_node_that_is_cut_off_are_replaced_and_it_keeps_its_lanes() {
    let mut world = world(4, 20);
    cut_off(&mut world, 1, true);
    world.turns(2_000);
    assert_eq!(fewest_copies_beside(&world, 1), 1, "it may be a moment's trouble");
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
fn a_node_whose_streams_reach_nobody_is_cut_off_and_a_deaf_one_is_not() {
    let mut world = world(4, 20);
    let before = world.entries();
    world.nodes[1].is_deaf = true;
    world.turns(20_000);
    assert_eq!(world.entries(), before);
    world.nodes[1].is_deaf = false;
    world.nodes[1].is_unheard = true;
    world.turns(20_000);
    assert_eq!(fewest_copies_beside(&world, 1), 2);
    let (_, why) = life(&world, 1);
    assert!(why.contains("no node that replicates with it hears it"), "{why}");
}

#[test]
fn of_two_nodes_that_do_not_hear_each_other_neither_is_cut_off() {
    let mut world = world(2, 8);
    let before = world.entries();
    world.nodes[0].is_deaf = true;
    world.nodes[1].is_deaf = true;
    world.turns(60_000);
    assert_eq!(world.entries(), before);
}

#[test]
fn the_last_copy_elsewhere_stays_when_a_node_of_two_is_cut_off() {
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

#[test]
fn when_more_than_a_third_is_gone_nothing_moves_and_the_report_says_so() {
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
fn a_fence_that_was_a_lie_is_said_loudly() {
    let mut world = world(4, 9);
    world.nodes[0].is_cut = true;
    world.expire(0);
    world.turns(2_000);
    // It still runs: only the test may do this.
    world.nodes[0].is_up = false;
    world.fence(0);
    world.nodes[0].is_up = true;
    world.register(0);
    world.turns(20_000);
    assert!(world.report().notes[0].starts_with("n0 was fenced, but it runs"));
}

#[test]
fn the_lease_rule_frees_the_lanes_only_after_twice_its_time() {
    let rule = Some(600_000);
    let mut world = World::new(3, 9, 1, Options { lease_rule_ms: rule, ..options() });
    world.elect(0);
    world.settle();
    lose(&mut world, 0);
    // Lanes that wait for the lost node's grant, beside its reserve lane.
    let frozen = |world: &World| {
        let entries = world.entries();
        let moving =
            |entry: &ShardEntry| entry.lanes().iter().filter(|lane| lane.moving.is_some()).count();
        entries.iter().filter(|(_, entry)| moving(entry) > 1).count()
    };
    world.turns(1_190_000);
    assert!(frozen(&world) > 0);
    world.turns(30_000);
    assert_eq!(frozen(&world), 0);
    assert!(whats(&world).iter().any(|what| what.contains("but its reserve lane")));
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
fn a_node_that_stops_gives_its_roles_away_whatever_the_pace() {
    let mut world = World::new(3, 30, 1, Options { moves_per_min: 1, ..options() });
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
    // While it is there it stays a member, and nobody is without a copy.
    world.turns(300_000);
    assert_eq!((world.primaries(0), world.held(0), world.moves_ms.len()), (0, held, moves));
    assert_eq!(world.report().unprotected, 0);
}

#[test]
fn a_node_that_fences_itself_is_followed_as_if_the_operator_had() {
    let mut world = world(3, 9);
    world.stop(0);
    world.turns(2_000);
    world.say_ended(0);
    // Still registered: that is no lie, and nothing is taken from it yet.
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
fn restarts_in_order_do_not_count_against_a_node() {
    let mut world = world(4, 20);
    for is_seen_gone in [true, false, true, false] {
        world.stop(0);
        world.turns(2_000);
        world.say_ended(0);
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

#[test]
fn of_two_drains_the_older_goes_first() {
    let mut world = world(3, 9);
    world.drain(1, false);
    world.ms += 1;
    world.drain(0, false);
    world.settle();
    assert_eq!(world.held(1), 0);
    assert!(world.held(0) > 0);
}

#[test]
fn a_new_node_is_filled_only_after_the_imbalance_has_lasted() {
    let mut world = World::new(3, 30, 1, Options { balance_wait_ms: 60_000, ..options() });
    world.elect(0);
    world.settle();
    world.add_node();
    world.turns(55_000);
    assert_eq!(world.held(3), 0);
    world.settle();
    assert!(world.held(3) >= 12, "{}", world.held(3));
}

#[test]
fn an_imbalance_does_not_last_while_a_node_is_cut_off_from_etcd() {
    let mut world = World::new(3, 30, 1, Options { balance_wait_ms: 30_000, ..options() });
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
    assert_eq!(world.held(3), 0, "only now it begins to last");
    world.turns(60_000);
    assert!(world.held(3) > 0);
}

#[test]
fn a_rebalance_does_not_wait_and_ends_by_itself() {
    let mut world = World::new(3, 30, 1, Options { balance_wait_ms: 3_600_000, ..options() });
    world.elect(0);
    world.turns(60_000);
    world.add_node();
    world.turns(60_000);
    assert_eq!(world.held(3), 0);
    let order = Order { by: "ann".into(), at_ms: 0 };
    world.set_control(&Control { rebalance: Some(order), ..Control::default() });
    world.turns(600_000);
    assert!(world.held(3) >= 12, "{}", world.held(3));
    assert_eq!(world.control().rebalance, None);
}

#[test]
fn while_frozen_only_what_has_happened_is_written() {
    let mut world = world(4, 20);
    world.freeze(true);
    world.drain(3, false);
    lose(&mut world, 0);
    world.turns(120_000);
    let lost = |world: &World| {
        let entries = world.entries();
        entries.iter().filter(|(_, it)| it.members().len() == 2).count()
    };
    assert_eq!(lost(&world), 20, "nobody copies");
    assert!(whats(&world).iter().any(|what| what.contains("becomes primary")));
    let report = world.report();
    assert_eq!((report.state, report.why.as_str()), (ControllerState::Frozen, "frozen by ann"));
    assert!(report.unprotected > 0);
    world.freeze(false);
    world.turns(60_000);
    assert_eq!(world.report().unprotected, 0);
}

#[test]
fn a_node_that_comes_back_again_and_again_gets_nothing_for_longer_each_time() {
    let mut world = world(4, 20);
    for _ in 0..3 {
        lose(&mut world, 0);
        world.turns(5_000);
        world.start(0);
        world.turns(1_000);
    }
    let held = world.held(0);
    world.turns(40_000);
    assert_eq!(world.held(0), held, "on trial for a minute");
    assert!(life(&world, 0).1.contains("lost several times"));
    world.settle();
    assert!(world.held(0) > held);
}

#[test]
fn a_shard_that_is_no_longer_desired_stays_until_it_is_told_to_go() {
    let mut world = world(3, 5);
    world.desire(1..=4, 1);
    world.turns(120_000);
    assert_eq!(world.entries().len(), 5);
    // One that is still desired does not go, whatever is told.
    world.set_control(&Control { retire: vec![4, 5], ..Control::default() });
    world.turns(10_000);
    let left: Vec<u32> = world.entries().into_iter().map(|(id, _)| id).collect();
    assert_eq!((left, world.control().retire), (vec![1, 2, 3, 4], vec![]));
}

#[test]
fn nothing_moves_while_nobody_says_what_is_wanted() {
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
    let place = world.etcd.place();
    world.turns(60_000);
    assert_eq!(world.etcd.place(), place);
}

#[test]
fn a_restored_etcd_freezes_everything_until_an_operator_has_looked() {
    let mut world = world(4, 8);
    let place = world.etcd.place();
    let reason = RestoreReason::Revision { before: Revision(9), now: Revision(5) };
    world.tell(0, Event::Mirror(MirrorEvent::Restored { reason, place }));
    for (key, held) in world.etcd.keys.clone() {
        let put = MirrorEvent::Put { key, value: held.value, mod_revision: held.mod_revision };
        world.tell(0, Event::Mirror(put));
    }
    world.tell(0, Event::Mirror(MirrorEvent::SnapshotComplete { place }));
    world.turns(2_000);
    let freeze = world.control().freeze.expect("frozen");
    assert!(freeze.is_total && freeze.why.contains("backup"));
    let before = world.entries();
    lose(&mut world, 0);
    world.start(0);
    world.turns(60_000);
    assert_eq!(world.entries(), before, "not even a fence");
    world.freeze(false);
    world.turns(60_000);
    assert_ne!(world.entries(), before);
}

/// Shards move from node 0, and etcd has forgotten it: the entries before and after.
fn set_back(world: &mut World) -> [Vec<(u32, ShardEntry)>; 2] {
    let old = world.entries();
    world.drain(0, false);
    world.settle();
    let new = world.entries();
    world.set_back(&old);
    let place = world.etcd.place();
    let reason = RestoreReason::Revision { before: Revision(9), now: Revision(5) };
    world.tell(0, Event::Mirror(MirrorEvent::Restored { reason, place }));
    for (key, held) in world.etcd.keys.clone() {
        let put = MirrorEvent::Put { key, value: held.value, mod_revision: held.mod_revision };
        world.tell(0, Event::Mirror(put));
    }
    world.tell(0, Event::Mirror(MirrorEvent::SnapshotComplete { place }));
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
fn a_map_that_was_set_back_goes_on_with_what_its_nodes_hold() {
    let mut world = world(4, 8);
    let [old, new] = set_back(&mut world);
    assert_ne!(old, new);
    world.turns(10_000);
    assert_eq!(world.entries(), old, "some node may not have read it yet");
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
fn who_is_missing_is_named_until_it_is_fenced_or_the_operator_orders_it() {
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
            world.say_ended(1);
        } else {
            let order = Order { by: "ann".into(), at_ms: 0 };
            world.set_control(&Control { rebase: Some(order), ..world.control() });
        }
        world.turns(30_000);
        check_goes_on(&new, &world);
        assert_eq!((world.report().in_doubt, world.control().rebase), (0, None));
        world.say_ended(1);
        world.freeze(false);
        world.undrain(0);
        world.settle();
        assert_eq!(world.report().whole, 8);
    }
}

#[test]
fn a_fleet_without_room_is_told_of() {
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
fn a_leader_without_news_decides_nothing() {
    let mut world = world(3, 6);
    world.tell(0, Event::Mirror(MirrorEvent::Stale));
    lose(&mut world, 0);
    let before = world.entries();
    world.turns(60_000);
    assert_eq!(world.entries(), before);
    let place = world.etcd.place();
    world.tell(0, Event::Mirror(MirrorEvent::SnapshotComplete { place }));
    world.turns(60_000);
    assert_ne!(world.entries(), before);
}

#[test]
fn the_next_leader_goes_on_where_the_last_one_ended() {
    let mut world = world(4, 40);
    world.drain(2, false);
    world.turns(20_000);
    let begun = world.moves_ms.len();
    world.depose(0);
    world.elect(1);
    // The minute's moves are used up, whoever leads.
    world.turns(30_000);
    assert_eq!(world.moves_ms.len(), begun);
    world.settle();
    assert_eq!(world.held(2), 0);
}
