//! The controller's decisions: state and events in, transactions out.
//!
//! ```text
//!   mirror ----> View (what etcd says) --+
//!   reports ---> Lives, loads, acting ---+--> Fleet --> weir_map::allocate --> steps
//!   tick ------> decide -----------------+                                        |
//!                                             kinds and gates: freeze, halt,      |
//!                                             drains, minute's moves, calm <------+
//!   outcome ---> one write at a time <------- jobs, each with its event <---------+
//! ```
//!
//! - The controller decides only as the leader, on a complete view that includes its own election
//!   (and so everything that earlier leaders wrote), and only after its last write is answered. A
//!   write of unknown outcome is read before anything else is written.
//! - Every write is a compare and swap on the revisions that it was decided on, and includes the
//!   event that describes it.
//! - An incarnation is fenced only if its node is registered without it, or the operator states
//!   that it ended and the node is not registered: both are conditions of the write.
//! - A shard is in doubt when nodes have seen a newer entry of it than etcd holds. Nothing is
//!   decided on such a shard but how it continues: see `doubts`.
//! - Everything in memory can be lost: a new leader continues from the state in etcd.
//!
//! Every order of processing is fixed, and nothing is random: equal events give equal actions.

mod decide;
mod doubts;
mod event;
mod fleet;
mod job;
mod journal;
mod kind;
mod lives;
mod load;
mod log_lines;
mod options;
mod pace;
mod report;
mod time;
mod troubles;
mod view;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use weir_etcd::{Key, MirrorEvent, NodeRecord, Outcome, Revision, Swap, SwapChange, Versioned};
use weir_map::allocate::{Acting, Liveness};
use weir_map::{NodeId, ShardId};

use crate::standing::ControllerStanding;

pub use event::{
    BirdDown, ControllerAction, ControllerEvent, NodeDoubts, NodeReport, NodeTroubles,
};
pub use options::ControllerOptions;
pub use time::ControllerTime;

use doubts::Doubts;
use job::{Job, JobBatch, STEPS_MAX};
use journal::{EventJournal, PendingEvent};
use lives::Lives;
pub(crate) use lives::worker_views;
use log_lines::DecisionLine;
use pace::MovePace;
use troubles::Troubles;
use view::RevisedValue;
pub(crate) use view::View;
pub(crate) use words::{CUT_OFF, frozen};

/// Pause after etcd has refused a write.
const REFUSED_WAIT_MS: u64 = 10_000;

/// One controller, leading or not.
#[derive(Debug)]
pub struct Controller {
    options: ControllerOptions,
    view: View,
    /// The mirror is complete and not stale.
    is_fresh: bool,
    /// etcd has been restored, and no total freeze is written for it yet.
    is_restored: bool,
    /// The create revision of this controller's leader key, while it leads.
    elected_at: Option<Revision>,
    /// The newest election that the mirror has reported.
    election_seen: Revision,
    /// The moves of earlier leaders have been counted.
    has_inherited: bool,
    lives: Lives,
    /// The liveness that was last reported for each node.
    reported: BTreeMap<NodeId, Liveness>,
    loads: BTreeMap<ShardId, u64>,
    /// The acting primaries that nodes report, with the time of the report.
    acting: BTreeMap<ShardId, (Acting, u64)>,
    doubts: Doubts,
    troubles: Troubles,
    pace: MovePace,
    /// Time since which there is something to balance.
    uneven_since_ms: Option<u64>,
    journal: EventJournal,
    /// The state as of the last decision round.
    standing: ControllerStanding,
    jobs: VecDeque<Job>,
    under_way: Option<ControllerUnderWay>,
    /// Keys of a write of unknown outcome.
    unsure: Vec<Key>,
    rest_until_ms: u64,
    ticked_at_ms: Option<u64>,
    decided_at_ms: Option<u64>,
    /// Something has changed since then that may need an answer soon.
    is_stirred: bool,
    /// Limit of steps per transaction; lower after races with other writers of the same entries.
    together: usize,
}

