//! Copies of slabs: a walk over the owner's slots while traffic flows and changes stream.
//!
//! ```text
//!   waiting ----------> walking ----> ending ------------------------> synced
//!      ^   stream open,         walk at the end,   all up to there         |
//!      |   its turn             end mark appended  is acknowledged         |
//!      +-------------------- the stream fell out of sync -----------------+
//! ```
//!
//! Each stream has two chains of copies: those that wait, and those begun in its present epoch, or
//! put aside since they are for another incarnation of the peer. When a stream falls out of sync,
//! the second chain is appended to the first in one step, however long it is: a copy whose epoch
//! differs from the stream's waits. The next copy begins behind the end mark of the last, which is
//! synced when the stream is acknowledged up to there, without another look at it.
//!
//! The walk's records go through the stream that carries the changes, so a slot's records keep
//! their order and the copy needs no freeze. Deletes that a receiver missed reach it as
//! [`Clear`](crate::RecordKind::Clear).

use weir_ids::{BootId, Lane, ShardId};

use crate::buffers::Buffers;
use crate::counters::PeerCounters;
use crate::identity::PeerIndex;
use crate::record::{Item, StreamRecord};
use crate::send_stream::SendStream;

/// State of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Not begun: the stream is not open, another copy has its turn, or the peer has another boot
    /// id.
    Empty,
    /// The walk is under way, or its end is not acknowledged.
    Syncing,
    /// The walk is done, and the peer has applied everything up to its end; changes follow.
    Synced,
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyStatus {
    /// Its state.
    pub state: CopyState,
    /// Slots that the walk has passed.
    pub slots_done: u32,
    /// Slots in use when the walk began.
    pub slots_total: u32,
}

/// A copy of one slab at one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyId(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyPhase {
    /// Nothing of it was sent.
    Waiting,
    Walking,
    /// Sequence of the end mark.
    Ended(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) peer: PeerIndex,
    /// The incarnation of the peer that is to have it.
    pub(crate) boot: BootId,
    pub(crate) lane: Lane,
    pub(crate) shard: ShardId,
    /// Epoch of the stream when the copy was begun or put aside: all fields below are of that
    /// epoch.
    epoch: u32,
    pub(crate) phase: CopyPhase,
    pub(crate) cursor: u32,
    pub(crate) total: u32,
    before: u32,
    after: u32,
}

impl Copy {
    pub(crate) fn new(peer: PeerIndex, boot: BootId, lane: Lane, shard: ShardId) -> Self {
        let (phase, cursor, total, epoch) = (CopyPhase::Waiting, 0, 0, 0);
        let (before, after) = (NONE, NONE);
        Self { peer, boot, lane, shard, epoch, phase, cursor, total, before, after }
    }

    /// True if it is in the chain of those that wait.
    pub(crate) fn waits(&self, stream: &SendStream) -> bool {
        self.epoch != stream.epoch()
    }

    pub(crate) fn state(&self, stream: &SendStream) -> CopyState {
        match self.phase {
            _ if self.waits(stream) => CopyState::Empty,
            CopyPhase::Waiting => CopyState::Empty,
            CopyPhase::Ended(sequence) if stream.acknowledged() >= sequence => CopyState::Synced,
            CopyPhase::Walking | CopyPhase::Ended(_) => CopyState::Syncing,
        }
    }

    pub(crate) fn status(&self, stream: &SendStream) -> CopyStatus {
        let state = self.state(stream);
        let (cursor, total) = match self.waits(stream) {
            true => (0, 0),
            false => (self.cursor, self.total),
        };
        CopyStatus { state, slots_done: cursor.min(total), slots_total: total }
    }
}

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// A chain of copies, linked by their indexes.
#[derive(Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

/// All copies, at fixed indexes.
#[derive(Debug)]
pub(crate) struct Copies {
    slots: Box<[Option<Copy>]>,
    free: Vec<u32>,
}

impl Copies {
    pub(crate) fn new(max: usize) -> Self {
        let free = (0..max as u32).rev().collect();
        Self { slots: (0..max).map(|_| None).collect(), free }
    }

    /// Adds a copy that waits.
    pub(crate) fn insert(&mut self, copy: Copy, waiting: &mut Chain) -> Option<CopyId> {
        let slot = self.free.pop()?;
        self.slots[slot as usize] = Some(copy);
        self.link(waiting, slot);
        Some(CopyId(slot))
    }

    /// Removes a copy, from its chain and altogether.
    pub(crate) fn remove(&mut self, id: CopyId, chain: &mut Chain) {
        self.unlink(chain, id.0);
        self.slots[id.0 as usize] = None;
        self.free.push(id.0);
    }

