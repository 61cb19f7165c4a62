//! The clock of a machine: it begins anywhere, and runs a little too fast or too slowly.

/// From virtual time to what a machine's monotonic clock shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What it shows at the beginning of time, microseconds.
    origin_us: u64,
    /// Parts per million too fast; negative: too slow.
    skew_ppm: i64,
}

impl Clock {
    pub(crate) fn new(origin_us: u64, skew_ppm: i64) -> Self {
        Self { origin_us, skew_ppm }
    }

    pub(crate) fn skew_ppm(&self) -> i64 {
        self.skew_ppm
    }

    /// Microseconds that it shows.
    pub(crate) fn at(&self, now_us: u64) -> u64 {
        let skew_us = now_us as i64 * self.skew_ppm / 1_000_000;
        self.origin_us + now_us.saturating_add_signed(skew_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_grows_with_time_and_time_goes_on() {
        let (fast, slow) = (Clock::new(7, 500), Clock::new(7, -500));
        assert_eq!((fast.at(1_000_000), slow.at(1_000_000)), (1_000_507, 999_507));
        assert!((0..100_000).map(|now_us| slow.at(now_us)).is_sorted());
    }
}
