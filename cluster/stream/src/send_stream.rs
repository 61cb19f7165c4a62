//! Hot: the owner's end of a stream: records become datagrams, which are kept until they are
//! acknowledged.
//!
//! ```text
//!   acknowledged |  on the way: at most 64  |  waiting  | being filled |
//!                ^ first                    ^ sent                     ^ next
//!                +----------- the log: at most `log_datagrams` --------+
//! ```
//!
//! A stream is *opening* until the peer has acknowledged its epoch; records appended before are
//! dropped, as the copy walk brings them later. It falls *out of sync* when its log is full: all
//! buffers go back, the epoch rises, it opens again. So a peer that does not answer costs nothing
//! and holds up no other peer.

use weir_ids::Lane;

use crate::buffers::{Buffer, Buffers};
use crate::control::Acknowledgement;
use crate::datagram::{BODY_MAX, STREAM_HEADER_LEN, StreamHeader};
use crate::options::{EarlierBody, StreamOptions};
use crate::record::{Item, RECORD_BODY_MAX, StreamRecord};
use crate::round_trip::RoundTrip;

/// Datagrams on the way at most: as many as an acknowledgement's map can distinguish.
pub(crate) const WINDOW: u64 = 64;

/// A datagram is taken for lost, not overtaken, after this many later ones were acknowledged (RFC
/// 5681 section 3.2).
const OVERTAKEN: u32 = 3;

#[derive(Debug)]
struct SentDatagram {
    buffer: Option<Buffer>,
    length: u16,
    items: u16,
    transmissions: u16,
    is_acknowledged: bool,
    appended_us: u64,
    sent_us: u64,
}

#[derive(Debug)]
pub(crate) struct SendStream {
    lane: Lane,
    epoch: u32,
    is_open: bool,
    /// Rewrites bodies of records while the peer speaks an earlier version.
    is_peer_earlier: bool,
    earlier_body: EarlierBody,
    first: u64,
    sent: u64,
    next: u64,
    entries: Box<[SentDatagram]>,
    /// Datagrams behind the acknowledged ones that the peer has room for.
    peer_window: u64,
    bytes_on_the_way: u32,
    window_bytes: u32,
    linger_us: u64,
    /// When the datagram that is being filled goes out, full or not.
    ripe_us: u64,
    times_in_vain: u32,
    /// The first datagram on the way was sent again since [`SendStream::looked`] because it timed
    /// out.
    is_in_vain: bool,
    /// When the next datagram on the way is checked again; u64::MAX: never.
    pub(crate) timer_us: u64,
    items: u64,
    bytes: u64,
}

/// A stream's log or the pool is full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogFull;

impl SendStream {
    /// Returns a stream in its first epoch, which is not 0.
    pub(crate) fn new(lane: Lane, epoch: u32, options: &StreamOptions) -> Self {
        let entry = || SentDatagram {
            buffer: None,
            length: 0,
            items: 0,
            transmissions: 0,
            is_acknowledged: false,
            appended_us: 0,
            sent_us: 0,
        };
        Self {
            lane,
            epoch,
            is_open: false,
            is_peer_earlier: false,
            earlier_body: options.earlier_body,
            first: 1,
            sent: 1,
            next: 1,
            entries: (0..options.log_datagrams).map(|_| entry()).collect(),
            peer_window: 0,
            bytes_on_the_way: 0,
            window_bytes: options.window_bytes,
            linger_us: options.linger_us,
            ripe_us: 0,
            times_in_vain: 0,
            is_in_vain: false,
            timer_us: u64::MAX,
            items: 0,
            bytes: 0,
        }
    }

    #[inline(always)]
    fn entry(&mut self, sequence: u64) -> &mut SentDatagram {
        let mask = self.entries.len() - 1;
        &mut self.entries[sequence as usize & mask]
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the sequence up to which the peer has applied all datagrams.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.first - 1
    }

    /// Returns the sequence of the last datagram that was sent.
    pub(crate) fn last_sent(&self) -> u64 {
        self.sent - 1
    }

