//! A node's roles: a role machine for each of its workers and shards, and what follows from them
//! all.
//!
//! ```text
//!   Input                                                                        for each worker:
//!   store: entries, nodes, file --+    +-- directory: where each worker is --+   next_order
//!   worker: events, traffic, -----+--> |                                     +-> wanted_routes
//!     heartbeats                  |    +-- worker: peers, and a shard role --+
//!   guard: routes out ------------+        in each shard: tables, RoleMachine    for the node:
//!   time -------------------------+                                              take_changes
//!                                                                                report, statuses
//! ```
//!
//! - Commands go to the workers' replication (`next_order`), routes to the guard, changes to the
//!   store, and the report to the controller.
//! - Everything is a level: commands are differences to the last ones sent, a change is tried
//!   again until the entry is another one, routes are a numbered list. So anything late or lost is
//!   repaired by what comes next.
//! - A role begins when the worker has made room for its tables, and the room is given back when
//!   its route is withdrawn.
//! - A node that starts while the store is unreachable is handed the entries that it has kept
//!   (`Kept`): its workers are guests of the shards that name their former incarnations as members,
//!   until an entry says otherwise. The copies of a guest whose entry may not be followed
//!   (`RoleMachine::keeps_copies_under`) are forgotten, together with the tables, before it is a
//!   member. When all members of a shard are guests, they resume their member slots (`comeback`).
//! - A shard role rests until something happens: its primary's heartbeats are remembered by peer,
//!   and handed to the role before the next event. So 4,000 quiet shards cost nothing in a slot.
//! - An entry older than any that was seen is not obeyed. After the store was set back
//!   (`Restored`), a shard whose entry is older than what was seen here, or another one of the same
//!   epoch, obeys no entry: the two histories may give a lane to two workers. The shard is served
//!   as before and named in its status and in `doubts`, until an entry comes that was rebased above
//!   everything seen here (`Rebase`): that one is obeyed whatever the store held in the meantime.
//!
//! Commands wait here until they are taken, and none is left out: the list grows while a worker
//! takes none. A worker goes on with its lanes until a command says otherwise. This crate does no
//! I/O, knows neither etcd nor the kernel, and reads no clock.

#![forbid(unsafe_code)]

mod comeback;
mod directory;
mod duties;
mod entry_write;
mod hold_off;
mod input;
mod lost;
mod output;
mod peers;
pub mod role;
mod shard_role;
mod show;
mod wants;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::Ipv4Net;
use weir_map::{Epoch, Incarnation, NodeId, ShardEntry, ShardId, WorkerId};
use weir_nat::{AddressRanges, ShardIndex};
use weir_stream::Fingerprint;

pub use directory::NOBODY;
pub use input::{
    DesiredShard, LocalWorker, NodeWorker, RolesConfig, RolesInput, RolesOptions, SidesUp,
};
pub use output::{
    AtStake, EntryChange, RolesCounters, RolesReport, SetBack, ShardRoleStatus, Trouble,
    WantedRoute,
};

use shard_role::ShardRole;
use worker::{RolesShared, WorkerRoles};

use role::Role;
use weir_replication::WorkerCommand;

/// The roles of all workers of a node.
#[derive(Debug)]
pub struct Roles {
    node: NodeId,
    shared: RolesShared,
    workers: Vec<WorkerRoles>,
    fingerprint: Option<Fingerprint>,
    /// Public addresses of all shards as the workers know them; sorted.
    all_public: Vec<Ipv4Net>,
    known_epochs: BTreeMap<ShardId, Epoch>,
    /// Known epochs that were not kept on disk yet. None: to be forgotten.
    unsaved_epochs: BTreeMap<ShardId, Option<Epoch>>,
    set_back: BTreeMap<ShardId, SetBack>,
    /// After a restore: entries and nodes that the store has not reported again.
    unconfirmed: BTreeSet<ShardId>,
    unconfirmed_nodes: BTreeSet<NodeId>,
    /// Desired shards whose entry was deleted.
    entry_gone: BTreeSet<ShardId>,
    /// Whether the store was restored: epochs alone cannot tell its histories apart any more.
    was_restored: bool,
    lost: lost::Lost,
    /// Set once the store is sent this node's record: up to when guests go on without hearing the
    /// store.
    guests_until_ms: Option<u64>,
}

