//! Pending writes: each job becomes a transaction when its turn comes. Steps of different shards
//! share one, because each transaction costs a round trip and a disk write, however small it is.

use serde::Serialize;
use weir_etcd::{Key, Swap, SwapChange, TRANSACTION_KEYS_MAX};
use weir_map::allocate::{PlanStep, PlannedChange};
use weir_map::map::Transition;
use weir_map::{Incarnation, NodeId, ShardEntry, ShardId};

use super::journal::{ALONG_MAX, PendingEvent};
use super::kind::StepKind;
use super::lives::worker_views;
use super::log_lines::DecisionLine;
use super::time::ControllerTime;
use super::{Controller, words};
use crate::records::{Control, FORMAT, FreezeOrder, Intent, LeaderReport, Meta, OrderAuthor};

/// Most steps in one transaction: two keys each, and room for the conditions on their nodes.
pub(super) const STEPS_MAX: usize = 48;
/// Most keys of a step: the entry, its event, and the conditions of the write.
const STEP_KEYS_MAX: usize = 4;

/// One thing to write.
#[derive(Clone, Debug)]
pub(super) enum Job {
    Step {
        step: PlanStep,
        kind: StepKind,
        why: String,
    },
    Meta,
    /// etcd was restored: nothing is written until an operator has checked the map.
    FreezeWhole,
    /// etcd was set back: the shard continues with the entry that a node holds.
    Rebase {
        shard: ShardId,
        entry: Box<ShardEntry>,
        /// Description of what is uncertain; empty: nothing is.
        doubts: String,
    },
    DropFence(NodeId),
    EndRebalance,
    EndRebase,
    Retire(ShardId),
    EndRetire(Vec<u32>),
    Report(Box<LeaderReport>),
}

/// The swaps of a job, and its event if it has one.
type WrittenSwaps = (Vec<Swap>, Option<PendingEvent>);

/// A transaction to be written.
#[derive(Debug, Default)]
pub(super) struct JobBatch {
    pub(super) swaps: Vec<Swap>,
    /// Number of waiting events that it includes.
    pub(super) along: usize,
    /// The events of the decisions in it.
    pub(super) decided: Vec<PendingEvent>,
    /// Its steps, if they may be retried.
    pub(super) steps: Vec<Job>,
}

impl Controller {
    /// Returns the next transaction. Jobs that do not fit the view are dropped: the next round
    /// decides again.
    pub(super) fn next_write(&mut self, now: ControllerTime) -> Option<JobBatch> {
        let mut batch = JobBatch::default();
        let mut pending_events = Vec::new();
        while let Some(job) = self.jobs.pop_front() {
            let (is_step, is_move) = match &job {
                Job::Step { kind, .. } => (true, kind.is_move()),
                _ => (false, false),
            };
            // A move is counted when it is tried, so it is written alone.
            let goes_along = is_step && !is_move && self.has_room(&batch, pending_events.len());
            if !pending_events.is_empty() && !goes_along {
                self.jobs.push_front(job);
                break;
            }
            let Some((swaps, pending)) = self.written_by(&job, now) else { continue };
            add(&mut batch.swaps, swaps);
            pending_events.extend(pending);
            if is_move {
                self.pace.begin(now);
            }
            if !is_step || is_move {
                break;
            }
            batch.steps.push(job);
        }
        if batch.swaps.is_empty() && self.journal.is_empty() {
            return None;
        }
        let (events, along) =
            self.journal.swaps(&pending_events, &self.view, &self.options.name, now);
        batch.swaps.extend(events);
        (batch.along, batch.decided) = (along, pending_events);
        Some(batch)
    }

    fn has_room(&self, batch: &JobBatch, events: usize) -> bool {
        let keys = batch.swaps.len() + events + ALONG_MAX + STEP_KEYS_MAX;
        batch.steps.len() < self.together && keys <= TRANSACTION_KEYS_MAX
    }

