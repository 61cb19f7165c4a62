//! Invariants of every entry. A violation means a broken store or a broken program: the entry is
//! refused, and a worker that holds the entry before it goes on with that one.

use thiserror::Error;
use weir_ids::{Epoch, LANES, NodeId, Term};

use super::entry::{MEMBERS_MAX, MemberState, ShardEntry};
use crate::lane::MemberSlot;

/// An invariant of an entry that does not hold.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Violation {
    #[error("a shard has 1 to {MEMBERS_MAX} members, this one {0}")]
    Members(usize),
    #[error("two members are on node {0}, and neither yields: its loss would take both")]
    NodeTwice(NodeId),
    #[error("slot {0} does not exist: slots are 0 to 7")]
    NoSuchSlot(MemberSlot),
    #[error("two members have slot {0}: each replica has a reserve lane of its own")]
    SlotTwice(MemberSlot),
    #[error("the primary is not synced, or is leaving")]
    Primary,
    #[error(
        "term {term} at epoch {epoch}: terms begin at 1, end at 2^28 - 2, and each takes an epoch"
    )]
    Term { term: Term, epoch: Epoch },
    #[error("epoch {0}: epochs end at 2^63")]
    Epoch(Epoch),
    #[error("lane {lane} names slot {slot}, which no member holds")]
    NobodyThere { lane: usize, slot: MemberSlot },
    #[error("lane {0} moves from its owner to its owner")]
    MoveToItself(usize),
    #[error("lane {0} is to be taken twice from one slot, or from its owner")]
    GivesTwice(usize),
    #[error("lane {0} moves since an epoch that has not been")]
    MoveFromFuture(usize),
    #[error("it was rebased at an epoch that has not been")]
    RebasedInFuture,
    #[error("lane {lane} rests with slot {owner}, but belongs to slot {rightful}")]
    WrongOwner { lane: usize, owner: MemberSlot, rightful: MemberSlot },
}

impl ShardEntry {
    /// Refuses an entry that breaks an invariant. The shape of the entry ensures one owner per
    /// lane.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_members()?;
        if self.term.0 == 0 || self.term > Term::MAX || u64::from(self.term.0) > self.epoch.0 {
            return Err(Violation::Term { term: self.term, epoch: self.epoch });
        }
        if self.epoch > Epoch::MAX {
            return Err(Violation::Epoch(self.epoch));
        }
        if self.rebased.is_some_and(|rebased| rebased > self.epoch) {
            return Err(Violation::RebasedInFuture);
        }
        (0..LANES).try_for_each(|lane| self.check_lane(lane))
    }

    fn check_members(&self) -> Result<(), Violation> {
        if self.members.is_empty() || self.members.len() > MEMBERS_MAX {
            return Err(Violation::Members(self.members.len()));
        }
        for (rank, member) in self.members.iter().enumerate() {
            if member.slot.lane() >= LANES {
                return Err(Violation::NoSuchSlot(member.slot));
            }
            let worker = &member.incarnation.worker;
            for other in &self.members[..rank] {
                if other.slot == member.slot {
                    return Err(Violation::SlotTwice(member.slot));
                }
                // A move within a node: the yielding member leaves as soon as the other is synced.
                let is_move = (member.is_yielding || other.is_yielding)
                    && other.incarnation.worker != *worker;
                if other.incarnation.worker.node == worker.node && !is_move {
                    return Err(Violation::NodeTwice(worker.node.clone()));
                }
            }
        }
        let primary = self.primary();
        if primary.state != MemberState::Synced || primary.is_leaving {
            return Err(Violation::Primary);
        }
        Ok(())
    }

    fn check_lane(&self, index: usize) -> Result<(), Violation> {
        let lane = self.lanes[index];
        let has_member = |slot| match self.at_slot(slot) {
            Some(_) => Ok(()),
            None => Err(Violation::NobodyThere { lane: index, slot }),
        };
        has_member(lane.owner)?;
        if let Some(moving) = lane.moving {
            has_member(moving.from)?;
            let then = moving.then.unwrap_or_default();
            then.iter().try_for_each(has_member)?;
            if then.contains(lane.owner) || then.contains(moving.from) {
                return Err(Violation::GivesTwice(index));
            }
            if moving.from == lane.owner {
                return Err(Violation::MoveToItself(index));
            }
            if moving.since > self.epoch {
                return Err(Violation::MoveFromFuture(index));
            }
            return Ok(());
        }
        let rightful = self.rightful_owner(index);
        if lane.owner != rightful {
            return Err(Violation::WrongOwner { lane: index, owner: lane.owner, rightful });
        }
        Ok(())
    }
}
