//! The number of packets that are due, and their kinds. Hot path; pure: the cycle counter is an
//! argument.

/// Largest number of packets behind the plan that are made up for: a generator that was delayed
/// does not catch up with a burst.
const DEBT_MAX: u64 = 256;

/// A steady rate of packets.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Packets per cycle, in units of 2^-32.
    step: u64,
    last: u64,
    /// Packets due, in units of 2^-32.
    due: u64,
}

impl Pace {
    /// Starts a pace of `rate` packets in a second of `hz` cycles, from cycle `now` on.
    pub fn new(rate: f64, hz: u64, now: u64) -> Self {
        Pace { step: (rate / hz as f64 * (1u64 << 32) as f64) as u64, last: now, due: 0 }
    }

    /// Returns how many packets may be sent at cycle `now`, `max` at most.
    #[inline]
    pub fn take(&mut self, now: u64, max: u32) -> u32 {
        let elapsed = now.saturating_sub(self.last);
        self.last = now;
        let due = self.due.saturating_add(elapsed.saturating_mul(self.step));
        let count = (due >> 32).min(u64::from(max));
        self.due = (due - (count << 32)).min(DEBT_MAX << 32);
        count as u32
    }
}

/// Distributes whole packets so that a share of them is of one kind, at every point of time.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// In units of 2^-32.
    part: u64,
    rest: u64,
}

impl Share {
    /// Makes a share from 0 to 1.
    pub fn new(share: f64) -> Self {
        Share { part: (share.clamp(0.0, 1.0) * (1u64 << 32) as f64).round() as u64, rest: 0 }
    }

    pub fn is_zero(&self) -> bool {
        self.part == 0
    }

    /// Returns how many of the next `count` packets are of the kind.
    #[inline]
    pub fn of(&mut self, count: u32) -> u32 {
        let sum = self.rest + u64::from(count) * self.part;
        self.rest = sum & 0xffff_ffff;
        (sum >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_keeps_its_rate_however_often_it_is_asked() {
        for interval in [1, 7, 100, 1000] {
            let mut pace = Pace::new(50_000.0, 1_000_000, 5);
            let total: u64 = (1..=1_000_000 / interval)
                .map(|turn| u64::from(pace.take(5 + turn * interval, 64)))
                .sum();
            assert!(total.abs_diff(50_000) <= 60, "every {interval} cycles: {total}");
        }
    }

    #[test]
    fn packets_beyond_a_burst_come_next_but_a_long_pause_is_not_made_up() {
        let mut pace = Pace::new(1.0, 1, 0);
        assert_eq!(pace.take(100, 64), 64);
        assert_eq!(pace.take(100, 64), 36);
        assert_eq!(pace.take(100_000, 64), 64);
        let rest: u32 = (0..100).map(|_| pace.take(100_000, 64)).sum();
        assert_eq!(u64::from(rest), DEBT_MAX);
    }

    #[test]
    fn a_clock_that_steps_back_makes_nothing_due() {
        let mut pace = Pace::new(1.0, 1, 10);
        assert_eq!(pace.take(5, 64), 0);
    }

    #[test]
    fn a_share_is_kept_at_every_moment() {
        let mut share = Share::new(0.3);
        let mut dealt = 0;
        for packets in 1..=1000u32 {
            dealt += share.of(1);
            assert!(f64::from(dealt) <= f64::from(packets) * 0.3 + 1e-3);
            assert!(f64::from(dealt) > f64::from(packets) * 0.3 - 1.0);
        }
        assert_eq!(Share::new(1.0).of(7), 7);
        assert_eq!((Share::new(0.0).of(7), Share::new(0.0).is_zero()), (0, true));
    }
}
