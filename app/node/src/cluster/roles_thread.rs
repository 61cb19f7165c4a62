//! The thread that drives the node's [`Core`]: it hands in the events of the other threads, and
//! carries out the core's actions. It decides nothing.
//!
//! ```text
//!   inbox: etcd, guard, disk, workers -+                             +-> commands to each worker
//!   workers' state, every 10 ms -------+-> Core: step, turn, action -+-> etcd, routes, map threads
//!   time ------------------------------+                             +-> snapshot (status), stakes
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use weir_admin::api::BirdSessions;
use weir_engine::Side;
use weir_map::ShardId;
use weir_nat::ShardIndex;
use weir_node_core::recording::Recorder;
use weir_node_core::{Core, CoreAction, CoreEvent, CoreStart, WorkerSlot};
use weir_replication::ReplicationReport;
use weir_replication::WorkerEvent;
use weir_routes::{SharedWords, WorkerIndex};

use super::bird_thread::BirdSide;
use super::etcd_tasks::EtcdTasks;
use super::guard_thread::GuardThread;
use super::inbox::{Inbox, InboxReceiver};
use super::key_state::KeyState;
use super::map_file::MapFile;
use super::member_snapshot::MemberSnapshot;
use super::thread_member::WorkerLink;
use crate::generations::follow::AppliedSettings;
use crate::node::{Node, ShardHandle};
use crate::turns::Thread;

/// Time between two reads of the workers' state.
const SLOT: Duration = Duration::from_millis(10);
/// Most messages taken between two turns of the core.
const MESSAGES_MAX: usize = 4096;
/// Time between two updates of the published status.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);

/// The inputs that the thread begins with.
pub(super) struct RolesThreadInputs {
    pub start: CoreStart,
    pub inbox: InboxReceiver,
    pub links: Vec<WorkerLink>,
    pub node: Arc<Node>,
    pub etcd: Arc<EtcdTasks>,
    pub guard: GuardThread,
    /// Words of this thread that the guard reads.
    pub words: Arc<SharedWords>,
    pub map_file: MapFile,
    pub snapshot: Arc<MemberSnapshot>,
    pub keys: KeyState,
    /// The BIRD that is watched.
    pub bird_sessions: Option<BirdSessions>,
    /// Raised when the node has handed over.
    pub handed_over: watch::Sender<bool>,
    /// Takes the cluster's settings.
    pub applied: UnboundedSender<AppliedSettings>,
    /// Writes down all input of the core.
    pub recorder: Option<Recorder<BufWriter<File>>>,
}

/// The core, and the other state of the node that is shown.
pub(super) struct RolesThread {
    pub(super) core: Core,
    pub(super) inbox: InboxReceiver,
    links: Vec<WorkerLink>,
    pub(super) node: Arc<Node>,
    pub(super) etcd: Arc<EtcdTasks>,
    guard: GuardThread,
    words: Arc<SharedWords>,
    map_file: MapFile,
    pub(super) snapshot: Arc<MemberSnapshot>,
    pub(super) keys: KeyState,
    /// The BIRD that is watched.
    pub(super) bird_sessions: Option<BirdSessions>,
    handed_over: watch::Sender<bool>,
    applied: UnboundedSender<AppliedSettings>,
    recorder: Option<Recorder<BufWriter<File>>>,
    began: Instant,
    /// The index of each shard at each worker.
    pub(super) shard_indexes: BTreeMap<(usize, ShardId), ShardIndex>,
    /// Slots with packets of a shard since the status was last shown.
    pub(super) busy_slots: BTreeMap<(usize, ShardId), u32>,
    /// The last report of each worker.
    pub(super) replication: Vec<Option<Box<ReplicationReport>>>,
    /// Empty if BIRD is not watched, or the first poll has not ended.
    pub(super) bird: Vec<BirdSide>,
    shown: Option<Duration>,
    has_ended: bool,
}

/// Runs until the core has ended, with the map on disk.
pub(super) fn run(inputs: RolesThreadInputs) {
    let workers = inputs.links.len();
    let mut thread = RolesThread {
        core: Core::new(Duration::ZERO, inputs.start),
        inbox: inputs.inbox,
        links: inputs.links,
        node: inputs.node,
        etcd: inputs.etcd,
        guard: inputs.guard,
        words: inputs.words,
        map_file: inputs.map_file,
        snapshot: inputs.snapshot,
        keys: inputs.keys,
        bird_sessions: inputs.bird_sessions,
        handed_over: inputs.handed_over,
        applied: inputs.applied,
        recorder: inputs.recorder,
        began: Instant::now(),
        shard_indexes: BTreeMap::new(),
        busy_slots: BTreeMap::new(),
        replication: (0..workers).map(|_| None).collect(),
        bird: Vec::new(),
        shown: None,
        has_ended: false,
    };
    let mut slot_ends = SLOT;
    while !thread.has_ended {
        let wait = slot_ends.saturating_sub(thread.now());
        if let Some(message) = thread.inbox.recv_timeout(wait) {
            thread.take_all(message);
        }
        let now = thread.now();
        if now >= slot_ends {
            // Slots that passed in sleep are skipped, so that nothing is counted twice.
            slot_ends = now + SLOT;
            thread.end_slot();
        }
        thread.turn();
        thread.node.turns.turned(Thread::Roles);
    }
    thread.node.turns.ended(Thread::Roles);
}

