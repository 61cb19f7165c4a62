//! What a step is for. That decides what may hold it up.

use weir_map::ShardEntry;
use weir_map::allocate::{Acting, Change};
use weir_map::map::Transition;

use super::fleet::{Fleet, nodes_of};

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A shard begins.
    Create,
    /// It has happened already, or is about to, whatever is written: an end, a loss, a take-over.
    Follow,
    /// A shard has fewer members that run than wanted.
    Repair,
    /// A move ends: a member that is not needed any more goes, or stays after all.
    Finish,
    /// A node is emptied, or a move that has begun goes on.
    Empty,
    /// A move for balance begins.
    Balance,
}

impl Kind {
    /// `entry` is what the change is to be applied to.
    pub(super) fn of(
        change: &Change,
        entry: Option<&ShardEntry>,
        acting: Option<&Acting>,
        fleet: &Fleet,
    ) -> Self {
        let (Change::Apply { transition, .. }, Some(entry)) = (change, entry) else {
            return Self::Create;
        };
        match transition {
            Transition::Fence(_)
            | Transition::Restart { .. }
            | Transition::Resume { .. }
            | Transition::Reseat { .. }
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

    /// A new role or copy. Where members are missing it is the way to one more of them, also if a
    /// drained primary gives its role away first; who is to be replaced counts while it runs.
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

    /// It is one of the few in a minute.
    pub(super) fn is_move(self) -> bool {
        matches!(self, Self::Empty | Self::Balance)
    }
}
