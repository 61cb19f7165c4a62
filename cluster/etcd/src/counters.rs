//! Counters of the traffic between this process and etcd, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Written by the tasks of this crate, read at any time.
        #[derive(Debug)]
        pub(crate) struct EtcdCounters {
            start: Instant,
            /// Microseconds from `start` to the last answer; 0: none yet.
            last_answer_us: AtomicU64,
            $(pub(crate) $name: AtomicU64,)*
        }

        /// The counters at one moment. All values except the age only grow.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Counts {
            /// Time since etcd's last answer of any kind; none before the first answer.
            pub last_contact_age: Option<Duration>,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl EtcdCounters {
            pub(crate) fn new(start: Instant) -> Self {
                Self { start, last_answer_us: AtomicU64::new(0), $($name: AtomicU64::new(0),)* }
            }

            pub(crate) fn read(&self, now: Instant) -> Counts {
                let last_us = self.last_answer_us.load(Relaxed);
                let age = now.saturating_duration_since(self.start)
                    .saturating_sub(Duration::from_micros(last_us));
                Counts {
                    last_contact_age: (last_us > 0).then_some(age),
                    $($name: self.$name.load(Relaxed),)*
                }
            }
        }
    };
}

counters! {
    /// Connections made, the first included.
    connects_total,
    /// Requests that failed for lack of an answer: unreachable, too slow, no quorum.
    failures_total,
    /// Watches that ended because etcd had compacted revisions that they needed.
    compactions_total,
    /// Watches given up because nothing arrived, not even an answer to a progress request.
    stalls_total,
    /// Keys that a full list contained and a running watch had not delivered.
    list_differences_total,
    /// Times that etcd's history was found to have changed.
    restores_total,
    /// Keys inside the cluster's prefix that this version does not know.
    unknown_keys_total,
    /// Leases that ended, or had to be treated as ended, while they were wanted.
    lease_losses_total,
    /// Writes refused because another client wrote first.
    conflicts_total,
    /// Events that their owner did not take in time.
    notices_dropped_total,
}

impl EtcdCounters {
    /// Records an answer of etcd.
    pub(crate) fn note_contact(&self, now: Instant) {
        let age = now.saturating_duration_since(self.start).as_micros();
        self.last_answer_us.fetch_max(u64::try_from(age).unwrap_or(u64::MAX).max(1), Relaxed);
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_age_of_the_last_contact_before_the_first() {
        let start = Instant::now();
        let counters = EtcdCounters::new(start);
        assert_eq!(counters.read(start + Duration::from_secs(9)).last_contact_age, None);
        counters.note_contact(start + Duration::from_secs(10));
        counters.note_contact(start + Duration::from_secs(8));
        let counts = counters.read(start + Duration::from_secs(13));
        assert_eq!(counts.last_contact_age, Some(Duration::from_secs(3)));
    }
}
