//! Decisions in an operator's words.

use weir_map::NodeId;
use weir_map::allocate::{Liveness, Note, PlanStep, PlannedChange};
use weir_map::map::{Doubt, Transition};

use super::Controller;
use super::fleet::Fleet;
use super::kind::StepKind;
use crate::records::FreezeOrder;

/// State of a node that is alive and whose workers are all cut off.
pub(crate) const CUT_OFF: &str = "cut-off";

pub(super) fn life(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Alive => "alive",
        Liveness::Stopping => "stopping",
        Liveness::Suspect => "suspect",
        Liveness::Dead => "dead",
        Liveness::Fenced => "fenced",
    }
}

pub(crate) fn frozen(freeze: &FreezeOrder) -> String {
    let why = if freeze.why.is_empty() { "" } else { ": " };
    format!("frozen by {}{why}{}", freeze.order.by, freeze.why)
}

pub(super) fn what(change: &PlannedChange) -> String {
    match change {
        PlannedChange::Create(who) => format!("created, {} is primary", who.worker),
        PlannedChange::Apply { transition, .. } => what_of(transition),
    }
}

fn what_of(transition: &Transition) -> String {
    match transition {
        Transition::AddReplica(who) => format!("{} begins to copy", who.worker),
        Transition::Replace { member, by } => {
            format!("{} begins to copy, {} is to leave", by.worker, member.worker)
        }
        Transition::Keep(who) => format!("{} is to stay", who.worker),
        Transition::Resync(who) => format!("{} copies again", who.worker),
        Transition::Synced(who) => format!("{} is synced", who.worker),
        Transition::OutOfSync(who) => format!("{} is out of sync", who.worker),
        Transition::Settle { by, .. } => format!("{} has taken lanes", by.worker),
        Transition::Promote(who) => format!("{} becomes primary", who.worker),
        Transition::Retire(who) => format!("{} is to leave", who.worker),
        Transition::Remove(who) => format!("{} has left", who.worker),
        Transition::Fence(who) => format!("{} has ended, its lanes are taken", who.worker),
        Transition::Restart { ended, .. } => format!("{} starts over, and copies", ended.worker),
        Transition::Resume { ended, .. } => format!("{} has resumed its member slot", ended.worker),
        Transition::TakeSlot { ended, to } => {
            format!("{} has ended, {} is primary and begins empty", ended.worker, to.worker)
        }
        Transition::Rebase { .. } => {
            "it goes on with the newest entry that a node holds".to_owned()
        }
    }
}

/// Returns the node that a change concerns most.
pub(super) fn node_of(change: &PlannedChange) -> Option<NodeId> {
    let who = match change {
        PlannedChange::Create(who) => who,
        PlannedChange::Apply { transition, .. } => match transition {
            Transition::AddReplica(who)
            | Transition::Replace { by: who, .. }
            | Transition::Keep(who)
            | Transition::Resync(who)
            | Transition::Synced(who)
            | Transition::OutOfSync(who)
            | Transition::Settle { by: who, .. }
            | Transition::Promote(who)
            | Transition::Retire(who)
            | Transition::Remove(who)
            | Transition::Fence(who)
            | Transition::Restart { ended: who, .. }
            | Transition::Resume { ended: who, .. }
            | Transition::TakeSlot { ended: who, .. } => who,
            Transition::Rebase { .. } => return None,
        },
    };
    Some(who.worker.node.clone())
}

pub(super) fn why(
    step: &PlanStep,
    kind: StepKind,
    controller: &Controller,
    fleet: &Fleet,
) -> String {
    match kind {
        StepKind::Create => "desired, and in no entry yet".into(),
        StepKind::Follow => follow(step, controller, fleet),
        StepKind::Repair => format!("fewer than {} members run", fleet.wanted),
        StepKind::Finish => match &step.change {
            PlannedChange::Apply { transition: Transition::Keep(_), .. } => {
                "its replacement is gone".into()
            }
            _ => "it is not needed any more".into(),
        },
        StepKind::Empty => {
            let members = controller.view.entry(step.shard).map_or(&[][..], |it| it.members());
            let unwelcome = members.iter().find(|it| fleet.is_unwelcome(&it.incarnation));
            match unwelcome.map(|member| &member.incarnation.worker.node) {
                Some(node) => format!("{node} is drained{}", drained_by(node, controller)),
                None => "a move that has begun goes on".into(),
            }
        }
        StepKind::Balance if controller.view.is_by_load() => "the load lies unevenly".into(),
        StepKind::Balance => "the shards lie unevenly".into(),
    }
}