impl Roles {
    pub fn new(config: RolesConfig) -> Self {
        let RolesConfig { node, workers, known_epochs, options } = config;
        let mut shared = RolesShared {
            now_ms: 0,
            is_registered: false,
            may_resume: true,
            is_fresh: false,
            options,
            directory: directory::Directory::default(),
            desired: BTreeMap::new(),
            entries: BTreeMap::new(),
            kept: BTreeMap::new(),
            counters: RolesCounters::default(),
        };
        let own = workers.iter().enumerate().map(|(index, worker)| NodeWorker {
            index: index as u16,
            boot_id: worker.boot_id,
            replication: worker.replication,
        });
        let own: Vec<NodeWorker> = own.collect();
        shared.directory.register(&node, Some(&own));
        let formers = workers.iter().map(|worker| worker.former);
        let workers = own.iter().zip(formers).map(|(worker, former)| {
            let id = WorkerId { node: node.clone(), index: worker.index };
            WorkerRoles::new(Incarnation { worker: id, boot_id: worker.boot_id }, former)
        });
        Self {
            workers: workers.collect(),
            node,
            shared,
            fingerprint: None,
            all_public: Vec::new(),
            known_epochs,
            unsaved_epochs: BTreeMap::new(),
            set_back: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            unconfirmed_nodes: BTreeSet::new(),
            entry_gone: BTreeSet::new(),
            was_restored: false,
            lost: lost::Lost::default(),
            guests_until_ms: None,
        }
    }

    /// Handles what happened at `now_ms`, which never goes back.
    pub fn on(&mut self, now_ms: u64, input: RolesInput) {
        self.shared.now_ms = now_ms.max(self.shared.now_ms);
        match input {
            RolesInput::Desired { shards, fingerprint } => self.desired(shards, fingerprint),
            RolesInput::Entry { shard, entry } => self.entry(shard, *entry),
            RolesInput::Kept { shard, entry } => self.kept(shard, *entry),
            RolesInput::Joining => {
                self.shared.may_resume = false;
                self.renew_guests();
            }
            RolesInput::Registered => self.shared.is_registered = true,
            RolesInput::Resumed => self.each_worker(WorkerRoles::end_resumed),
            RolesInput::EntryGone(shard) => {
                self.entry_gone.insert(shard);
                self.retire(shard);
            }
            RolesInput::Node { node, workers } => self.node(&node, workers.as_deref()),
            RolesInput::Fresh => self.fresh(),
            RolesInput::Restored => {
                self.was_restored = true;
                self.set_fresh(false);
                self.unconfirmed = self.shared.entries.keys().copied().collect();
                self.unconfirmed_nodes = self.shared.directory.registered();
            }
            RolesInput::Stale => self.set_fresh(false),
            RolesInput::Written { shard, is_done } => self.written(shard, is_done),
            RolesInput::Worker { worker, event } => {
                self.one_worker(worker, |it, shared| it.on_worker_event(shared, event))
            }
            RolesInput::Traffic { worker, shards } => {
                self.one_worker(worker, |it, _| it.traffic(&shards))
            }
            RolesInput::Heartbeats { worker, peer_index, signs } => {
                self.one_worker(worker, |it, shared| it.on_heartbeats(shared, peer_index, signs));
            }
            RolesInput::Sides { worker, sides } => {
                self.one_worker(worker, |it, shared| it.sides(shared, sides));
            }
            RolesInput::Rejoined { worker } => {
                self.one_worker(worker, |it, shared| it.rejoined(shared));
            }
            RolesInput::RoutesOut { worker, number } => {
                self.one_worker(worker, |it, shared| it.routes_out(shared, number));
            }
            RolesInput::Tick => self.tick(),
        }
    }

    fn one_worker(&mut self, worker: usize, what: impl FnOnce(&mut WorkerRoles, &mut RolesShared)) {
        if let Some(worker) = self.workers.get_mut(worker) {
            what(worker, &mut self.shared);
        }
    }

    fn each_worker(&mut self, mut what: impl FnMut(&mut WorkerRoles, &mut RolesShared)) {
        for worker in &mut self.workers {
            what(worker, &mut self.shared);
        }
    }

