//! The thread that joins the roles with all they hear and command. It decides nothing.
//!
//! It waits for messages, and every 10 ms looks at what the workers show: which shards had packets, which peers are
//! silent, which sides are up. What follows goes out at once: orders, writes, lists of routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_cluster::{ClaimEvent, Key, MirrorEvent, NodeRecord, Outcome, Revision};
use weir_config::{Desired, Shard};
use weir_engine::Side;
use weir_member::News;
use weir_member::order::ShardSetup;
use weir_member::replication::ReplicationStatus;
use weir_member::roles::{DesiredShard, Input, NodeWorker, Roles, SidesUp};
use weir_nat::ShardIndex;
use weir_replica::{Fingerprint, FingerprintPart};
use weir_shard::{BootId, NodeId, ShardEntry, ShardId, WorkerId};
use weir_steer::wanted::{self, Limits};
use weir_steer::{Fence, Route, SharedWords, WorkerIndex};

use super::bird_thread::BirdSide;
use super::etcd_tasks::EtcdTasks;
use super::guard_thread::{GuardNews, GuardThread};
use super::inbox::{Inbox, Receiver};
use super::key_state::KeyState;
use super::map_saver::{Change, MapSaver};
use super::member_board::MemberBoard;
use super::news_queue::NewsQueue;
use super::outside::Outside;
use super::worker_part::WorkerLink;
use crate::engine_config::{engine_shard, nat_shard};
use crate::node::{Node, ShardHandle};
use crate::turns::Thread;

/// Between two looks at the workers.
const SLOT: Duration = Duration::from_millis(10);
/// Messages taken between two looks.
const MESSAGES_MAX: usize = 4096;
/// Changes of entries that are written together.
const CHANGES_MAX: usize = 256;
/// Between two copies of the status for others to read.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);
/// A list of routes that the guard has not answered for so long is not waited for.
const ROUTES_PATIENCE: Duration = Duration::from_secs(1);
/// A list of routes that the kernel refused in part is set again after this.
const ROUTES_RETRY: Duration = Duration::from_secs(1);

/// What the thread begins with.
pub(super) struct Parts {
    pub roles: Roles,
    pub inbox: Receiver,
    pub links: Vec<WorkerLink>,
    pub node: Arc<Node>,
    pub etcd: Arc<EtcdTasks>,
    pub guard: GuardThread,
    /// What the guard reads of this thread.
    pub words: Arc<SharedWords>,
    pub map: MapSaver,
    /// What the cluster is was known from the disk.
    pub is_without_etcd: bool,
    pub board: Arc<MemberBoard>,
    pub record: NodeRecord,
    /// This life of each worker.
    pub boot_ids: Vec<BootId>,
    /// The last life of each that etcd was told of before.
    pub formers: Vec<Option<BootId>>,
    pub desired: Desired,
    pub keys: KeyState,
    /// Addresses of each worker: access, internet.
    pub addresses: Vec<[Ipv4Addr; 2]>,
}

/// The thread's own state.
pub(super) struct RolesThread {
    pub(super) parts: Parts,
    began: Instant,
    /// The store's entries, with what they are compared by when they are written.
    entries: BTreeMap<ShardId, (Revision, ShardEntry)>,
    /// What etcd has told and the roles do not know yet.
    news: NewsQueue,
    /// Until the node joins: it was started without etcd.
    pub(super) outside: Option<Outside>,
    /// etcd answers, and holds the cluster that a node knows that has begun without it.
    is_found: bool,
    /// That it is to be told of this process.
    noted: Option<Change>,
    /// By worker.
    pub(super) routes: Vec<Set>,
    /// Slots that each worker had ended when it was looked at last.
    slots: Vec<u64>,
    has_been_up: Vec<bool>,
    pub(super) sides: Vec<SidesUp>,
    /// Where each worker has its shards.
    pub(super) places: BTreeMap<(usize, ShardId), ShardIndex>,
    /// Slots with packets of a shard since the status was shown.
    pub(super) busy_slots: BTreeMap<(usize, ShardId), u32>,
    /// As each worker reported it last.
    pub(super) replication: Vec<Option<Box<ReplicationStatus>>>,
    /// Names of the workers of the cluster, by where they are reached.
    pub(super) names: BTreeMap<SocketAddr, WorkerId>,
    /// Empty: BIRD is not watched, or the first look has not ended.
    pub(super) bird: Vec<BirdSide>,
    pub(super) is_registered: bool,
    is_asked_to_hand_over: bool,
    pub(super) is_stopping: bool,
    pub(super) guard: GuardState,
    has_ended: bool,
    pub(super) guard_restarts_total: u64,
    pub(super) watchdog_trips_total: u64,
    shown: Option<Instant>,
}