fn drained_by(node: &NodeId, controller: &Controller) -> String {
    let drain = controller.view.intent(node).and_then(|intent| intent.drain.as_ref());
    drain.map_or_else(String::new, |drain| format!(" by {}", drain.order.by))
}

fn follow(step: &PlanStep, controller: &Controller, fleet: &Fleet) -> String {
    let PlannedChange::Apply { transition, .. } = &step.change else { return String::new() };
    let entry = controller.view.entry(step.shard);
    let about = match transition {
        Transition::Promote(who) => {
            let primary = entry.map(|entry| entry.primary().incarnation.clone());
            match primary {
                Some(primary) if fleet.is_stopping(&primary) => {
                    return format!("{} is stopping", primary.worker.node);
                }
                Some(primary) if !fleet.runs(&primary) => primary,
                _ => return format!("{} has taken over already", who.worker),
            }
        }
        Transition::Fence(who)
        | Transition::Restart { ended: who, .. }
        | Transition::Resume { ended: who, .. }
        | Transition::TakeSlot { ended: who, .. }
        | Transition::OutOfSync(who) => who.clone(),
        _ => return String::new(),
    };
    let node = &about.worker.node;
    match fleet.standings.get(node) {
        Some(standing) if standing.liveness == Liveness::Alive => {
            format!("{node} runs under another boot id")
        }
        Some(standing) => {
            format!("{node} is {}: {}", life(standing.liveness), standing.why)
        }
        None => format!("{node} is not known"),
    }
}

/// Describes why it is uncertain how a shard continues, and what to do about it; empty: it is
/// certain.
pub(super) fn doubts(doubts: &[Doubt]) -> String {
    let words = doubts.iter().map(|doubt| match doubt {
        Doubt::Missing(who) => {
            let node = &who.worker.node;
            format!("{doubt}: start {node} again, or `weir fence {node}` if it has certainly ended")
        }
        Doubt::Unanswered(_) => format!("{doubt}: do controllers reach its `[node] metrics`?"),
        Doubt::Newer { .. } => {
            format!("{doubt}: register every node that runs, then `weir controller rebase --yes`")
        }
    });
    words.collect::<Vec<String>>().join("; ")
}

/// Describes a condition that is not normal, and what to do about it.
pub(super) fn note(note: &Note) -> String {
    match note {
        Note::Halted { gone, nodes } => format!(
            "{gone} of {nodes} nodes look gone or cut off, more than a third: nothing moves until \
             some are back; check the network of the controllers first, then `weir fence` what has ended"
        ),
        Note::TooFewNodes { wanted, nodes } => format!(
            "each shard is to have {wanted} copies, but only {nodes} nodes can hold shards: start \
             or undrain some"
        ),
        Note::SameRack(shard) => format!(
            "shard {shard} has two copies in one rack: there is no node to hold one in another"
        ),
        Note::Stuck(shard) => format!(
            "shard {shard}: its primary is gone and nobody has a full copy; start its node again, \
             or `weir fence` it if it has certainly ended"
        ),
        Note::Full { shards } => format!(
            "{shards} shards lack a copy, or are not served, since no worker has room for one more: \
             raise `shards_max` and restart, or add a node"
        ),
        Note::NoRoom { lost, worker, load, load_max } => {
            // Rounded down to tens: a load changes with every flow, and the note is written when it
            // has changed.
            let tenths = u128::from(*load) * 10 / u128::from((*load_max).max(1));
            format!(
                "if {lost} is lost, {worker} has to carry {tenths}0 % of its `load_max` of {load_max}: add a node, or \
                 raise `load_max` if it can carry more"
            )
        }
    }
}