    fn desired(&mut self, shards: Vec<DesiredShard>, fingerprint: Fingerprint) {
        let shards = shards.into_iter().map(|shard| (shard.id, Arc::new(shard)));
        self.shared.desired = shards.collect();
        if self.fingerprint != Some(fingerprint) {
            self.fingerprint = Some(fingerprint);
            self.each_worker(|worker, _| {
                worker.commands.push_back(WorkerCommand::SetFingerprint(fingerprint))
            });
        }
        self.send_all_public();
        for shard in self.entry_gone.clone() {
            self.retire(shard);
        }
        self.each_worker(|worker, shared| worker.ask_for_tables(shared));
    }

    /// Sends the public addresses of all shards to the workers, which need those of other workers'
    /// shards, too.
    fn send_all_public(&mut self) {
        let desired = self.shared.desired.values();
        let mut public: Vec<Ipv4Net> =
            desired.flat_map(|shard| shard.setup.nat.public.iter().copied()).collect();
        public.sort_unstable();
        if public != self.all_public {
            let ranges = AddressRanges::new(public.iter().map(|&net| (net, ShardIndex(0))));
            let ranges = Arc::new(ranges);
            self.all_public = public;
            self.each_worker(|worker, _| {
                worker.commands.push_back(WorkerCommand::SetAllPublic(Arc::clone(&ranges)));
            });
        }
    }

    /// True if an entry that is handed in now would be obeyed, and is not yet. To be asked before
    /// the entry is kept for the next start.
    pub fn would_obey(&self, shard: ShardId, entry: &ShardEntry) -> bool {
        self.shared.entries.get(&shard) != Some(entry) && !self.is_refused(shard, entry)
    }

    /// True if an entry that is not held is of the past, or of another history.
    fn is_refused(&self, shard: ShardId, entry: &ShardEntry) -> bool {
        let known = self.known_epochs.get(&shard).copied().unwrap_or_default();
        let stored = entry.epoch();
        // A node that holds no entry may obey those of either history. An entry that was rebased
        // above everything seen here continues the history that this node knows.
        let is_ours = entry.rebased().is_some_and(|rebased| rebased > known);
        let is_held = self.shared.entries.contains_key(&shard);
        let is_doubted = self.entry_gone.contains(&shard) || self.set_back.contains_key(&shard);
        let is_in_doubt = !is_ours && is_held && (stored == known || is_doubted);
        stored < known || is_in_doubt
    }

    fn entry(&mut self, shard: ShardId, entry: ShardEntry) {
        self.unconfirmed.remove(&shard);
        let held = self.shared.entries.get(&shard);
        if held == Some(&entry) {
            self.set_back.remove(&shard);
            self.entry_gone.remove(&shard);
            return;
        }
        let stored = entry.epoch();
        if self.is_refused(shard, &entry) {
            let was_gone = self.entry_gone.contains(&shard);
            self.shared.counters.entries_refused_total += 1;
            if self.was_restored || was_gone || held.is_none() {
                let known = self.known_epochs.get(&shard).copied().unwrap_or_default();
                self.set_back.insert(shard, SetBack { known, stored: Some(stored) });
            }
            return;
        }
        self.set_back.remove(&shard);
        self.entry_gone.remove(&shard);
        self.know(shard, Some(stored));
        self.shared.entries.insert(shard, entry);
        self.each_worker(|worker, shared| worker.entry_changed(shared, shard));
    }

    /// Takes an entry that this node had obeyed before it started.
    fn kept(&mut self, shard: ShardId, entry: ShardEntry) {
        if self.known_epochs.get(&shard).is_some_and(|known| entry.epoch() < *known) {
            return;
        }
        self.shared.kept.insert(shard, entry);
        self.each_worker(|worker, shared| worker.entry_changed(shared, shard));
    }

    fn renew_guests(&mut self) {
        self.guests_until_ms = Some(self.shared.now_ms + self.shared.options.guest_ms);
    }

    /// Ends guests that do not hear the store, once it may know that their former incarnations have
    /// ended.
    fn look_at_guests(&mut self) {
        match self.guests_until_ms {
            None => {}
            Some(_) if self.shared.is_fresh => self.renew_guests(),
            Some(until_ms) if self.shared.now_ms < until_ms => {}
            Some(_) => {
                self.shared.kept.clear();
                self.each_worker(WorkerRoles::end_guests);
            }
        }
    }

    /// Notes the highest epoch that was seen of a shard, which is to be kept. None: the shard
    /// starts over.
    fn know(&mut self, shard: ShardId, epoch: Option<Epoch>) {
        let before = match epoch {
            Some(epoch) => self.known_epochs.insert(shard, epoch),
            None => self.known_epochs.remove(&shard),
        };
        if before != epoch {
            self.unsaved_epochs.insert(shard, epoch);
        }
    }

