//! What an operator would ask, of clusters with one worker a node.

use weir_member::roles::Input;
use weir_shard::role::Role;
use weir_shard::{Incarnation, LANES, MemberState, ShardId};

use crate::world::{LEASE_MS, World};

fn cluster(nodes: usize, shards: u32, replicas: u8) -> World {
    let mut world = World::new(7, shards, replicas);
    for _ in 0..nodes {
        world.add_node(1);
    }
    world.run_until(8_000, "whole", World::is_whole);
    world.lost_slots.clear();
    world
}

fn primary(world: &World, shard: u32) -> Incarnation {
    world.store.entries[&ShardId(shard)].primary().incarnation.clone()
}

fn node_of(world: &World, who: &Incarnation) -> usize {
    let mut nodes = world.nodes.iter();
    nodes.position(|node| node.name == who.worker.node).expect("a node")
}

/// Slots without service of the shard that suffered most.
fn longest_loss(world: &World) -> u64 {
    world.lost_slots.values().copied().max().unwrap_or(0)
}

#[test]
fn from_nothing_to_a_primary_and_a_synced_replica() {
    let mut world = cluster(2, 4, 1);
    world.run(1_000);
    assert_eq!(longest_loss(&world), 0);
    for node in 0..2 {
        let statuses: Vec<_> = world.roles(node).expect("it runs").statuses().collect();
        assert_eq!(statuses.len(), 4);
        assert!(statuses.iter().all(|status| status.trouble.is_none() && status.is_route_out));
        let primaries = statuses.iter().filter(|status| status.role == Role::Primary);
        assert_eq!(primaries.count(), 2, "balanced");
    }
}

#[test]
fn a_dead_node_is_followed_by_its_replicas() {
    let mut world = cluster(3, 3, 1);
    let dead = primary(&world, 1);
    let node = node_of(&world, &dead);
    world.kill(node);
    let acts = |world: &World| {
        (0..3).filter_map(|node| world.roles(node)).any(|roles| {
            let mut acting = roles.report(|_, _| 0).acting.into_iter();
            acting.any(|(shard, ..)| shard == ShardId(1))
        })
    };
    let ms = world.run_until(LEASE_MS, "acting", acts);
    assert!(ms < 400, "long before the registration ends: {ms} ms");
    assert_eq!(primary(&world, 1), dead, "the store has not been asked");
    world.run_until(2_000, "promoted", |world| primary(world, 1) != dead);
    assert!(world.nodes[node].name == dead.worker.node && world.store.nodes.len() == 3);
    // Detection by the switch, three busy slots, and the way of a route.
    assert!(longest_loss(&world) <= 30, "{:?}", world.lost_slots);
    world.run_until(LEASE_MS + 1_000, "another copy", |world| {
        let entry = &world.store.entries[&ShardId(1)];
        entry.members().iter().filter(|member| member.state == MemberState::Synced).count() == 2
    });
    // Its lanes are frozen until it is back under another boot id.
    assert!(world.store.entries[&ShardId(1)].is_moving());
    world.start(node);
    world.run_until(8_000, "whole", World::is_whole);
    assert!(!world.store.entries[&ShardId(1)].is_moving());
}

#[test]
fn a_node_that_is_back_at_once_copies_anew() {
    let mut world = cluster(3, 6, 1);
    let before = primary(&world, 1);
    let node = node_of(&world, &before);
    world.kill(node);
    world.run(50);
    world.start(node);
    world.run_until(10_000, "whole", World::is_whole);
    assert!(world.worker(&before).is_none());
    assert!(longest_loss(&world) <= 40, "{:?}", world.lost_slots);
}

#[test]
fn a_drained_node_loses_nothing() {
    let mut world = cluster(3, 6, 1);
    world.nodes[0].is_drained = true;
    let is_empty =
        |world: &World| world.roles(0).is_some_and(|roles| roles.statuses().count() == 0);
    world.run_until(20_000, "empty", is_empty);
    assert_eq!(longest_loss(&world), 0, "{:?}", world.lost_slots);
    assert!(world.roles(0).is_some_and(|roles| !roles.has_to_hand_over()));
    world.kill(0);
    world.run(3_000);
    assert_eq!(longest_loss(&world), 0, "{:?}", world.lost_slots);
}

#[test]
fn a_node_that_has_nothing_left_to_hand_over_may_end() {
    let mut world = cluster(2, 4, 1);
    assert!(world.roles(0).expect("it runs").has_to_hand_over());
    world.nodes[0].is_drained = true;
    let is_over = |world: &World| world.roles(0).is_some_and(|it| !it.has_to_hand_over());
    world.run_until(5_000, "nothing to hand over", is_over);
    // The last list of routes gets out.
    world.run(100);
    world.kill(0);
    world.run(2_000);
    assert_eq!(longest_loss(&world), 0, "{:?}", world.lost_slots);
}

