//! Copies of slabs: a walk over the owner's slots while traffic flows and changes stream.
//!
//! ```text
//!   waiting ----------> walking ----> ending ------------------------> synced
//!      ^   stream open,         walk at the end,   all up to there         |
//!      |   its turn             end mark appended  is acknowledged         |
//!      +-------------------- the stream fell out of sync -----------------+
//! ```
//!
//! The walk's records go through the stream that carries the changes, so a slot's records keep their order and the
//! copy needs no freeze. Deletes that a receiver missed reach it as [`Clear`](crate::Kind::Clear).

use crate::buffers::Buffers;
use crate::counters::PeerCounters;
use crate::identity::{BootId, Lane, PeerIndex, ShardId};
use crate::record::{Item, Record};
use crate::send_stream::SendStream;

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Not begun: the stream is not open, another copy has its turn, or the peer lives under another boot id.
    Empty,
    /// The walk is under way, or its end is not acknowledged.
    Syncing,
    /// The walk is done, and the peer has applied everything up to its end; changes follow.
    Synced,
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyStatus {
    /// How far it is.
    pub state: CopyState,
    /// Slots walked over.
    pub slots_done: u32,
    /// Slots there were when the walk began.
    pub slots_total: u32,
}

/// A copy of one slab at one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyId(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Walking,
    Ending(u64),
    Synced,
}

#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) peer: PeerIndex,
    /// The life of the peer that is to have it.
    pub(crate) boot: BootId,
    pub(crate) lane: Lane,
    pub(crate) shard: ShardId,
    pub(crate) phase: Phase,
    pub(crate) cursor: u32,
    pub(crate) total: u32,
}

impl Copy {
    pub(crate) fn status(&self) -> CopyStatus {
        let state = match self.phase {
            Phase::Waiting => CopyState::Empty,
            Phase::Walking | Phase::Ending(_) => CopyState::Syncing,
            Phase::Synced => CopyState::Synced,
        };
        let slots_done = self.cursor.min(self.total);
        CopyStatus { state, slots_done, slots_total: self.total }
    }

    /// Starts over.
    pub(crate) fn restart(&mut self) {
        (self.phase, self.cursor, self.total) = (Phase::Waiting, 0, 0);
    }
}

/// All copies, in places that stay.
#[derive(Debug)]
pub(crate) struct Copies {
    places: Box<[Option<Copy>]>,
    free: Vec<u32>,
    /// Where the last search ended, so that many copies that wait are found in one round.
    found: usize,
}

impl Copies {
    pub(crate) fn new(max: usize) -> Self {
        let free = (0..max as u32).rev().collect();
        Self { places: (0..max).map(|_| None).collect(), free, found: 0 }
    }

    pub(crate) fn insert(&mut self, copy: Copy) -> Option<CopyId> {
        let place = self.free.pop()?;
        self.places[place as usize] = Some(copy);
        Some(CopyId(place))
    }

    pub(crate) fn remove(&mut self, id: CopyId) -> Option<Copy> {
        let copy = self.places.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(copy)
    }

    pub(crate) fn get(&self, id: CopyId) -> Option<&Copy> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: CopyId) -> Option<&mut Copy> {
        self.places.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn find(
        &mut self,
        peer: PeerIndex,
        is_it: impl Fn(&Copy) -> bool,
    ) -> Option<CopyId> {
        let is_it = |copy: &Copy| copy.peer == peer && is_it(copy);
        let is_at = |place: &usize| self.places[*place].as_ref().is_some_and(is_it);
        let found = (self.found..self.places.len()).chain(0..self.found).find(is_at)?;
        self.found = found;
        Some(CopyId(found as u32))
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn of_peer_mut(&mut self, peer: PeerIndex) -> impl Iterator<Item = &mut Copy> {
        self.places.iter_mut().flatten().filter(move |copy| copy.peer == peer)
    }

    pub(crate) fn remove_peer(&mut self, peer: PeerIndex) {
        for (number, place) in self.places.iter_mut().enumerate() {
            if place.take_if(|copy| copy.peer == peer).is_some() {
                self.free.push(number as u32);
            }
        }
    }
}

/// Bytes that may be sent by now: a token bucket of a hundredth of a second.
#[derive(Debug)]
pub(crate) struct Allowance {
    bytes_per_sec: u64,
    bytes: i64,
    filled_us: u64,
}

impl Allowance {
    pub(crate) fn new(bytes_per_sec: u64) -> Self {
        Self { bytes_per_sec, bytes: 0, filled_us: 0 }
    }

    /// Fills up; returns what there is.
    pub(crate) fn fill(&mut self, now_us: u64) -> i64 {
        let passed_us = now_us.saturating_sub(self.filled_us).min(1_000_000);
        let earned = u128::from(passed_us) * u128::from(self.bytes_per_sec) / 1_000_000;
        // Less than a byte: let the time add up.
        if earned > 0 {
            let most = (self.bytes_per_sec / 100).max(1400) as i64;
            self.bytes = (self.bytes + earned as i64).min(most);
            let paid_us = (earned * 1_000_000 / u128::from(self.bytes_per_sec)) as u64;
            self.filled_us = now_us - (passed_us - paid_us);
        }
        self.bytes
    }

    pub(crate) fn spend(&mut self, bytes: i64) {
        self.bytes -= bytes;
    }
}

/// Where a [`Source`](crate::Source) puts the records of a walk.
#[derive(Debug)]
pub struct CopyRoom<'a> {
    pub(crate) stream: &'a mut SendStream,
    pub(crate) buffers: &'a mut Buffers,
    pub(crate) counters: &'a mut PeerCounters,
    pub(crate) now_us: u64,
    /// Bytes that may still be appended; the last record may go beyond.
    pub(crate) bytes: i64,
}

impl CopyRoom<'_> {
    /// Appends a record. False if it has to wait for a later walk.
    ///
    /// # Panics
    /// If the body is longer than [`RECORD_BODY_MAX`](crate::RECORD_BODY_MAX).
    pub fn add(&mut self, record: &Record<'_>) -> bool {
        if self.bytes <= 0 || !self.stream.has_room_for_copy(self.buffers) {
            return false;
        }
        self.append(&Item::Record(*record)).is_some()
    }

    /// Appends an item whatever its length; returns its sequence.
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

    #[test]
    fn the_allowance_keeps_to_its_rate() {
        let mut allowance = Allowance::new(1_000_000);
        let mut spent = 0;
        for now_us in (0..1_000_000).step_by(7) {
            if allowance.fill(now_us) > 0 {
                allowance.spend(1_400);
                spent += 1_400;
            }
        }
        assert!((980_000..1_020_000).contains(&spent), "{spent} bytes in a second");
        assert_eq!(allowance.fill(60_000_000), 10_000, "what was not used is not saved up");
    }
}