/// The guard of the routes, as it was heard last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GuardState {
    Works,
    /// It stands still: no route is set or withdrawn.
    Silent,
    /// There is none, for this reason; and so no route.
    Absent(String),
}

/// The routes of a worker as they were set last.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    /// As the roles count them.
    number: u64,
    /// The last one that the worker has acknowledged.
    fence: Fence,
    pub(super) routes: Vec<Route>,
    pub(super) is_set: bool,
    retry: Option<Instant>,
    /// When the list was ordered, until the guard has answered: changes gather meanwhile.
    ordered: Option<Instant>,
}

/// Runs until it is told to end.
pub(super) fn run(parts: Parts) {
    let workers = parts.links.len();
    let now = Instant::now();
    let outside = || Outside::new(&parts.node.name, parts.map.map());
    let mut thread = RolesThread {
        began: now,
        entries: BTreeMap::new(),
        news: NewsQueue::default(),
        outside: parts.is_without_etcd.then(outside),
        is_found: false,
        noted: None,
        routes: vec![Set::default(); workers],
        slots: vec![0; workers],
        has_been_up: vec![false; workers],
        sides: vec![SidesUp::default(); workers],
        places: BTreeMap::new(),
        busy_slots: BTreeMap::new(),
        replication: (0..workers).map(|_| None).collect(),
        names: BTreeMap::new(),
        bird: Vec::new(),
        is_registered: false,
        is_asked_to_hand_over: false,
        is_stopping: false,
        guard: GuardState::Works,
        has_ended: false,
        guard_restarts_total: 0,
        watchdog_trips_total: 0,
        shown: None,
        parts,
    };
    thread.apply(thread.parts.desired.clone());
    thread.begin();
    thread.outside.iter().for_each(Outside::begun);
    let mut slot_ends = now + SLOT;
    loop {
        let wait = slot_ends.saturating_duration_since(Instant::now());
        if let Some(message) = thread.parts.inbox.recv_timeout(wait) {
            thread.take_all(message);
        }
        if thread.has_ended {
            break;
        }
        let now = Instant::now();
        if now >= slot_ends {
            // Slots that were slept through are gone: nothing is counted twice.
            slot_ends = now + SLOT;
            thread.end_slot();
        }
        thread.carry_out(now);
        thread.parts.node.turns.turned(Thread::Roles);
    }
    thread.parts.node.turns.ended(Thread::Roles);
    thread.parts.map.finish();
}

impl RolesThread {
    pub(super) fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn tell(&mut self, input: Input) {
        let now_ms = self.now_ms();
        self.parts.roles.on(now_ms, input);
    }

    /// As [`tell`](Self::tell), in the order in which etcd has told it and once its entries are on disk.
    fn queue(&mut self, input: Input) {
        let Parts { roles, map, .. } = &mut self.parts;
        self.news.push(Instant::now(), input, roles, map);
    }

    /// Tells the roles what need not wait any more.
    fn hand_in(&mut self, now: Instant) {
        while let Some(input) = self.news.next(now, &self.parts.roles, &mut self.parts.map) {
            self.tell(input);
            for (shard, epoch) in self.parts.roles.take_epochs() {
                self.parts.map.set_epoch(now, shard, epoch);
            }
        }
    }

    /// A node that begins without etcd knows from its disk where others are reached, and what its former lives were members
    /// of: of that its workers take copies. Not after an end that others may know of.
    fn begin(&mut self) {
        if self.outside.is_none() {
            return;
        }
        let map = self.parts.map.map().clone();
        for (name, text) in map.nodes() {
            let record = serde_json::from_str::<NodeRecord>(text);
            if let (Ok(node), Ok(record)) = (NodeId::new(name), record) {
                self.know_node(node.clone(), &record);
                // Whether it is registered now is not known.
                self.queue(Input::Node { node, workers: None });
            }
        }
        if !map.is_ended() {
            for (shard, entry) in map.entries() {
                self.queue(Input::Kept { shard, entry: Box::new(entry) });
            }
        }
    }

