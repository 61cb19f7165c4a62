//! A histogram of durations. Hot: a worker enters every turn of its loop.
//!
//! The worker is the only writer; any thread reads at any time, and may see a duration in the sum
//! that is not yet in its bucket. Durations are cycles of the timestamp counter until they are
//! read: nothing is divided in the loop.

use std::time::Duration;

use weir_engine::Counter;

/// Upper bounds of the buckets but the last one, which has none. A millisecond is what expiry may
/// take of the packets' time.
const BOUNDS: [Duration; 8] = [
    Duration::from_micros(10),
    Duration::from_micros(30),
    Duration::from_micros(100),
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
];
const BUCKETS: usize = BOUNDS.len() + 1;

#[derive(Debug)]
pub(crate) struct DurationHistogram {
    /// Cycles per second.
    hz: u64,
    /// Shortest duration that is entered, in cycles.
    least: u64,
    /// [`BOUNDS`] in cycles.
    bounds: [u64; BOUNDS.len()],
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

/// A histogram at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Durations {
    pub sum_sec: f64,
    /// Upper bound in seconds, and number of durations longer than the bound before and not longer
    /// than this one.
    pub buckets: [(f64, u64); BUCKETS],
}

impl DurationHistogram {
    /// Creates a histogram of durations of `least` or longer, given in cycles of a counter of `hz`
    /// cycles per second.
    pub(crate) fn new(hz: u64, least: Duration) -> Self {
        Self {
            hz,
            least: cycles(least, hz),
            bounds: BOUNDS.map(|bound| cycles(bound, hz)),
            buckets: Default::default(),
            sum: Counter::default(),
        }
    }

    /// Enters a duration; returns whether it was long enough.
    #[inline]
    pub(crate) fn enter(&self, cycles: u64) -> bool {
        if cycles < self.least {
            return false;
        }
        let bucket = self.bounds.iter().filter(|&&bound| cycles > bound).count();
        self.buckets[bucket].add(1);
        self.sum.add(cycles);
        true
    }

    pub(crate) fn read(&self) -> Durations {
        let bounds = BOUNDS.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
        let mut buckets = [(0.0, 0); BUCKETS];
        for (slot, (bound, counter)) in buckets.iter_mut().zip(bounds.zip(&self.buckets)) {
            *slot = (bound, counter.get());
        }
        Durations { sum_sec: self.sum.get() as f64 / self.hz.max(1) as f64, buckets }
    }
}

impl Durations {
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

fn cycles(duration: Duration, hz: u64) -> u64 {
    let cycles = duration.as_nanos() * u128::from(hz) / 1_000_000_000;
    u64::try_from(cycles).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 2_000_000_000;
    const MICROSECOND: u64 = HZ / 1_000_000;

    #[test]
    fn a_duration_of_a_bound_belongs_below_it() {
        let histogram = DurationHistogram::new(HZ, Duration::ZERO);
        for micros in [0, 10, 11, 1_000, 1_001, 30_000, 30_001, 9_000_000] {
            assert!(histogram.enter(micros * MICROSECOND));
        }
        let durations = histogram.read();
        assert_eq!(durations.buckets.map(|(_, count)| count), [2, 1, 0, 0, 1, 1, 0, 1, 2]);
        assert_eq!(durations.buckets[4].0, 0.001);
        assert_eq!(durations.buckets[8].0, f64::INFINITY);
        assert_eq!(durations.count(), 8);
        assert!((durations.sum_sec - 9.062_023).abs() < 1e-9, "{}", durations.sum_sec);
    }

    #[test]
    fn a_duration_that_is_too_short_is_not_entered() {
        let histogram = DurationHistogram::new(HZ, Duration::from_micros(1));
        assert!(!histogram.enter(MICROSECOND - 1));
        assert!(histogram.enter(MICROSECOND));
        assert_eq!(histogram.read().count(), 1);
    }
}
