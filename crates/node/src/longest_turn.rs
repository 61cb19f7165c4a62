//! The longest turn of a worker's loop: packets that arrived meanwhile waited that long.
//!
//! A turn lasts from its begin to the begin of the next one, so everything counts that can delay packets: a burst, a
//! request, the log, and the kernel when it gave the core to somebody else. A turn after which the worker may rest does
//! not count.

use std::time::Duration;

/// Two such spans make the time over which the longest turn is kept.
const SPAN: Duration = Duration::from_secs(30);

/// In cycles of the timestamp counter.
#[derive(Debug, Default)]
pub(crate) struct LongestTurn {
    /// When the last turn began, if it was a busy one.
    began: Option<u64>,
    span_began: Duration,
    longest: u64,
    longest_before: u64,
}

impl LongestTurn {
    /// A turn began at `cycles`; `is_busy`: the next one follows at once.
    #[inline]
    pub(crate) fn turn(&mut self, cycles: u64, is_busy: bool) {
        if let Some(began) = self.began {
            self.longest = self.longest.max(cycles.wrapping_sub(began));
        }
        self.began = is_busy.then_some(cycles);
    }

    /// The longest turn of the last 30 to 60 seconds. Call about once a second or more often.
    pub(crate) fn within_last_minute(&mut self, now: Duration) -> u64 {
        if now.saturating_sub(self.span_began) >= SPAN {
            self.span_began = now;
            self.longest_before = std::mem::take(&mut self.longest);
        }
        self.longest.max(self.longest_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_turns_count() {
        let mut turns = LongestTurn::default();
        let now = Duration::from_secs(1);
        for (cycles, is_busy) in [(1_000, false), (50_000, true), (50_700, true), (50_900, false)] {
            turns.turn(cycles, is_busy);
        }
        turns.turn(90_000, true);
        assert_eq!(turns.within_last_minute(now), 700);
        turns.turn(91_000, false);
        assert_eq!(turns.within_last_minute(now), 1_000);
    }

    #[test]
    fn a_long_turn_is_seen_for_half_a_minute_and_forgotten_after_one() {
        let mut turns = LongestTurn::default();
        turns.turn(0, true);
        turns.turn(5_000, true);
        let mut seen = (0..=60).map(|second| turns.within_last_minute(Duration::from_secs(second)));
        assert!(seen.by_ref().take(60).all(|longest| longest == 5_000));
        assert_eq!(seen.next(), Some(0));
    }
}
