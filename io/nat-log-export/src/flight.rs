//! Events on their way to the collector: those that wait to be sent, and those that may have to be
//! sent again.
//!
//! ```text
//!   oldest                                      newest
//!   [ sent on this connection | waiting to be sent ]
//!     confirmed: they leave     after a break all of them wait again
//! ```

use std::collections::VecDeque;

use crate::nat_event::NatEvent;
use crate::spool::SpoolPosition;

/// Largest number of records held: 30 MB.
pub(crate) const HELD_MAX: usize = 1 << 18;

#[derive(Debug)]
pub(crate) struct HeldEvent {
    pub(crate) event: NatEvent,
    /// Position in the spool, if the event is there too.
    pub(crate) position: Option<SpoolPosition>,
    /// Position in the bytes of the connection at which its message ends, once it was sent.
    end: u64,
    /// Number of events behind it in the spool that the collector does not get.
    passed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Flight {
    held: VecDeque<HeldEvent>,
    /// Number of events sent on this connection: the first ones.
    sent: usize,
    /// Number of events sent on a former connection: the first ones.
    sent_before: usize,
}

impl Flight {
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns how many more events may be held.
    pub(crate) fn room(&self) -> usize {
        HELD_MAX.saturating_sub(self.held.len())
    }

    pub(crate) fn push(&mut self, event: NatEvent, position: Option<SpoolPosition>) {
        self.held.push_back(HeldEvent { event, position, end: 0, passed: 0 });
    }

    /// Passes over an event of the spool that the collector does not get: it is confirmed with the
    /// event before it. False if no event is held, so that it is confirmed at once.
    pub(crate) fn pass(&mut self, position: SpoolPosition) -> bool {
        let Some(last) = self.held.back_mut() else { return false };
        last.position = Some(position);
        last.passed += 1;
        true
    }

    pub(crate) fn waiting(&self) -> usize {
        self.held.len() - self.sent
    }

    pub(crate) fn is_any_sent(&self) -> bool {
        self.sent > 0
    }

    pub(crate) fn waiting_events(&self) -> impl Iterator<Item = &NatEvent> {
        self.held.range(self.sent..).map(|held| &held.event)
    }

    /// Marks the first `count` waiting events as sent in a message that ends at `end`. Returns how
    /// many of them were sent again.
    pub(crate) fn sent(&mut self, count: usize, end: u64) -> usize {
        let again = self.sent_before.saturating_sub(self.sent).min(count);
        for held in self.held.range_mut(self.sent..self.sent + count) {
            held.end = end;
        }
        self.sent += count;
        again
    }

    /// Removes the events whose bytes up to `end` need not be sent again. Returns their number, and
    /// the last position in the spool among them.
    pub(crate) fn confirm(&mut self, end: u64) -> (u64, Option<SpoolPosition>) {
        let (mut count, mut position) = (0, None);
        while self.sent > 0 && self.held.front().is_some_and(|held| held.end <= end) {
            let Some(held) = self.held.pop_front() else { break };
            self.sent -= 1;
            self.sent_before = self.sent_before.saturating_sub(1);
            count += 1 + held.passed;
            position = held.position.or(position);
        }
        (count, position)
    }

    /// Makes all events wait again after the end of the connection, which has not taken all of the
    /// last `unsent` ones.
    pub(crate) fn rewind(&mut self, unsent: usize) {
        self.sent_before = self.sent_before.max(self.sent.saturating_sub(unsent));
        self.sent = 0;
    }

    /// Returns the events that the spool does not have: the last ones.
    pub(crate) fn without_position(&mut self) -> impl Iterator<Item = &mut HeldEvent> {
        let first = self.held.partition_point(|held| held.position.is_some());
        self.held.range_mut(first..)
    }
}
