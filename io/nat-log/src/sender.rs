//! A worker's end of the block log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::event::BlockRecord;
use crate::line::unix_ms;

/// An event on its way through a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedRecord {
    pub(crate) event: BlockRecord,
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Total of the records that this sender had lost before this one.
    pub(crate) lost_before: u64,
}

/// One worker's end: a ring of its own, with one writer and one reader.
#[derive(Debug)]
pub struct BlockLogSender {
    ring: rtrb::Producer<QueuedRecord>,
    /// Written by this sender only, read by the writer thread and the metrics.
    lost_total: Arc<AtomicU64>,
}

impl BlockLogSender {
    pub(crate) fn new(ring: rtrb::Producer<QueuedRecord>, lost_total: Arc<AtomicU64>) -> Self {
        Self { ring, lost_total }
    }

    /// Hands an event to the writer. Never waits, allocates or makes a system call.
    ///
    /// `at` is the wall clock, read once for the events of a burst. Returns false if the ring was
    /// full: the record is lost and counted, and the log will report the loss.
    pub fn push(&mut self, event: BlockRecord, at: SystemTime) -> bool {
        let lost_before = self.lost_total.load(Ordering::Relaxed);
        let is_taken =
            self.ring.push(QueuedRecord { event, at_ms: unix_ms(at), lost_before }).is_ok();
        if !is_taken {
            self.lost_total.store(lost_before + 1, Ordering::Relaxed);
        }
        is_taken
    }

    /// True if at least half of the ring is free: the writer keeps up.
    pub fn has_room(&self) -> bool {
        2 * self.ring.slots() >= self.ring.buffer().capacity()
    }

    /// Counts records that were lost before they came here: the log reports the loss at the
    /// position of the next record.
    pub fn lose(&mut self, count: u64) {
        let lost = self.lost_total.load(Ordering::Relaxed);
        self.lost_total.store(lost + count, Ordering::Relaxed);
    }
}
