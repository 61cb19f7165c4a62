//! Counters of a collector's thread, for metrics and status.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::spool::NotStored;

/// Totals since the start, and the present state.
///
/// Every record is accounted for: once the thread has ended, records that were in the spool at the
/// start + `given_total` = `confirmed_total` + `spool_records` + the four `lost_*_total`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorCounters {
    pub name: String,
    /// Whether the collector's thread runs: until the end, unless it has panicked.
    pub is_running: bool,
    /// Records that senders have passed in, including those that a ring refused, and the thread's
    /// own statements of how many are missing.
    pub given_total: u64,
    /// Records that will not be sent again: the collector's kernel has acknowledged them, or over
    /// UDP they were sent.
    pub confirmed_total: u64,
    /// Records written to the collector, including those sent again.
    pub sent_total: u64,
    /// Records sent again after a break.
    pub resent_total: u64,
    /// Records written to the spool, including those that are in memory too.
    pub spooled_total: u64,
    /// Records lost because a queue was full: before the collector's thread, or in its memory
    /// without a spool.
    pub lost_queue_full_total: u64,
    /// Records lost because the spool was full.
    pub lost_spool_full_total: u64,
    /// Records lost because the disk refused them, or returned other data.
    pub lost_disk_error_total: u64,
    /// Records lost at the end of the process because there was no spool for them.
    pub lost_at_end_total: u64,
    /// Connections made.
    pub connects_total: u64,
    /// Connections that could not be made.
    pub connect_failures_total: u64,
    /// Connections that broke.
    pub breaks_total: u64,
    /// Bytes of messages, without the headers of the network and TLS.
    pub bytes_total: u64,
    pub is_connected: bool,
    /// Records in the memory of the collector's thread: waiting, or to be sent again after a break.
    pub held_records: u64,
    /// Records in the spool whose receipt the collector has not confirmed.
    pub spool_records: u64,
    pub spool_bytes: u64,
    /// Error of the present or last failure to connect.
    pub last_error: Option<String>,
    /// The last error of the spool's disk that was logged.
    pub last_spool_error: Option<String>,
}

impl CollectorCounters {
    /// Returns the records lost for any reason.
    pub fn lost_total(&self) -> u64 {
        self.lost_queue_full_total
            + self.lost_spool_full_total
            + self.lost_disk_error_total
            + self.lost_at_end_total
    }
}

#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    pub(crate) given: AtomicU64,
    pub(crate) confirmed: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) resent: AtomicU64,
    pub(crate) spooled: AtomicU64,
    lost_queue_full: AtomicU64,
    lost_spool_full: AtomicU64,
    lost_disk_error: AtomicU64,
    lost_at_end: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
    pub(crate) breaks: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) is_connected: AtomicBool,
    pub(crate) held_records: AtomicU64,
    pub(crate) spool_records: AtomicU64,
    pub(crate) spool_bytes: AtomicU64,
    last_error: Mutex<Option<String>>,
    last_spool_error: Mutex<Option<String>>,
}

/// Reasons for which records are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    QueueFull,
    SpoolFull,
    DiskError,
    AtEnd,
}

impl From<NotStored> for Loss {
    fn from(refused: NotStored) -> Self {
        match refused {
            NotStored::Full => Self::SpoolFull,
            NotStored::Disk => Self::DiskError,
        }
    }
}

/// Adds to a counter; each counter has one writer.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

impl SharedCounters {
    pub(crate) fn lost(&self, loss: Loss, count: u64) {
        let counter = match loss {
            Loss::QueueFull => &self.lost_queue_full,
            Loss::SpoolFull => &self.lost_spool_full,
            Loss::DiskError => &self.lost_disk_error,
            Loss::AtEnd => &self.lost_at_end,
        };
        add(counter, count);
    }

    pub(crate) fn lost_total(&self) -> u64 {
        [&self.lost_queue_full, &self.lost_spool_full, &self.lost_disk_error, &self.lost_at_end]
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }

    pub(crate) fn failed(&self, error: String) {
        *text(&self.last_error) = Some(error);
    }

    pub(crate) fn spool_failed(&self, error: String) {
        *text(&self.last_spool_error) = Some(error);
    }

    pub(crate) fn read(&self, name: &str, is_running: bool) -> CollectorCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CollectorCounters {
            name: name.to_owned(),
            is_running,
            given_total: load(&self.given),
            confirmed_total: load(&self.confirmed),
            sent_total: load(&self.sent),
            resent_total: load(&self.resent),
            spooled_total: load(&self.spooled),
            lost_queue_full_total: load(&self.lost_queue_full),
            lost_spool_full_total: load(&self.lost_spool_full),
            lost_disk_error_total: load(&self.lost_disk_error),
            lost_at_end_total: load(&self.lost_at_end),
            connects_total: load(&self.connects),
            connect_failures_total: load(&self.connect_failures),
            breaks_total: load(&self.breaks),
            bytes_total: load(&self.bytes),
            is_connected: self.is_connected.load(Ordering::Relaxed),
            held_records: load(&self.held_records),
            spool_records: load(&self.spool_records),
            spool_bytes: load(&self.spool_bytes),
            last_error: text(&self.last_error).clone(),
            last_spool_error: text(&self.last_spool_error).clone(),
        }
    }
}

fn text(of: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
