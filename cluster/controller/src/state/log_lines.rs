//! Lines of the operational log: each decision once it is written, and the start and end of brakes
//! and drains.
//!
//! `weir events` has the same decisions for the whole cluster. These lines cover the controller
//! that made them, are in the log of its machine, and are available also when etcd is not. A write
//! whose answer is lost leaves no line.

use weir_map::allocate::{Liveness, Note, PlannedChange};
use weir_map::map::Transition;

use super::Controller;
use super::decide::Sight;
use super::journal::PendingEvent;
use super::kind::StepKind;
use super::time::ControllerTime;
use super::words;
use crate::standing::{ControllerStanding, Drain};

/// The line of a decision in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionLine {
    /// No line: the election logs one of its own.
    Elected,
    NodeBetter,
    NodeWorse,
    Created,
    Promoted,
    Fenced,
    Moved,
    Repaired,
    Followed,
    Retired,
    Frozen,
    Ordered,
}

impl DecisionLine {
    pub(super) fn of_step(change: &PlannedChange, kind: StepKind) -> Self {
        let PlannedChange::Apply { transition, .. } = change else { return Self::Created };
        match transition {
            Transition::Promote(_) => Self::Promoted,
            Transition::Fence(_) | Transition::TakeSlot { .. } => Self::Fenced,
            Transition::AddReplica(_) | Transition::Replace { .. } if kind == StepKind::Repair => {
                Self::Repaired
            }
            Transition::AddReplica(_)
            | Transition::Replace { .. }
            | Transition::Retire(_)
            | Transition::Remove(_)
            | Transition::Keep(_) => Self::Moved,
            Transition::Restart { .. }
            | Transition::Resume { .. }
            | Transition::OutOfSync(_)
            | Transition::Synced(_)
            | Transition::Resync(_)
            | Transition::Settle { .. }
            | Transition::Rebase { .. } => Self::Followed,
        }
    }

    pub(super) fn of_life(liveness: Liveness) -> Self {
        match liveness {
            Liveness::Alive | Liveness::Stopping => Self::NodeBetter,
            Liveness::Suspect | Liveness::Dead | Liveness::Fenced => Self::NodeWorse,
        }
    }
}

/// Logs a decision that is written to etcd.
pub(super) fn log(pending: &PendingEvent) {
    let PendingEvent { line, node, shard, what, why, .. } = pending;
    let node = node.as_ref().map(tracing::field::display);
    let shard = shard.map(|shard| shard.0);
    match line {
        DecisionLine::Elected => {}
        DecisionLine::NodeBetter => tracing::info!(event = "node-judged", node, why, "{what}"),
        DecisionLine::NodeWorse => tracing::warn!(event = "node-judged", node, why, "{what}"),
        DecisionLine::Created => {
            tracing::info!(event = "shard-created", shard, node, why, "{what}")
        }
        DecisionLine::Promoted => {
            tracing::info!(event = "primary-promoted", shard, node, why, "{what}")
        }
        DecisionLine::Fenced => tracing::warn!(event = "member-fenced", shard, node, why, "{what}"),
        DecisionLine::Moved => tracing::info!(event = "shard-moved", shard, node, why, "{what}"),
        DecisionLine::Repaired => {
            tracing::info!(event = "shard-repaired", shard, node, why, "{what}")
        }
        DecisionLine::Followed => {
            tracing::info!(event = "shard-followed", shard, node, why, "{what}")
        }
        DecisionLine::Retired => tracing::warn!(event = "shard-retired", shard, why, "{what}"),
        // The change of the standing is logged instead, also when an operator has frozen the map.
        DecisionLine::Frozen => {}
        DecisionLine::Ordered => tracing::info!(event = "order-done", node, why, "{what}"),
    }
}

impl Controller {
    /// Returns the brakes on decisions, and the drains.
    pub(super) fn standing_of(&self, sight: &Sight, now: ControllerTime) -> ControllerStanding {
        let halted = sight.notes.iter().find(|note| matches!(note, Note::Halted { .. }));
        let held = self.shards_held();
        let drains = self.view.intents.iter().filter_map(|(node, intent)| {
            let drain = intent.value.as_ref()?.drain.as_ref()?;
            let (shards, _) = held.get(node).copied().unwrap_or_default();
            let waits = self.waits(node, shards, sight);
            let since_ms = drain.order.at_ms.min(now.unix_ms);
            Some((node.to_string(), Drain { by: drain.order.by.clone(), since_ms, shards, waits }))
        });
        ControllerStanding {
            is_leading: true,
            frozen: sight.gates.frozen.clone(),
            halted: halted.map(words::note),
            in_doubt: sight.gates.in_doubt.shards.len(),
            drains: drains.collect(),
        }
    }
}

/// Logs each difference.
pub(super) fn log_changes(before: &ControllerStanding, after: &ControllerStanding) {
    match (&before.frozen, &after.frozen) {
        (before, Some(why)) if before.as_ref() != Some(why) => {
            tracing::warn!(event = "cluster-frozen", "nothing is moved, copied or repaired: {why}");
        }
        (Some(_), None) => tracing::info!(event = "cluster-unfrozen", "not frozen any more"),
        _ => {}
    }
    match (&before.halted, &after.halted) {
        (None, Some(why)) => tracing::warn!(event = "cluster-halted", "{why}"),
        (Some(_), None) => tracing::info!(event = "cluster-resumed", "not halted any more"),
        _ => {}
    }
    for (node, drain) in &after.drains {
        let Drain { by, shards, waits, .. } = drain;
        let known = before.drains.get(node);
        if known.is_none() {
            tracing::info!(event = "drain-begun", %node, %by, shards, "the node is to be emptied");
        }
        if *shards == 0 && known.is_none_or(|known| known.shards > 0) {
            tracing::info!(event = "drain-done", %node, %by, "the node holds no shard");
        }
        // The limit of moves per minute is expected and needs no attention, but its reason is
        // logged once.
        if !waits.is_empty() && known.is_none_or(|known| known.waits != *waits) {
            tracing::info!(event = "drain-waits", %node, shards, "{waits}");
        }
    }
    for node in before.drains.keys().filter(|node| !after.drains.contains_key(*node)) {
        tracing::info!(event = "drain-ended", %node, "the node may hold shards again");
    }
}