    fn written_by(&self, job: &Job, now: ControllerTime) -> Option<WrittenSwaps> {
        match job {
            Job::Step { step, kind, why } => self.step(step, *kind, why.clone()),
            Job::Meta => {
                let cluster_id = format!("{:032x}", self.options.new_cluster_id);
                let swap = self.put(Key::Meta, &Meta { format: FORMAT, cluster_id });
                Some((
                    vec![swap],
                    Some(event(
                        DecisionLine::Ordered,
                        "the cluster begins",
                        "it had no identity yet",
                    )),
                ))
            }
            Job::FreezeWhole => {
                let why =
                    "etcd was restored from a backup; the nodes may hold newer entries than it";
                let order = OrderAuthor { by: self.options.name.clone(), at_ms: now.unix_ms };
                let freeze = Some(FreezeOrder { order, why: why.into(), is_total: true });
                let control = Control { freeze, ..self.view.control().unwrap_or_default() };
                let swap = self.put(Key::Control, &control);
                Some((vec![swap], Some(event(DecisionLine::Frozen, "everything is frozen", why))))
            }
            Job::Rebase { shard, entry, doubts } => Some(self.rebase_swaps(*shard, entry, doubts)),
            Job::DropFence(node) => self.drop_fence(node),
            Job::EndRebalance => {
                let mut control = self.view.control()?;
                let order = control.rebalance.take()?;
                let swap = self.put(Key::Control, &control);
                let why = format!("asked for by {}, and nothing is left to do", order.by);
                Some((vec![swap], Some(event(DecisionLine::Ordered, "the map is balanced", &why))))
            }
            Job::EndRebase => {
                let mut control = self.view.control()?;
                let order = control.rebase.take()?;
                let swap = self.put(Key::Control, &control);
                let why = format!("asked for by {}", order.by);
                Some((
                    vec![swap],
                    Some(event(DecisionLine::Ordered, "nothing is left to go on by order", &why)),
                ))
            }
            Job::Retire(shard) => {
                let key = Key::Shard(*shard);
                let expected = Some(self.view.revision(&key)?);
                let swap = Swap { key, expected, change: SwapChange::Delete };
                let mut pending = event(
                    DecisionLine::Retired,
                    "the shard is retired",
                    "not desired, and told to",
                );
                pending.shard = Some(*shard);
                Some((vec![swap, self.keep(Key::Desired)], Some(pending)))
            }
            Job::EndRetire(done) => {
                let mut control = self.view.control()?;
                control.retire.retain(|id| !done.contains(id));
                Some((vec![self.put(Key::Control, &control)], None))
            }
            Job::Report(report) => {
                Some((vec![self.put(Key::Report, report)], self.taken_with(report)))
            }
        }
    }

    fn step(&self, step: &PlanStep, kind: StepKind, why: String) -> Option<WrittenSwaps> {
        let key = Key::Shard(step.shard);
        let mut swaps = Vec::new();
        let entry = match &step.change {
            PlannedChange::Create(who) => {
                // A key that has appeared since the decision is not absent, even if it cannot be
                // read.
                if self.view.revision(&key).is_some() {
                    return None;
                }
                swaps.push(self.keep(Key::Desired));
                ShardEntry::create(who.clone())
            }
            PlannedChange::Apply { at, transition } => {
                let entry = self.view.entry(step.shard)?;
                swaps.extend(self.proof(transition)?);
                entry.after(*at, transition).ok()?
            }
        };
        let what = words::what(&step.change);
        let change = SwapChange::Put(entry.to_json().into_bytes());
        swaps.insert(0, Swap { expected: self.view.revision(&key), key, change });
        let (node, shard) = (words::node_of(&step.change), Some(step.shard));
        let line = DecisionLine::of_step(&step.change, kind);
        Some((swaps, Some(PendingEvent { node, shard, what, why, is_move: kind.is_move(), line })))
    }