impl RolesThread {
    /// Returns the core's time.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn take_all(&mut self, first: Inbox) {
        self.take(first);
        for _ in 0..MESSAGES_MAX {
            let Some(message) = self.inbox.try_recv() else { break };
            self.take(message);
        }
    }

    fn take(&mut self, message: Inbox) {
        match message {
            Inbox::Event(event) => self.step(event),
            Inbox::Worker { worker, event, shard_index } => {
                self.note_shard_index(worker, &event, shard_index);
                self.step(CoreEvent::Worker { worker, event });
            }
            // No route is withdrawn for this: no switch has routes that BIRD does not announce.
            Inbox::Bird(sides) => self.bird = sides,
            Inbox::Replication { worker, status } => self.replication[worker] = Some(status),
            Inbox::Keys(keys) => self.keys.take(keys, &self.links),
        }
    }

    fn step(&mut self, event: CoreEvent) {
        let now = self.now();
        self.record(|recorder| recorder.event(now, &event));
        self.core.step(now, event);
    }

    fn turn(&mut self) {
        let now = self.now();
        self.record(|recorder| recorder.turn(now));
        self.core.turn(now);
        while let Some(action) = self.core.next_action() {
            self.carry_out(action);
        }
        if self.shown.is_none_or(|shown| now - shown >= SHOW_INTERVAL) {
            self.shown = Some(now);
            self.show(now);
            self.busy_slots.clear();
        }
    }

    /// Writes to the recording. A recording that cannot go on ends; the node does not.
    fn record(&mut self, what: impl FnOnce(&mut Recorder<BufWriter<File>>) -> std::io::Result<()>) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = what(recorder)
        {
            tracing::warn!(event = "recording-ended", "{error}");
            self.recorder = None;
        }
    }

    fn carry_out(&mut self, action: CoreAction) {
        match action {
            CoreAction::Command { worker, command } => self.links[worker].command(command),
            CoreAction::Write { shard, expected, entry } => {
                self.etcd.write(shard, expected, &entry)
            }
            CoreAction::SetRoutes { worker, number, fence, routes } => {
                self.guard.set(worker as WorkerIndex, number, fence, routes);
            }
            CoreAction::SetStake { worker, stake } => {
                self.words.set_stake(worker as WorkerIndex, stake);
            }
            CoreAction::Save(map) => self.map_file.save_aside(*map),
            CoreAction::Join(record) => {
                self.etcd.mirror();
                self.etcd.join(&record);
            }
            CoreAction::Register(record) => self.etcd.update(*record),
            // The receiver has gone only when the node ends.
            CoreAction::TakeSettings { number, desired } => {
                let _ = self.applied.send(AppliedSettings { number, desired });
            }
            CoreAction::HandedOver => drop(self.handed_over.send_replace(true)),
            CoreAction::Ended => self.has_ended = true,
        }
    }

    /// Notes the index of a shard at a worker, for look-ups by shard number and by index.
    fn note_shard_index(
        &mut self,
        worker: usize,
        event: &WorkerEvent,
        shard_index: Option<ShardIndex>,
    ) {
        let shards = &self.node.workers[worker].shards;
        match (event, shard_index) {
            (WorkerEvent::ShardAdded(shard), Some(shard_index)) => {
                self.shard_indexes.insert((worker, *shard), shard_index);
                let handle = self.core.desired().shard(shard.0).map(|shard| ShardHandle {
                    id: shard.id,
                    endpoint: shard.endpoint,
                    public: shard.public.iter().map(ToString::to_string).collect(),
                    public6: shard.public6.iter().map(ToString::to_string).collect(),
                    subscribers_max: u64::from(shard.subscribers_max),
                });
                shards.set(usize::from(shard_index.0), handle);
            }
            (WorkerEvent::ShardRemoved(shard), _) => {
                if let Some(shard_index) = self.shard_indexes.remove(&(worker, *shard)) {
                    shards.set(usize::from(shard_index.0), None);
                }
            }
            _ => {}
        }
    }

    fn end_slot(&mut self) {
        let slots = (0..self.links.len()).map(|worker| self.look_at(worker)).collect();
        self.step(CoreEvent::Slot(slots));
    }

    /// Reads the state that a worker publishes.
    fn look_at(&mut self, worker: usize) -> WorkerSlot {
        let link = &mut self.links[worker];
        let mut busy = BTreeSet::new();
        while let Ok(shard) = link.busy.pop() {
            busy.insert(ShardId(shard));
        }
        let slots = link.signs.slots.get();
        let peers = link.signs.peers().collect();
        for &shard in &busy {
            *self.busy_slots.entry((worker, shard)).or_default() += 1;
        }
        let handle = &self.node.workers[worker];
        let is_up = |side: Side| handle.stats.engine.gateway_up(side) && handle.is_link_up(side);
        WorkerSlot {
            slots,
            peers,
            busy: busy.into_iter().collect(),
            is_access_up: is_up(Side::Access),
            is_internet_up: is_up(Side::Internet),
        }
    }
}
