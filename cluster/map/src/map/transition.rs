//! How an entry changes: each transition is one compare and swap.

use thiserror::Error;
use weir_ids::{BootId, Epoch, Incarnation, LANES, Term, WorkerId};

use super::check::Violation;
use super::entry::{LaneEntry, MEMBERS_MAX, Member, MemberState, Move, ShardEntry};
use crate::lane::{LaneSet, MemberSlot, MemberSlotSet};

/// One change of an entry. A member that it names must still be one, in that incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// A new replica, of the last rank, begins to copy.
    AddReplica(Incarnation),
    /// As `AddReplica`; and `member` is to leave once the members that stay are synced. The entry
    /// keeps that purpose, so that no later plan has to guess it.
    Replace { member: Incarnation, by: Incarnation },
    /// Cancels a `Replace`: the replacement is gone, so the old member stays.
    Keep(Incarnation),
    /// A replica out of sync has begun a new copy.
    Resync(Incarnation),
    /// A replica has a full copy and follows; its reserve lane moves to it.
    Synced(Incarnation),
    /// A replica has lost the stream, or no worker hears it.
    OutOfSync(Incarnation),
    /// The owner has taken the grants of these lanes.
    Settle { by: Incarnation, lanes: LaneSet },
    /// A synced replica becomes the primary and takes its rank; the lanes move from the former one,
    /// which becomes a replica. If that one is silent, they stay frozen until it is fenced.
    Promote(Incarnation),
    /// A replica is to leave; its reserve lane moves to the primary.
    Retire(Incarnation),
    /// Removes a leaving replica that has no lanes.
    Remove(Incarnation),
    /// An incarnation has certainly ended. Survivors take its lanes; if it was the primary, the
    /// best survivor takes its rank.
    Fence(Incarnation),
    /// As `Fence`; and the worker that came back under a new boot id becomes a replica that begins
    /// to copy. If no member survives, it becomes the primary and begins empty.
    Restart { ended: Incarnation, boot_id: BootId },
    /// A worker that came back under a new boot id while the store was unreachable has taken its
    /// slot again: see the guests in `guest.rs`. Lanes stay where they are.
    Resume { ended: Incarnation, boot_id: BootId },
    /// As `Fence` of the primary when no other member runs: another incarnation takes its slot and
    /// rank, and begins empty. Silent members keep their lanes.
    TakeSlot { ended: Incarnation, to: Incarnation },
    /// The store was set back: the entry goes on above this epoch and term, the highest that any
    /// worker may have seen. Moves under way begin again, identified by the new epoch.
    Rebase { epoch: Epoch, term: Term },
}

/// Why a transition does not apply.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TransitionRefusal {
    #[error("the change was meant for epoch {at}, but the entry is at {now}")]
    Stale { at: Epoch, now: Epoch },
    #[error("{0} is no member")]
    NoMember(Incarnation),
    #[error("the shard has {MEMBERS_MAX} members already")]
    Full,
    #[error("{0} is not in a state for this change")]
    WrongState(Incarnation),
    #[error("{0} still owns or gives a lane")]
    HasLanes(Incarnation),
    #[error("lane {0} is not on its way to this owner")]
    NotMoving(usize),
    #[error("no other member could take over from {0}")]
    NoSurvivor(Incarnation),
    #[error("the last term has been reached")]
    LastTerm,
    #[error("the new entry would break an invariant: {0}")]
    Breaks(#[from] Violation),
}

impl ShardEntry {
    /// The first entry of a shard: one primary with all lanes.
    pub fn create(primary: Incarnation) -> Self {
        let slot = MemberSlot(0);
        Self {
            term: Term(1),
            epoch: Epoch(1),
            members: vec![Member::new(primary, slot, MemberState::Synced)],
            lanes: [LaneEntry::at_rest(slot); LANES],
            rebased: None,
        }
    }

    /// Returns the entry after a transition that was decided on the entry of epoch `at`.
    pub fn after(&self, at: Epoch, transition: &Transition) -> Result<Self, TransitionRefusal> {
        if at != self.epoch {
            return Err(TransitionRefusal::Stale { at, now: self.epoch });
        }
        let mut next = self.clone();
        next.epoch = Epoch(self.epoch.0 + 1);
        next.change(transition)?;
        next.direct_lanes();
        next.check()?;
        Ok(next)
    }

    fn change(&mut self, transition: &Transition) -> Result<(), TransitionRefusal> {
        match transition {
            Transition::AddReplica(who) => self.add_replica(who.clone()),
            Transition::Replace { member, by } => {
                let rank = self.rank_of(member)?;
                self.members[rank].is_yielding = true;
                self.add_replica(by.clone())
            }
            Transition::Keep(who) => self.keep(who),
            Transition::Resync(who) => {
                self.set_state(who, &[MemberState::OutOfSync], MemberState::Syncing)
            }
            Transition::Synced(who) => {
                let before = [MemberState::Syncing, MemberState::OutOfSync];
                self.set_state(who, &before, MemberState::Synced)
            }
            Transition::OutOfSync(who) => {
                let before = [MemberState::Syncing, MemberState::Synced];
                self.set_state(who, &before, MemberState::OutOfSync)
            }
            Transition::Settle { by, lanes } => self.settle(by, *lanes),
            Transition::Promote(who) => self.promote(who),
            Transition::Retire(who) => self.retire(who),
            Transition::Remove(who) => self.remove(who),
            Transition::Fence(who) => self.fence(who),
            Transition::Restart { ended, boot_id } => self.restart(ended, *boot_id),
            Transition::Resume { ended, boot_id } => self.resume(ended, *boot_id),
            Transition::TakeSlot { ended, to } => self.take_slot(ended, to.clone()),
            Transition::Rebase { epoch, term } => self.rebase(*epoch, *term),
        }
    }