    /// Ends a shard that has no entry and is not desired any more. A desired shard goes on as it
    /// was: an entry that is deleted by mistake must not stop any worker.
    fn retire(&mut self, shard: ShardId) {
        if self.fingerprint.is_none() || self.shared.desired.contains_key(&shard) {
            return;
        }
        self.entry_gone.remove(&shard);
        self.set_back.remove(&shard);
        self.unconfirmed.remove(&shard);
        self.shared.entries.remove(&shard);
        self.shared.kept.remove(&shard);
        self.know(shard, None);
        self.each_worker(|worker, shared| worker.entry_changed(shared, shard));
    }

    fn node(&mut self, node: &NodeId, workers: Option<&[NodeWorker]>) {
        self.unconfirmed_nodes.remove(node);
        // A node knows itself better than its record does.
        if *node != self.node && self.shared.directory.register(node, workers) {
            self.each_worker(|worker, shared| worker.node_changed(shared, node));
        }
    }

    fn set_fresh(&mut self, is_fresh: bool) {
        if std::mem::replace(&mut self.shared.is_fresh, is_fresh) != is_fresh {
            self.each_worker(|worker, shared| {
                worker.commands.push_back(WorkerCommand::SetMapStale(!is_fresh));
                worker.renew_all(shared);
            });
        }
    }

    fn fresh(&mut self) {
        self.set_fresh(true);
        for shard in std::mem::take(&mut self.unconfirmed) {
            let known = self.known_epochs.get(&shard).copied().unwrap_or_default();
            self.set_back.insert(shard, SetBack { known, stored: None });
        }
        for node in std::mem::take(&mut self.unconfirmed_nodes) {
            self.node(&node, None);
        }
        // A shard that has ended while this node was away may start over.
        let RolesShared { entries, desired, .. } = &self.shared;
        let has_ended =
            |shard: &&ShardId| !entries.contains_key(*shard) && !desired.contains_key(*shard);
        let is_sure = self.fingerprint.is_some() && !self.was_restored;
        let ended = self.known_epochs.keys().filter(has_ended).filter(|_| is_sure);
        for shard in ended.copied().collect::<Vec<_>>() {
            self.know(shard, None);
        }
    }

    /// A write of the shard's entry has ended. While the roles thread stalls only the newest answer
    /// is kept, so one answer ends the wait of every worker of this node that has a write out. A
    /// write that is still under way and is tried again fails its comparison of revisions.
    fn written(&mut self, shard: ShardId, is_done: bool) {
        let Self { workers, shared, .. } = self;
        let mut is_any = false;
        for worker in workers {
            is_any |= worker.written(shared, shard);
        }
        shared.counters.changes_failed_total += u64::from(is_any && !is_done);
    }

    fn tick(&mut self) {
        self.look_at_guests();
        self.each_worker(|worker, shared| worker.tick(shared));
        self.look_for_lost();
    }

    /// Returns the next command of a worker; commands are to be handed on in this order.
    pub fn next_command(&mut self, worker: usize) -> Option<WorkerCommand> {
        self.workers.get_mut(worker)?.commands.pop_front()
    }

    /// Returns changes that are to be written now, `max` at most; `RolesInput::Written` answers
    /// each.
    pub fn take_changes(&mut self, max: usize) -> Vec<EntryChange> {
        let Self { workers, shared, set_back, .. } = self;
        let mut changes = Vec::new();
        for worker in workers {
            worker.take_changes(shared, set_back, &mut changes, max);
        }
        changes
    }

    /// Returns the number of the routes that a worker wants: it rises when they change. 0: none
    /// yet.
    pub fn routes_number(&self, worker: usize) -> u64 {
        self.workers.get(worker).map_or(0, |worker| worker.routes_number)
    }

    /// Returns the routes that a worker wants now, by shard; `RolesInput::RoutesOut` reports when
    /// they are out.
    pub fn wanted_routes(&self, worker: usize) -> Vec<WantedRoute> {
        self.workers.get(worker).map(WorkerRoles::wanted_routes).unwrap_or_default()
    }