#[test]
fn a_new_node_gets_its_share_and_nothing_is_lost() {
    let mut world = cluster(2, 6, 1);
    let node = world.add_node(1);
    world.run_until(30_000, "whole", World::is_whole);
    let statuses: Vec<_> = world.roles(node).expect("it runs").statuses().collect();
    assert_eq!(statuses.iter().filter(|status| status.role == Role::Primary).count(), 2);
    assert_eq!(statuses.len(), 4);
    assert_eq!(longest_loss(&world), 0, "{:?}", world.lost_slots);
}

#[test]
fn frozen_lanes_are_passed_on_to_a_third_holder() {
    let mut world = cluster(3, 1, 1);
    let lost = primary(&world, 1);
    let node = node_of(&world, &lost);
    world.nodes[node].is_cut_off = true;
    world.nodes[node].is_without_store = true;
    let has_third = |world: &World| {
        let entry = &world.store.entries[&ShardId(1)];
        let others = entry.members().iter().filter(|it| it.incarnation != lost);
        others.filter(|it| it.state == MemberState::Synced).count() == 2
    };
    world.run_until(LEASE_MS + 3_000, "copied to the third", has_third);
    world.run(100);
    let entry = world.store.entries[&ShardId(1)].clone();
    let (_, member) = entry.member(&lost).expect("it may still run");
    let frozen: Vec<usize> =
        (0..LANES).filter(|&lane| entry.lanes()[lane].concerns(member.seat)).collect();
    assert_eq!(frozen.len(), 7);
    let data = |who: &Incarnation, lane: usize| {
        world.worker(who).map(|worker| worker.shards[&ShardId(1)].data[lane]).expect("it runs")
    };
    for lane in frozen {
        let (second, third) = (&entry.members()[0], &entry.members()[2]);
        assert!(data(&second.incarnation, lane) > 0);
        assert_eq!(data(&second.incarnation, lane), data(&third.incarnation, lane));
    }
    // Heard again, it grants what it owes, and is a replica as the others.
    world.nodes[node].is_cut_off = false;
    world.nodes[node].is_without_store = false;
    world.run_until(8_000, "whole", World::is_whole);
}

#[test]
fn without_the_store_everything_goes_on() {
    let mut world = cluster(3, 6, 1);
    world.is_controller_up = false;
    for node in &mut world.nodes {
        node.is_without_store = true;
    }
    world.run(LEASE_MS + 2_000);
    assert_eq!(longest_loss(&world), 0, "{:?}", world.lost_slots);
    // Even the loss of a node.
    world.kill(0);
    world.run(5_000);
    assert!(longest_loss(&world) <= 30, "{:?}", world.lost_slots);
    for node in &mut world.nodes {
        node.is_without_store = false;
    }
    world.start(0);
    world.is_controller_up = true;
    world.run_until(20_000, "whole", World::is_whole);
}

#[test]
fn the_same_again_orders_nothing() {
    let mut world = cluster(3, 6, 2);
    let obeyed = |world: &World| -> u64 {
        let entries = world.store.entries.values().flat_map(|entry| entry.members());
        entries
            .filter_map(|member| world.worker(&member.incarnation))
            .map(|it| it.duties_obeyed)
            .sum()
    };
    let before = obeyed(&world);
    // Heartbeats, packets, and a list of everything each three seconds.
    world.run(10_000);
    assert_eq!(obeyed(&world), before);
    let now_ms = world.now_ms;
    let entries = world.store.entries.clone();
    let desired = crate::world::desired(6);
    for node in 0..3 {
        let roles = world.roles_mut(node).expect("it runs");
        let number = roles.routes_number(0);
        for (&shard, entry) in &entries {
            roles.on(now_ms, Input::Entry { shard, entry: Box::new(entry.clone()) });
        }
        let fingerprint = weir_replica::Fingerprint::default();
        roles.on(now_ms, Input::Desired { shards: desired.clone(), fingerprint });
        assert!(roles.next_order(0).is_none());
        assert!(roles.take_changes(99).is_empty());
        assert!(roles.take_epochs().is_empty());
        assert_eq!(roles.routes_number(0), number);
    }
}

#[test]
fn the_copies_of_a_node_that_nobody_hears_are_made_elsewhere() {
    let mut world = cluster(4, 6, 1);
    let node = node_of(&world, &primary(&world, 1));
    world.nodes[node].is_cut_off = true;
    let elsewhere = |world: &World, shard: ShardId| {
        let members = world.store.entries[&shard].members().iter();
        let synced = members.filter(|member| member.state == MemberState::Synced);
        synced.filter(|member| node_of(world, &member.incarnation) != node).count()
    };
    let is_protected =
        |world: &World| (1..=6).map(ShardId).all(|shard| elsewhere(world, shard) == 2);
    let ms = world.run_until(20_000, "copied from those that have a copy", is_protected);
    assert!(
        world.store.nodes.contains_key(&world.nodes[node].name),
        "it is registered, after {ms} ms"
    );
    world.nodes[node].is_cut_off = false;
    world.run_until(20_000, "whole again", World::is_whole);
}
