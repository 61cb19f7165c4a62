//! How long the routes of a worker that stalls again and again are held off.
//!
//! ```text
//!   fences   1   2   3         4         5              ... none for a minute: forgotten
//!   held off         1 s       2 s       4 s ... 30 s
//! ```
//!
//! Under stolen CPU the members of a shard are fenced in turn. Each fence moves a shard, and if a
//! worker's routes were set again at once, the next fence would move the shard back. Held off, its
//! routes are a last resort: switches take them while no other worker announces the shard, so that
//! two members that are both held off do not take turns at all.

/// Number of fences within `WINDOW_MS` from which on the routes are held off.
pub(crate) const FENCES: usize = 3;
pub(crate) const WINDOW_MS: u64 = 10_000;
/// Length of the first hold-off; each further fence doubles it.
pub(crate) const FIRST_MS: u64 = 1_000;
pub(crate) const MAX_MS: u64 = 30_000;
/// After this long without a fence, all fences are forgotten.
pub(crate) const FORGOTTEN_MS: u64 = 60_000;
/// A shard is not held off any more when no other member with a full copy was heard for this long:
/// longer than a core is taken away from a worker that goes on.
pub(crate) const OTHERS_SILENT_MS: u64 = 300;

/// The fences of one worker. Time is an argument, and never goes back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldOff {
    /// Times of the last fences, oldest first.
    fenced_ms: [Option<u64>; FENCES],
    /// Length of the last hold-off; 0: there was none.
    length_ms: u64,
    until_ms: u64,
}

impl HoldOff {
    /// Notes that the worker goes on after a fence. True if its routes are held off from here on.
    pub(crate) fn rejoined(&mut self, now_ms: u64) -> bool {
        let last_ms = self.fenced_ms[FENCES - 1];
        if last_ms.is_some_and(|last_ms| now_ms >= last_ms + FORGOTTEN_MS) {
            *self = Self::default();
        }
        self.fenced_ms.rotate_left(1);
        self.fenced_ms[FENCES - 1] = Some(now_ms);
        let is_often = self.fenced_ms[0].is_some_and(|first_ms| now_ms <= first_ms + WINDOW_MS);
        if self.length_ms > 0 || is_often {
            self.length_ms = (2 * self.length_ms).clamp(FIRST_MS, MAX_MS);
            self.until_ms = now_ms + self.length_ms;
        }
        self.left_ms(now_ms) > 0
    }

    /// Returns for how long the routes are still held off.
    pub(crate) fn left_ms(&self, now_ms: u64) -> u64 {
        self.until_ms.saturating_sub(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_fence_within_ten_seconds_holds_the_routes_off_for_a_second() {
        let mut it = HoldOff::default();
        assert!(!it.rejoined(5_000));
        assert!(!it.rejoined(10_000));
        assert!(it.rejoined(15_000), "at the edge of the window");
        assert_eq!([15_000, 15_999, 16_000].map(|now| it.left_ms(now)), [1_000, 1, 0]);
    }

    #[test]
    fn fences_that_are_further_apart_hold_nothing_off() {
        let mut it = HoldOff::default();
        assert!((0..50).all(|fence| !it.rejoined(5_001 * fence)));
    }

    #[test]
    fn each_further_fence_doubles_the_time_up_to_half_a_minute() {
        let mut it = HoldOff::default();
        let seconds: Vec<u64> = (0..10)
            .map(|fence| {
                it.rejoined(400 * fence);
                it.left_ms(400 * fence) / 1_000
            })
            .collect();
        assert_eq!(seconds, [0, 0, 1, 2, 4, 8, 16, 30, 30, 30]);
        // Long after the window, too, while the fences are not forgotten.
        assert!(it.rejoined(60_000));
        assert_eq!(it.left_ms(60_000), MAX_MS);
    }

    #[test]
    fn a_minute_without_a_fence_forgets_them_all() {
        let mut it = HoldOff::default();
        (0..6).for_each(|fence| assert_eq!(it.rejoined(100 * fence), fence > 1));
        let later = 500 + FORGOTTEN_MS;
        let again: Vec<bool> = (0..3).map(|fence| it.rejoined(later + 100 * fence)).collect();
        assert_eq!(again, [false, false, true]);
        assert_eq!(it.left_ms(later + 200), FIRST_MS);
    }
}
