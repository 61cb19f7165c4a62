//! The node's clock: monotonic time since start, and the wall-clock time it stands for.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A monotonic clock; copies share the same zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now. It starts at one second so that no time is ever zero, which tables
    /// use for "never".
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Returns a clock that has run for `time`.
    #[cfg(test)]
    pub(crate) fn started_before(time: Duration) -> Self {
        Self { start: Instant::now().checked_sub(time).expect("the machine is up for longer") }
    }

    /// Time since start, plus one second.
    #[inline]
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed() + Duration::from_secs(1)
    }

    /// Returns the wall-clock time of a moment of this clock, since the Unix epoch.
    pub(crate) fn wall(&self, at: Duration) -> Duration {
        let wall_now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        wall_now.saturating_sub(self.now().saturating_sub(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_goes_with_the_monotonic_one() {
        let clock = Clock::start();
        let now = clock.now();
        assert!(now >= Duration::from_secs(1));
        let apart = clock.wall(now + Duration::from_secs(5)).abs_diff(clock.wall(now));
        assert!(apart <= Duration::from_secs(5));
        assert!(clock.wall(now) > Duration::from_secs(1_600_000_000));
    }
}
