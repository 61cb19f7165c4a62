//! A small cluster: nodes of workers under [`Roles`], a store, a network, a switch, and the allocator as controller.
//! Orders, news, watches, answers of the store and routes are late; messages and watches get lost.

mod controller;
mod faults;
mod network;
mod node;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;

use weir_member::roles::*;
use weir_member::{PeerId, Roles};
use weir_replica::{Fingerprint, PeerSigns};
use weir_shard::allocate::{
    Acting, AllocateOptions, Change as Planned, Liveness, NodeView, ShardView, WorkerView, allocate,
};
use weir_shard::role::Metric;
use weir_shard::*;

use crate::dice::Dice;
use crate::store::{Change, Store};
use crate::worker::Worker;

pub(crate) const STEP_MS: u64 = 10;
/// How long a registration lasts after the last sign of life.
pub(crate) const LEASE_MS: u64 = 2_000;
/// The switch drops routes to a worker that is silent for so long.
const DETECTION_MS: u64 = 150;
const DECISIONS_MS: u64 = 100;
const LIST_MS: u64 = 3_000;
const QUARANTINE_MS: u64 = 500;
/// A process that stands still for so long is killed by its guard.
const KILLED_AFTER_MS: u64 = 1_000;

/// A route as the switch has it.
#[derive(Clone, Debug)]
struct SwitchRoute {
    at: (usize, usize),
    boot_id: BootId,
    metric: Metric,
}

/// All routes of a worker, and when the switch has them.
struct RouteList {
    due_ms: u64,
    worker: usize,
    number: u64,
    routes: Vec<(ShardId, Metric)>,
}

struct Process {
    roles: Roles,
    workers: Vec<Worker>,
    started_ms: u64,
    /// Up to where the store's log is known.
    seen: usize,
    list_due_ms: u64,
    is_stale: bool,
    /// It began without the store, and has not asked it yet.
    is_outside: bool,
    /// The lives before its workers', as its disk had them.
    formers: Vec<Option<BootId>>,
    /// Answers of the store on their way.
    answers: VecDeque<(u64, ShardId, bool)>,
    /// Lists of routes on their way to the switch.
    routes: VecDeque<RouteList>,
    routes_asked: Vec<u64>,
}

pub(crate) struct Node {
    pub(crate) name: NodeId,
    workers: usize,
    room: usize,
    process: Option<Process>,
    /// Since when the switches and others hear nothing of it.
    silent_since_ms: Option<u64>,
    /// SIGSTOP: nothing of it goes on.
    pub(crate) is_paused: bool,
    paused_ms: u64,
    pub(crate) is_cut_off: bool,
    pub(crate) is_without_store: bool,
    pub(crate) is_drained: bool,
    lease_until_ms: u64,
    known_epochs: BTreeMap<ShardId, Epoch>,
    /// What its last process had obeyed, and where it knew others to be.
    kept: Vec<Input>,
    /// The lives that the store was told of last.
    lives: Vec<BootId>,
    /// Of each worker the life before, as long as its record says that it resumes the seats of that.
    resumes: Vec<Option<BootId>>,
    /// It had copies when it asked the store again.
    has_copies: bool,
}

/// What has been seen of a play.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) acting: u64,
    pub(crate) fenced: u64,
    pub(crate) promoted: u64,
    pub(crate) grants: u64,
    pub(crate) lost_races: u64,
    pub(crate) lanes_passed_on: u64,
    pub(crate) removals: u64,
    /// Workers that resumed the seats of their former lives and had that written.
    pub(crate) resumed: u64,
}

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) dice: Dice,
    pub(crate) store: Store,
    pub(crate) nodes: Vec<Node>,
    pub(crate) shards: u32,
    pub(crate) options: AllocateOptions,
    pub(crate) is_controller_up: bool,
    /// One in so many messages between workers is lost.
    pub(crate) loss: u64,
    switch: BTreeMap<ShardId, Vec<SwitchRoute>>,
    /// Who has written each lane last, and up to where.
    top: BTreeMap<(ShardId, usize), (BootId, u64)>,
    boots: u128,
    /// Slots in which a shard's packets met nobody who serves it.
    pub(crate) lost_slots: BTreeMap<ShardId, u64>,
    pub(crate) seen: Seen,
}

