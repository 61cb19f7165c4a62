//! The liveness of each node: registered, suspect, dead, and its losses since the last calm period.
//!
//! - A node whose key is gone is *suspect*. It is *dead* only when each registered node that
//!   replicates with it has reported since then that it does not hear it.
//! - The time that a key has been gone is counted only while this process watches without a gap:
//!   the count restarts after any gap, since the key may have been there meanwhile.
//! - A worker of a registered node may be *cut off*: [`cut_off`] defines when.
//! - A node that comes back for the second time within `calm_ms` is on trial: it keeps its shards
//!   and gets no others for a time that doubles with each loss, unless the operator asks for a
//!   rebalance. An orderly restart begins no trial.

mod cut_off;

use std::collections::{BTreeMap, BTreeSet};

use weir_etcd::{NodeRecord, WorkerRecord};
use weir_map::allocate::{Liveness, WorkerView};
use weir_map::{BootId, NodeId};

use super::event::NodeReport;
use super::options::ControllerOptions;
use super::time::ControllerTime;
use cut_off::CutOff;

/// Everything known of one node.
#[derive(Clone, Debug, Default)]
struct NodeHistory {
    /// The last readable record.
    record: Option<NodeRecord>,
    /// Time at which the key was first missed; none: the key is there.
    absent_since_ms: Option<u64>,
    /// Losses since the last calm period.
    losses: u32,
    lost_at_ms: u64,
    trial_until_ms: u64,
    /// Whether each peer hears this node, and the time of its report.
    hears: BTreeMap<NodeId, (bool, u64)>,
    cut_off: CutOff,
}

/// The liveness of a node, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeStanding {
    pub(super) liveness: Liveness,
    pub(super) why: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    all: BTreeMap<NodeId, NodeHistory>,
    /// Time of the last report that changed the state of some node's BIRD.
    bird_changed_ms: Option<u64>,
}

impl Lives {
    /// Records that the key is there, with its record if it can be read.
    pub(super) fn registered(
        &mut self,
        node: &NodeId,
        record: Option<&NodeRecord>,
        options: &ControllerOptions,
        now: ControllerTime,
    ) {
        let life = self.all.entry(node.clone()).or_default();
        let before = life.record.as_ref().map(|record| record.boot_id.clone());
        let is_restart = record.is_some_and(|record| before.is_some_and(|it| it != record.boot_id));
        if life.absent_since_ms.is_none() && is_restart && !life.has_announced_end() {
            // The key was gone too shortly for the mirror to report it.
            life.lose(options, now);
        }
        if life.absent_since_ms.take().is_some() || is_restart {
            life.cut_off = CutOff::begun(now);
            if !life.has_announced_end() {
                life.trial_until_ms = now.monotonic_ms + life.trial_ms(options);
            }
        }
        if let Some(record) = record {
            life.record = Some(record.clone());
        }
    }

    /// Records that the key is gone. A node that was being drained, or had announced its end, is
    /// not lost.
    pub(super) fn gone(
        &mut self,
        node: &NodeId,
        is_loss: bool,
        options: &ControllerOptions,
        now: ControllerTime,
    ) {
        let life = self.all.entry(node.clone()).or_default();
        life.absent_since_ms.get_or_insert(now.monotonic_ms);
        if is_loss && !life.has_announced_end() {
            life.lose(options, now);
        }
    }

    /// Records a node that is named somewhere and has no key.
    pub(super) fn missed(&mut self, node: &NodeId, now: ControllerTime) {
        let is_known = self.all.contains_key(node);
        if !is_known {
            let life =
                NodeHistory { absent_since_ms: Some(now.monotonic_ms), ..NodeHistory::default() };
            self.all.insert(node.clone(), life);
        }
    }

    /// Records every node without a key as gone, also if its loss was not observed; all keys must
    /// be known.
    pub(super) fn lost_unseen(
        &mut self,
        is_there: impl Fn(&NodeId) -> bool,
        options: &ControllerOptions,
        now: ControllerTime,
    ) {
        let unseen = self
            .all
            .iter()
            .filter(|(node, life)| life.absent_since_ms.is_none() && !is_there(node));
        let unseen: Vec<NodeId> = unseen.map(|(node, _)| node.clone()).collect();
        unseen.iter().for_each(|node| self.gone(node, true, options, now));
    }

    /// Restarts the count of every absence after a gap in what this process saw.
    pub(super) fn forget_absences(&mut self, now: ControllerTime) {
        for life in self.all.values_mut() {
            if let Some(since) = &mut life.absent_since_ms {
                *since = now.monotonic_ms;
            }
        }
    }

    /// Forgets nodes that no key and no entry names, once their losses are forgotten too.
    pub(super) fn forget_strangers(
        &mut self,
        named: &BTreeSet<NodeId>,
        options: &ControllerOptions,
        now: ControllerTime,
    ) {
        self.all.retain(|node, life| {
            let is_calm = life.losses == 0 || now.since(life.lost_at_ms) >= options.calm_ms;
            named.contains(node) || life.absent_since_ms.is_none() || !is_calm
        });
    }

