//! Scenarios that an operator would ask for, step by step: a small cluster under traffic, one fault
//! after the other, and the map, the roles and the packets in between. All checks of every history
//! run here, too.

mod failures;
mod moves;
mod without_etcd;

use std::collections::BTreeMap;

use weir_etcd::Key;
use weir_map::{Incarnation, MemberState, ShardEntry, ShardId};
use weir_roles::Roles;
use weir_roles::ShardRoleStatus;
use weir_roles::role::Role;

use super::World;
use crate::fault::{Fault, Timed};
use crate::options::Options;
use crate::site::WorkerPosition;

/// Duration of a fault that lasts until the script mends it.
const LASTING_MS: u64 = 10_000_000;
/// Longest time from a node's last heartbeat to the end of its registration.
const LEASE_MS: u64 = 10_500;
/// Longest time until a whole cluster rests: it may wait for a lease, then it copies, then it
/// balances.
const REST_MS: u64 = 60_000;

/// A cluster that a test controls.
struct Script {
    world: World,
    /// By shard: packets that have reached servers, time of the last one, and the longest time
    /// between two, in us.
    arrivals: BTreeMap<u32, (u64, u64, u64)>,
}

impl Script {
    /// Creates a cluster of nodes with one worker each, on links that lose nothing.
    fn new(nodes: usize, shards: u32, replicas: u8) -> Self {
        Self::with(nodes, shards, replicas, |_| {})
    }

    fn with(nodes: usize, shards: u32, replicas: u8, change: impl FnOnce(&mut Options)) -> Self {
        let seed = 7;
        let mut options = Options {
            nodes,
            workers_per_node: 1,
            shards,
            replicas,
            commit: None,
            idle_sec: None,
            has_ipv6: true,
            start_us: 3_500_000,
            faults: 0,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            switch_max_us: 40_000,
            detect_us: 150_000,
            ..Options::of_seed(seed)
        };
        change(&mut options);
        Self { world: World::new(seed, &options, &[], false), arrivals: BTreeMap::new() }
    }

    /// Creates such a cluster and waits until it is whole and at rest.
    fn at_rest(nodes: usize, shards: u32, replicas: u8) -> Self {
        let mut script = Self::new(nodes, shards, replicas);
        script.rest();
        script
    }

    /// Runs until the cluster is whole and at rest.
    fn rest(&mut self) {
        self.run_until(REST_MS, "whole and at rest", World::is_at_rest);
        self.arrivals.clear();
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.world.run_to(self.world.now_us + 1_000);
            assert_eq!(self.world.violation, None);
            self.look_at_arrivals();
        }
        self.world.control.read();
    }

    fn look_at_arrivals(&mut self) {
        let Self { world, arrivals } = self;
        let mut received = BTreeMap::<u32, u64>::new();
        for flow in &world.traffic.flows {
            *received.entry(world.traffic.sockets[flow.socket].shard).or_default() += flow.got_up;
        }
        for (shard, received) in received {
            let new = (received, world.now_us, 0);
            let (before, last_us, longest_us) = arrivals.entry(shard).or_insert(new);
            *longest_us = (*longest_us).max(world.now_us - *last_us);
            if *before != received {
                (*before, *last_us) = (received, world.now_us);
            }
        }
    }

    /// Returns the longest time, since the cluster rested, in which no packet of a shard has
    /// reached a server, of the shard that suffered most.
    fn longest_silence_ms(&self) -> u64 {
        self.arrivals.values().map(|it| it.2 / 1_000).max().expect("each shard has packets")
    }

    /// Runs until a condition holds; returns how long that took, in milliseconds.
    fn run_until(&mut self, max_ms: u64, what: &str, is_so: impl Fn(&World) -> bool) -> u64 {
        let began_us = self.world.now_us;
        let waited_ms = |world: &World| (world.now_us - began_us) / 1_000;
        while !is_so(&self.world) {
            let why = self.world.why_not_whole();
            assert!(waited_ms(&self.world) < max_ms, "never {what}: {why:?}");
            self.run(10);
        }
        waited_ms(&self.world)
    }

    /// Returns the packets that each flow has lost, up and down: one that is missing for a tenth of
    /// a second is not under way.
    fn lost(&mut self) -> Vec<(u64, u64)> {
        let missing = |script: &Self| -> Vec<(u64, u64)> {
            script.world.traffic.flows.iter().map(|flow| flow.missing()).collect()
        };
        let mut fewest = missing(self);
        for _ in 0..100 {
            self.run(1);
            for (fewest, now) in fewest.iter_mut().zip(missing(self)) {
                *fewest = (fewest.0.min(now.0), fewest.1.min(now.1));
            }
        }
        fewest
    }

    /// Checks that no flow has lost more than `before`, and that a flow which has begun since has
    /// lost nothing.
    fn assert_nothing_lost(&mut self, before: &[(u64, u64)]) {
        let lost = self.lost();
        for (flow, lost) in lost.into_iter().enumerate() {
            let before = before.get(flow).copied().unwrap_or_default();
            let socket = &self.world.traffic.sockets[self.world.traffic.flows[flow].socket];
            assert!(lost <= before, "{socket} has lost {lost:?} up and down, {before:?} before");
        }
    }

    /// Strikes a fault; returns its number, by which it is mended.
    fn strike(&mut self, fault: Fault) -> usize {
        let world = &mut self.world;
        world.faults.push(Timed { after_us: 0, fault });
        world.struck_us.push(world.now_us);
        let number = world.faults.len() - 1;
        world.strike(number);
        number
    }

    fn mend(&mut self, number: usize) {
        self.world.mend(number);
    }

    /// Cuts the power of the node's machine, which keeps its disk.
    fn cut_power(&mut self, node: usize) -> usize {
        self.strike(Fault::Crash { node, ms: LASTING_MS, keeps_disk: true })
    }

    fn primary(&self, shard: u32) -> Incarnation {
        self.world.entry(shard).primary().incarnation.clone()
    }

    fn node_of(&self, who: &Incarnation) -> usize {
        let mut nodes = self.world.nodes.iter();
        nodes.position(|node| node.name == who.worker.node).expect("the worker's node exists")
    }

    /// True if the node's key is in etcd.
    fn is_registered(&self, node: usize) -> bool {
        let plane = &self.world.control.plane;
        let key = Key::Node(self.world.nodes[node].name.clone());
        plane.etcd.get(&plane.keys().path(&key)).is_some()
    }
}

/// Queries of the scripts.
impl World {
    fn roles(&self, node: usize) -> &Roles {
        self.nodes[node].process.as_ref().expect("the node's process runs").core.roles()
    }

    fn statuses(&self, node: usize) -> Vec<ShardRoleStatus<'_>> {
        self.roles(node).statuses().collect()
    }

    fn primaries(&self, node: usize) -> usize {
        let statuses = self.roles(node).statuses();
        statuses.filter(|status| status.role == Role::Primary).count()
    }

    fn entry(&self, shard: u32) -> &ShardEntry {
        &self.control.entries()[&ShardId(shard)]
    }

    /// Returns the members of a shard with a full copy.
    fn synced(&self, shard: u32) -> impl Iterator<Item = &Incarnation> {
        let members = self.entry(shard).members().iter();
        let synced = members.filter(|member| member.state == MemberState::Synced);
        synced.map(|member| &member.incarnation)
    }
}

/// Returns the only worker of a node.
fn only_worker(node: usize) -> WorkerPosition {
    WorkerPosition { node, worker: 0 }
}