pub(crate) fn address(node: usize, worker: usize) -> SocketAddrV4 {
    SocketAddrV4::new([10, 0, node as u8, 1 + worker as u8].into(), 7473)
}

pub(crate) fn desired(shards: u32) -> Vec<DesiredShard> {
    let shard = |id: u32| {
        let access = [10, 9, (id >> 8) as u8, id as u8].into();
        let public = vec![format!("198.18.{}.{}/32", id >> 8, id & 255).parse().expect("a prefix")];
        let engine = weir_engine::ShardConfig {
            id: ShardId(id),
            endpoint: Some(u32::from(access)),
            subscribers: Vec::new(),
        };
        let nat = weir_nat::ShardConfig { id: ShardId(id), public, subscribers_max: 100 };
        let setup = weir_member::order::ShardSetup { engine, nat, awaits_replicas: false };
        DesiredShard { id: ShardId(id), access, setup }
    };
    (1..=shards).map(shard).collect()
}

impl World {
    pub(crate) fn new(seed: u64, shards: u32, replicas: u8) -> Self {
        Self {
            now_ms: 1_000,
            dice: Dice::new(seed),
            store: Store::default(),
            nodes: Vec::new(),
            shards,
            options: AllocateOptions { replicas, ..AllocateOptions::default() },
            is_controller_up: true,
            loss: 20,
            switch: BTreeMap::new(),
            top: BTreeMap::new(),
            boots: 0,
            lost_slots: BTreeMap::new(),
            seen: Seen::default(),
        }
    }

