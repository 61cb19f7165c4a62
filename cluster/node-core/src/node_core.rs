//! The core of a node, which joins its roles with etcd, its workers, its guard and its disk.

mod from_etcd;
pub(crate) mod joining;
mod shown;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_config::Desired;
use weir_etcd::{NodeRecord, Revision};
use weir_map::{BootId, NodeId, ShardEntry, ShardId, WorkerId};
use weir_roles::{AtStake, LocalWorker, Roles, RolesConfig, RolesInput, RolesOptions, SidesUp};
use weir_routes::{Fence, Stake};

use crate::action::CoreAction;
use crate::event::{CoreEvent, GuardReport, WorkerSlot};
use crate::hand_over::HandOver;
use crate::input_queue::InputQueue;
use crate::known_map::KnownMap;
use crate::map_keeper::MapKeeper;
use crate::routes::{RouteList, WorkerAddresses, lists};
use crate::setup::workers_of;
use joining::{Joining, Outside};

/// Largest number of changes of entries that are written together.
const CHANGES_MAX: usize = 256;
/// Time between two looks at what shards would lose with each worker.
const STAKE_INTERVAL: Duration = Duration::from_millis(200);

/// The state with which a node begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CoreStart {
    pub node: NodeId,
    /// The record as it is to be registered: every worker states where it is reached.
    pub record: NodeRecord,
    /// Addresses of each worker.
    pub addresses: Vec<WorkerAddresses>,
    /// The map as it lies on disk, of this cluster.
    pub map: KnownMap,
    pub desired: Desired,
    /// Whether the cluster's settings were read from disk.
    pub is_without_etcd: bool,
}

impl CoreStart {
    /// True if every worker states where it is reached, and has its addresses.
    pub(crate) fn is_whole(&self) -> bool {
        let own = workers_of(&self.record).len();
        own == self.record.workers.len() && own == self.addresses.len() && own > 0
    }
}

/// The state of the guard of the routes, as it was heard last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardState {
    Works,
    /// The guard stalls: no route is set or withdrawn.
    Silent,
    /// There is no guard, for this reason, and so no route.
    Absent(String),
}

/// Everything that a node decides beside its packets. See the [crate].
#[derive(Debug)]
pub struct Core {
    node: NodeId,
    now: Duration,
    roles: Roles,
    /// The store's entries, each with the revision that it is compared by when it is written.
    entries: BTreeMap<ShardId, (Revision, ShardEntry)>,
    /// Reports of etcd that the roles do not know yet.
    inputs: InputQueue,
    keeper: MapKeeper,
    /// None: the node takes part.
    joining: Option<Joining>,
    record: NodeRecord,
    /// The current incarnation of each worker, and the last one before it that etcd was sent.
    boot_ids: Vec<BootId>,
    formers: Vec<Option<BootId>>,
    desired: Desired,
    addresses: Vec<WorkerAddresses>,
    routes: Vec<RouteList>,
    /// Number of slots that each worker had ended when it was looked at last.
    slots: Vec<u64>,
    sides: Vec<SidesUp>,
    stakes: Vec<Option<Stake>>,
    stakes_due: Duration,
    names: BTreeMap<SocketAddr, WorkerId>,
    is_registered: bool,
    hand_over: HandOver,
    guard: GuardState,
    guard_restarts_total: u64,
    watchdog_trips_total: u64,
    /// Whether the last save is under way, after which the node ends.
    is_ending: bool,
    has_ended: bool,
    actions: VecDeque<CoreAction>,
}

impl Core {
    /// `now`: time since any moment, the same in all calls.
    pub fn new(now: Duration, start: CoreStart) -> Self {
        let CoreStart { node, record, addresses, map, desired, is_without_etcd } = start;
        let own = workers_of(&record);
        let formers: Vec<Option<BootId>> = (0..own.len()).map(|worker| map.life(worker)).collect();
        let locals = own.iter().zip(&formers).map(|(worker, &former)| LocalWorker {
            boot_id: worker.boot_id,
            replication: worker.replication,
            former,
        });
        let roles = Roles::new(RolesConfig {
            node: node.clone(),
            workers: locals.collect(),
            known_epochs: map.epochs().collect(),
            options: RolesOptions {
                quarantine_ms: 1000 * u64::from(desired.nat.quarantine_sec),
                ..RolesOptions::default()
            },
        });
        let outside = is_without_etcd.then(|| Outside::new(now, node.as_str(), &map));
        let workers = own.len();
        let mut core = Self {
            node,
            now,
            roles,
            entries: BTreeMap::new(),
            inputs: InputQueue::default(),
            keeper: MapKeeper::new(map),
            joining: Some(Joining::new(outside)),
            record,
            boot_ids: own.iter().map(|worker| worker.boot_id).collect(),
            formers,
            desired: desired.clone(),
            addresses,
            routes: vec![RouteList::default(); workers],
            slots: vec![0; workers],
            sides: vec![SidesUp::default(); workers],
            stakes: vec![None; workers],
            stakes_due: now,
            names: BTreeMap::new(),
            is_registered: false,
            hand_over: HandOver::default(),
            guard: GuardState::Works,
            guard_restarts_total: 0,
            watchdog_trips_total: 0,
            is_ending: false,
            has_ended: false,
            actions: VecDeque::new(),
        };
        core.apply(desired);
        if is_without_etcd {
            core.begin_outside();
        }
        core
    }