    pub(crate) fn get(&self, id: CopyId) -> Option<&Copy> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: CopyId) -> Option<&mut Copy> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Begins the first copy that waits in the stream's present epoch, or puts it aside.
    pub(crate) fn begin(
        &mut self,
        waiting: &mut Chain,
        begun: &mut Chain,
        epoch: u32,
    ) -> Option<CopyId> {
        let slot = waiting.first;
        self.slots.get(slot as usize)?;
        self.unlink(waiting, slot);
        let copy = self.linked(slot);
        (copy.epoch, copy.phase, copy.cursor, copy.total) = (epoch, CopyPhase::Waiting, 0, 0);
        self.link(begun, slot);
        Some(CopyId(slot))
    }

    /// Makes a copy that was begun wait again.
    pub(crate) fn restart(&mut self, id: CopyId, waiting: &mut Chain, begun: &mut Chain) {
        self.unlink(begun, id.0);
        self.linked(id.0).epoch = 0;
        self.link(waiting, id.0);
    }

    /// Makes all copies that were begun wait again, as the stream has a new epoch.
    pub(crate) fn restart_all(&mut self, waiting: &mut Chain, begun: &mut Chain) {
        let (first, last) = (begun.first, begun.last);
        *begun = Chain::EMPTY;
        if first == NONE {
            return;
        }
        match waiting.last {
            NONE => waiting.first = first,
            end => {
                self.linked(end).after = first;
                self.linked(first).before = end;
            }
        }
        waiting.last = last;
    }

    /// Removes all copies of a chain.
    pub(crate) fn remove_all(&mut self, chain: &mut Chain) {
        while chain.first != NONE {
            self.remove(CopyId(chain.first), chain);
        }
    }

    fn linked(&mut self, slot: u32) -> &mut Copy {
        self.slots[slot as usize].as_mut().expect("a chain links existing copies")
    }

    fn link(&mut self, chain: &mut Chain, slot: u32) {
        let before = std::mem::replace(&mut chain.last, slot);
        let copy = self.linked(slot);
        (copy.before, copy.after) = (before, NONE);
        match before {
            NONE => chain.first = slot,
            before => self.linked(before).after = slot,
        }
    }

    fn unlink(&mut self, chain: &mut Chain, slot: u32) {
        let copy = self.linked(slot);
        let (before, after) = (copy.before, copy.after);
        match before {
            NONE => chain.first = after,
            before => self.linked(before).after = after,
        }
        match after {
            NONE => chain.last = before,
            after => self.linked(after).before = before,
        }
    }
}

/// Destination of the records of a [`Source`](crate::Source)'s walk.
#[derive(Debug)]
pub struct CopyRoom<'a> {
    pub(crate) stream: &'a mut SendStream,
    pub(crate) buffers: &'a mut Buffers,
    pub(crate) counters: &'a mut PeerCounters,
    pub(crate) now_us: u64,
    /// Bytes that may still be appended; the datagram that exceeds them is filled up.
    pub(crate) bytes: i64,
}

impl CopyRoom<'_> {
    /// Appends a record. False if it has to wait for a later walk.
    ///
    /// # Panics
    /// If the body is longer than [`RECORD_BODY_MAX`](crate::RECORD_BODY_MAX).
    #[inline]
    pub fn add(&mut self, record: &StreamRecord<'_>) -> bool {
        let item = Item::Record(*record);
        if !self.stream.has_begun_room(&item) {
            if self.bytes <= 0 {
                // The datagram is full: it need not wait for more.
                self.stream.hasten(self.now_us);
                return false;
            }
            if !self.stream.has_room_for_copy(self.buffers) {
                return false;
            }
        }
        self.append(&item).is_some()
    }

    /// Appends an item regardless of its length; returns its sequence.
    #[inline]
    pub(crate) fn append(&mut self, item: &Item<'_>) -> Option<u64> {
        let sequence = self.stream.append(self.buffers, self.now_us, item).ok()?;
        self.counters.records_sent += 1;
        self.bytes -= item.len() as i64;
        Some(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies are inserted, begun, restarted, removed, alone or all at once: the chains stay equal
    /// to plain lists.
    #[test]
    fn copy_chains_agree_with_lists() {
        let mut copies = Copies::new(16);
        let (mut waiting, mut begun) = (Chain::EMPTY, Chain::EMPTY);
        let (mut waits, mut runs) = (Vec::new(), Vec::new());
        let copy = Copy::new(PeerIndex(0), BootId(1), Lane::ALL[0], ShardId(1));
        let mut seed = 7_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (what, which) = (seed >> 60, (seed >> 33) as usize % 16);
            match what {
                0..5 => waits.extend(copies.insert(copy.clone(), &mut waiting)),
                5..10 => {
                    let next = copies.begin(&mut waiting, &mut begun, 1);
                    assert_eq!(next, (!waits.is_empty()).then(|| waits.remove(0)));
                    runs.extend(next);
                }
                10..12 if which < runs.len() => {
                    let id = runs.remove(which);
                    copies.restart(id, &mut waiting, &mut begun);
                    waits.push(id);
                }
                12 if which < runs.len() => copies.remove(runs.remove(which), &mut begun),
                13 if which < waits.len() => copies.remove(waits.remove(which), &mut waiting),
                14 => {
                    copies.restart_all(&mut waiting, &mut begun);
                    waits.append(&mut runs);
                }
                15 if which == 0 => {
                    copies.remove_all(&mut begun);
                    runs.clear();
                }
                _ => {}
            }
            for (chain, list) in [(&waiting, &waits), (&begun, &runs)] {
                let mut slot = chain.first;
                for id in list {
                    assert_eq!(slot, id.0);
                    slot = copies.get(*id).expect("a listed copy exists").after;
                }
                assert_eq!(slot, NONE);
                assert_eq!(chain.last, list.last().map_or(NONE, |id| id.0));
            }
        }
    }
}
