//! The clocks of a process: they start at any value, and run slightly too fast or too slow.

use std::time::{Duration, Instant};

use weir_controller::state::ControllerTime;

const MILLION: u64 = 1_000_000;

/// Converts between the world's microseconds and the time that a process reads.
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock {
    /// An arbitrary moment: only differences from it are used.
    origin: Instant,
    /// Parts per million by which it runs too fast.
    fast_ppm: i64,
    /// The process's time at the beginning of the world, in milliseconds since 1970.
    unix_ms: u64,
}

impl ProcessClock {
    /// Creates a clock. A `fast_ppm` beyond 100,000 in either direction is clamped: no such clock
    /// keeps a lease.
    pub fn new(fast_ppm: i64, unix_ms: u64) -> Self {
        let fast_ppm = fast_ppm.clamp(-100_000, 100_000);
        Self { origin: Instant::now(), fast_ppm, unix_ms }
    }

    fn local_us(&self, now_us: u64) -> u64 {
        scaled(now_us, MILLION.saturating_add_signed(self.fast_ppm), MILLION)
    }

    /// Returns the process's time since its clock began.
    pub(super) fn since(&self, now_us: u64) -> Duration {
        Duration::from_micros(self.local_us(now_us))
    }

    /// Returns the time of the process's monotonic clock.
    pub(super) fn instant(&self, now_us: u64) -> Instant {
        self.origin + Duration::from_micros(self.local_us(now_us))
    }

    /// Returns the first microsecond of the world at which the process reads `instant` or later.
    pub(super) fn us_at(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.origin);
        let local_us = u64::try_from(since.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        let mut us = scaled(local_us, MILLION, MILLION.saturating_add_signed(self.fast_ppm));
        while self.local_us(us) < local_us {
            us += 1;
        }
        us
    }

    /// Returns both clocks as the controller takes them.
    pub(super) fn now(&self, now_us: u64) -> ControllerTime {
        let monotonic_ms = self.local_us(now_us) / 1000;
        ControllerTime { monotonic_ms, unix_ms: self.unix_ms + monotonic_ms }
    }
}

fn scaled(us: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(us) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_met_at_the_first_microsecond_that_a_skewed_clock_shows_it() {
        for fast_ppm in [-50_000, -37, 0, 11, 50_000] {
            let clock = ProcessClock::new(fast_ppm, 0);
            for us in [1, 999, 1_000_003, 86_400_000_000] {
                let deadline = clock.instant(us) + Duration::from_nanos(1);
                let at = clock.us_at(deadline);
                assert!(clock.instant(at) >= deadline && clock.instant(at - 1) < deadline);
            }
        }
    }
}
