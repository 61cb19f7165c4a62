//! One decision round: what is to be done, what has to wait, and what an operator should know.

use std::collections::{BTreeMap, BTreeSet};

use weir_map::allocate::{
    Acting, AllocateOptions, Liveness, Note, Plan, PlanStep, PlannedChange, ShardView, allocate,
};
use weir_map::map::MemberState;
use weir_map::{NodeId, ShardId};

use super::Controller;
use super::doubts::InDoubt;
use super::fleet::Fleet;
use super::job::Job;
use super::kind::StepKind;
use super::log_lines::{self, DecisionLine};
use super::time::ControllerTime;
use super::words;
use crate::records::{Control, FreezeOrder};

/// Conditions that hold steps up, beside those of each single step.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// Reason that only the consequences of failures are written; none: the map is not frozen.
    pub(super) frozen: Option<String>,
    /// Not even the consequences of failures are written.
    pub(super) is_total: bool,
    /// No more moves may begin in this minute.
    pub(super) is_paced: bool,
    /// Nodes whose moves wait because one of their shards has a member on a stalled node.
    pub(super) still: BTreeSet<NodeId>,
    /// Nodes whose moves wait because their shards lack a synced copy.
    pub(super) unprotected: BTreeSet<NodeId>,
    /// Shards on which nothing is decided.
    pub(super) in_doubt: InDoubt,
}

/// Everything observed in one round: the source of the report.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) fleet: Fleet,
    pub(super) gates: Gates,
    pub(super) notes: Vec<Note>,
    /// Number of steps that are taken in this round.
    pub(super) taken: usize,
    /// Copies or lanes are under way, or steps wait.
    pub(super) is_busy: bool,
}

impl Controller {
    pub(super) fn decide(&mut self, now: ControllerTime) {
        if self.view.meta.as_ref().is_some_and(|meta| meta.value.is_none()) {
            // The cluster is of a newer version, whose rules are unknown.
            self.journal.clear();
            return;
        }
        self.forget(now);
        let copies =
            1 + self.view.desired().map_or(0, |it| usize::from(it.cluster.replicas.min(4)));
        for change in self.lives.cut_off_changes(&self.options, now) {
            let line =
                if change.is_cut_off { DecisionLine::NodeWorse } else { DecisionLine::NodeBetter };
            self.journal.append(line, Some(&change.node), &change.what, &change.why);
        }
        let fleet = Fleet::of(&self.view, &self.lives, copies, &self.options, now);
        self.log_liveness(&fleet);
        let control = self.view.control();
        let mut gates = self.gates(control.as_ref());
        if self.view.meta.is_none() && !self.is_restored {
            self.jobs.push_back(Job::Meta);
        }
        if self.is_restored {
            self.jobs.push_back(Job::FreezeWhole);
            return;
        }
        let order = control.as_ref().and_then(|control| control.rebase.as_ref());
        gates.in_doubt = self.look_at_doubts(order.is_some(), now);
        let goes_on = self.jobs.iter().any(|job| matches!(job, Job::Rebase { .. }));
        if order.is_some() && !goes_on && !gates.in_doubt.is_waiting {
            self.jobs.push_back(Job::EndRebase);
        }
        let shards = self.shard_views(now);
        let options = AllocateOptions {
            replicas: (copies - 1) as u8,
            moves_max: self.options.copies_max,
            by_load: self.view.is_by_load(),
            room_for_loss: true,
            moves_within_nodes: fleet.knows_rooms(),
        };
        let plan = allocate(&fleet.nodes, &shards, &options);
        let is_asked = control.as_ref().is_some_and(|control| control.rebalance.is_some());
        let sight = self.take_steps(fleet, gates, &shards, plan, is_asked, now);
        if !sight.gates.is_total {
            self.keep_house(&sight, control.as_ref());
        }
        let standing = self.standing_of(&sight, now);
        log_lines::log_changes(&self.standing, &standing);
        self.standing = standing;
        if let Some(report) = self.report_of(&sight, now) {
            self.jobs.push_back(Job::Report(Box::new(report)));
        }
    }