/// The write or read that is not answered yet.
#[derive(Debug)]
enum ControllerUnderWay {
    Write {
        swaps: Vec<Swap>,
        /// Number of waiting events that it includes.
        along: usize,
        /// The events of the decisions in it.
        decided: Vec<PendingEvent>,
        /// Steps to retry if another writer was faster.
        steps: Vec<Job>,
        /// etcd has been restored since.
        is_void: bool,
    },
    Read,
}

impl Controller {
    pub fn new(options: ControllerOptions) -> Self {
        Self {
            pace: MovePace::new(options.moves_per_min),
            options,
            view: View::default(),
            is_fresh: false,
            is_restored: false,
            elected_at: None,
            election_seen: Revision(0),
            has_inherited: false,
            lives: Lives::default(),
            reported: BTreeMap::new(),
            loads: BTreeMap::new(),
            acting: BTreeMap::new(),
            doubts: Doubts::default(),
            troubles: Troubles::default(),
            uneven_since_ms: None,
            journal: EventJournal::default(),
            standing: ControllerStanding::default(),
            jobs: VecDeque::new(),
            under_way: None,
            unsure: Vec::new(),
            rest_until_ms: 0,
            ticked_at_ms: None,
            decided_at_ms: None,
            is_stirred: false,
            together: STEPS_MAX,
        }
    }

    /// Returns the registered nodes that are to be asked for a report, with their addresses for it.
    pub fn registered(&self) -> impl Iterator<Item = (&NodeId, Option<SocketAddr>)> {
        let admin = |held: &RevisedValue<NodeRecord>| held.value.as_ref()?.admin;
        self.view.nodes.iter().map(move |(node, held)| (node, admin(held)))
    }

    /// Returns the state as of the last decision round.
    pub fn standing(&self) -> &ControllerStanding {
        &self.standing
    }

    pub fn handle(&mut self, event: ControllerEvent, now: ControllerTime) -> Vec<ControllerAction> {
        match event {
            ControllerEvent::Mirror(event) => self.mirrored(event, now),
            ControllerEvent::Elected(revision) => self.elected(revision),
            ControllerEvent::Deposed => self.deposed(),
            ControllerEvent::Report(report) => self.reported(report, now),
            ControllerEvent::Written(outcome) => self.written(outcome, now),
            ControllerEvent::Read(found) => self.read(found, now),
            ControllerEvent::Tick => self.tick(now),
        }
        self.next_action(now).into_iter().collect()
    }

    fn elected(&mut self, revision: Revision) {
        self.deposed();
        self.elected_at = Some(revision);
        self.has_inherited = false;
        self.reported.clear();
        self.uneven_since_ms = None;
        self.standing.is_leading = true;
        self.journal.append(
            DecisionLine::Elected,
            None,
            "this controller leads now",
            "it was elected",
        );
    }

    fn deposed(&mut self) {
        self.elected_at = None;
        self.standing = ControllerStanding::default();
        self.jobs.clear();
        self.journal.clear();
        self.unsure.clear();
        self.acting.clear();
        if let Some(ControllerUnderWay::Write { along, steps, .. }) = &mut self.under_way {
            // The waiting events that it included are gone.
            *along = 0;
            steps.clear();
        }
    }

    fn tick(&mut self, now: ControllerTime) {
        let stood_still =
            self.ticked_at_ms.is_some_and(|last| now.since(last) > self.options.pause_max_ms);
        self.ticked_at_ms = Some(now.monotonic_ms);
        if stood_still {
            self.lives.forget_absences(now);
        }
        let is_due = |last| now.since(last) >= self.options.tick_ms;
        let is_due = self.is_stirred || self.decided_at_ms.is_none_or(is_due);
        if is_due && self.may_decide(now) && self.jobs.is_empty() {
            (self.decided_at_ms, self.is_stirred) = (Some(now.monotonic_ms), false);
            if !std::mem::replace(&mut self.has_inherited, true) {
                let events = self.view.events.values().filter_map(|held| held.value.as_ref());
                self.pace.inherit(events, now);
            }
            self.decide(now);
        }
    }

