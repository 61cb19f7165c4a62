//! Pauses between attempts to reach a collector that is away.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(200);
const LAST: Duration = Duration::from_secs(30);
/// A connection that lasted this long counts as a success.
const GOOD: Duration = Duration::from_secs(10);

/// Doubles the pause after each failure.
#[derive(Debug)]
pub(crate) struct ConnectBackOff {
    pause: Duration,
    connected_at: Option<Instant>,
}

impl ConnectBackOff {
    pub(crate) fn new() -> Self {
        Self { pause: FIRST, connected_at: None }
    }

    /// True if the last attempt did not fail.
    pub(crate) fn is_first(&self) -> bool {
        self.pause == FIRST
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        self.connected_at = Some(now);
    }

    /// Handles a connection that broke or could not be made: returns the time of the next attempt.
    pub(crate) fn failed(&mut self, now: Instant) -> Instant {
        let connected_at = self.connected_at.take();
        if connected_at.is_some_and(|at| now.saturating_duration_since(at) >= GOOD) {
            self.pause = FIRST;
        }
        let again = now + self.pause;
        self.pause = (self.pause * 2).min(LAST);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_connection_lasts() {
        let begin = Instant::now();
        let mut back_off = ConnectBackOff::new();
        let pauses: Vec<_> =
            (0..10).map(|_| back_off.failed(begin).duration_since(begin).as_millis()).collect();
        assert_eq!(pauses[..4], [200, 400, 800, 1600]);
        assert_eq!(pauses[9], 30_000);
        // A collector that accepts connections and drops them at once is no better than one that is
        // away.
        back_off.connected(begin);
        assert_eq!(back_off.failed(begin + FIRST), begin + FIRST + LAST);
        back_off.connected(begin);
        assert_eq!(back_off.failed(begin + GOOD), begin + GOOD + FIRST);
    }
}
