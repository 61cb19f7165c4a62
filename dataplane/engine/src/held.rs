//! The frames that wait for replicas, by the batch of changes that they wait for.
//!
//! All memory is allocated at the start. Frames of a batch are returned in the order in which they
//! were added; the slot freed last is filled next. `output_commit.rs` decides what happens to the
//! frames.

use weir_nat::Batch;

use crate::output_commit::{CommitLimits, Uncommitted};
use crate::{Output, Side};

/// Index of no slot.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct HeldFrame<F> {
    frame: Option<F>,
    side: Side,
    next: u32,
}

/// The frames that wait for one batch, in their order.
#[derive(Clone, Copy, Debug)]
struct BatchList {
    first: u32,
    last: u32,
    /// When the first of them was added.
    since_ms: u64,
}

impl BatchList {
    const EMPTY: Self = Self { first: NONE, last: NONE, since_ms: 0 };
}

/// All frames that wait for replicas.
#[derive(Debug)]
pub(crate) struct HeldFrames<F> {
    limits: Option<CommitLimits>,
    /// Whether a packet is being processed whose frames may have to wait.
    pub(crate) is_in_packet: bool,
    /// That packet's frames, while room is made for them.
    pub(crate) aside: Output<F>,
    slots: Box<[HeldFrame<F>]>,
    free: u32,
    held: usize,
    /// Indexed by [`Batch::index`].
    lists: Box<[BatchList]>,
    /// Time of the last check for late frames.
    pub(crate) looked_ms: u64,
}

impl<F> HeldFrames<F> {
    /// Makes an instance that never holds a frame.
    pub(crate) fn none() -> Self {
        Self {
            limits: None,
            is_in_packet: false,
            aside: Output::empty(),
            slots: Box::default(),
            free: NONE,
            held: 0,
            lists: Box::default(),
            looked_ms: 0,
        }
    }

    pub(crate) fn new(limits: CommitLimits) -> Self {
        let held_max = limits.held_max.min(NONE as usize - 1) as u32;
        let next = |slot| if slot + 1 == held_max { NONE } else { slot + 1 };
        let slot = |slot| HeldFrame { frame: None, side: Side::Access, next: next(slot) };
        Self {
            limits: Some(limits),
            aside: Output::new(),
            slots: (0..held_max).map(slot).collect(),
            free: if held_max == 0 { NONE } else { 0 },
            lists: vec![BatchList::EMPTY; Batch::INDEXES].into_boxed_slice(),
            ..Self::none()
        }
    }

    /// Whether packets may have to wait.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.limits.is_some()
    }

    /// Returns the number of frames that may wait at once.
    pub(crate) fn max(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.held
    }

    pub(crate) fn policy(&self) -> Uncommitted {
        self.limits.map_or(Uncommitted::Release, |limits| limits.policy)
    }

    #[inline]
    pub(crate) fn has_room(&self, frames: u64) -> bool {
        (self.slots.len() - self.held) as u64 >= frames
    }

    fn list(&mut self, batch: Batch) -> &mut BatchList {
        &mut self.lists[batch.index()]
    }

    /// Adds a frame. The caller has checked that there is room.
    pub(crate) fn push(&mut self, batch: Batch, side: Side, frame: F, now_ms: u64) {
        let at = self.free;
        let slot = &mut self.slots[at as usize];
        self.free = std::mem::replace(&mut slot.next, NONE);
        (slot.frame, slot.side) = (Some(frame), side);
        self.held += 1;
        let list = self.list(batch);
        match std::mem::replace(&mut list.last, at) {
            NONE => (list.first, list.since_ms) = (at, now_ms),
            before => self.slots[before as usize].next = at,
        }
    }

    /// Returns the side of the batch's oldest frame.
    pub(crate) fn peek(&mut self, batch: Batch) -> Option<Side> {
        let first = self.list(batch).first;
        self.slots.get(first as usize).map(|slot| slot.side)
    }

    pub(crate) fn pop(&mut self, batch: Batch) -> Option<(Side, F)> {
        let first = self.list(batch).first;
        let slot = self.slots.get_mut(first as usize)?;
        let (side, frame) = (slot.side, slot.frame.take()?);
        let next = std::mem::replace(&mut slot.next, self.free);
        self.free = first;
        self.held -= 1;
        let list = self.list(batch);
        list.first = next;
        if next == NONE {
            list.last = NONE;
        }
        Some((side, frame))
    }

    /// Returns the time at which the wait of the batch's oldest frame exceeds the limit; `None`: no
    /// frame waits for the batch.
    pub(crate) fn deadline_ms(&mut self, batch: Batch) -> Option<u64> {
        let timeout_ms = self.limits?.timeout_ms;
        let list = self.list(batch);
        (list.first != NONE).then_some(list.since_ms + timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_batch_come_back_in_order_and_their_slots_serve_again() {
        let limits = CommitLimits {
            held_max: 3,
            changes_max: 8,
            timeout_ms: 10,
            policy: Uncommitted::Release,
        };
        let mut held: HeldFrames<u32> = HeldFrames::new(limits);
        let [one, two] = [1, 2].map(Batch::numbered);
        for round in 0..5 {
            held.push(one, Side::Access, 10, round);
            held.push(two, Side::Internet, 20, round);
            held.push(one, Side::Internet, 11, round + 1);
            assert!(!held.has_room(1));
            assert_eq!(held.deadline_ms(one), Some(round + 10));
            assert_eq!(held.pop(one), Some((Side::Access, 10)));
            assert_eq!(held.peek(one), Some(Side::Internet));
            assert_eq!(held.pop(one), Some((Side::Internet, 11)));
            assert_eq!(held.pop(one), None);
            assert_eq!(held.deadline_ms(one), None);
            assert_eq!(held.pop(two), Some((Side::Internet, 20)));
            assert!(held.has_room(3));
        }
    }
}