    fn may_decide(&self, now: ControllerTime) -> bool {
        self.elected_at.is_some_and(|elected_at| self.election_seen >= elected_at)
            && self.is_fresh
            && self.under_way.is_none()
            && self.unsure.is_empty()
            && now.monotonic_ms >= self.rest_until_ms
    }

    fn next_action(&mut self, now: ControllerTime) -> Option<ControllerAction> {
        if self.under_way.is_some() || self.elected_at.is_none() {
            return None;
        }
        if !self.unsure.is_empty() {
            if now.monotonic_ms < self.rest_until_ms {
                return None;
            }
            self.under_way = Some(ControllerUnderWay::Read);
            return Some(ControllerAction::Read(self.unsure.clone()));
        }
        if !self.may_decide(now) {
            return None;
        }
        let JobBatch { swaps, along, decided, steps } = self.next_write(now)?;
        let under_way = ControllerUnderWay::Write {
            swaps: swaps.clone(),
            along,
            decided,
            steps,
            is_void: false,
        };
        self.under_way = Some(under_way);
        Some(ControllerAction::Write(swaps))
    }

    fn mirrored(&mut self, event: MirrorEvent, now: ControllerTime) {
        match event {
            MirrorEvent::Put { key, value, mod_revision } => {
                if key == Key::Leader {
                    self.election_seen = self.election_seen.max(mod_revision);
                }
                if self.view.revision(&key).is_none_or(|known| known < mod_revision) {
                    self.reconsider(&key);
                }
                self.view.put(&key, &value, mod_revision);
                self.node_put(&key, mod_revision, now);
                self.is_restored &= !self.is_frozen_whole();
            }
            MirrorEvent::Delete { key } => {
                if let Key::Node(node) = &key {
                    let is_drained = self.view.intent(node).is_some_and(|it| it.drain.is_some());
                    let is_loss = !is_drained;
                    self.lives.gone(node, is_loss, &self.options, now);
                }
                self.reconsider(&key);
                self.view.delete(&key);
            }
            MirrorEvent::SnapshotComplete { .. } => {
                self.is_fresh = true;
                self.lives.forget_absences(now);
                self.miss_nodes(now);
            }
            MirrorEvent::Restored { .. } => {
                self.view = View::default();
                (self.is_fresh, self.is_restored) = (false, true);
                self.election_seen = Revision(0);
                self.doubts.clear();
                self.jobs.clear();
                if let Some(ControllerUnderWay::Write { is_void, .. }) = &mut self.under_way {
                    *is_void = true;
                }
            }
            MirrorEvent::Stale => self.is_fresh = false,
        }
    }

    /// Drops pending jobs when an order or a node has changed: they are decided again.
    fn reconsider(&mut self, key: &Key) {
        self.is_stirred |= !matches!(key, Key::Event(_) | Key::Report);
        if !matches!(key, Key::Shard(_) | Key::Event(_) | Key::Report | Key::Leader) {
            self.jobs.clear();
            if let Some(ControllerUnderWay::Write { steps, .. }) = &mut self.under_way {
                steps.clear();
            }
        }
    }

    fn node_put(&mut self, key: &Key, revision: Revision, now: ControllerTime) {
        let Key::Node(node) = key else { return };
        let Some(held) = self.view.nodes.get(node).filter(|it| it.revision == revision) else {
            return;
        };
        let names_workers = |record: &&NodeRecord| worker_views(&record.workers).is_some();
        let record = held.value.as_ref().filter(names_workers);
        self.lives.registered(node, record, &self.options, now);
    }

    fn is_frozen_whole(&self) -> bool {
        let control = self.view.control();
        control.and_then(|control| control.freeze).is_some_and(|freeze| freeze.is_total)
    }

