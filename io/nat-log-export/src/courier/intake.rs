//! From the rings to memory or spool.

use super::{CollectorLink, Courier, TURN_EVENTS, unix_ms};
use crate::counters::{Loss, add};
use crate::nat_event::{NatEvent, NatEventKind};
use crate::spool::{NotStored, Spool};

impl Courier {
    /// Takes events from the rings and accepts them. True if there were any.
    pub(super) fn take(&mut self) -> bool {
        self.count_unreadable();
        let mut is_any = false;
        let mut inlets = std::mem::take(&mut self.orders.inlets);
        for inlet in &mut inlets {
            for _ in 0..TURN_EVENTS {
                let (event, lost) = inlet.pop();
                if lost > 0 {
                    add(&self.shared.counters.given, lost);
                    self.shared.counters.lost(Loss::QueueFull, lost);
                    self.unreported += lost;
                }
                let Some(event) = event else { break };
                is_any = true;
                if !event.kind.is_for(self.orders.has_prefixes) {
                    continue;
                }
                self.node = event.node;
                self.report_lost(event.time_ms);
                self.fresh.push(event);
            }
            if self.fresh.is_empty() && self.unreported > 0 && !self.is_full() {
                self.report_lost(unix_ms());
            }
            self.accept();
        }
        self.orders.inlets = inlets;
        is_any
    }

    fn count_unreadable(&mut self) {
        let unreadable = self.orders.spool.as_mut().map_or(0, Spool::take_unreadable);
        self.shared.counters.lost(Loss::DiskError, unreadable);
        self.unreported += unreadable;
    }

    /// Whether the next event would be lost.
    fn is_full(&self) -> bool {
        self.flight.room() == 0 && self.orders.spool.is_none()
    }

    /// Adds an event that states, in place of the lost events, how many they were.
    fn report_lost(&mut self, time_ms: u64) {
        if self.unreported == 0 {
            return;
        }
        let count = std::mem::take(&mut self.unreported);
        let kind = NatEventKind::RecordsLost { count, total: self.shared.counters.lost_total() };
        let (node, shard, lane, epoch, index) = (self.node, 0, 0, 0, 0);
        self.fresh.push(NatEvent { time_ms, node, shard, lane, epoch, index, kind });
    }

    /// Stores the fresh events in memory or in the spool; counts the others as lost.
    fn accept(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        let mut given = fresh.len() as u64;
        let mut rest = &fresh[..];
        if self.is_direct() {
            rest = self.hold(rest);
        }
        if !rest.is_empty() {
            let loss;
            (rest, loss) = self.write_to_spool(rest);
            // In memory they would precede the unread events.
            if !self.has_unread() {
                rest = self.hold(rest);
            }
            for event in rest {
                given -= self.lose(event, loss);
            }
        }
        add(&self.shared.counters.given, given);
        self.fresh = fresh;
        self.fresh.clear();
    }

    /// Returns the events that the spool did not take, and the reason.
    fn write_to_spool<'a>(&mut self, events: &'a [NatEvent]) -> (&'a [NatEvent], Loss) {
        if let Some(refused) = self.spill() {
            return (events, refused.into());
        }
        let Some(spool) = &mut self.orders.spool else { return (events, Loss::QueueFull) };
        let (count, refused) = spool.append(events);
        add(&self.shared.counters.spooled, count as u64);
        (&events[count..], refused.map_or(Loss::SpoolFull, Loss::from))
    }

    /// Whether new events need not go through the spool.
    fn is_direct(&self) -> bool {
        !self.has_unread()
            && (matches!(self.link, CollectorLink::Up(_)) || self.orders.spool.is_none())
    }

    pub(super) fn has_unread(&self) -> bool {
        self.orders.spool.as_ref().is_some_and(Spool::has_unread)
    }

    /// Holds as many events as there is room for; returns the others.
    fn hold<'a>(&mut self, events: &'a [NatEvent]) -> &'a [NatEvent] {
        let (held, rest) = events.split_at(self.flight.room().min(events.len()));
        for event in held {
            self.flight.push(*event, None);
        }
        rest
    }

    /// Counts the event as lost. A statement of losses is not an event that can be lost: it is made
    /// again later, and 1 is returned to subtract it from the given events.
    fn lose(&mut self, event: &NatEvent, loss: Loss) -> u64 {
        if let NatEventKind::RecordsLost { count, .. } = event.kind {
            self.unreported += count;
            return 1;
        }
        self.shared.counters.lost(loss, 1);
        self.unreported += 1;
        0
    }

    /// Writes to the spool the events that only memory has. Returns the reason if it could not
    /// write all of them. While there are such events, nothing in the spool is unread: later events
    /// are appended behind them.
    pub(super) fn spill(&mut self) -> Option<NotStored> {
        let spool = self.orders.spool.as_mut()?;
        let mut batch = Vec::new();
        loop {
            batch.clear();
            batch.extend(self.flight.without_position().take(TURN_EVENTS).map(|held| held.event));
            if batch.is_empty() {
                return None;
            }
            let positions = match spool.append_as_read(&batch) {
                Ok(positions) => positions,
                Err(refused) => return Some(refused),
            };
            let mut count = 0;
            for (held, position) in self.flight.without_position().zip(positions) {
                held.position = Some(position);
                count += 1;
            }
            add(&self.shared.counters.spooled, count);
        }
    }
}