    /// Drops the state of shards and nodes that no key and no entry names.
    fn forget(&mut self, now: ControllerTime) {
        let view = &self.view;
        self.loads.retain(|shard, _| view.shards.contains_key(shard));
        let report_max_ms = self.options.report_max_ms;
        self.acting.retain(|_, (_, at_ms)| now.since(*at_ms) <= report_max_ms);
        self.troubles.forget(report_max_ms, now);
        let mut named: BTreeSet<NodeId> = view.nodes.keys().cloned().collect();
        let members = view.entries().flat_map(|(_, entry)| entry.members());
        named.extend(members.map(|member| member.incarnation.worker.node.clone()));
        for node in named.iter().filter(|node| !view.nodes.contains_key(node)) {
            self.lives.missed(node, now);
        }
        self.lives.forget_strangers(&named, &self.options, now);
    }

    fn gates(&self, control: Option<&Control>) -> Gates {
        let freeze = control.map(|control| control.freeze.as_ref());
        let frozen = match freeze {
            None => Some("the key `control` cannot be read: `weir controller unfreeze`".into()),
            Some(Some(freeze)) => Some(words::frozen(freeze)),
            Some(None) if self.view.desired.is_none() => {
                Some("no cluster file has been applied: `weir apply`".into())
            }
            Some(None) if self.view.desired().is_none() => {
                Some("the key `desired` cannot be read: is it of a newer version of weir?".into())
            }
            Some(None) => None,
        };
        let is_total = freeze.flatten().is_some_and(|freeze: &FreezeOrder| freeze.is_total);
        Gates { frozen, is_total, ..Gates::default() }
    }

    /// Returns every shard that has an entry or is to be created, ordered by number.
    fn shard_views(&self, now: ControllerTime) -> Vec<ShardView> {
        let mut shards: BTreeMap<ShardId, ShardView> = BTreeMap::new();
        let acting = |id: &ShardId| -> Option<Acting> {
            let (acting, at_ms) = self.acting.get(id)?;
            (now.since(*at_ms) <= self.options.report_max_ms).then(|| acting.clone())
        };
        for (id, entry) in self.view.entries() {
            let load = self.loads.get(&id).copied().unwrap_or(0);
            let shard = ShardView { id, entry: Some(entry.clone()), load, acting: acting(&id) };
            shards.insert(id, shard);
        }
        for wanted in self.view.desired().map_or(&[][..], |desired| &desired.shards) {
            let id = ShardId(wanted.id);
            // A shard whose key cannot be read is not to be created.
            if !self.view.shards.contains_key(&id) {
                shards.insert(id, ShardView { id, entry: None, load: 0, acting: None });
            }
        }
        shards.into_values().collect()
    }

    fn take_steps(
        &mut self,
        fleet: Fleet,
        mut gates: Gates,
        shards: &[ShardView],
        plan: Plan,
        is_asked: bool,
        now: ControllerTime,
    ) -> Sight {
        let kinds: Vec<StepKind> = plan.steps.iter().map(|step| self.kind(step, &fleet)).collect();
        let may_balance = self.may_balance(&kinds, &fleet, is_asked, now);
        let mut moves_left = self.pace.left(now);
        let mut taken = 0;
        for (step, kind) in plan.steps.into_iter().zip(kinds.iter().copied()) {
            if !self.passes(&step, kind, &fleet, &mut gates, may_balance) {
                continue;
            }
            if kind.is_move() {
                if moves_left == 0 {
                    gates.is_paced = true;
                    continue;
                }
                moves_left -= 1;
            }
            taken += 1;
            let why = words::why(&step, kind, self, &fleet);
            self.jobs.push_back(Job::Step { step, kind, why });
        }
        let is_under_way = shards.iter().filter_map(|shard| shard.entry.as_ref()).any(|entry| {
            let copies = |it: &weir_map::Member| {
                it.state == MemberState::Syncing && fleet.runs(&it.incarnation)
            };
            entry.is_moving() || entry.members().iter().any(copies)
        });
        let waits = !may_balance && kinds.iter().all(|kind| *kind == StepKind::Balance);
        let is_busy = is_under_way || taken > 0 || !kinds.is_empty() && !waits;
        if kinds.is_empty() && !is_under_way {
            self.uneven_since_ms = None;
        }
        Sight { fleet, gates, notes: plan.notes, taken, is_busy }
    }

    fn kind(&self, step: &PlanStep, fleet: &Fleet) -> StepKind {
        let acting = self.acting.get(&step.shard).map(|(acting, _)| acting);
        StepKind::of(&step.change, self.view.entry(step.shard), acting, fleet)
    }

