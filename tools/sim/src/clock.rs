//! The clock of a machine: it starts at any value, and runs slightly too fast or too slow.

/// Converts virtual time to the time of a machine's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Its time at the beginning of virtual time, microseconds.
    origin_us: u64,
    /// Parts per million by which it is too fast; negative: too slow.
    skew_ppm: i64,
}

impl Clock {
    pub(crate) fn new(origin_us: u64, skew_ppm: i64) -> Self {
        Self { origin_us, skew_ppm }
    }

    pub(crate) fn skew_ppm(&self) -> i64 {
        self.skew_ppm
    }

    /// Returns its time in microseconds.
    pub(crate) fn at(&self, now_us: u64) -> u64 {
        let skew_us = now_us as i64 * self.skew_ppm / 1_000_000;
        self.origin_us + now_us.saturating_add_signed(skew_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_grows_with_time_and_the_clock_never_runs_backwards() {
        let (fast, slow) = (Clock::new(7, 500), Clock::new(7, -500));
        assert_eq!((fast.at(1_000_000), slow.at(1_000_000)), (1_000_507, 999_507));
        assert!((0..100_000).map(|now_us| slow.at(now_us)).is_sorted());
    }
}
