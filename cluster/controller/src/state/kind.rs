//! The purpose of a step. It decides what may hold the step up.

use weir_map::ShardEntry;
use weir_map::allocate::{Acting, PlannedChange};
use weir_map::map::Transition;

use super::fleet::{Fleet, nodes_of};

/// Purpose of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// A shard begins.
    Create,
    /// It records what has happened already, or is about to happen whatever is written: an end, a
    /// loss, a take-over.
    Follow,
    /// A shard has fewer running members than wanted.
    Repair,
    /// A move ends: a member that is not needed goes, or stays after all.
    Finish,
    /// A node is emptied, or a move that has begun goes on.
    Empty,
    /// A move that balances begins.
    Balance,
}

impl StepKind {
    /// Classifies a change; `entry` is the entry that it applies to.
    pub(super) fn of(
        change: &PlannedChange,
        entry: Option<&ShardEntry>,
        acting: Option<&Acting>,
        fleet: &Fleet,
    ) -> Self {
        let (PlannedChange::Apply { transition, .. }, Some(entry)) = (change, entry) else {
            return Self::Create;
        };
        match transition {
            Transition::Fence(_)
            | Transition::Restart { .. }
            | Transition::Resume { .. }
            | Transition::TakeSlot { .. }
            | Transition::OutOfSync(_)
            | Transition::Synced(_)
            | Transition::Resync(_)
            | Transition::Settle { .. }
            | Transition::Rebase { .. } => Self::Follow,
            Transition::Promote(who) => {
                let acts = acting.is_some_and(|acting| {
                    acting.incarnation == *who && acting.term == entry.term()
                });
                let primary = &entry.primary().incarnation;
                if acts || !fleet.runs(primary) || fleet.is_stopping(primary) {
                    Self::Follow
                } else {
                    Self::of_change(entry, fleet)
                }
            }
            Transition::AddReplica(_) | Transition::Replace { .. } => Self::of_change(entry, fleet),
            Transition::Retire(_) | Transition::Remove(_) | Transition::Keep(_) => Self::Finish,
        }
    }

    /// Classifies a new role or copy. Where members are missing it is a repair, also if a drained
    /// primary gives its role away first. A member that is to be replaced counts while it runs.
    fn of_change(entry: &ShardEntry, fleet: &Fleet) -> Self {
        let stays = entry
            .members()
            .iter()
            .filter(|member| fleet.serves(&member.incarnation) && !member.is_leaving);
        if nodes_of(stays) < fleet.wanted { Self::Repair } else { Self::of_move(entry, fleet) }
    }

    fn of_move(entry: &ShardEntry, fleet: &Fleet) -> Self {
        let goes_on = entry.members().iter().any(|member| member.is_yielding || member.is_leaving);
        let is_emptied =
            entry.members().iter().any(|member| fleet.is_unwelcome(&member.incarnation));
        if goes_on || is_emptied { Self::Empty } else { Self::Balance }
    }

    /// True if the moves of this kind are limited per minute.
    pub(super) fn is_move(self) -> bool {
        matches!(self, Self::Empty | Self::Balance)
    }
}