    /// Registers the node that has begun without etcd, once its lives are on disk.
    fn join(&mut self, now: Instant) {
        if !self.is_found || self.outside.is_none() {
            return;
        }
        let Parts { map, boot_ids, .. } = &mut self.parts;
        let noted = *self.noted.get_or_insert_with(|| map.begin_lives(now, boot_ids));
        if !map.is_saved(noted) && !map.is_stalled(now) {
            return;
        }
        if let Some(outside) = self.outside.take() {
            outside.ended();
            // Told before anything of etcd, and before etcd hears of this node.
            self.queue(Input::Joining);
            self.hand_in(Instant::now());
            // Of several that come back, one with copies is to be a member first.
            self.parts.record.has_copies = self.parts.roles.has_guests_with_copies();
            if self.parts.roles.is_resuming() {
                tracing::info!(
                    event = "seats-resumed",
                    "etcd is told which shards this node has resumed"
                );
                self.set_resumes(|former| former);
            }
            self.parts.etcd.mirror();
            self.parts.etcd.join(&self.parts.record);
        }
    }

    /// Once all entries say what was resumed, the record need not.
    fn end_resuming(&mut self) {
        let resumes = self.parts.record.workers.iter().any(|worker| worker.resumes.is_some());
        if resumes && self.parts.roles.is_fresh() && !self.parts.roles.is_resuming() {
            self.tell(Input::Resumed);
            self.set_resumes(|_| None);
            self.parts.etcd.update(self.parts.record.clone());
        }
    }

    fn set_resumes(&mut self, what: impl Fn(Option<BootId>) -> Option<BootId>) {
        for (worker, &former) in self.parts.record.workers.iter_mut().zip(&self.parts.formers) {
            worker.resumes = what(former).map(|it| it.to_string());
        }
    }

    fn take_all(&mut self, first: Inbox) {
        self.take(first);
        for _ in 0..MESSAGES_MAX {
            let Some(message) = self.parts.inbox.try_recv() else { break };
            self.take(message);
        }
    }

    fn take(&mut self, message: Inbox) {
        match message {
            Inbox::Etcd(event) => self.take_etcd(event),
            Inbox::Claim(event) => self.take_claim(&event),
            Inbox::ClusterFound(Ok(())) => self.is_found = true,
            Inbox::ClusterFound(Err(found)) => {
                self.outside.iter_mut().for_each(|it| it.other_cluster = Some(found.clone()));
            }
            // What waited for it is handed in next.
            Inbox::Saved => {}
            Inbox::Written { shard, outcome } => self.take_written(shard, outcome),
            Inbox::Guard(news) => self.take_guard(news),
            // No route is withdrawn for it: those that BIRD does not announce no switch has.
            Inbox::Bird(sides) => self.bird = sides,
            Inbox::Worker { worker, news, place } => self.take_news(worker, news, place),
            Inbox::Replication { worker, status } => self.replication[worker] = Some(status),
            Inbox::Rejoined { worker, fence, waited } => {
                tracing::info!(event = "worker-rejoined", worker, waited, "a worker goes on");
                self.rejoined(worker, fence);
            }
            Inbox::Keys(keys) => self.parts.keys.take(keys, &self.parts.links),
            Inbox::End => self.has_ended = true,
            Inbox::HandOver => self.is_asked_to_hand_over = true,
        }
    }

    fn take_etcd(&mut self, event: MirrorEvent) {
        match event {
            MirrorEvent::Put { key, value, mod_revision } => {
                self.take_key(key, &value, mod_revision)
            }
            MirrorEvent::Delete { key: Key::Shard(id) } => {
                self.entries.remove(&id);
                self.queue(Input::EntryGone(id));
            }
            MirrorEvent::Delete { key: Key::Node(name) } => {
                self.parts.map.set_node(Instant::now(), &name.to_string(), None);
                self.queue(Input::Node { node: name, workers: None });
            }
            MirrorEvent::Delete { .. } => {}
            MirrorEvent::SnapshotComplete { .. } => self.queue(Input::Fresh),
            MirrorEvent::Restored { reason, .. } => {
                tracing::error!(event = "map-set-back", ?reason, "etcd tells another history");
                self.entries.clear();
                self.queue(Input::Restored);
            }
            MirrorEvent::Stale => self.queue(Input::Stale),
        }
        self.hand_in(Instant::now());
    }