    pub(crate) fn add_node(&mut self, workers: usize) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node {
            name: NodeId::new(&format!("n{node}")).expect("a name"),
            workers,
            room: usize::MAX,
            process: None,
            silent_since_ms: None,
            is_paused: false,
            paused_ms: 0,
            is_cut_off: false,
            is_without_store: false,
            is_drained: false,
            lease_until_ms: 0,
            known_epochs: BTreeMap::new(),
            kept: Vec::new(),
            lives: Vec::new(),
            resumes: Vec::new(),
            has_copies: false,
        });
        self.start(node);
        node
    }

    pub(crate) fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        let name = self.nodes[node].name.clone();
        let mut locals = Vec::new();
        let mut formers = Vec::new();
        let mut workers = Vec::new();
        for worker in 0..self.nodes[node].workers {
            self.boots += 1;
            let boot_id = BootId(self.boots);
            let replication = address(node, worker);
            let former = self.nodes[node].lives.get(worker).copied();
            formers.push(former);
            locals.push(LocalWorker { boot_id, replication, former });
            let worker = WorkerId { node: name.clone(), index: worker as u16 };
            let room = self.nodes[node].room;
            workers.push(Worker::new(
                Incarnation { worker, boot_id },
                PeerId::at(replication),
                room,
            ));
        }
        let mut roles = Roles::new(RolesConfig {
            node: name,
            workers: locals,
            known_epochs: self.nodes[node].known_epochs.clone(),
            options: RolesOptions { quarantine_ms: QUARANTINE_MS, ..RolesOptions::default() },
        });
        let fingerprint = Fingerprint::default();
        roles.on(self.now_ms, Input::Desired { shards: desired(self.shards), fingerprint });
        let is_outside = self.nodes[node].is_without_store;
        self.nodes[node].has_copies = false;
        for kept in self.nodes[node].kept.iter().filter(|_| is_outside) {
            roles.on(self.now_ms, kept.clone());
        }
        self.nodes[node].process = Some(Process {
            is_outside,
            formers,
            roles,
            routes_asked: vec![0; workers.len()],
            workers,
            started_ms: self.now_ms,
            seen: 0,
            list_due_ms: 0,
            is_stale: false,
            answers: VecDeque::new(),
            routes: VecDeque::new(),
        });
        (self.nodes[node].is_paused, self.nodes[node].silent_since_ms) = (false, None);
    }

    pub(crate) fn kill(&mut self, node: usize) {
        let Some(process) = self.nodes[node].process.take() else { return };
        let counters = process.roles.counters();
        self.seen.acting += counters.failovers_silence_total;
        self.seen.fenced += counters.failovers_fenced_total;
        self.seen.promoted += counters.failovers_promoted_total;
        self.nodes[node].is_paused = false;
        let nodes = self.store.log.iter().filter_map(|(_, change)| match change {
            Change::Node(node, Some(workers)) => Some((node.clone(), workers.clone())),
            _ => None,
        });
        let nodes = nodes.flat_map(|(node, workers)| {
            let gone = Input::Node { node: node.clone(), workers: None };
            [Input::Node { node, workers: Some(workers) }, gone]
        });
        let entries = process.roles.statuses().filter_map(|status| {
            Some(Input::Kept { shard: status.shard, entry: Box::new(status.entry?.clone()) })
        });
        self.nodes[node].kept = nodes.chain(entries).collect();
    }

    pub(crate) fn is_running(&self, node: usize) -> bool {
        self.nodes[node].process.is_some()
    }

    pub(crate) fn roles(&self, node: usize) -> Option<&Roles> {
        self.nodes[node].process.as_ref().map(|process| &process.roles)
    }

    pub(crate) fn roles_mut(&mut self, node: usize) -> Option<&mut Roles> {
        self.nodes[node].process.as_mut().map(|process| &mut process.roles)
    }

    pub(crate) fn worker(&self, who: &Incarnation) -> Option<&Worker> {
        let mut processes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        processes.find_map(|process| process.workers.iter().find(|worker| worker.me == *who))
    }

    pub(crate) fn only_worker(&self, node: usize) -> &Worker {
        &self.nodes[node].process.as_ref().expect("it runs").workers[0]
    }

    /// A process stands still.
    pub(crate) fn pause(&mut self, node: usize) {
        self.nodes[node].is_paused = self.is_running(node);
        self.nodes[node].paused_ms = self.now_ms;
    }

    /// A process that was stopped goes on as it was; after a second its guard has killed it, and it begins anew.
    pub(crate) fn resume(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].is_paused) {
            return;
        }
        if self.now_ms - self.nodes[node].paused_ms >= KILLED_AFTER_MS {
            self.kill(node);
            self.start(node);
        }
    }

    fn is_reached(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        node.process.is_some() && !node.is_paused && !node.is_cut_off
    }

    fn has_store(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        node.process.is_some() && !node.is_paused && !node.is_without_store
    }

    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms / STEP_MS {
            self.step();
        }
    }

    /// Until it is so, and not longer than `max_ms`; how long it took.
    pub(crate) fn run_until(
        &mut self,
        max_ms: u64,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) -> u64 {
        let began_ms = self.now_ms;
        while !is_so(self) {
            assert!(self.now_ms - began_ms < max_ms, "never {what}:\n{}", self.show());
            self.step();
        }
        self.now_ms - began_ms
    }

    pub(crate) fn step(&mut self) {
        self.now_ms += STEP_MS;
        self.renew_leases();
        self.obey();
        self.check_writers();
        self.exchange();
        self.switch_packets();
        for node in 0..self.nodes.len() {
            if self.nodes[node].process.is_some() && !self.nodes[node].is_paused {
                self.watch(node);
                self.tell(node);
                self.carry_out(node);
            }
        }
        if self.is_controller_up && self.now_ms.is_multiple_of(DECISIONS_MS) {
            self.decide();
        }
    }
}