    /// Returns the conditions under which the incarnation that the transition ends has certainly
    /// ended; none if that cannot be shown.
    fn proof(&self, transition: &Transition) -> Option<Vec<Swap>> {
        match transition {
            Transition::Fence(ended)
            | Transition::Restart { ended, .. }
            | Transition::Resume { ended, .. }
            | Transition::TakeSlot { ended, .. } => self.proof_of_end(ended),
            _ => Some(Vec::new()),
        }
    }

    /// Returns the condition that the node is registered without the incarnation; or that the node
    /// is not registered and the operator states that the incarnation has ended.
    fn proof_of_end(&self, ended: &Incarnation) -> Option<Vec<Swap>> {
        let node = &ended.worker.node;
        let key = Key::Node(node.clone());
        if let Some(held) = self.view.nodes.get(node) {
            let workers = worker_views(&held.value.as_ref()?.workers)?;
            let is_there = workers.iter().any(|worker| {
                worker.boot_id == ended.boot_id || worker.resumes == Some(ended.boot_id)
            });
            return (!is_there).then(|| vec![self.keep(key)]);
        }
        let fence = self.view.intent(node)?.fence.as_ref()?;
        if !fence.boot_ids.contains(&ended.boot_id) {
            return None;
        }
        Some(vec![self.keep_absent(key)?, self.keep(Key::Intent(node.clone()))])
    }

    /// Returns the event that a cluster file is taken, if this is the first report decided on it.
    fn taken_with(&self, report: &LeaderReport) -> Option<PendingEvent> {
        let before = self.view.report.as_ref().and_then(|held| held.value.as_ref());
        if before.and_then(|before| before.desired) == report.desired {
            return None;
        }
        let desired = self.view.desired()?;
        let (shards, replicas) = (desired.shards.len(), desired.cluster.replicas);
        let what = format!("a cluster file is taken: shards: {shards}, replicas: {replicas}");
        let why = desired.applied.as_ref().map(|applied| format!("applied by {}", applied.by));
        Some(event(
            DecisionLine::Ordered,
            &what,
            &why.unwrap_or_else(|| "it was written by hand".to_owned()),
        ))
    }

    fn drop_fence(&self, node: &NodeId) -> Option<WrittenSwaps> {
        let key = Key::Intent(node.clone());
        let expected = Some(self.view.revision(&key)?);
        let intent = Intent { fence: None, ..self.view.intent(node)?.clone() };
        let change =
            if intent.is_empty() { SwapChange::Delete } else { SwapChange::Put(json(&intent)) };
        let mut pending = event(
            DecisionLine::Ordered,
            "the fence is done",
            "no shard names what has ended any more",
        );
        pending.node = Some(node.clone());
        Some((vec![Swap { key, expected, change }], Some(pending)))
    }

    fn put(&self, key: Key, value: &impl Serialize) -> Swap {
        Swap { expected: self.view.revision(&key), key, change: SwapChange::Put(json(value)) }
    }

    /// Requires the key to be as it was seen.
    fn keep(&self, key: Key) -> Swap {
        Swap { expected: self.view.revision(&key), key, change: SwapChange::Keep }
    }

    fn keep_absent(&self, key: Key) -> Option<Swap> {
        let is_absent = self.view.revision(&key).is_none();
        is_absent.then_some(Swap { key, expected: None, change: SwapChange::Keep })
    }
}

/// Adds swaps. A key that several steps only compare is compared once.
fn add(all: &mut Vec<Swap>, swaps: Vec<Swap>) {
    for swap in swaps {
        if swap.change != SwapChange::Keep || !all.contains(&swap) {
            all.push(swap);
        }
    }
}

pub(super) fn event(line: DecisionLine, what: &str, why: &str) -> PendingEvent {
    let (what, why) = (what.to_owned(), why.to_owned());
    PendingEvent { node: None, shard: None, what, why, is_move: false, line }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts and numbers serialize to JSON")
}