    /// True if an imbalance has lasted or the operator asked to balance at once, and every shard is
    /// protected. While a node is suspect the shards' final distribution is unknown, so the
    /// imbalance timer restarts.
    fn may_balance(
        &mut self,
        kinds: &[StepKind],
        fleet: &Fleet,
        is_asked: bool,
        now: ControllerTime,
    ) -> bool {
        if fleet.is_any_suspect() {
            self.uneven_since_ms = None;
        }
        if !kinds.contains(&StepKind::Balance) {
            return false;
        }
        let since_ms = *self.uneven_since_ms.get_or_insert(now.monotonic_ms);
        let lasts = is_asked || now.since(since_ms) >= self.options.balance_wait_ms;
        lasts && self.view.entries().all(|(_, entry)| fleet.is_protected(entry))
    }

    fn passes(
        &self,
        step: &PlanStep,
        kind: StepKind,
        fleet: &Fleet,
        gates: &mut Gates,
        may_balance: bool,
    ) -> bool {
        if gates.in_doubt.shards.contains(&step.shard) {
            return false;
        }
        if gates.is_total || gates.frozen.is_some() && kind != StepKind::Follow {
            return false;
        }
        if kind == StepKind::Balance && !may_balance {
            return false;
        }
        let PlannedChange::Apply { transition, .. } = &step.change else { return true };
        let Some(entry) = self.view.entry(step.shard) else { return false };
        if kind.is_move() && self.troubles.in_the_way(entry, transition).next().is_some() {
            let nodes = entry.members().iter().map(|member| &member.incarnation.worker.node);
            gates.still.extend(nodes.cloned());
            return false;
        }
        if kind.is_move() && !fleet.is_protected(entry) {
            let nodes = entry.members().iter().map(|member| &member.incarnation.worker.node);
            gates.unprotected.extend(nodes.cloned());
            return false;
        }
        true
    }

    /// Queues the removal of orders that are done, and the retirement of shards.
    fn keep_house(&mut self, sight: &Sight, control: Option<&Control>) {
        let fenced = self.view.intents.iter().filter_map(|(node, held)| {
            let fence = held.value.as_ref()?.fence.as_ref()?;
            let names = |(_, entry): (ShardId, &weir_map::ShardEntry)| {
                let mut members = entry.members().iter();
                members.any(|member| fence.boot_ids.contains(&member.incarnation.boot_id))
            };
            let is_done = !self.view.entries().any(names)
                && !sight.fleet.undead.contains(node)
                && sight.gates.in_doubt.shards.is_empty();
            is_done.then(|| node.clone())
        });
        let fenced: Vec<NodeId> = fenced.collect();
        self.jobs.extend(fenced.into_iter().map(Job::DropFence));
        let Some(control) = control else { return };
        if control.rebalance.is_some() && !sight.is_busy && sight.gates.frozen.is_none() {
            self.jobs.push_back(Job::EndRebalance);
        }
        let Some(desired) = self.view.desired() else { return };
        let is_there = |id: u32| self.view.shards.contains_key(&ShardId(id));
        let (retire, done): (Vec<u32>, Vec<u32>) =
            control.retire.iter().partition(|&&id| !desired.has(id) && is_there(id));
        if sight.gates.frozen.is_none() {
            self.jobs.extend(retire.into_iter().map(|id| Job::Retire(ShardId(id))));
        }
        if !done.is_empty() {
            self.jobs.push_back(Job::EndRetire(done));
        }
    }

    /// Adds an event for each node whose liveness has changed.
    fn log_liveness(&mut self, fleet: &Fleet) {
        for (node, standing) in &fleet.standings {
            let before = self.reported.insert(node.clone(), standing.liveness);
            if before == Some(standing.liveness)
                || before.is_none() && standing.liveness == Liveness::Alive
            {
                continue;
            }
            let what = format!("the node is {}", words::life(standing.liveness));
            let why =
                if standing.liveness == Liveness::Alive { "registered" } else { &standing.why };
            let line = DecisionLine::of_life(standing.liveness);
            self.journal.append(line, Some(node), &what, why);
        }
        self.reported.retain(|node, _| fleet.standings.contains_key(node));
    }
}