    fn rank_of(&self, who: &Incarnation) -> Result<usize, TransitionRefusal> {
        let rank = self.members.iter().position(|member| member.incarnation == *who);
        rank.ok_or_else(|| TransitionRefusal::NoMember(who.clone()))
    }

    /// Returns the rank of a member that is not the primary.
    fn replica_rank(&self, who: &Incarnation) -> Result<usize, TransitionRefusal> {
        match self.rank_of(who)? {
            0 => Err(TransitionRefusal::WrongState(who.clone())),
            rank => Ok(rank),
        }
    }

    fn add_replica(&mut self, who: Incarnation) -> Result<(), TransitionRefusal> {
        if self.members.len() == MEMBERS_MAX {
            return Err(TransitionRefusal::Full);
        }
        // A lane at rest with the primary can move to the replica as soon as it is synced.
        let primary = self.primary().slot;
        let is_free = |slot: &MemberSlot| self.at_slot(*slot).is_none();
        let rests = |slot: &MemberSlot| self.lanes[slot.lane()] == LaneEntry::at_rest(primary);
        let free: Vec<MemberSlot> = (0..LANES as u8).map(MemberSlot).filter(is_free).collect();
        let slot = free.iter().copied().find(rests).unwrap_or(free[0]);
        self.members.push(Member::new(who, slot, MemberState::Syncing));
        Ok(())
    }

    fn keep(&mut self, who: &Incarnation) -> Result<(), TransitionRefusal> {
        let rank = self.rank_of(who)?;
        let member = &mut self.members[rank];
        if !member.is_yielding || member.is_leaving {
            return Err(TransitionRefusal::WrongState(who.clone()));
        }
        member.is_yielding = false;
        Ok(())
    }

    fn set_state(
        &mut self,
        who: &Incarnation,
        before: &[MemberState],
        state: MemberState,
    ) -> Result<(), TransitionRefusal> {
        let rank = self.replica_rank(who)?;
        if !before.contains(&self.members[rank].state) {
            return Err(TransitionRefusal::WrongState(who.clone()));
        }
        self.members[rank].state = state;
        Ok(())
    }

    fn settle(&mut self, by: &Incarnation, lanes: LaneSet) -> Result<(), TransitionRefusal> {
        let slot = self.members[self.rank_of(by)?].slot;
        if lanes.is_empty() {
            return Err(TransitionRefusal::WrongState(by.clone()));
        }
        for index in lanes.iter() {
            let lane = self.lanes[index];
            let Some(moving) = lane.moving.filter(|_| lane.owner == slot) else {
                return Err(TransitionRefusal::NotMoving(index));
            };
            let then = moving.then.unwrap_or_default();
            self.lanes[index] = LaneEntry::gathered(slot, None, then, self.epoch);
        }
        Ok(())
    }

    fn promote(&mut self, who: &Incarnation) -> Result<(), TransitionRefusal> {
        let rank = self.replica_rank(who)?;
        if self.members[rank].state != MemberState::Synced {
            return Err(TransitionRefusal::WrongState(who.clone()));
        }
        self.members.swap(0, rank);
        self.members[0].is_leaving = false;
        self.begin_term()
    }

    fn begin_term(&mut self) -> Result<(), TransitionRefusal> {
        if self.term >= Term::MAX {
            return Err(TransitionRefusal::LastTerm);
        }
        self.term = Term(self.term.0 + 1);
        Ok(())
    }

    fn retire(&mut self, who: &Incarnation) -> Result<(), TransitionRefusal> {
        let rank = self.replica_rank(who)?;
        if self.members[rank].is_leaving {
            return Err(TransitionRefusal::WrongState(who.clone()));
        }
        self.members[rank].is_leaving = true;
        Ok(())
    }

    fn remove(&mut self, who: &Incarnation) -> Result<(), TransitionRefusal> {
        let rank = self.replica_rank(who)?;
        let member = &self.members[rank];
        if !member.is_leaving {
            return Err(TransitionRefusal::WrongState(who.clone()));
        }
        if !self.lanes_of(member.slot).is_empty() {
            return Err(TransitionRefusal::HasLanes(who.clone()));
        }
        self.members.remove(rank);
        Ok(())
    }

