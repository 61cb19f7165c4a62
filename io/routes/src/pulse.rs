//! Measures for how long a counter has stood still: the liveness of a thread or process that counts
//! its turns in shared words.
//!
//! Silence is measured in the observer's own running time: when the observer itself stalled, the
//! other may have stalled with it, so that time counts little.

use std::time::Duration;

/// One counter under observation. Time is an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    beat: u64,
    silent: Duration,
    /// Intended time between two looks.
    interval: Duration,
    last_look: Option<Duration>,
}

impl Pulse {
    /// Creates a pulse that is to be looked at once per `interval`.
    pub(crate) fn new(interval: Duration) -> Self {
        Self { beat: 0, silent: Duration::ZERO, interval, last_look: None }
    }

    /// Returns the silence as of this look. `now` is the time since any fixed moment.
    pub(crate) fn look(&mut self, now: Duration, beat: u64) -> Duration {
        let since = now.saturating_sub(self.last_look.replace(now).unwrap_or(now));
        if beat != std::mem::replace(&mut self.beat, beat) {
            self.silent = Duration::ZERO;
        } else {
            self.silent += since.min(2 * self.interval);
        }
        self.silent
    }

    /// Starts to observe another counter.
    pub(crate) fn begin_again(&mut self) {
        *self = Self::new(self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(100);

    #[test]
    fn silence_grows_with_the_observers_own_time_and_ends_with_a_beat() {
        let mut pulse = Pulse::new(LOOK);
        assert_eq!(pulse.look(LOOK, 7), Duration::ZERO);
        assert_eq!(pulse.look(2 * LOOK, 7), LOOK);
        assert_eq!(pulse.look(3 * LOOK, 7), 2 * LOOK);
        // A minute in which the observer did not run either.
        assert_eq!(pulse.look(Duration::from_secs(60), 7), 4 * LOOK);
        assert_eq!(pulse.look(Duration::from_secs(60) + LOOK, 8), Duration::ZERO);
        pulse.look(Duration::from_secs(61), 8);
        pulse.begin_again();
        assert_eq!(pulse.look(Duration::from_secs(70), 0), Duration::ZERO);
    }
}
