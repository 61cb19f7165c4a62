//! Workers that run but cannot serve: one of their sides is down, their node's BIRD does not
//! announce it, or no other node hears theirs.
//!
//! - A node reports the first two of itself. The third needs every report about the node to be
//!   negative, and one of the reporters to hear some other node: a reporter that hears no node may
//!   itself be cut off.
//! - The first and the third must last for `cut_off_after_ms`, and end at once. A missing report
//!   counts neither way.
//! - A node reports the state of its BIRD only once it has lasted. The state counts, and ends, when
//!   no node has reported a change of its BIRD for `bird_settle_ms`: a fault of many nodes, as when
//!   a switch restarts, is seen of all of them at once, and then so many are gone that nothing
//!   moves.
//! - A node that has just registered is given time to be heard: peers that lost it retry ever more
//!   rarely.
//! - For the trial of a flapping worker, the end of a cut-off counts as a loss and a return. A
//!   cut-off that ends with the node counts as the node's loss.

use std::collections::BTreeMap;

use weir_map::NodeId;

use super::super::event::{BirdDown, NodeReport};
use super::super::options::ControllerOptions;
use super::super::time::ControllerTime;
use super::{Lives, NodeHistory};

/// Everything known of the cut-offs of one node.
#[derive(Clone, Debug, Default)]
pub(super) struct CutOff {
    /// Time at which the node registered.
    came_ms: u64,
    /// Workers with a side down, and since when.
    broken: BTreeMap<u16, u64>,
    /// Sides that BIRD does not announce, as last reported; `bird_counted` holds those that count.
    bird_down: Vec<BirdDown>,
    bird_counted: Vec<BirdDown>,
    reported_ms: u64,
    unreachable_since_ms: Option<u64>,
    /// Time since which every report about the node says that it is not heard, and the reporters,
    /// which may themselves be cut off.
    silent: Option<(u64, Vec<NodeId>)>,
    /// Reasons, by worker, that workers count as cut off.
    pub(super) why: BTreeMap<u16, String>,
}

/// The start or the end of a worker's cut-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct CutOffChange {
    pub(in super::super) node: NodeId,
    pub(in super::super) is_cut_off: bool,
    pub(in super::super) what: String,
    pub(in super::super) why: String,
}

/// The reporters that do not hear a node.
#[derive(Default)]
struct Unreachable {
    /// Reporters; empty: some node hears it, or no node reports about it.
    by: Vec<NodeId>,
    /// Whether one of them hears another node, so that it is not the reporters that are cut off.
    is_certain: bool,
}

impl CutOff {
    /// Creates the state of a node that has just registered.
    pub(super) fn begun(now: ControllerTime) -> Self {
        Self { came_ms: now.monotonic_ms, ..Self::default() }
    }

    /// Takes a report. Returns whether a worker's side has gone down or come back since the last
    /// one.
    pub(super) fn on_report(&mut self, report: &NodeReport, now: ControllerTime) -> bool {
        self.reported_ms = now.monotonic_ms;
        let before = self.broken.len();
        self.broken.retain(|worker, _| report.broken.contains(worker));
        let mut has_changed = self.broken.len() != before;
        for &worker in &report.broken {
            self.broken.entry(worker).or_insert_with(|| {
                has_changed = true;
                now.monotonic_ms
            });
        }
        has_changed
    }

    /// Takes a report. Returns whether it changes the state of the node's BIRD.
    pub(super) fn on_bird_report(&mut self, report: &NodeReport) -> bool {
        let has_changed = self.bird_down != report.bird_down;
        self.bird_down.clone_from(&report.bird_down);
        has_changed
    }

    fn why_now(
        &self,
        worker: u16,
        options: &ControllerOptions,
        now: ControllerTime,
    ) -> Option<String> {
        let lasts = |since_ms: u64| now.since(since_ms) >= options.cut_off_after_ms;
        let is_known = now.since(self.reported_ms) <= options.report_max_ms;
        if is_known && self.broken.get(&worker).is_some_and(|since_ms| lasts(*since_ms)) {
            return Some("one of its sides is down".into());
        }
        if is_known && !self.bird_counted.is_empty() {
            let sides = self.bird_counted.iter();
            let sides = sides.map(|BirdDown { side, why }| format!("{why} ({side} side)"));
            return Some(sides.collect::<Vec<_>>().join(", "));
        }
        self.unreachable_since_ms
            .is_some_and(lasts)
            .then(|| "no node that replicates with it hears it".into())
    }
}

