//! Lanes and member slots: an entry names the owner of a lane by the number of its slot.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_ids::{Epoch, LANES};

/// A member's number in a shard's entry, 0 to 7, kept as long as it is a member, whatever its rank.
/// It is also the number of the member's reserve lane: the one lane that it owns as a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberSlot(pub u8);

impl MemberSlot {
    /// Index of the reserve lane.
    pub fn lane(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for MemberSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Some of the eight slots: bit i stands for slot i.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberSlotSet(pub u8);

impl MemberSlotSet {
    pub const EMPTY: Self = Self(0);

    pub fn contains(self, slot: MemberSlot) -> bool {
        slot.lane() < LANES && self.0 & 1 << slot.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub fn with(self, slot: MemberSlot) -> Self {
        Self(self.0 | 1 << slot.0)
    }

    #[must_use]
    pub fn without(self, slot: MemberSlot) -> Self {
        Self(self.0 & !(1 << slot.0))
    }

    /// The slots, lowest first.
    pub fn iter(self) -> impl Iterator<Item = MemberSlot> {
        (0..LANES as u8).map(MemberSlot).filter(move |&slot| self.contains(slot))
    }
}

impl fmt::Debug for MemberSlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<MemberSlot> for MemberSlotSet {
    fn from_iter<I: IntoIterator<Item = MemberSlot>>(slots: I) -> Self {
        slots.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// Some of the eight lanes: bit i stands for lane i.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneSet(pub u8);

impl LaneSet {
    pub const EMPTY: Self = Self(0);
    pub const ALL: Self = Self(0xff);

    /// Returns the lanes for which `is_in` is true.
    pub fn of(is_in: impl Fn(usize) -> bool) -> Self {
        (0..LANES).filter(|&lane| is_in(lane)).fold(Self::EMPTY, Self::with)
    }

    #[must_use]
    pub fn with(self, lane: usize) -> Self {
        Self(self.0 | 1 << lane)
    }

    pub fn contains(self, lane: usize) -> bool {
        lane < LANES && self.0 & 1 << lane != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The lanes, lowest first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..LANES).filter(move |&lane| self.contains(lane))
    }
}

impl fmt::Debug for LaneSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A lane to be given: flush its stream to the end, then send `GRANT(lane, since, sequence)`. `T`
/// names its new owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<T> {
    pub lane: usize,
    /// Epoch of the entry that began the move.
    pub since: Epoch,
    pub to: T,
}

impl<T> Grant<T> {
    /// Returns the same grant with another name for the new owner, or `None` if `name` has none.
    pub fn map<U>(&self, name: impl FnOnce(&T) -> Option<U>) -> Option<Grant<U>> {
        let &Self { lane, since, ref to } = self;
        name(to).map(|to| Grant { lane, since, to })
    }
}
