//! The longest turn of a worker's loop: packets that arrived meanwhile waited that long.
//!
//! A turn lasts from its beginning to the beginning of the next one or of a rest, so everything
//! counts that can delay packets: a burst, expiry, a request, the log, and the kernel when it gave
//! the core to another thread. A turn without work does not count.

use std::time::Duration;

/// Two such spans make the time over which the longest turn is kept.
const SPAN: Duration = Duration::from_secs(30);

/// The longest turns, in cycles of the timestamp counter.
#[derive(Debug, Default)]
pub(crate) struct LongestTurn {
    /// When the last turn began, if it had work and has not ended.
    began: Option<u64>,
    span_began: Duration,
    longest: u64,
    longest_before: u64,
}

impl LongestTurn {
    /// Notes that a turn began at `cycles`, which ended the one before; it counts if `has_work`.
    /// Returns how long the ended one took, if it counts.
    #[inline]
    pub(crate) fn turn(&mut self, cycles: u64, has_work: bool) -> Option<u64> {
        let ended = self.end(cycles);
        self.began = has_work.then_some(cycles);
        ended
    }

    /// Notes that the last turn ends at `cycles`, before another one begins. Returns how long it
    /// took, if it counts.
    #[inline]
    pub(crate) fn end(&mut self, cycles: u64) -> Option<u64> {
        let took = cycles.wrapping_sub(self.began.take()?);
        self.longest = self.longest.max(took);
        Some(took)
    }

    /// Returns the longest turn of the last 30 to 60 seconds. Must be called about once a second or
    /// more often.
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
    fn only_turns_with_work_count() {
        let mut turns = LongestTurn::default();
        let now = Duration::from_secs(1);
        let turn =
            [(1_000, false), (50_000, true), (50_700, true), (50_900, false), (90_000, true)];
        let ended = turn.map(|(cycles, has_work)| turns.turn(cycles, has_work));
        assert_eq!(ended, [None, None, Some(700), Some(200), None]);
        assert_eq!(turns.within_last_minute(now), 700);
        assert_eq!(turns.turn(91_000, false), Some(1_000));
        assert_eq!(turns.within_last_minute(now), 1_000);
    }

    #[test]
    fn a_rest_is_no_part_of_a_turn() {
        let mut turns = LongestTurn::default();
        turns.turn(1_000, true);
        assert_eq!(turns.end(1_300), Some(300));
        assert_eq!(turns.end(1_400), None);
        assert_eq!(turns.turn(90_000, true), None);
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