    fn take_key(&mut self, key: Key, value: &[u8], revision: Revision) {
        let unreadable = |what: &str, error: &dyn std::fmt::Display| {
            tracing::error!(event = "map-unreadable", "{what} in etcd cannot be read: {error}");
        };
        match key {
            Key::Shard(shard) => match ShardEntry::from_json(value) {
                Ok(entry) => {
                    self.entries.insert(shard, (revision, entry.clone()));
                    self.queue(Input::Entry { shard, entry: Box::new(entry) });
                }
                Err(error) => unreadable(&format!("shard {shard}"), &error),
            },
            Key::Node(node) => match serde_json::from_slice::<NodeRecord>(value) {
                Ok(record) => {
                    let text = String::from_utf8_lossy(value);
                    self.parts.map.set_node(Instant::now(), node.as_str(), Some(&text));
                    self.know_node(node, &record);
                }
                Err(error) => unreadable(&format!("node {node}"), &error),
            },
            Key::Desired => match serde_json::from_slice::<Desired>(value) {
                Ok(desired) => {
                    let text = String::from_utf8_lossy(value);
                    self.parts.map.set_desired(Instant::now(), &text);
                    self.apply(desired);
                }
                Err(error) => unreadable("what the cluster is", &error),
            },
            _ => {}
        }
    }

    /// Where the workers of a node are reached.
    fn know_node(&mut self, node: NodeId, record: &NodeRecord) {
        let workers = workers_of(record);
        for NodeWorker { index, replication, .. } in &workers {
            let id = WorkerId { node: node.clone(), index: *index };
            self.names.insert(SocketAddr::V4(*replication), id);
        }
        self.queue(Input::Node { node, workers: Some(workers) });
    }

    /// What the operator wants is this now.
    fn apply(&mut self, desired: Desired) {
        let shards = desired.shards.iter().filter_map(|shard| {
            let access = shard.endpoint.or(shard.steer)?;
            let awaits_replicas = desired.is_committed(shard);
            let shard = Shard {
                id: shard.id,
                endpoint: shard.endpoint,
                subscribers: shard.subscribers.clone(),
                public: shard.public.clone(),
                subscribers_max: shard.subscribers_max,
                worker: 0,
            };
            let nat = nat_shard(&shard, desired.nat.enabled);
            let engine = engine_shard(&shard);
            let setup = ShardSetup { engine, nat, awaits_replicas };
            Some(DesiredShard { id: ShardId(shard.id), access, setup })
        });
        let (shards, fingerprint) = (shards.collect(), fingerprint(&desired));
        self.queue(Input::Desired { shards, fingerprint });
        self.parts.desired = desired;
    }

    fn take_claim(&mut self, event: &ClaimEvent) {
        match event {
            ClaimEvent::Connected => {}
            ClaimEvent::Held { .. } => {
                self.is_registered = true;
                self.tell(Input::Registered);
                tracing::info!(event = "node-registered", "this node is known to the cluster");
            }
            ClaimEvent::Lost { .. } => {
                tracing::warn!(event = "etcd-lost", "etcd does not answer; traffic goes on");
            }
            ClaimEvent::Expired | ClaimEvent::TakenAway => {
                self.is_registered = false;
                tracing::warn!(event = "node-unregistered", "the cluster counts this node as gone");
            }
            ClaimEvent::HeldByOther { boot_id } => {
                self.is_registered = false;
                tracing::error!(event = "node-name-taken", boot_id, "another node has this name");
            }
        }
    }

    fn take_written(&mut self, shard: ShardId, outcome: Outcome) {
        let is_done = matches!(outcome, Outcome::Done(_));
        if let Outcome::Refused(error) = &outcome {
            tracing::error!(event = "map-write-refused", shard = shard.0, "{error}");
        }
        self.tell(Input::Written { shard, is_done });
    }

    fn take_guard(&mut self, news: GuardNews) {
        match news {
            GuardNews::Set { worker, number } => {
                let set = &mut self.routes[usize::from(worker)];
                if set.number == number {
                    (set.is_set, set.retry, set.ordered) = (true, None, None);
                }
                self.tell(Input::RoutesOut { worker: usize::from(worker), number });
            }
            GuardNews::NotSet { worker, number, why } => {
                tracing::error!(event = "routes-refused", worker, "{why}");
                let set = &mut self.routes[usize::from(worker)];
                if set.number == number {
                    (set.retry, set.ordered) = (Some(Instant::now() + ROUTES_RETRY), None);
                }
            }
            GuardNews::Fenced { worker } => {
                self.watchdog_trips_total += 1;
                self.routes[usize::from(worker)].is_set = false;
                tracing::warn!(
                    event = "worker-fenced",
                    worker,
                    "a worker stood still, so its routes are a last resort"
                );
            }
            GuardNews::Silent => {
                self.guard = GuardState::Silent;
                tracing::error!(
                    event = "guard-silent",
                    "the guard of the routes stands still: the routes of a worker that ends would stay"
                );
            }
            GuardNews::Awake => {
                self.guard = GuardState::Works;
                tracing::info!(event = "guard-resumed", "the guard of the routes goes on");
            }
            GuardNews::Absent { why } => {
                self.guard_restarts_total += 1;
                tracing::error!(
                    event = "guard-restarted",
                    "no route is announced, there is no guard: {why}"
                );
                self.guard = GuardState::Absent(why);
            }
            GuardNews::Said { text } => {
                self.guard_restarts_total += 1;
                self.guard = GuardState::Works;
                tracing::warn!(event = "guard-restarted", "{text}");
            }
        }
    }

