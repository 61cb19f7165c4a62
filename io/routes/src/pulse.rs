//! For how long a count has stood still: the liveness of a thread or process that counts its turns in shared words.
//!
//! Silence is counted in the observer's own waking time: when the observer itself stood still, so may the other have, and
//! nobody is to blame for that time.

use std::time::Duration;

/// One count under observation. Time is an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    beat: u64,
    silent: Duration,
    /// Between two looks, as intended.
    interval: Duration,
    last_look: Option<Duration>,
}

impl Pulse {
    /// To be looked at once in each `interval`.
    pub(crate) fn new(interval: Duration) -> Self {
        Self { beat: 0, silent: Duration::ZERO, interval, last_look: None }
    }

    /// The silence as of this look. `now` is the time since any fixed moment.
    pub(crate) fn look(&mut self, now: Duration, beat: u64) -> Duration {
        let since = now.saturating_sub(self.last_look.replace(now).unwrap_or(now));
        if beat != std::mem::replace(&mut self.beat, beat) {
            self.silent = Duration::ZERO;
        } else {
            self.silent += since.min(2 * self.interval);
        }
        self.silent
    }

    /// Another one is observed from now on.
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