    /// Returns the number of datagrams in the log.
    pub(crate) fn logged(&self) -> u64 {
        self.next - self.first + u64::from(self.is_filling())
    }

    /// True if `next` has items. A full log has no slot for it: that slot is the oldest's.
    fn is_filling(&self) -> bool {
        let mask = self.entries.len() - 1;
        !self.is_full() && self.entries[self.next as usize & mask].buffer.is_some()
    }

    fn is_full(&self) -> bool {
        self.next - self.first >= self.entries.len() as u64
    }

    /// Returns (items, bytes, when the oldest was appended) of everything that is not acknowledged.
    pub(crate) fn lag(&self) -> (u64, u64, Option<u64>) {
        let oldest = &self.entries[self.first as usize & (self.entries.len() - 1)];
        (self.items, self.bytes, oldest.buffer.as_ref().map(|_| oldest.appended_us))
    }

    /// Sets whether the peer speaks a version with bodies of records that are not as this build
    /// writes them.
    pub(crate) fn set_peer_earlier(&mut self, is_peer_earlier: bool) {
        self.is_peer_earlier = is_peer_earlier;
    }

    /// Appends an item; returns the sequence of the datagram it goes with.
    #[inline]
    pub(crate) fn append(
        &mut self,
        buffers: &mut Buffers,
        now_us: u64,
        item: &Item<'_>,
    ) -> Result<u64, LogFull> {
        match item {
            Item::Record(record) if self.is_peer_earlier => {
                self.append_earlier(buffers, now_us, record)
            }
            item => self.append_as_it_is(buffers, now_us, item),
        }
    }

    #[cold]
    fn append_earlier(
        &mut self,
        buffers: &mut Buffers,
        now_us: u64,
        record: &StreamRecord<'_>,
    ) -> Result<u64, LogFull> {
        let mut room = [0; RECORD_BODY_MAX];
        let len = (self.earlier_body)(record.body, &mut room);
        let record = Item::Record(StreamRecord { body: &room[..len], ..*record });
        self.append_as_it_is(buffers, now_us, &record)
    }

    #[inline(always)]
    fn append_as_it_is(
        &mut self,
        buffers: &mut Buffers,
        now_us: u64,
        item: &Item<'_>,
    ) -> Result<u64, LogFull> {
        let len = item.len();
        if self.is_full() {
            return Err(LogFull);
        }
        let next = self.next;
        let entry = self.entry(next);
        if let Some(filling) = &entry.buffer {
            let start = usize::from(entry.length);
            if let Some(room) = buffers.get_mut(filling).get_mut(start..start + len) {
                item.emit(room);
                entry.length += len as u16;
                entry.items += 1;
                self.items += 1;
                self.bytes += len as u64;
                return Ok(next);
            }
            self.next += 1;
        }
        self.begin(buffers, now_us, item)
    }

    /// True if the item fits into the datagram that is being filled.
    #[inline(always)]
    pub(crate) fn has_begun_room(&self, item: &Item<'_>) -> bool {
        let entry = &self.entries[self.next as usize & (self.entries.len() - 1)];
        let end = usize::from(entry.length) + item.len();
        !self.is_full() && entry.buffer.is_some() && end <= BODY_MAX
    }

    /// Begins a datagram with its first item.
    #[inline(never)]
    fn begin(
        &mut self,
        buffers: &mut Buffers,
        now_us: u64,
        item: &Item<'_>,
    ) -> Result<u64, LogFull> {
        if self.is_full() {
            return Err(LogFull);
        }
        let next = self.next;
        let buffer = buffers.take().ok_or(LogFull)?;
        let end = STREAM_HEADER_LEN + item.len();
        item.emit(&mut buffers.get_mut(&buffer)[STREAM_HEADER_LEN..end]);
        *self.entry(next) = SentDatagram {
            buffer: Some(buffer),
            length: end as u16,
            items: 1,
            transmissions: 0,
            is_acknowledged: false,
            appended_us: now_us,
            sent_us: 0,
        };
        self.ripe_us = now_us + self.linger_us;
        self.items += 1;
        self.bytes += item.len() as u64;
        Ok(next)
    }