    /// Returns the routes that all workers of the node want now, each with the index of its worker.
    /// If two workers are leaving the same shard, only one of their routes is returned: one route
    /// of a metric is enough.
    pub fn all_wanted_routes(&self) -> Vec<(usize, WantedRoute)> {
        let mut taken = BTreeSet::new();
        let routes = self.workers.iter().enumerate().flat_map(|(index, worker)| {
            worker.wanted_routes().into_iter().map(move |route| (index, route))
        });
        routes.filter(|(_, route)| taken.insert((route.shard.id, route.metric.0))).collect()
    }

    /// Returns for how many milliseconds the routes of a worker are held off, and of how many
    /// shards.
    pub fn held_off(&self, worker: usize) -> Option<(u64, usize)> {
        let worker = self.workers.get(worker).filter(|worker| !worker.held_off.is_empty())?;
        Some((worker.hold_off.left_ms(self.shared.now_ms), worker.held_off.len()))
    }

    /// Returns what shards would lose with a worker.
    pub fn at_stake(&self, worker: usize) -> AtStake {
        let roles = self.workers.get(worker).into_iter().flat_map(|worker| worker.roles.values());
        roles.map(ShardRole::at_stake).fold(AtStake::default(), |all, one| AtStake {
            is_serving: all.is_serving | one.is_serving,
            is_only_copy: all.is_only_copy | one.is_only_copy,
        })
    }

    /// True if some worker has full copies of a shard that names only a former incarnation of it.
    pub fn has_guests_with_copies(&self) -> bool {
        self.roles().any(|(_, _, role)| role.machine.is_guest() && role.role() == Role::Synced)
    }

    /// True if some worker has resumed the member slot of a former incarnation, and the entry does
    /// not say so yet: until then the node's record has to name that incarnation, since a record
    /// without it proves its end.
    pub fn is_resuming(&self) -> bool {
        let is_in_doubt = |shard| self.set_back.contains_key(&shard);
        self.roles().any(|(_, shard, role)| role.machine.has_resumed() && !is_in_doubt(shard))
    }

    /// Returns the highest epochs that have changed since the last call, to be kept for the next
    /// start. None: forget it.
    pub fn take_epochs(&mut self) -> BTreeMap<ShardId, Option<Epoch>> {
        std::mem::take(&mut self.unsaved_epochs)
    }

    pub fn counters(&self) -> RolesCounters {
        self.shared.counters
    }

    /// True if the store's state is known in full and is current.
    pub fn is_fresh(&self) -> bool {
        self.shared.is_fresh
    }

    fn roles(&self) -> impl Iterator<Item = (usize, ShardId, &ShardRole)> {
        let workers = self.workers.iter().enumerate();
        workers.flat_map(|(index, worker)| {
            worker.roles.iter().map(move |(&shard, role)| (index, shard, role))
        })
    }

    /// True if a worker of this node serves a shard, or announces it better than a replica, while a
    /// worker of another node has a full copy of it: a node that ends in order waits until there is
    /// no such shard.
    pub fn has_to_hand_over(&self) -> bool {
        self.roles().any(|(_, _, role)| {
            let is_served = matches!(role.role(), Role::Primary | Role::Acting);
            (is_served || role.keeps_former_route())
                && role.others_synced().any(|other| other.worker.node != self.node)
        })
    }

    /// True if the store is known, and nothing is under way in any shard of this node.
    pub fn has_settled(&self) -> bool {
        self.shared.is_fresh
            && self.set_back.is_empty()
            && self.workers.iter().all(WorkerRoles::has_settled)
    }

    /// Returns the shards whose entries in the store are not obeyed, or are gone, each with the
    /// highest epoch that was seen of it and the entry that is obeyed instead. None: no entry is,
    /// since this node has restarted.
    pub fn doubts(&self) -> impl Iterator<Item = (ShardId, Epoch, Option<&ShardEntry>)> {
        let shards: BTreeSet<ShardId> =
            self.set_back.keys().chain(&self.entry_gone).copied().collect();
        shards.into_iter().filter_map(|shard| {
            Some((shard, *self.known_epochs.get(&shard)?, self.shared.entries.get(&shard)))
        })
    }

    /// Returns the shards whose entries are not obeyed since the store was set back, whether this
    /// node serves them or not.
    pub fn set_back(&self) -> impl Iterator<Item = (ShardId, SetBack)> {
        self.set_back.iter().map(|(&shard, &set_back)| (shard, set_back))
    }
}
