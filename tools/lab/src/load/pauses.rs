//! Pauses: times in which a thread wanted to run and got no core. Pure.
//!
//! A laboratory shares its machine. The cost of a pause of a sender, a worker or the whole machine
//! is not weir's fault if the pause is long enough to explain it: pauses are recorded, so that the
//! cause need not be guessed.

use std::fmt;

use super::clock::{Micros, Window};

/// Shortest pause that explains a loss. A worker that stalled for 50 ms may have lost its shards to
/// others; this is 10 ms less, since the watch may miss the ends of a pause. A shorter pause
/// explains no loss: weir's rings hold the packets that arrive meanwhile.
pub const EXPLAINS_LOSS_MIN: Micros = 40_000;
/// A packet sent this long before a pause may have been in flight at its start.
const BEFORE: Micros = 20_000;
/// Time until routes and roles have followed a pause.
const AFTER: Micros = 300_000;

/// A time in which a thread, or every thread of a core, was ready to run but did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Start and end of the pause.
    pub window: Window,
    /// The thread or core.
    pub of: String,
}

impl Pause {
    /// Returns the length of the pause.
    pub fn length(&self) -> Micros {
        self.window.end - self.window.start
    }

    /// True if the pause is long enough, and near enough, to have cost a packet that was sent at
    /// `sent`.
    pub fn explains_loss(&self, sent: Micros) -> bool {
        let reach = Window {
            start: self.window.start.saturating_sub(BEFORE),
            end: self.window.end + AFTER,
        };
        self.length() >= EXPLAINS_LOSS_MIN && reach.contains(sent)
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a pause of {} ms of {}", self.length() / 1_000, self.of)
    }
}

/// Returns how much of a window lies within pauses, each microsecond counted once.
pub fn paused_within(pauses: &[Pause], window: Window) -> Micros {
    let inside = |pause: &Pause| {
        let start = pause.window.start.max(window.start);
        let end = pause.window.end.min(window.end);
        (start < end).then_some((start, end))
    };
    let mut parts: Vec<_> = pauses.iter().filter_map(inside).collect();
    parts.sort_unstable();
    let (mut sum, mut covered) = (0, window.start);
    for (start, end) in parts {
        sum += end.saturating_sub(start.max(covered));
        covered = covered.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(start: Micros, end: Micros) -> Pause {
        Pause { window: Window { start, end }, of: "core 0".into() }
    }

    #[test]
    fn a_pause_explains_losses_near_it_and_a_short_one_none() {
        let long = pause(1_000_000, 1_040_000);
        assert!(long.explains_loss(1_020_000));
        assert!(long.explains_loss(980_000) && long.explains_loss(1_339_999));
        assert!(!long.explains_loss(979_999) && !long.explains_loss(1_340_000));
        assert!(!pause(1_000_000, 1_039_999).explains_loss(1_020_000));
    }

    #[test]
    fn overlapping_pauses_count_once_and_only_inside_the_window() {
        let pauses = [pause(50, 150), pause(10, 120), pause(300, 400), pause(380, 900)];
        assert_eq!(paused_within(&pauses, Window { start: 100, end: 500 }), 50 + 200);
        assert_eq!(paused_within(&pauses, Window { start: 150, end: 300 }), 0);
        assert_eq!(paused_within(&[], Window { start: 0, end: 300 }), 0);
    }
}