    /// Makes the datagram that is being filled due at once.
    #[inline]
    pub(crate) fn hasten(&mut self, now_us: u64) {
        self.ripe_us = self.ripe_us.min(now_us);
    }

    /// True if [`SendStream::take_new`] returns a datagram now.
    #[inline]
    pub(crate) fn has_new(&self, now_us: u64) -> bool {
        self.is_window_open()
            && (self.sent < self.next || (self.is_filling() && self.is_ripe(now_us)))
    }

    /// True if it will return one soon, without anything being appended or acknowledged.
    pub(crate) fn lingers(&self) -> bool {
        self.is_window_open() && self.is_filling()
    }

    fn is_window_open(&self) -> bool {
        let on_the_way = self.sent - self.first;
        on_the_way < self.peer_window.min(WINDOW) && self.bytes_on_the_way < self.window_bytes
    }

    /// True if the datagram that is being filled has waited long enough.
    fn is_ripe(&self, now_us: u64) -> bool {
        now_us >= self.ripe_us
    }

    /// Returns the body of the next datagram that was never sent, if the window has room for it.
    #[inline]
    pub(crate) fn take_new<'a>(
        &mut self,
        buffers: &'a mut Buffers,
        now_us: u64,
        timeout_us: u64,
    ) -> Option<&'a [u8]> {
        if !self.has_new(now_us) {
            return None;
        }
        let sequence = self.sent;
        self.sent += 1;
        self.next = self.next.max(self.sent);
        let header = StreamHeader { lane: self.lane.number(), epoch: self.epoch, sequence };
        let entry = self.entry(sequence);
        (entry.transmissions, entry.sent_us) = (1, now_us);
        let (length, items) = (usize::from(entry.length), entry.items);
        let body =
            buffers.get_mut(entry.buffer.as_ref().expect("an unsent datagram is in the log"));
        header.emit(items, body);
        self.bytes_on_the_way += length as u32;
        self.timer_us = self.timer_us.min(now_us + timeout_us);
        Some(&body[..length])
    }

    /// Returns the body of a datagram that seems lost, from `from` on, with its sequence.
    ///
    /// At the first timeout all datagrams that have timed out are sent again; at later ones only
    /// the first, until an acknowledgement comes.
    pub(crate) fn take_lost<'a>(
        &mut self,
        buffers: &'a Buffers,
        from: u64,
        now_us: u64,
        round_trip: &RoundTrip,
    ) -> Option<(u64, &'a [u8])> {
        let timeout_us = round_trip.timeout_us(self.times_in_vain);
        let last = if self.times_in_vain > 0 { self.first + 1 } else { self.sent };
        for sequence in from.max(self.first)..last.min(self.sent) {
            let later = self.acknowledged_after(sequence);
            let entry = self.entry(sequence);
            let waited_us = now_us.saturating_sub(entry.sent_us);
            let is_overtaken = later >= OVERTAKEN
                && entry.transmissions == 1
                && waited_us >= round_trip.reordering_us();
            if entry.is_acknowledged || !(waited_us >= timeout_us || is_overtaken) {
                continue;
            }
            entry.transmissions = entry.transmissions.saturating_add(1);
            entry.sent_us = now_us;
            let length = usize::from(entry.length);
            self.is_in_vain |= sequence == self.first && waited_us >= timeout_us;
            let entry = self.entry(sequence);
            let buffer = entry.buffer.as_ref().expect("an unacknowledged datagram is in the log");
            return Some((sequence, &buffers.get(buffer)[..length]));
        }
        None
    }

    fn acknowledged_after(&self, sequence: u64) -> u32 {
        let mask = self.entries.len() - 1;
        let is_acknowledged = |later: u64| self.entries[later as usize & mask].is_acknowledged;
        (sequence + 1..self.sent).filter(|&later| is_acknowledged(later)).take(3).count() as u32
    }

    /// Sets the next timer, after lost datagrams have been sent again.
    pub(crate) fn looked(&mut self, now_us: u64, round_trip: &RoundTrip) {
        self.times_in_vain += u32::from(std::mem::take(&mut self.is_in_vain));
        let timeout_us = round_trip.timeout_us(self.times_in_vain);
        self.timer_us = u64::MAX;
        for sequence in self.first..self.sent {
            let entry = self.entry(sequence);
            if !entry.is_acknowledged {
                let due_us = entry.sent_us.saturating_add(timeout_us);
                self.timer_us = self.timer_us.min(due_us.max(now_us + 1));
            }
        }
    }

    /// Takes an acknowledgement of the current epoch. Returns a round trip if one was measured.
    /// None: it acknowledges a datagram that was never sent.
    pub(crate) fn acknowledge(
        &mut self,
        ack: &Acknowledgement,
        buffers: &mut Buffers,
        now_us: u64,
    ) -> Option<Option<u64>> {
        if ack.cumulative >= self.sent {
            return None;
        }
        self.is_open = true;
        let mut sample = None;
        while self.first <= ack.cumulative {
            sample = self.settle(self.first, now_us).or(sample);
            let entry = self.entry(self.first);
            let (items, length) = (entry.items, usize::from(entry.length));
            buffers.give(entry.buffer.take().expect("the log holds every unacknowledged datagram"));
            self.items -= u64::from(items);
            self.bytes -= (length - STREAM_HEADER_LEN) as u64;
            self.first += 1;
            self.times_in_vain = 0;
        }
        if self.acknowledged() != ack.cumulative {
            // An older acknowledgement that was overtaken: its map is about datagrams that are
            // gone.
            return Some(sample);
        }
        self.peer_window = u64::from(ack.window);
        let mut map = ack.map;
        while map != 0 {
            let sequence = ack.cumulative + 2 + u64::from(map.trailing_zeros());
            if sequence < self.sent {
                sample = self.settle(sequence, now_us).or(sample);
                // Datagrams that were overtaken are checked at once.
                self.timer_us = 0;
            }
            map &= map - 1;
        }
        if self.first == self.sent {
            self.timer_us = u64::MAX;
        }
        Some(sample)
    }

    /// Notes that the peer has a datagram. Returns the round trip if it was sent once.
    fn settle(&mut self, sequence: u64, now_us: u64) -> Option<u64> {
        let entry = self.entry(sequence);
        if entry.is_acknowledged {
            return None;
        }
        entry.is_acknowledged = true;
        let sample = (entry.transmissions == 1).then(|| now_us.saturating_sub(entry.sent_us));
        let length = u32::from(entry.length);
        self.bytes_on_the_way -= length;
        sample
    }

    /// Restarts the stream: the log is emptied, a new epoch begins.
    pub(crate) fn reset(&mut self, buffers: &mut Buffers) {
        for entry in &mut self.entries {
            if let Some(buffer) = entry.buffer.take() {
                buffers.give(buffer);
            }
        }
        self.epoch += 1;
        self.is_open = false;
        (self.first, self.sent, self.next) = (1, 1, 1);
        (self.items, self.bytes, self.bytes_on_the_way) = (0, 0, 0);
        (self.times_in_vain, self.peer_window, self.timer_us) = (0, 0, u64::MAX);
    }

    /// True if the scrub may append a sum: little is under way.
    pub(crate) fn has_room_for_scrub(&self) -> bool {
        self.is_open && self.logged() < WINDOW / 4
    }

    /// True if the copy may append: it leaves half of the log to changes.
    pub(crate) fn has_room_for_copy(&self, buffers: &Buffers) -> bool {
        self.is_open
            && self.logged() < self.entries.len() as u64 / 2
            && buffers.available() > buffers.total() / 4
    }
}

const _: () = assert!(BODY_MAX > STREAM_HEADER_LEN + crate::record::ITEM_LEN_MAX);