    /// Handles what happened at `now`, which never goes back. The consequences come with the next
    /// [`turn`](Self::turn).
    pub fn step(&mut self, now: Duration, event: CoreEvent) {
        self.now = now.max(self.now);
        if self.is_ending && !matches!(event, CoreEvent::Saved(_)) {
            return;
        }
        match event {
            CoreEvent::Mirror(event) => self.mirror(event),
            CoreEvent::Registration(registration) => self.registration(registration),
            CoreEvent::ClusterFound(found) => self.cluster_found(found),
            CoreEvent::Written { shard, how } => self.written(shard, how),
            CoreEvent::Saved(ended) => self.keeper.saved(ended),
            CoreEvent::Guard(report) => self.guard(report),
            CoreEvent::Worker { worker, event } => {
                self.pass_to_roles(RolesInput::Worker { worker, event })
            }
            CoreEvent::Rejoined { worker, fence, waited } => self.rejoined(worker, fence, waited),
            CoreEvent::Slot(workers) => self.slot(workers),
            CoreEvent::HandOver => self.hand_over.ask(self.now),
            CoreEvent::End => {
                self.is_ending = true;
                self.keeper.finish(self.now);
            }
        }
    }

    /// Computes everything that follows from the events so far, and from the time.
    pub fn turn(&mut self, now: Duration) {
        self.now = now.max(self.now);
        self.save();
        if self.is_ending {
            if !self.has_ended && self.keeper.has_finished(self.now) {
                self.has_ended = true;
                self.actions.push_back(CoreAction::Ended);
            }
            return;
        }
        self.hand_in();
        self.join();
        self.end_resuming();
        self.announce_hand_over();
        self.order_workers();
        self.write_changes();
        self.order_routes();
        self.look_at_stakes();
        self.save();
    }

    /// Returns the next action.
    pub fn next_action(&mut self) -> Option<CoreAction> {
        self.actions.pop_front()
    }

    fn now_ms(&self) -> u64 {
        self.now.as_millis() as u64
    }

    fn pass_to_roles(&mut self, input: RolesInput) {
        self.roles.on(self.now_ms(), input);
    }

    /// As [`pass_to_roles`](Self::pass_to_roles), in the order in which etcd reports and once the
    /// entries are on disk.
    fn queue(&mut self, input: RolesInput) {
        self.inputs.push(self.now, input, &self.roles, &mut self.keeper);
    }

    /// Hands the roles what need not wait any more.
    fn hand_in(&mut self) {
        while let Some(input) = self.inputs.next(self.now, &self.roles, &mut self.keeper) {
            self.pass_to_roles(input);
            for (shard, epoch) in self.roles.take_epochs() {
                self.keeper.set_epoch(self.now, shard, epoch);
            }
        }
    }

    fn save(&mut self) {
        if let Some(map) = self.keeper.next_save(self.now) {
            self.actions.push_back(CoreAction::Save(Box::new(map)));
        }
    }

    fn guard(&mut self, report: GuardReport) {
        match report {
            GuardReport::Set { worker, number } => {
                let worker = usize::from(worker);
                self.routes[worker].set(number);
                self.pass_to_roles(RolesInput::RoutesOut { worker, number });
            }
            GuardReport::NotSet { worker, number, why } => {
                tracing::error!(event = "routes-refused", worker, "{why}");
                self.routes[usize::from(worker)].not_set(self.now, number);
            }
            GuardReport::Fenced { worker } => {
                self.watchdog_trips_total += 1;
                self.routes[usize::from(worker)].fenced();
                tracing::warn!(
                    event = "worker-fenced",
                    worker,
                    "a worker stood still, so its routes are a last resort"
                );
            }
            GuardReport::Silent => {
                self.guard = GuardState::Silent;
                tracing::error!(
                    event = "guard-silent",
                    "the guard of the routes stands still: the routes of a worker that ends would stay"
                );
            }
            GuardReport::Awake => {
                self.guard = GuardState::Works;
                tracing::info!(event = "guard-resumed", "the guard of the routes goes on");
            }
            GuardReport::Absent { why } => {
                self.guard_restarts_total += 1;
                tracing::error!(
                    event = "guard-restarted",
                    "no route is announced, there is no guard: {why}"
                );
                self.guard = GuardState::Absent(why);
            }
            GuardReport::Log { text } => {
                self.guard_restarts_total += 1;
                self.guard = GuardState::Works;
                tracing::warn!(event = "guard-restarted", "{text}");
            }
        }
    }

