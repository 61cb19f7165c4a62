//! The entry of one shard. It is valid by construction: made by a transition, or read and checked.

use serde::{Deserialize, Serialize};
use weir_ids::{Epoch, Incarnation, LANES, Term};

use crate::lane::{LaneSet, MemberSlot, MemberSlotSet};
use crate::rank::Rank;

/// A primary and at most four replicas.
pub const MEMBERS_MAX: usize = 5;

/// How complete a member's copy is. The primary counts as synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// The initial copy is under way.
    Syncing,
    /// The member has a full copy and follows the changes: it may take over.
    Synced,
    /// The member lost the stream of changes, or is silent: it needs a new copy.
    OutOfSync,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub incarnation: Incarnation,
    pub slot: MemberSlot,
    pub state: MemberState,
    /// Whether a replacement was added: the member is to leave once those that stay are synced.
    pub is_yielding: bool,
    /// Whether the member gives its lane back and will be removed.
    pub is_leaving: bool,
}

impl Member {
    pub(super) fn new(incarnation: Incarnation, slot: MemberSlot, state: MemberState) -> Self {
        Self { incarnation, slot, state, is_yielding: false, is_leaving: false }
    }
}

/// The owner of a lane and, while the lane moves, its move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneEntry {
    pub owner: MemberSlot,
    /// None: the lane is at rest, and its owner writes.
    pub moving: Option<Move>,
}

/// The move of a lane to a new owner. The owner writes only when `from` has granted this move, and
/// each member of `then` a move that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    pub from: MemberSlot,
    /// Epoch of the entry that began the move. It identifies the move.
    pub since: Epoch,
    /// None: `from` gives what it wrote. Otherwise the lane's writer has ended, and the owner takes
    /// the copy that `from` has, then the copies of these members.
    pub then: Option<MemberSlotSet>,
}

impl Move {
    /// True if the owner writes when this move is granted.
    pub fn is_last(&self) -> bool {
        self.then.is_none_or(MemberSlotSet::is_empty)
    }
}

/// The map entry of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardEntry {
    pub(super) term: Term,
    pub(super) epoch: Epoch,
    /// In rank order: the primary first.
    pub(super) members: Vec<Member>,
    pub(super) lanes: [LaneEntry; LANES],
    /// The last epoch at which the store had been set back and this entry's history went on in it.
    pub(super) rebased: Option<Epoch>,
}

impl ShardEntry {
    pub fn term(&self) -> Term {
        self.term
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the epoch of the last rebase; `None` if the store was never set back. A worker that
    /// has seen only epochs below it may obey this entry, whatever the store held in the meantime.
    pub fn rebased(&self) -> Option<Epoch> {
        self.rebased
    }

    /// Returns the members in rank order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub fn primary(&self) -> &Member {
        &self.members[0]
    }

    pub fn lanes(&self) -> &[LaneEntry; LANES] {
        &self.lanes
    }

    /// Returns rank and record of the member with this incarnation.
    pub fn member(&self, incarnation: &Incarnation) -> Option<(Rank, &Member)> {
        let rank = self.members.iter().position(|member| member.incarnation == *incarnation)?;
        Some((Rank(rank as u8), &self.members[rank]))
    }

    pub fn at_slot(&self, slot: MemberSlot) -> Option<&Member> {
        self.members.iter().find(|member| member.slot == slot)
    }

    /// Returns the lanes that a slot owns or gives, or of which its copy is still to be taken.
    pub fn lanes_of(&self, slot: MemberSlot) -> LaneSet {
        LaneSet::of(|index| self.lanes[index].concerns(slot))
    }

    pub fn is_moving(&self) -> bool {
        self.lanes.iter().any(|lane| lane.moving.is_some())
    }

    /// Returns the slot that should own a lane: the replica of that slot once it is synced, else
    /// the primary. A replica that falls out of sync keeps its lane: as the lane's writer it knows
    /// all of it. A replica that is leaving gives its lane back.
    pub(super) fn rightful_owner(&self, lane: usize) -> MemberSlot {
        let primary = self.primary().slot;
        let replica = self.members[1..].iter().find(|member| member.slot.lane() == lane);
        match replica {
            Some(replica) if replica.is_leaving => primary,
            Some(replica) if replica.state == MemberState::Synced => replica.slot,
            Some(replica) if self.lanes[lane].owner == replica.slot => replica.slot,
            _ => primary,
        }
    }
}

impl LaneEntry {
    pub(super) fn at_rest(owner: MemberSlot) -> Self {
        Self { owner, moving: None }
    }

    /// Returns the lane of an `owner` that takes the copies of all `others`, one after another, and
    /// then writes; it writes at once if there are none. `first` is the member that may have
    /// written the lane last: it gives first, and so stops writing with the first move.
    pub(super) fn gathered(
        owner: MemberSlot,
        first: Option<MemberSlot>,
        others: MemberSlotSet,
        since: Epoch,
    ) -> Self {
        let others = others.without(owner);
        let first = first.filter(|&slot| others.contains(slot)).or(others.iter().next());
        let moving = first.map(|from| Move { from, since, then: Some(others.without(from)) });
        Self { owner, moving }
    }

    /// True if the slot owns the lane, gives it, or is to give its copy later.
    pub fn concerns(&self, slot: MemberSlot) -> bool {
        let follows = |moving: Move| moving.then.is_some_and(|then| then.contains(slot));
        let gives = |moving: Move| moving.from == slot || follows(moving);
        self.owner == slot || self.moving.is_some_and(gives)
    }
}
