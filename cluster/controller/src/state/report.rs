//! The leader's report for the operator: written when it has changed.

use std::collections::BTreeMap;

use weir_etcd::Key;
use weir_map::allocate::{Liveness, Note};
use weir_map::{BootId, NodeId};

use super::decide::Sight;
use super::doubts::InDoubt;
use super::load::worker_reports;
use super::time::ControllerTime;
use super::troubles::STANDS_STILL;
use super::{Controller, words};
use crate::records::{ControllerState, LeaderReport, ReportedNode};

const NOTES_MAX: usize = 20;

impl Controller {
    /// Returns the report; none: the one in etcd is the same.
    pub(super) fn report_of(&self, sight: &Sight, now: ControllerTime) -> Option<LeaderReport> {
        let (state, why) = state_of(sight);
        let before = self.view.report.as_ref().and_then(|held| held.value.as_ref());
        let entries = || self.view.entries().map(|(_, entry)| entry);
        let unreadable = self.view.shards.iter().filter(|(_, held)| held.value.is_none());
        let unreadable = unreadable.map(|(id, _)| {
            format!("shard {id}: its key cannot be read; it is left alone until it can")
        });
        let undead = sight.fleet.undead.iter().map(|node| {
            format!("{node} was fenced, but it runs: two writers are possible; restart it at once")
        });
        let notes = sight.notes.iter().map(words::note);
        let report = LeaderReport {
            by: self.options.name.clone(),
            at_ms: now.unix_ms,
            state,
            why,
            shards: self.view.shards.len(),
            is_by_load: self.view.is_by_load(),
            desired: self.view.revision(&Key::Desired),
            whole: entries().filter(|entry| sight.fleet.is_whole(entry)).count(),
            unprotected: entries().filter(|entry| !sight.fleet.is_protected(entry)).count(),
            in_doubt: sight.gates.in_doubt.shards.len(),
            doubts: sight.gates.in_doubt.why.clone(),
            missing: missing(&sight.gates.in_doubt),
            nodes: self.node_reports(sight, before),
            notes: undead
                .chain(unreadable)
                .chain(self.lives.silences(&self.options, now))
                .chain(self.troubles.notes())
                .chain(notes)
                .take(NOTES_MAX)
                .collect(),
        };
        let is_same = before
            .is_some_and(|before| LeaderReport { at_ms: report.at_ms, ..before.clone() } == report);
        (!is_same).then_some(report)
    }

    fn node_reports(&self, sight: &Sight, before: Option<&LeaderReport>) -> Vec<ReportedNode> {
        let (loads, held) = (self.worker_loads(), self.shards_held());
        let nodes = sight.fleet.nodes.iter().map(|node| {
            let (shards, primaries) = held.get(&node.name).copied().unwrap_or_default();
            let standing = &sight.fleet.standings[&node.name];
            let why = match &standing.why {
                why if !why.is_empty() => why.clone(),
                _ if node.is_on_trial => "was lost several times, gets no more shards yet".into(),
                _ => String::new(),
            };
            let workers = node.workers.iter().filter(|worker| worker.is_cut_off);
            let cut_off: Vec<u16> = workers.map(|worker| worker.index).collect();
            let is_cut_off = !cut_off.is_empty() && cut_off.len() == node.workers.len();
            let life = match standing.liveness {
                Liveness::Alive if is_cut_off => words::CUT_OFF,
                liveness => words::life(liveness),
            };
            ReportedNode {
                node: node.name.to_string(),
                life: life.into(),
                generation: self.troubles.generation(&node.name),
                why,
                cut_off,
                is_drained: self.is_drain_ordered(&node.name),
                shards,
                primaries,
                waits: self.waits(&node.name, shards, sight),
                workers: worker_reports(node, &loads, before),
            }
        });
        nodes.collect()
    }

    /// Returns, by node, the number of shards that it is a member of, and of those that it is
    /// primary of.
    pub(super) fn shards_held(&self) -> BTreeMap<&NodeId, (usize, usize)> {
        let mut held: BTreeMap<&NodeId, (usize, usize)> = BTreeMap::new();
        for (_, entry) in self.view.entries() {
            for (rank, member) in entry.members().iter().enumerate() {
                let sums = held.entry(&member.incarnation.worker.node).or_default();
                sums.0 += 1;
                sums.1 += usize::from(rank == 0);
            }
        }
        held
    }

    fn is_drain_ordered(&self, node: &NodeId) -> bool {
        self.view.intent(node).is_some_and(|intent| intent.drain.is_some())
    }

    /// Returns the reason that the drain of a node does not proceed; empty: it does.
    pub(super) fn waits(&self, node: &NodeId, shards: usize, sight: &Sight) -> String {
        if !self.is_drain_ordered(node) || shards == 0 {
            return String::new();
        }
        if let Some(why) = sight.fleet.waiting_drains.get(node).or(sight.gates.frozen.as_ref()) {
            return why.clone();
        }
        if let Some(note) = sight.notes.iter().find(|note| matches!(note, Note::Halted { .. })) {
            return words::note(note);
        }
        if sight.gates.still.contains(node) {
            return STANDS_STILL.to_owned();
        }
        if sight.gates.unprotected.contains(node) {
            return "some of its shards lack a synced copy: they are copied first".into();
        }
        if sight.gates.is_paced {
            return format!("at most {} moves begin in a minute", self.options.moves_per_min);
        }
        String::new()
    }
}

fn missing(in_doubt: &InDoubt) -> BTreeMap<String, Vec<BootId>> {
    let missing = in_doubt.missing.iter();
    missing.map(|(node, lives)| (node.to_string(), lives.iter().copied().collect())).collect()
}

fn state_of(sight: &Sight) -> (ControllerState, String) {
    let halted = sight.notes.iter().find(|note| matches!(note, Note::Halted { .. }));
    if let Some(why) = &sight.gates.frozen {
        return (ControllerState::Frozen, why.clone());
    }
    if let Some(note) = halted {
        return (ControllerState::Halted, words::note(note));
    }
    if sight.taken > 0 || sight.is_busy {
        return (ControllerState::Working, String::new());
    }
    (ControllerState::Resting, String::new())
}
