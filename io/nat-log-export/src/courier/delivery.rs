//! From memory and spool to the collector.

use std::io;
use std::time::{Duration, Instant};

use super::{CollectorLink, Courier, unix_ms};
use crate::counters::add;
use crate::encoder::ExportTime;
use crate::flight::HELD_MAX;

/// Largest size of one write to a connection, bytes of messages.
const OUTGOING_BYTES: usize = 32 << 10;
/// Number of events that fill a message: no need to wait for more.
const MESSAGE_EVENTS: usize = 32;
/// Largest number of writes in one turn.
const TURN_WRITES: usize = 64;
/// Largest number of datagrams in one turn, which [`DATAGRAMS_PAUSE`](super::DATAGRAMS_PAUSE)
/// follows: a spool sent at the speed of the disk would overflow the buffer of a collector.
const TURN_DATAGRAMS: usize = 32;
/// The spool is read while fewer events than this wait.
const READ_AHEAD_EVENTS: usize = 1024;
/// Largest number of readings of the spool in one turn: the collector may get none of the events.
const TURN_READS: usize = 64;
/// Resolution of the times at which bytes were acknowledged.
const MARK_INTERVAL: Duration = Duration::from_millis(50);

impl Courier {
    /// Sends waiting events. True if anything was sent.
    pub(super) fn pump(&mut self, is_last: bool) -> bool {
        let mut is_progress = false;
        let result = self.send(is_last, &mut is_progress).and_then(|()| self.confirm());
        if let Err(error) = result {
            self.down(&error);
        }
        is_progress
    }

    fn send(&mut self, is_last: bool, is_progress: &mut bool) -> io::Result<()> {
        let CollectorLink::Up(connection) = &mut self.link else { return Ok(()) };
        connection.check()?;
        let writes = if connection.is_datagram() { TURN_DATAGRAMS } else { TURN_WRITES };
        for _ in 0..writes {
            if self.outgoing.bytes.is_empty() {
                self.read_spool();
                self.encode(is_last);
            }
            let CollectorLink::Up(connection) = &mut self.link else { return Ok(()) };
            if self.outgoing.bytes.is_empty() {
                return Ok(());
            }
            let count = connection.write(&self.outgoing.bytes[self.outgoing.written..])?;
            if count == 0 {
                return Ok(());
            }
            *is_progress = true;
            self.written(count);
        }
        Ok(())
    }

    fn written(&mut self, count: usize) {
        let counters = &self.shared.counters;
        add(&counters.bytes, count as u64);
        let outgoing = &mut self.outgoing;
        outgoing.written += count;
        if outgoing.written == outgoing.bytes.len() {
            add(&counters.sent, outgoing.events as u64);
            add(&counters.resent, outgoing.events_again as u64);
            outgoing.bytes.clear();
            (outgoing.written, outgoing.events, outgoing.events_again) = (0, 0, 0);
        }
    }

    /// Reads events from the spool while there is a connection and room for them.
    fn read_spool(&mut self) {
        let is_up = matches!(self.link, CollectorLink::Up(_));
        let has_prefixes = self.orders.has_prefixes;
        let Some(spool) = self.orders.spool.as_mut().filter(|_| is_up) else { return };
        for _ in 0..TURN_READS {
            let is_room =
                self.flight.waiting() < READ_AHEAD_EVENTS && self.flight.room() > READ_AHEAD_EVENTS;
            self.read.clear();
            if !is_room || !spool.has_unread() || !spool.read(&mut self.read) {
                break;
            }
            for (event, position) in self.read.drain(..) {
                if event.kind.is_for(has_prefixes) {
                    self.flight.push(event, Some(position));
                } else if !self.flight.pass(position) {
                    spool.taken(position);
                    add(&self.shared.counters.confirmed, 1);
                }
            }
        }
    }

    /// Encodes messages from the waiting events if these fill one, have waited long enough, or are
    /// the last.
    fn encode(&mut self, is_last: bool) {
        let CollectorLink::Up(connection) = &self.link else { return };
        if self.flight.waiting() == 0 {
            self.waiting_since = None;
            return;
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let is_due = is_last || since.elapsed() >= self.orders.flush;
        let steady_ms = self.began.elapsed().as_millis() as u64;
        let now = ExportTime { unix_ms: unix_ms(), steady_ms };
        let outgoing = &mut self.outgoing;
        while self.flight.waiting() >= if is_due { 1 } else { MESSAGE_EVENTS } {
            let waiting = self.flight.waiting_events();
            let count = self.orders.encoder.next(waiting, now, &mut outgoing.bytes);
            let end = connection.taken() + outgoing.bytes.len() as u64;
            outgoing.events_again += self.flight.sent(count, end);
            outgoing.events += count;
            if connection.is_datagram() || outgoing.bytes.len() >= OUTGOING_BYTES {
                break;
            }
        }
        // The events that are left have waited for less time than those that were sent.
        if outgoing.events > 0 {
            self.waiting_since = None;
        }
    }

    /// Releases events that need not be sent again.
    fn confirm(&mut self) -> io::Result<()> {
        let CollectorLink::Up(connection) = &mut self.link else { return Ok(()) };
        if !self.flight.is_any_sent() {
            return Ok(());
        }
        let now = Instant::now();
        let acknowledged = connection.acknowledged()?;
        let last = self.acknowledged.back();
        if last.is_none_or(|(bytes, at)| *bytes < acknowledged && now - *at >= MARK_INTERVAL) {
            self.acknowledged.push_back((acknowledged, now));
        }
        // When memory runs short, the time during which events would be sent again is shorter.
        let mut confirmed = (self.flight.len() > HELD_MAX / 2).then_some(acknowledged);
        while let Some((bytes, at)) = self.acknowledged.front() {
            if now - *at < self.orders.resend {
                break;
            }
            confirmed = confirmed.max(Some(*bytes));
            self.acknowledged.pop_front();
        }
        if let Some(confirmed) = confirmed {
            self.let_go(confirmed);
        }
        Ok(())
    }

    pub(super) fn let_go(&mut self, confirmed: u64) {
        let (count, position) = self.flight.confirm(confirmed);
        add(&self.shared.counters.confirmed, count);
        if let (Some(spool), Some(position)) = (&mut self.orders.spool, position) {
            spool.taken(position);
        }
    }
}