    /// Takes a report. Returns whether a side of one of the node's workers, or of its BIRD, has
    /// gone down or come back since the node's last report.
    pub(super) fn on_report(&mut self, report: &NodeReport, now: ControllerTime) -> bool {
        for (about, &is_heard) in &report.hears {
            if let Some(life) = self.all.get_mut(about) {
                life.hears.insert(report.node.clone(), (is_heard, now.monotonic_ms));
            }
        }
        let Some(life) = self.all.get_mut(&report.node) else { return false };
        let has_side_changed = life.cut_off.on_report(report, now);
        let has_bird_changed = life.cut_off.on_bird_report(report);
        if has_bird_changed {
            self.bird_changed_ms = Some(now.monotonic_ms);
        }
        has_side_changed || has_bird_changed
    }

    pub(super) fn rack(&self, node: &NodeId) -> Option<String> {
        self.all.get(node)?.record.as_ref()?.rack.clone()
    }

    /// Returns its workers, as last registered; none if no readable record named them.
    pub(super) fn workers(&self, node: &NodeId) -> Option<Vec<WorkerView>> {
        let life = self.all.get(node)?;
        let mut workers = worker_views(&life.record.as_ref()?.workers)?;
        for worker in &mut workers {
            worker.is_cut_off = life.cut_off.why.contains_key(&worker.index);
        }
        Some(workers)
    }

    pub(super) fn is_on_trial(&self, node: &NodeId, now: ControllerTime) -> bool {
        self.all.get(node).is_some_and(|life| now.monotonic_ms < life.trial_until_ms)
    }

    /// Returns the standing of a node without a key. `peers` are the registered nodes that
    /// replicate with it.
    pub(super) fn standing(
        &self,
        node: &NodeId,
        peers: &BTreeSet<NodeId>,
        options: &ControllerOptions,
        now: ControllerTime,
    ) -> NodeStanding {
        let suspect = |why: String| NodeStanding { liveness: Liveness::Suspect, why };
        let Some(life) = self.all.get(node) else { return suspect("never seen".into()) };
        let Some(since_ms) = life.absent_since_ms else {
            return suspect("it is registered, but does not name its workers".into());
        };
        let absent_ms = now.since(since_ms);
        for peer in peers {
            match life.hears.get(peer).filter(|(_, at)| now.since(*at) <= options.report_max_ms) {
                Some((true, _)) => return suspect(format!("not registered, but {peer} hears it")),
                Some((false, at)) if *at >= since_ms => {}
                _ => {
                    return suspect(format!(
                        "not registered, but {peer} has not said that it is silent"
                    ));
                }
            }
        }
        if absent_ms < options.dead_after_ms {
            return suspect("not registered since a moment ago".into());
        }
        let why = match peers.len() {
            0 => "not registered, and no registered node replicates with it",
            _ => "not registered, and no node hears it",
        };
        NodeStanding { liveness: Liveness::Dead, why: why.into() }
    }
}

impl NodeHistory {
    /// True if the node announced its end.
    fn has_announced_end(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.is_stopping)
    }

    fn lose(&mut self, options: &ControllerOptions, now: ControllerTime) {
        if now.since(self.lost_at_ms) >= options.calm_ms {
            self.losses = 0;
        }
        self.losses = self.losses.saturating_add(1);
        self.lost_at_ms = now.monotonic_ms;
    }

    /// Length of its trial after a return: zero the first time.
    fn trial_ms(&self, options: &ControllerOptions) -> u64 {
        match self.losses {
            0 | 1 => 0,
            losses => {
                let doubled = options.trial_first_ms.saturating_mul(1 << (losses - 2).min(32));
                doubled.min(options.trial_max_ms)
            }
        }
    }
}

/// Returns the workers of a record; none if it names none, or one that cannot be parsed.
pub(crate) fn worker_views(records: &[WorkerRecord]) -> Option<Vec<WorkerView>> {
    let views = records.iter().map(|record| {
        let boot_id = BootId::try_from(record.boot_id.clone()).ok()?;
        let resumes = record.resumes.clone().map(BootId::try_from).transpose().ok()?;
        Some(WorkerView {
            index: record.index,
            boot_id,
            resumes,
            weight: record.weight,
            load_max: record.load_max,
            shards_max: record.shards_max,
            is_cut_off: false,
        })
    });
    let views: Vec<WorkerView> = views.collect::<Option<_>>()?;
    let indexes: BTreeSet<u16> = views.iter().map(|view| view.index).collect();
    (!views.is_empty() && indexes.len() == views.len()).then_some(views)
}

#[cfg(test)]
#[path = "lives_tests.rs"]
mod tests;
