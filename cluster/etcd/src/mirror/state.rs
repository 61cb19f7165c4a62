//! The decisions of a mirror: a pure state machine of events and times.
//!
//! ```text
//!            wait over           listed            created
//!   resting -----------> listing -------> opening ----------> watching <--+
//!      ^                    |                |                  |  |      | full list: the same,
//!      |                    |                |                  |  +------+ or the watch delivers
//!      +--------------------+----------------+------------------+           what differs
//!        failed, compacted, stalled, another history, or a difference that the watch did not
//!        deliver
//! ```
//!
//! A watch is a hint. Every connection begins with a list, so no change in between is missed and
//! another history is noticed. The progress of a watch shows that it is alive, never that it is
//! complete: etcd 3.4.23, as packaged by Debian, may answer a progress request ahead of pending
//! events. Only the full list shows completeness.
//!
//! Invariants: events are in etcd's order, no value is reported twice, and the state reported
//! before a `SnapshotComplete` is exactly the list at its revision. The state has no access to
//! etcd, tasks or clocks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::back_off::BackOff;
use crate::keys::Key;
use crate::mirror::check::{Check, Known, differences};
use crate::mirror::event::{
    MirrorAction, MirrorChange, MirrorEntry, MirrorEvent, MirrorInput, MirrorOutput, RestoreReason,
};
use crate::revision::{HistoryPosition, Revision};

/// Timing of a mirror; see [`EtcdOptions`](crate::EtcdOptions).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub progress_interval: Duration,
    /// Longest time that a watch may take to answer a progress request.
    pub answer_timeout: Duration,
    pub list_interval: Duration,
    pub list_grace: Duration,
}

#[derive(Debug)]
enum MirrorPhase {
    Resting { until: Instant },
    Listing,
    Opening,
    Watching(Watching),
}

#[derive(Debug)]
struct Watching {
    /// Time of the watch's last message.
    last_message_at: Instant,
    /// Time of the progress request, until the watch's next message.
    asked_at: Option<Instant>,
    check: Check,
}

/// The reported state of a range of keys, and the progress of the list or watch that supplies it.
#[derive(Debug)]
pub struct MirrorState {
    times: Times,
    back_off: BackOff,
    /// State of each key as reported to the owner.
    known: BTreeMap<Key, Known>,
    /// The newest position seen.
    seen: Option<HistoryPosition>,
    /// The newest position seen when the list under way was requested: the list cannot be older.
    floor: Option<HistoryPosition>,
    /// Whether the owner may rely on the reported state.
    is_fresh: bool,
    phase: MirrorPhase,
}

impl MirrorState {
    /// Creates a mirror that has reported nothing. `seen` is the position that an earlier process
    /// stored.
    pub fn new(
        times: Times,
        back_off: BackOff,
        seen: Option<HistoryPosition>,
        now: Instant,
    ) -> Self {
        Self {
            times,
            back_off,
            known: BTreeMap::new(),
            seen,
            floor: seen,
            is_fresh: false,
            phase: MirrorPhase::Resting { until: now },
        }
    }

