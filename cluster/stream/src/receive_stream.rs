//! Hot: the replica's end of a stream: datagrams are delivered in order, each once per epoch.

use weir_ids::Lane;

use crate::buffers::{Buffer, Buffers};
use crate::control::Acknowledgement;
use crate::send_stream::WINDOW;

/// Handling of a datagram that arrives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Deliver it now, then what [`ReceiveStream::pop_held`] returns.
    Next,
    /// It came before a missing one, and is held.
    Held,
    /// It was there already.
    Again,
    /// Too far ahead, or no buffer is left.
    NoRoom,
}

#[derive(Debug)]
pub(crate) struct ReceiveStream {
    lane: Lane,
    /// 0: none yet.
    pub(crate) epoch: u32,
    /// The first sequence that was not delivered.
    next: u64,
    /// Bit i: `next + 1 + i` is held.
    map: u64,
    held: Box<[Option<(Buffer, u16)>]>,
    /// The last sequence that was sent, as far as is known.
    last_sent: u64,
    /// Number of the last sum that was compared, and whether it differed.
    pub(crate) check: (u32, bool),
    pub(crate) needs_acknowledgement: bool,
    /// A copy has begun and not ended.
    pub(crate) is_copied: bool,
}

impl ReceiveStream {
    pub(crate) fn new(lane: Lane) -> Self {
        Self {
            lane,
            epoch: 0,
            next: 1,
            map: 0,
            held: (0..WINDOW).map(|_| None).collect(),
            last_sent: 0,
            check: (0, false),
            needs_acknowledgement: false,
            is_copied: false,
        }
    }

    /// Begins an epoch; 0: the peer's streams are void.
    pub(crate) fn reset(&mut self, epoch: u32, buffers: &mut Buffers) {
        for held in &mut self.held {
            if let Some((buffer, _)) = held.take() {
                buffers.give(buffer);
            }
        }
        (self.epoch, self.next, self.map, self.check) = (epoch, 1, 0, (0, false));
        (self.last_sent, self.is_copied) = (0, false);
        self.needs_acknowledgement = epoch != 0;
    }

    /// Classifies a datagram of the current epoch; holds a copy of its items if it came too early.
    #[inline]
    pub(crate) fn arrive(&mut self, sequence: u64, items: &[u8], buffers: &mut Buffers) -> Arrival {
        self.needs_acknowledgement = true;
        self.note_sent(sequence);
        if sequence == self.next {
            return Arrival::Next;
        }
        if sequence < self.next {
            return Arrival::Again;
        }
        let ahead = sequence - self.next - 1;
        if ahead >= WINDOW - 1 {
            return Arrival::NoRoom;
        }
        if self.map & 1 << ahead != 0 {
            return Arrival::Again;
        }
        // The last eighth of the pool is reserved for what this worker sends.
        let is_scarce = buffers.available() <= buffers.total() / 8;
        let Some(buffer) = (!is_scarce).then(|| buffers.take()).flatten() else {
            return Arrival::NoRoom;
        };
        buffers.get_mut(&buffer)[..items.len()].copy_from_slice(items);
        self.held[(sequence % WINDOW) as usize] = Some((buffer, items.len() as u16));
        self.map |= 1 << ahead;
        Arrival::Held
    }

    /// Notes that the datagram in turn was delivered.
    #[inline]
    pub(crate) fn delivered(&mut self) {
        self.next += 1;
        self.map >>= 1;
        self.needs_acknowledgement = true;
    }

    pub(crate) fn note_sent(&mut self, sequence: u64) {
        self.last_sent = self.last_sent.max(sequence);
    }

    /// Returns how many datagrams were sent and not delivered, as far as is known.
    pub(crate) fn behind(&self) -> u64 {
        (self.last_sent + 1).saturating_sub(self.next)
    }

    /// True if the datagram in turn is held.
    pub(crate) fn has_held(&self) -> bool {
        self.held[(self.next % WINDOW) as usize].is_some()
    }

    /// Takes the datagram in turn, if it is held: buffer and length of its items.
    pub(crate) fn pop_held(&mut self) -> Option<(Buffer, u16)> {
        self.held[(self.next % WINDOW) as usize].take()
    }

    /// Returns the stream's acknowledgement, with room for `window` more datagrams.
    pub(crate) fn acknowledgement(&self, window: u16) -> Acknowledgement {
        Acknowledgement {
            lane: self.lane.number(),
            epoch: self.epoch,
            cumulative: self.next - 1,
            map: self.map,
            window,
            check: self.check.0,
            differs: self.check.1,
        }
    }
}
