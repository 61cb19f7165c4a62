//! etcd is away: traffic continues, and nodes that start meanwhile take copies as guests.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use weir_nat::Protocol;
use weir_roles::role::{Metric, Role};
use weir_roles::{ShardRoleStatus, Trouble};

use super::{LASTING_MS, LEASE_MS, Script, only_worker};
use crate::fault::Fault;
use crate::site::WorkerPosition;
use crate::traffic::{Inside, Stage};
use crate::world::World;

/// Kills etcd and all controllers. To be mended by [`bring_back`].
fn take_etcd_away(script: &mut Script) -> [usize; 2] {
    [Fault::NoController { ms: LASTING_MS }, Fault::StoreDown { ms: LASTING_MS }]
        .map(|fault| script.strike(fault))
}

fn bring_back(script: &mut Script, etcd: [usize; 2]) {
    etcd.into_iter().for_each(|number| script.mend(number));
}

#[test]
fn without_etcd_traffic_and_failover_continue() {
    let mut script = Script::at_rest(3, 6, 1);
    let before = script.lost();
    let etcd = take_etcd_away(&mut script);
    script.run(LEASE_MS + 2_000);
    script.assert_nothing_lost(&before);
    // Traffic survives even the loss of a node.
    let power = script.cut_power(0);
    script.run(5_000);
    let silence_ms = script.longest_silence_ms();
    assert!(silence_ms <= 300, "{silence_ms} ms");
    bring_back(&mut script, etcd);
    script.mend(power);
    script.rest();
}

/// True if the node has full copies of so many shards, announces them behind all members, and
/// writes no flow.
fn are_all_guests(world: &World, node: usize, shards: usize) -> bool {
    if world.nodes[node].process.is_none() {
        return false;
    }
    let statuses = world.statuses(node);
    let is_so = |status: &ShardRoleStatus<'_>| {
        let is_announced = status.is_route_out && status.metric == Some(Metric::GUEST);
        status.role == Role::Synced && status.trouble == Some(Trouble::Guest) && is_announced
    };
    statuses.len() == shards && statuses.iter().all(is_so)
}

/// Creates two nodes with all of four shards; etcd is away, and n0 was killed and runs again. Flows
/// last for half a minute.
fn with_guest() -> (Script, [usize; 2]) {
    let mut script = Script::with(2, 4, 1, |options| options.packet_interval_us = 200_000);
    script.rest();
    let etcd = take_etcd_away(&mut script);
    script.run(500);
    script.strike(Fault::Kill { node: 0, ms: 1_000 });
    script.run_until(15_000, "guests", |world| are_all_guests(world, 0, 4));
    script.run(500);
    script.arrivals.clear();
    (script, etcd)
}

type Mapping = (Inside, SocketAddr);

/// Returns the mappings of established UDP flows at a worker: those of half a minute at most, so
/// that no timer has ended one.
fn mappings(world: &World, position: WorkerPosition) -> BTreeSet<Mapping> {
    let table = world.table(position);
    let flows = world.traffic.flows.iter();
    let is_young = |sent_us: u64| world.now_us < sent_us + 30_000_000;
    let flows = flows.filter(|flow| flow.stage != Stage::Opening && is_young(flow.sent_us));
    let sockets = flows.map(|flow| &world.traffic.sockets[flow.socket]);
    let sockets = sockets.filter(|socket| socket.protocol == Protocol::Udp);
    let held = sockets.filter_map(|socket| {
        let public = socket.public?;
        let is_held = table.get(&socket.key()).is_some_and(|publics| publics.contains(&public));
        is_held.then(|| (socket.key(), public))
    });
    held.collect()
}

fn assert_has(world: &World, position: WorkerPosition, wanted: &BTreeSet<Mapping>) {
    let table = world.table(position);
    let lacks = |(inside, public): &&Mapping| {
        table.get(inside).is_none_or(|publics| !publics.contains(public))
    };
    let lacking = wanted.iter().find(lacks);
    assert_eq!(lacking, None, "n{} lacks a mapping", position.node);
}

#[test]
fn a_second_failure_without_etcd_finds_the_copies_of_a_guest() {
    let (mut script, etcd) = with_guest();
    let guest = only_worker(0);
    let others = mappings(&script.world, only_worker(1));
    assert!(others.len() > 12, "{}", others.len());
    assert_has(&script.world, guest, &others);
    // Established flows, with their public endpoints.
    let flows = script.world.traffic.flows.iter().enumerate();
    let flows = flows.filter(|(_, flow)| flow.is_lasting && flow.stage == Stage::Established);
    let flows: Vec<(usize, Option<SocketAddr>)> = flows
        .map(|(number, flow)| (number, script.world.traffic.sockets[flow.socket].public))
        .collect();
    let other = script.strike(Fault::Kill { node: 1, ms: LASTING_MS });
    script.run(3_000);
    let silence_ms = script.longest_silence_ms();
    assert!(silence_ms <= 400, "{silence_ms} ms without translation");
    let mut going_on = 0;
    for &(number, public) in &flows {
        let flow = &script.world.traffic.flows[number];
        let socket = &script.world.traffic.sockets[flow.socket];
        assert_eq!(socket.public, public, "{socket}");
        if flow.is_lasting && flow.stage == Stage::Established {
            assert!(script.world.now_us < flow.answered_us + 700_000, "{socket} gets no answer");
            going_on += 1;
        }
    }
    assert!(going_on > 20, "{going_on}");
    // The guest makes no new flow, so all flows have ended by the end of this; it keeps their
    // mappings.
    let before = mappings(&script.world, guest);
    script.run(60_000);
    assert!(are_all_guests(&script.world, 0, 4));
    assert_has(&script.world, guest, &before);
    // Both nodes are back at once: only the guest still has the mappings.
    bring_back(&mut script, etcd);
    script.mend(other);
    script.run_until(25_000, "whole", |world| world.why_not_whole().is_none());
    for node in 0..2 {
        assert_has(&script.world, only_worker(node), &before);
    }
}

#[test]
fn a_guest_becomes_a_member_again_when_etcd_is_back() {
    let (mut script, etcd) = with_guest();
    let guest = only_worker(0);
    let (held, lost) = (mappings(&script.world, guest), script.lost());
    assert!(held.len() > 12, "{}", held.len());
    bring_back(&mut script, etcd);
    let began_us = script.world.now_us;
    while let Some(why) = script.world.why_not_whole() {
        assert!(script.world.now_us < began_us + 25_000_000, "{why}");
        script.run(10);
        assert_has(&script.world, guest, &held);
    }
    assert!(!are_all_guests(&script.world, 0, 4));
    script.assert_nothing_lost(&lost);
}