    /// Records the nodes that entries name and that have no key as absent; the view must be
    /// complete.
    fn miss_nodes(&mut self, now: ControllerTime) {
        let members = self.view.entries().flat_map(|(_, entry)| entry.members());
        let named: Vec<NodeId> =
            members.map(|member| member.incarnation.worker.node.clone()).collect();
        for node in named.iter().filter(|node| !self.view.nodes.contains_key(node)) {
            self.lives.missed(node, now);
        }
        self.lives.lost_unseen(|node| self.view.nodes.contains_key(node), &self.options, now);
    }

    fn reported(&mut self, report: NodeReport, now: ControllerTime) {
        if self.lives.on_report(&report, now) {
            // A move onto a flapping worker would be undone: restart the imbalance timer.
            self.uneven_since_ms = None;
        }
        self.doubts.on_report(&report, now);
        self.is_stirred |= self.troubles.on_report(&report, now);
        for (shard, load) in report.loads {
            // Smoothed over about eight reports, so that a moment's burst moves nothing.
            let smooth = self.loads.entry(shard).or_insert(load);
            *smooth = *smooth - *smooth / 8 + load / 8;
        }
        self.is_stirred |= !report.acting.is_empty();
        for (shard, incarnation, term) in report.acting {
            self.acting.insert(shard, (Acting { incarnation, term }, now.monotonic_ms));
        }
    }

    fn written(&mut self, outcome: Outcome, now: ControllerTime) {
        let Some(ControllerUnderWay::Write { swaps, along, decided, steps, is_void }) =
            self.under_way.take()
        else {
            return;
        };
        if is_void {
            return;
        }
        match outcome {
            Outcome::Done(revision) => {
                for swap in &swaps {
                    match &swap.change {
                        SwapChange::Put(value) => self.view.put(&swap.key, value, revision),
                        SwapChange::Delete => self.view.delete(&swap.key),
                        SwapChange::Keep => {}
                    }
                }
                self.journal.written(along).chain(decided).for_each(|it| log_lines::log(&it));
                self.is_stirred |= !steps.is_empty();
                self.together = (2 * self.together).min(STEPS_MAX);
                self.is_restored &= !self.is_frozen_whole();
            }
            Outcome::LostRace(current) => {
                // Node keys are learned from the mirror only: losses must be seen in its order.
                let keys = swaps.iter().map(|swap| &swap.key);
                let known = keys.zip(&current).filter(|(key, _)| !matches!(key, Key::Node(_)));
                known.for_each(|(key, found)| self.view.learn(key, found.as_ref()));
                self.is_stirred = true;
                self.lost_race(steps);
            }
            Outcome::Unknown(_) => {
                if self.elected_at.is_some() {
                    let keys = swaps.into_iter().map(|swap| swap.key);
                    self.unsure = keys.filter(|key| !matches!(key, Key::Node(_))).collect();
                }
                self.jobs.clear();
            }
            Outcome::NotLeader | Outcome::Unavailable(_) => {
                self.jobs.clear();
                self.rest_until_ms = now.monotonic_ms + self.options.tick_ms;
            }
            Outcome::Refused(_) => {
                self.jobs.clear();
                self.rest_until_ms = now.monotonic_ms + REFUSED_WAIT_MS;
            }
        }
    }

    /// Handles a lost race. Of several steps only those fail whose entries another writer has
    /// changed: the batch is retried in halves, and a step that does not fit its entry is dropped
    /// when it is made again. A single step is dropped at once, with all other jobs.
    fn lost_race(&mut self, steps: Vec<Job>) {
        if steps.len() < 2 {
            self.jobs.clear();
            return;
        }
        self.together = steps.len() / 2;
        for step in steps.into_iter().rev() {
            self.jobs.push_front(step);
        }
    }

    fn read(&mut self, found: Option<Vec<Option<Versioned>>>, now: ControllerTime) {
        self.under_way = None;
        let Some(found) = found else {
            self.rest_until_ms = now.monotonic_ms + self.options.tick_ms;
            return;
        };
        for (key, found) in std::mem::take(&mut self.unsure).iter().zip(&found) {
            self.view.learn(key, found.as_ref());
        }
    }
}