    fn fence(&mut self, who: &Incarnation) -> Result<(), TransitionRefusal> {
        let rank = self.rank_of(who)?;
        if self.members.len() == 1 {
            return Err(TransitionRefusal::NoSurvivor(who.clone()));
        }
        let ended = self.members.remove(rank).slot;
        if rank == 0 {
            self.promote_best_survivor()?;
        }
        self.take_lanes(ended);
        Ok(())
    }

    fn resume(&mut self, ended: &Incarnation, boot_id: BootId) -> Result<(), TransitionRefusal> {
        let rank = self.rank_of(ended)?;
        if ended.boot_id == boot_id {
            return Err(TransitionRefusal::WrongState(ended.clone()));
        }
        self.members[rank].incarnation.boot_id = boot_id;
        Ok(())
    }

    /// Gives the rank of the former primary, which is already removed, to the best of the others.
    fn promote_best_survivor(&mut self) -> Result<(), TransitionRefusal> {
        let worth = |member: &Member| (member.state == MemberState::Synced, !member.is_leaving);
        // `max_by_key` returns the last of equals: counted from behind, that is the lowest rank.
        let ranks = (0..self.members.len()).rev();
        let best = ranks.max_by_key(|&rank| worth(&self.members[rank])).expect("a survivor");
        let mut primary = self.members.remove(best);
        primary.state = MemberState::Synced;
        primary.is_leaving = false;
        self.members.insert(0, primary);
        self.begin_term()
    }

    /// Takes all lanes from a slot: it will not write them again, nor is its copy awaited. A lane's
    /// new owner first takes the copies of all other members: each may have received records of the
    /// ended writer that no other member has.
    fn take_lanes(&mut self, ended: MemberSlot) {
        let others: MemberSlotSet = self.members.iter().map(|member| member.slot).collect();
        let others = others.without(ended);
        for index in 0..LANES {
            let lane = self.lanes[index];
            let gathered =
                |owner, first, others| LaneEntry::gathered(owner, first, others, self.epoch);
            self.lanes[index] = match lane.moving {
                Some(moving) if lane.owner == ended => {
                    gathered(self.rightful_owner(index), Some(moving.from), others)
                }
                Some(moving) if moving.from == ended => {
                    gathered(self.rightful_owner(index), Some(lane.owner), others)
                }
                Some(moving) => {
                    let then = moving.then.map(|then| then.without(ended));
                    LaneEntry { moving: Some(Move { then, ..moving }), ..lane }
                }
                None if lane.owner == ended => gathered(self.rightful_owner(index), None, others),
                None => lane,
            };
        }
    }

    fn restart(&mut self, ended: &Incarnation, boot_id: BootId) -> Result<(), TransitionRefusal> {
        let worker: WorkerId = ended.worker.clone();
        let new = Incarnation { worker, boot_id };
        if boot_id == ended.boot_id {
            return Err(TransitionRefusal::WrongState(new));
        }
        if self.members.len() == 1 {
            return self.take_slot(ended, new);
        }
        self.fence(ended)?;
        self.add_replica(new)
    }

    fn take_slot(&mut self, ended: &Incarnation, to: Incarnation) -> Result<(), TransitionRefusal> {
        if self.rank_of(ended)? != 0 || to == *ended {
            return Err(TransitionRefusal::WrongState(to));
        }
        // The slot keeps its lanes under a new incarnation. Lanes that it was to give, it will not
        // write again; lanes that it was to get, it still gets from the same member first. The
        // copies of the other members are taken before it writes.
        let slot = self.members[0].slot;
        self.members[0] = Member::new(to, slot, MemberState::Synced);
        let others: MemberSlotSet = self.members[1..].iter().map(|member| member.slot).collect();
        for lane in &mut self.lanes {
            *lane = match lane.moving {
                Some(moving) if moving.from == slot => {
                    LaneEntry::gathered(lane.owner, None, others, self.epoch)
                }
                Some(moving) if lane.owner == slot => {
                    LaneEntry::gathered(slot, Some(moving.from), others, self.epoch)
                }
                Some(moving) => {
                    let then = moving.then.map(|then| then.without(slot));
                    LaneEntry { moving: Some(Move { then, ..moving }), ..*lane }
                }
                None if lane.owner == slot => LaneEntry::gathered(slot, None, others, self.epoch),
                None => *lane,
            };
        }
        self.begin_term()
    }

    fn rebase(&mut self, epoch: Epoch, term: Term) -> Result<(), TransitionRefusal> {
        self.epoch = self.epoch.max(Epoch(epoch.0.saturating_add(1)));
        self.rebased = Some(self.epoch);
        for moving in self.lanes.iter_mut().filter_map(|lane| lane.moving.as_mut()) {
            moving.since = self.epoch;
        }
        if term > self.term {
            self.term = term;
            self.begin_term()?;
        }
        Ok(())
    }

    /// Starts the move of every lane that rests with a member other than its rightful owner.
    fn direct_lanes(&mut self) {
        for index in 0..LANES {
            let lane = self.lanes[index];
            let rightful = self.rightful_owner(index);
            if lane.moving.is_none() && lane.owner != rightful {
                let moving = Some(Move { from: lane.owner, since: self.epoch, then: None });
                self.lanes[index] = LaneEntry { owner: rightful, moving };
            }
        }
    }
}
