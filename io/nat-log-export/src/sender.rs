//! A producer's end: a ring to each collector, and the limit on its refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::nat_event::NatEvent;
use crate::pacing::Pacer;

/// An event on its way through a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedEvent {
    pub(crate) event: NatEvent,
    /// Total number of events that did not fit in this ring before this one.
    pub(crate) lost_before: u64,
}

/// One producer's end. Each thread that makes events has its own.
#[derive(Debug)]
pub struct EventSender {
    outlets: Vec<Outlet>,
    pacer: Pacer,
    suppressed: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) struct Outlet {
    ring: rtrb::Producer<QueuedEvent>,
    /// Number of events lost on this ring; written by this sender only.
    lost: Arc<AtomicU64>,
}

/// The collector thread's end of a ring.
#[derive(Debug)]
pub(crate) struct EventInlet {
    ring: rtrb::Consumer<QueuedEvent>,
    lost: Arc<AtomicU64>,
    lost_seen: u64,
}

/// Makes a ring of `records` records.
pub(crate) fn ring(records: usize) -> (Outlet, EventInlet) {
    let (producer, consumer) = rtrb::RingBuffer::new(records);
    let lost = Arc::new(AtomicU64::new(0));
    let inlet = EventInlet { ring: consumer, lost: Arc::clone(&lost), lost_seen: 0 };
    (Outlet { ring: producer, lost }, inlet)
}

impl EventSender {
    pub(crate) fn new(outlets: Vec<Outlet>, pacer: Pacer, suppressed: Arc<AtomicU64>) -> Self {
        Self { outlets, pacer, suppressed }
    }

    /// Passes an event to all collectors. Never waits, allocates or calls the system. `false`: the
    /// ring to one collector was full; that collector loses the event, which is counted, and will
    /// be sent the number of missing events. After
    /// [`ExportHandle::stop`](crate::ExportHandle::stop) events are lost without being counted.
    pub fn push(&mut self, event: NatEvent) -> bool {
        if !self.pacer.admits(&event) {
            let suppressed = self.suppressed.load(Ordering::Relaxed) + 1;
            self.suppressed.store(suppressed, Ordering::Relaxed);
            return true;
        }
        let mut is_taken = true;
        for outlet in &mut self.outlets {
            let lost_before = outlet.lost.load(Ordering::Relaxed);
            if outlet.ring.push(QueuedEvent { event, lost_before }).is_err() {
                outlet.lost.store(lost_before + 1, Ordering::Release);
                is_taken = false;
            }
        }
        is_taken
    }

    /// Counts `count` events that were lost before they reached this sender.
    pub fn lose(&mut self, count: u64) {
        for outlet in &mut self.outlets {
            let lost = outlet.lost.load(Ordering::Relaxed) + count;
            outlet.lost.store(lost, Ordering::Release);
        }
    }

    /// True if at least half of the ring to each collector is free: their threads keep up.
    pub fn has_room(&self) -> bool {
        let has_room = |it: &Outlet| 2 * it.ring.slots() >= it.ring.buffer().capacity();
        self.outlets.iter().all(has_room)
    }
}

impl EventInlet {
    /// Returns the number of events in the ring.
    pub(crate) fn waiting(&self) -> usize {
        self.ring.slots()
    }

    /// Returns the next event and the number of events lost before it since the last call; without
    /// an event, the number lost so far.
    pub(crate) fn pop(&mut self) -> (Option<NatEvent>, u64) {
        // Read before the ring is seen empty: these events were lost before any that comes later.
        let lost_now = self.lost.load(Ordering::Acquire);
        let entry = self.ring.pop().ok();
        let lost = entry.map_or(lost_now, |entry| entry.lost_before);
        let count = lost.saturating_sub(self.lost_seen);
        self.lost_seen = self.lost_seen.max(lost);
        (entry.map(|entry| entry.event), count)
    }
}