    /// Has a worker's withdrawn routes set again, as the roles want them now.
    fn rejoined(&mut self, worker: usize, fence: Fence, waited: usize) {
        tracing::info!(event = "worker-rejoined", worker, waited, "a worker goes on");
        self.routes[worker].rejoined(self.now, fence);
        self.pass_to_roles(RolesInput::Rejoined { worker });
        if let Some((left_ms, shards)) = self.roles.held_off(worker) {
            let hold_off_sec = left_ms / 1000;
            tracing::warn!(
                event = "routes-held-off",
                worker,
                shards,
                hold_off_sec,
                "worker {worker} stands still again and again: its routes are held off for {hold_off_sec} s"
            );
        }
    }

    /// Takes what the workers show, and ends a slot.
    fn slot(&mut self, workers: Vec<WorkerSlot>) {
        for (worker, shown) in workers.into_iter().enumerate() {
            // A worker that has not looked knows nothing of its peers' silence.
            let has_looked = shown.slots != mem::replace(&mut self.slots[worker], shown.slots);
            if has_looked {
                for (peer_index, signs) in shown.peers {
                    self.pass_to_roles(RolesInput::Heartbeats { worker, peer_index, signs });
                }
            }
            if !shown.busy.is_empty() {
                self.pass_to_roles(RolesInput::Traffic { worker, shards: shown.busy });
            }
            let (is_access_up, is_internet_up) = (shown.is_access_up, shown.is_internet_up);
            let before = self.sides[worker];
            let is_ready = before.is_ready || is_access_up && is_internet_up;
            let sides = SidesUp { is_ready, is_access_up, is_internet_up };
            if sides != before {
                self.sides[worker] = sides;
                self.pass_to_roles(RolesInput::Sides { worker, sides });
            }
        }
        self.pass_to_roles(RolesInput::Tick);
        if self.hand_over.slot(self.now, self.roles.has_to_hand_over()) {
            self.actions.push_back(CoreAction::HandedOver);
        }
    }

    fn announce_hand_over(&mut self) {
        let can_routes_follow = self.guard != GuardState::Silent;
        if self.hand_over.announce(self.now, can_routes_follow) {
            self.record.is_stopping = true;
            self.register();
        }
    }

    fn order_workers(&mut self) {
        for worker in 0..self.routes.len() {
            while let Some(command) = self.roles.next_command(worker) {
                self.actions.push_back(CoreAction::Command { worker, command });
            }
        }
    }

    fn write_changes(&mut self) {
        for change in self.roles.take_changes(CHANGES_MAX) {
            let shard = change.shard;
            let next = self.entries.get(&shard).and_then(|(revision, entry)| {
                let next = entry.after(change.at, &change.transition).ok()?;
                Some((*revision, Box::new(next)))
            });
            match next {
                Some((expected, entry)) => {
                    self.actions.push_back(CoreAction::Write { shard, expected, entry });
                }
                // The entry has moved on already; the role will see that.
                None => self.pass_to_roles(RolesInput::Written { shard, is_done: false }),
            }
        }
    }

    /// Sends the guard route lists that changed, and lists that are to be tried again.
    fn order_routes(&mut self) {
        let now = self.now;
        let is_due =
            |worker: &usize| self.routes[*worker].is_due(now, self.roles.routes_number(*worker));
        let due: Vec<usize> = (0..self.routes.len()).filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        let wanted = self.roles.all_wanted_routes();
        let mut lists = match lists(&self.addresses, &self.sides, &wanted, &self.desired.cluster) {
            Ok(lists) => lists,
            Err(error) => {
                tracing::error!(event = "routes-refused", "{error}");
                for worker in due {
                    self.routes[worker].impossible(now, self.roles.routes_number(worker));
                }
                return;
            }
        };
        for worker in due {
            let number = self.roles.routes_number(worker);
            let routes = mem::take(&mut lists[worker]);
            let fence = self.routes[worker].order(now, number, routes.clone());
            self.actions.push_back(CoreAction::SetRoutes { worker, number, fence, routes });
        }
    }

    fn look_at_stakes(&mut self) {
        if self.now < self.stakes_due {
            return;
        }
        self.stakes_due = self.now + STAKE_INTERVAL;
        for (worker, last) in self.stakes.iter_mut().enumerate() {
            let AtStake { is_serving, is_only_copy } = self.roles.at_stake(worker);
            let stake = Stake::new(is_serving, is_only_copy);
            if last.replace(stake) != Some(stake) {
                self.actions.push_back(CoreAction::SetStake { worker, stake });
            }
        }
    }
}