impl Lives {
    /// Checks all registered nodes. Returns the changes since the last check.
    pub(in super::super) fn cut_off_changes(
        &mut self,
        options: &ControllerOptions,
        now: ControllerTime,
    ) -> Vec<CutOffChange> {
        let nodes =
            self.all.keys().map(|node| (node.clone(), self.unreachable(node, options, now)));
        let nodes: Vec<(NodeId, Unreachable)> = nodes.collect();
        let mut changes = Vec::new();
        let is_settled = |since_ms: u64| now.since(since_ms) >= options.bird_settle_ms;
        let is_bird_settled = self.bird_changed_ms.is_none_or(is_settled);
        for (node, unreachable) in nodes {
            let life = self.all.get_mut(&node).expect("the node was listed above");
            if is_bird_settled {
                life.cut_off.bird_counted.clone_from(&life.cut_off.bird_down);
            }
            let is_new = now.since(life.cut_off.came_ms) < options.unreachable_at_first_ms;
            let silent_since_ms = life.cut_off.silent.as_ref().map_or(now.monotonic_ms, |it| it.0);
            let is_silent = !unreachable.by.is_empty() && !is_new;
            life.cut_off.silent = is_silent.then_some((silent_since_ms, unreachable.by));
            let is_unreachable = unreachable.is_certain && !is_new;
            let since_ms = life.cut_off.unreachable_since_ms.unwrap_or(now.monotonic_ms);
            life.cut_off.unreachable_since_ms = is_unreachable.then_some(since_ms);
            changes.extend(life.cut_off_changes(&node, options, now));
        }
        changes
    }

    fn unreachable(
        &self,
        node: &NodeId,
        options: &ControllerOptions,
        now: ControllerTime,
    ) -> Unreachable {
        let reported = |life: &NodeHistory, by: &NodeId| {
            let (is_heard, at_ms) = *life.hears.get(by)?;
            (now.since(at_ms) <= options.report_max_ms).then_some(is_heard)
        };
        let hears_another =
            |who: &NodeId| self.all.values().any(|life| reported(life, who) == Some(true));
        let life = &self.all[node];
        let witnesses = || life.hears.keys().filter_map(|by| Some((by, reported(life, by)?)));
        if witnesses().any(|(_, is_heard)| is_heard) {
            return Unreachable::default();
        }
        let by: Vec<NodeId> = witnesses().map(|(by, _)| by.clone()).collect();
        Unreachable { is_certain: by.iter().any(hears_another), by }
    }

    /// Describes, for the operator, the nodes that are not heard by peers which hear no other node
    /// either, so that it is unknown which of them is cut off.
    pub(in super::super) fn silences(
        &self,
        options: &ControllerOptions,
        now: ControllerTime,
    ) -> impl Iterator<Item = String> {
        self.all.iter().filter_map(move |(node, life)| {
            let (since_ms, by) = life.cut_off.silent.as_ref()?;
            let is_shown =
                now.since(*since_ms) >= options.cut_off_after_ms && life.cut_off.why.is_empty();
            let by = by.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ");
            is_shown.then(|| {
                format!("{node} is not heard by {by}: one of them stands still or is cut off")
            })
        })
    }

    /// Describes, for the operator, the cut-offs of a node's workers; empty: there are none.
    pub(in super::super) fn why_cut_off(&self, node: &NodeId) -> String {
        let workers = self.all.get(node).into_iter().flat_map(|life| &life.cut_off.why);
        let parts = workers.map(|(worker, why)| format!("worker {worker} is cut off: {why}"));
        parts.collect::<Vec<_>>().join("; ")
    }
}

impl NodeHistory {
    fn cut_off_changes(
        &mut self,
        node: &NodeId,
        options: &ControllerOptions,
        now: ControllerTime,
    ) -> Vec<CutOffChange> {
        let is_registered = self.absent_since_ms.is_none();
        let record = self.record.as_ref().filter(|_| is_registered);
        let workers = record.into_iter().flat_map(|record| &record.workers);
        let cut_off = workers.filter_map(|worker| {
            Some((worker.index, self.cut_off.why_now(worker.index, options, now)?))
        });
        let after: BTreeMap<u16, String> = cut_off.collect();
        let before = std::mem::replace(&mut self.cut_off.why, after.clone());
        if is_registered && !before.is_empty() && after.is_empty() {
            self.lose(options, now);
            self.trial_until_ms = now.monotonic_ms + self.trial_ms(options);
        }
        let change = |worker: &u16, is: &str, why: &str| CutOffChange {
            node: node.clone(),
            is_cut_off: after.contains_key(worker),
            what: format!("worker {worker} is {is}"),
            why: why.into(),
        };
        let begun = after.iter().filter(|(worker, _)| !before.contains_key(worker));
        let ended = before.keys().filter(|worker| is_registered && !after.contains_key(worker));
        let begun = begun.map(|(worker, why)| change(worker, "cut off", why));
        begun.chain(ended.map(|worker| change(worker, "back", "it is whole and heard"))).collect()
    }
}