    /// Returns the time at which a `Tick` is due, if no other input comes before.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            MirrorPhase::Resting { until } => Some(*until),
            MirrorPhase::Listing | MirrorPhase::Opening => None,
            MirrorPhase::Watching(watching) => {
                let progress = match watching.asked_at {
                    Some(asked_at) => asked_at + self.times.answer_timeout,
                    None => watching.last_message_at + self.times.progress_interval,
                };
                Some(match watching.check {
                    Check::Due { at } | Check::Doubt { until: at, .. } => progress.min(at),
                    Check::Listing { .. } => progress,
                })
            }
        }
    }

    /// Takes an input. Returns the resulting actions and events.
    pub fn handle(&mut self, input: MirrorInput, now: Instant) -> MirrorOutput {
        let mut output = MirrorOutput::default();
        match input {
            MirrorInput::Tick => self.tick(now, &mut output),
            MirrorInput::Listed { position, entries } => {
                self.listed(position, entries, now, &mut output)
            }
            MirrorInput::ListFailed => match &mut self.phase {
                // The watch may still be well; its progress will show.
                MirrorPhase::Watching(watching) => {
                    watching.check = Check::Due { at: now + self.times.list_grace };
                }
                _ => self.rest(now, &mut output),
            },
            MirrorInput::WatchOpened => {
                self.phase = MirrorPhase::Watching(Watching {
                    last_message_at: now,
                    asked_at: None,
                    check: Check::Due { at: now + self.back_off.jitter(self.times.list_interval) },
                });
            }
            MirrorInput::Watched(changes) => self.watched(changes, now, &mut output),
            MirrorInput::Compacted | MirrorInput::WatchFailed => self.rest(now, &mut output),
        }
        output
    }

    fn tick(&mut self, now: Instant, output: &mut MirrorOutput) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let watching = match &mut self.phase {
            MirrorPhase::Watching(watching) => watching,
            MirrorPhase::Resting { .. } => return self.list(output),
            MirrorPhase::Listing | MirrorPhase::Opening => return,
        };
        match watching.asked_at {
            Some(asked_at) if now >= asked_at + self.times.answer_timeout => {
                output.is_stalled = true;
                output.actions.push(MirrorAction::Distrust);
                return self.rest(now, output);
            }
            None if now >= watching.last_message_at + self.times.progress_interval => {
                watching.asked_at = Some(now);
                output.actions.push(MirrorAction::RequestProgress);
            }
            _ => {}
        }
        match &watching.check {
            Check::Due { at } if now >= *at => {
                watching.check = Check::Listing { deleted: BTreeMap::new() };
                self.floor = self.seen;
                output.actions.push(MirrorAction::List);
            }
            Check::Doubt { until, differing } if now >= *until => {
                // The watch has had its time: it is not complete, whatever its progress says.
                output.list_differences = differing.len() as u64;
                output.actions.extend([MirrorAction::Distrust, MirrorAction::Close]);
                self.list(output);
            }
            _ => {}
        }
    }

    fn list(&mut self, output: &mut MirrorOutput) {
        self.phase = MirrorPhase::Listing;
        self.floor = self.seen;
        output.actions.push(MirrorAction::List);
    }

    fn rest(&mut self, now: Instant, output: &mut MirrorOutput) {
        self.phase = MirrorPhase::Resting { until: now + self.back_off.next_wait() };
        output.actions.push(MirrorAction::Close);
        if self.is_fresh {
            self.is_fresh = false;
            output.events.push(MirrorEvent::Stale);
        }
    }

    fn listed(
        &mut self,
        position: HistoryPosition,
        entries: Vec<MirrorEntry>,
        now: Instant,
        output: &mut MirrorOutput,
    ) {
        let restored = self.restored(position, &entries);
        match &mut self.phase {
            MirrorPhase::Resting { .. } | MirrorPhase::Opening => return,
            MirrorPhase::Watching(watching) if restored.is_none() => {
                let Check::Listing { deleted } = &watching.check else { return };
                let differing = differences(&self.known, deleted, position.revision, &entries);
                watching.check = if differing.is_empty() {
                    Check::Due { at: now + self.back_off.jitter(self.times.list_interval) }
                } else {
                    Check::Doubt { until: now + self.times.list_grace, differing }
                };
                return;
            }
            MirrorPhase::Watching(_) | MirrorPhase::Listing => {}
        }
        if let Some(reason) = restored {
            output.events.push(MirrorEvent::Restored { reason, position });
            output.actions.push(MirrorAction::Close);
        }
        self.adopt(position, entries, restored.is_some(), output);
    }

    /// Makes the list the reported state, and opens a watch from there.
    fn adopt(
        &mut self,
        position: HistoryPosition,
        entries: Vec<MirrorEntry>,
        is_anew: bool,
        output: &mut MirrorOutput,
    ) {
        let mut before = std::mem::take(&mut self.known);
        if is_anew {
            before.clear();
        }
        for entry in entries {
            let known = Known::of(&entry);
            let reported = before.remove(&entry.key);
            if reported != Some(known) {
                output.events.push(entry.clone().into_put());
            }
            self.known.insert(entry.key, known);
        }
        output.events.extend(before.into_keys().map(|key| MirrorEvent::Delete { key }));
        output.events.push(MirrorEvent::SnapshotComplete { position });
        output.actions.push(MirrorAction::OpenWatch(position.revision));
        self.is_fresh = true;
        self.seen = Some(position);
        self.phase = MirrorPhase::Opening;
    }

    /// Returns the reason that a list cannot follow the state seen before, if there is one.
    fn restored(&self, now: HistoryPosition, entries: &[MirrorEntry]) -> Option<RestoreReason> {
        let before = self.floor?;
        if now.cluster_id != before.cluster_id {
            return Some(RestoreReason::ClusterId {
                before: before.cluster_id,
                now: now.cluster_id,
            });
        }
        if now.revision < before.revision {
            return Some(RestoreReason::Revision { before: before.revision, now: now.revision });
        }
        if now.raft_term < before.raft_term {
            return Some(RestoreReason::RaftTerm { before: before.raft_term, now: now.raft_term });
        }
        entries.iter().find_map(|entry| {
            let known = self.known.get(&entry.key)?;
            // A watch may be ahead of the list; a key known from before the list cannot be.
            let is_older =
                entry.mod_revision < known.mod_revision && known.mod_revision <= now.revision;
            let is_other = entry.mod_revision == known.mod_revision && Known::of(entry) != *known;
            (is_older || is_other).then_some(RestoreReason::Key {
                before: known.mod_revision,
                now: entry.mod_revision,
            })
        })
    }

    fn watched(&mut self, changes: Vec<MirrorChange>, now: Instant, output: &mut MirrorOutput) {
        let MirrorPhase::Watching(watching) = &mut self.phase else { return };
        watching.last_message_at = now;
        watching.asked_at = None;
        self.back_off.reset();
        for change in changes {
            let (key, revision) = change.what();
            self.seen = self.seen.map(|seen| later(seen, revision));
            watching.check.change(key, revision, matches!(change, MirrorChange::Delete { .. }));
            let reported = self.known.get(key).map(|known| known.mod_revision);
            match change {
                MirrorChange::Put(entry) if reported.is_none_or(|reported| reported < revision) => {
                    self.known.insert(entry.key.clone(), Known::of(&entry));
                    output.events.push(entry.into_put());
                }
                MirrorChange::Delete { key, .. }
                    if reported.is_some_and(|reported| reported < revision) =>
                {
                    self.known.remove(&key);
                    output.events.push(MirrorEvent::Delete { key });
                }
                _ => {}
            }
        }
        if matches!(&watching.check, Check::Doubt { differing, .. } if differing.is_empty()) {
            let at = now + self.back_off.jitter(self.times.list_interval);
            watching.check = Check::Due { at };
        }
    }
}

fn later(position: HistoryPosition, revision: Revision) -> HistoryPosition {
    HistoryPosition { revision: position.revision.max(revision), ..position }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
