//! A node dies, comes back, or is silent.

use weir_engine::Side;
use weir_map::{Incarnation, LANES, ShardId};

use super::{LASTING_MS, LEASE_MS, Script, only_worker};
use crate::fault::{Fault, Way};
use crate::site;
use crate::world::World;

#[test]
fn each_shard_of_a_new_cluster_gets_a_primary_and_a_synced_replica() {
    let mut script = Script::at_rest(2, 4, 1);
    let before = script.lost();
    script.run(1_000);
    script.assert_nothing_lost(&before);
    for node in 0..2 {
        let statuses = script.world.statuses(node);
        assert_eq!(statuses.len(), 4);
        assert!(statuses.iter().all(|status| status.trouble.is_none() && status.is_route_out));
        assert_eq!(script.world.primaries(node), 2, "balanced");
    }
}

#[test]
fn the_replicas_of_a_dead_node_act_and_are_promoted() {
    let mut script = Script::at_rest(3, 3, 1);
    let dead = script.primary(1);
    let node = script.node_of(&dead);
    let power = script.cut_power(node);
    let acts = |world: &World| {
        let living = (0..3).filter(|other| *other != node);
        living.map(|node| world.roles(node)).any(|roles| {
            let mut acting = roles.report(|_, _| 0).acting.into_iter();
            acting.any(|(shard, ..)| shard == ShardId(1))
        })
    };
    let ms = script.run_until(1_000, "acting", acts);
    assert!(ms < 400, "long before the registration ends: {ms} ms");
    assert_eq!(script.primary(1), dead, "a replica acts without a change in etcd");
    script.run_until(3_000, "promoted", |world| world.entry(1).primary().incarnation != dead);
    assert!(script.is_registered(node));
    // The sum of the switch's detection time, the silence after which a replica acts, and the delay
    // of a route.
    let silence_ms = script.longest_silence_ms();
    assert!(silence_ms <= 300, "{silence_ms} ms");
    // The controller takes a node for dead two seconds after its lease has ended.
    script.run_until(LEASE_MS + 5_000, "another copy", |world| {
        world.synced(1).filter(|who| **who != dead).count() == 2
    });
    // Its lanes are frozen until it is back under another boot id.
    assert!(script.world.entry(1).is_moving());
    script.mend(power);
    script.rest();
    assert!(!script.world.entry(1).is_moving());
}

#[test]
fn a_node_that_restarts_at_once_copies_its_shards_again() {
    let mut script = Script::at_rest(3, 6, 1);
    let before = script.primary(1);
    let node = script.node_of(&before);
    script.strike(Fault::Kill { node, ms: 50 });
    script.run_until(15_000, "whole", |world| world.why_not_whole().is_none());
    assert!(script.world.position_of(&before).is_none());
    let silence_ms = script.longest_silence_ms();
    assert!(silence_ms <= 400, "{silence_ms} ms");
}

/// Returns the mappings of a shard at a worker on ports of these lanes; no IPv6 flow is among them.
fn mappings(world: &World, who: &Incarnation, shard: u32, lanes: &[usize]) -> Vec<String> {
    let table = world.table(world.position_of(who).expect("the worker runs"));
    let sockets = world.traffic.sockets.iter().filter(|socket| socket.shard == shard);
    let held = sockets.filter_map(|socket| {
        let public =
            socket.public.filter(|it| it.is_ipv4() && lanes.contains(&site::lane(it.port())))?;
        let is_held = table.get(&socket.key()).is_some_and(|publics| publics.contains(&public));
        is_held.then(|| format!("{socket} {public:?}"))
    });
    held.collect()
}

#[test]
fn frozen_lanes_are_relayed_to_a_third_member() {
    let mut script = Script::at_rest(3, 1, 1);
    let lost = script.primary(1);
    let node = script.node_of(&lost);
    // The node continues to run, but etcd, the other nodes and the switches receive nothing from
    // it.
    let cut_off = script.strike(Fault::CutOff { node, ms: LASTING_MS });
    let cables = Side::ALL
        .map(|side| script.strike(Fault::Unplug { node, side, way: Way::Both, ms: LASTING_MS }));
    script.run_until(LEASE_MS + 5_000, "copied to the third", |world| {
        world.synced(1).filter(|who| **who != lost).count() == 2
    });
    let entry = script.world.entry(1).clone();
    let (_, member) = entry.member(&lost).expect("a silent node stays a member");
    let frozen: Vec<usize> =
        (0..LANES).filter(|&lane| entry.lanes()[lane].concerns(member.slot)).collect();
    assert_eq!(frozen.len(), 7);
    let others: Vec<Incarnation> =
        script.world.synced(1).filter(|who| **who != lost).cloned().collect();
    let [second, third] =
        [&others[0], &others[1]].map(|who| mappings(&script.world, who, 1, &frozen));
    assert!(!second.is_empty());
    assert_eq!(second, third);
    // When the node is heard again, it grants the lanes that it owes, and is a replica like the
    // others.
    script.mend(cut_off);
    cables.into_iter().for_each(|cable| script.mend(cable));
    script.rest();
    assert!(script.world.position_of(&lost).is_some(), "in the same incarnation");
}

#[test]
fn copies_of_an_isolated_node_are_made_on_other_nodes() {
    let mut script = Script::at_rest(4, 6, 1);
    let node = script.node_of(&script.primary(1));
    let apart = script.strike(Fault::Isolate { node, ms: LASTING_MS });
    let lonely = script.world.nodes[node].name.clone();
    let is_protected = |world: &World| {
        let elsewhere = |shard| world.synced(shard).filter(|who| who.worker.node != lonely).count();
        (1..=6).all(|shard| elsewhere(shard) == 2)
    };
    script.run_until(20_000, "copied from those that have a copy", is_protected);
    assert!(script.is_registered(node));
    assert!(script.world.position_of(&script.primary(1)).is_some_and(|at| at != only_worker(node)));
    script.mend(apart);
    script.rest();
}