    /// Its routes were withdrawn: they are set again, as the roles want them now.
    fn rejoined(&mut self, worker: usize, fence: Fence) {
        let set = &mut self.routes[worker];
        (set.fence, set.retry, set.ordered) = (fence, Some(Instant::now()), None);
        self.tell(Input::Rejoined { worker });
        if let Some((left_ms, shards)) = self.parts.roles.held_off(worker) {
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

    fn take_news(&mut self, worker: usize, news: News, place: Option<ShardIndex>) {
        match (&news, place) {
            (News::ShardAdded(shard), Some(place)) => {
                self.places.insert((worker, *shard), place);
                let handle = self.parts.desired.shard(shard.0).map(|shard| ShardHandle {
                    id: shard.id,
                    endpoint: shard.endpoint,
                    public: shard.public.iter().map(ToString::to_string).collect(),
                    subscribers_max: u64::from(shard.subscribers_max),
                });
                self.parts.node.workers[worker].shards.set(usize::from(place.0), handle);
            }
            (News::ShardRemoved(shard), _) => {
                if let Some(place) = self.places.remove(&(worker, *shard)) {
                    self.parts.node.workers[worker].shards.set(usize::from(place.0), None);
                }
            }
            _ => {}
        }
        self.tell(Input::News { worker, news });
    }

    /// Asks the cluster to take the shards over, once the routes can follow: a guard that stands still withdraws nothing.
    /// It goes on or is replaced within seconds.
    fn hand_over(&mut self) {
        let is_due = self.is_asked_to_hand_over && !self.is_stopping;
        if is_due && self.guard != GuardState::Silent {
            self.is_stopping = true;
            self.parts.record.is_stopping = true;
            self.parts.etcd.update(self.parts.record.clone());
        }
    }

    /// What the workers show, and the end of a slot.
    fn end_slot(&mut self) {
        for worker in 0..self.parts.links.len() {
            let link = &mut self.parts.links[worker];
            let mut shards = BTreeSet::new();
            while let Ok(shard) = link.busy.pop() {
                shards.insert(ShardId(shard));
            }
            let signs = Arc::clone(&link.signs);
            let slots = signs.slots.get();
            // A worker that has not looked knows nothing of its peers' silence.
            let has_looked = slots != std::mem::replace(&mut self.slots[worker], slots);
            if has_looked {
                for (place, signs) in signs.peers() {
                    self.tell(Input::Heard { worker, place, signs });
                }
            }
            for &shard in &shards {
                *self.busy_slots.entry((worker, shard)).or_default() += 1;
            }
            if !shards.is_empty() {
                let shards = shards.into_iter().collect();
                self.tell(Input::Traffic { worker, shards });
            }
            let sides = self.look_at_sides(worker);
            if sides != self.sides[worker] {
                self.sides[worker] = sides;
                self.tell(Input::Sides { worker, sides });
            }
        }
        self.tell(Input::Tick);
    }

    fn look_at_sides(&mut self, worker: usize) -> SidesUp {
        let handle = &self.parts.node.workers[worker];
        let is_up = |side: Side| handle.board.engine.gateway_up(side) && handle.is_link_up(side);
        let (is_access_up, is_internet_up) = (is_up(Side::Access), is_up(Side::Internet));
        self.has_been_up[worker] |= is_access_up && is_internet_up;
        SidesUp { is_ready: self.has_been_up[worker], is_access_up, is_internet_up }
    }

    /// Everything that the roles want now.
    fn carry_out(&mut self, now: Instant) {
        self.parts.map.turn(now);
        self.hand_in(now);
        self.join(now);
        self.end_resuming();
        self.hand_over();
        for worker in 0..self.parts.links.len() {
            while let Some(order) = self.parts.roles.next_order(worker) {
                self.parts.links[worker].order(order);
            }
        }
        for change in self.parts.roles.take_changes(CHANGES_MAX) {
            let next = self.entries.get(&change.shard).and_then(|(revision, entry)| {
                let next = entry.after(change.at, &change.transition).ok()?;
                Some((*revision, next))
            });
            match next {
                Some((revision, next)) => self.parts.etcd.write(change.shard, revision, &next),
                // The entry has moved on already; the role will see.
                None => self.tell(Input::Written { shard: change.shard, is_done: false }),
            }
        }
        self.set_routes(now);
        self.parts.map.turn(now);
        if self.shown.is_none_or(|shown| now - shown >= SHOW_INTERVAL) {
            self.shown = Some(now);
            self.show();
            self.busy_slots.clear();
        }
    }

    /// Lists that changed, and lists that are to be tried again. One at a time for each worker: a list costs as much as
    /// it is long, so what changes while the guard sets one goes with the next.
    fn set_routes(&mut self, now: Instant) {
        let workers = 0..self.routes.len();
        let is_due = |worker: usize| {
            let set = &self.routes[worker];
            let is_awaited = set.ordered.is_some_and(|ordered| now < ordered + ROUTES_PATIENCE);
            let is_new = self.parts.roles.routes_number(worker) != set.number;
            !is_awaited && (is_new || set.retry.is_some_and(|retry| now >= retry))
        };
        let due: Vec<usize> = workers.filter(|&worker| is_due(worker)).collect();
        if due.is_empty() {
            return;
        }
        let lists = match self.wanted_routes() {
            Ok(lists) => lists,
            Err(error) => {
                tracing::error!(event = "routes-refused", "{error}");
                for worker in due {
                    self.routes[worker].number = self.parts.roles.routes_number(worker);
                    self.routes[worker].retry = Some(now + ROUTES_RETRY);
                }
                return;
            }
        };
        for worker in due {
            let number = self.parts.roles.routes_number(worker);
            let routes = lists[worker].clone();
            let fence = self.routes[worker].fence;
            self.parts.guard.set(worker as WorkerIndex, number, fence, routes.clone());
            let (is_set, retry, ordered) = (false, None, Some(now));
            self.routes[worker] = Set { number, fence, routes, is_set, retry, ordered };
        }
    }

    fn wanted_routes(&self) -> Result<Vec<Vec<Route>>, wanted::WantedError> {
        let workers =
            self.parts.addresses.iter().enumerate().map(|(worker, &[access, internet])| {
                let SidesUp { is_access_up, is_internet_up, .. } = self.sides[worker];
                wanted::Worker { access, internet, is_access_up, is_internet_up }
            });
        let workers: Vec<wanted::Worker> = workers.collect();
        let routes = self.parts.roles.all_wanted_routes();
        let shards: Vec<wanted::Shard<'_>> = routes
            .iter()
            .map(|(worker, route)| wanted::Shard {
                endpoints: std::slice::from_ref(&route.shard.access),
                prefixes: &route.shard.setup.nat.public,
                worker: *worker as WorkerIndex,
                metric: Some(route.metric.0),
                is_last_copy: route.is_last_copy,
                is_held_off: route.is_held_off,
            })
            .collect();
        let limit = |max: Option<u32>| max.map_or(usize::MAX, |max| max as usize);
        let cluster = &self.parts.desired.cluster;
        let limits = Limits {
            max_routes: limit(cluster.max_routes),
            max_next_hops: limit(cluster.max_next_hops),
        };
        wanted::wanted(&workers, &shards, limits)
    }
}

/// Those workers that say where they are reached.
fn workers_of(record: &NodeRecord) -> Vec<NodeWorker> {
    let workers = record.workers.iter().filter_map(|worker| {
        let boot_id = BootId::try_from(worker.boot_id.clone()).ok()?;
        Some(NodeWorker { index: worker.index, boot_id, replication: worker.replication? })
    });
    workers.collect()
}

/// What sessions between workers compare.
pub(super) fn fingerprint(desired: &Desired) -> Fingerprint {
    let digests = desired.fingerprint();
    Fingerprint::default()
        .with(FingerprintPart::Prefixes, digests.prefixes)
        .with(FingerprintPart::BlockSize, digests.block_size)
        .with(FingerprintPart::Lanes, digests.lanes)
        .with(FingerprintPart::Shards, digests.shards)
}
