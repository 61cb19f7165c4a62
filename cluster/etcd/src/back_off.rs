//! The wait before the next attempt: longer after each failure, and different on each node.
//!
//! A whole cluster loses etcd at the same moment; without jitter all nodes would also return at the
//! same moment, every time.

use std::time::Duration;

/// A wait that doubles from `first` to `max`; each wait is drawn from the upper half of its step.
#[derive(Clone, Debug)]
pub struct BackOff {
    first: Duration,
    max: Duration,
    failures: u32,
    random: u64,
}

impl BackOff {
    /// Creates a back-off without failures. `seed`, which must differ between processes, draws the
    /// jitter.
    pub fn new(first: Duration, max: Duration, seed: u64) -> Self {
        Self { first, max, failures: 0, random: seed }
    }

    /// Returns the wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let step = self.first.saturating_mul(1 << self.failures.min(16)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        self.jitter(step)
    }

    /// Returns a random time between half of `step` and all of it.
    pub fn jitter(&mut self, step: Duration) -> Duration {
        let share = next(&mut self.random) >> 48;
        step / 2 + (step / 2).mul_f64(share as f64 / f64::from(1 << 16))
    }

    /// Resets the wait after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): any seed works.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(5);

    #[test]
    fn waits_double_up_to_the_longest_and_start_again_after_a_success() {
        let mut back_off = BackOff::new(FIRST, MAX, 1);
        for step in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let step = Duration::from_millis(step);
            let wait = back_off.next_wait();
            assert!(wait >= step / 2 && wait <= step, "{wait:?} of {step:?}");
        }
        for _ in 0..100 {
            assert!(back_off.next_wait() <= MAX);
        }
        back_off.reset();
        assert!(back_off.next_wait() <= FIRST);
    }

    #[test]
    fn two_seeds_wait_differently_and_one_seed_alike() {
        let waits = |seed| {
            let mut back_off = BackOff::new(FIRST, MAX, seed);
            [(); 8].map(|()| back_off.next_wait())
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
    }
}
