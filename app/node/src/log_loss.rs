//! Tracks whether a log has lost records lately: one loss must not spoil the verdict permanently.

use std::time::{Duration, Instant};

/// Time after the last loss for which the log counts as failing.
const RECENT: Duration = Duration::from_secs(300);

/// The losses seen so far.
#[derive(Debug, Default)]
pub(crate) struct LogLoss {
    lost_total: u64,
    last: Option<Instant>,
}

impl LogLoss {
    /// True when records were lost since the last call.
    pub(crate) fn observe(&mut self, now: Instant, lost_total: u64) -> bool {
        let has_lost = lost_total > self.lost_total;
        if has_lost {
            self.last = Some(now);
        }
        self.lost_total = lost_total;
        has_lost
    }

    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) < RECENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_forgotten_after_a_while() {
        let mut loss = LogLoss::default();
        let start = Instant::now();
        assert!(!loss.observe(start, 0) && !loss.is_recent(start));
        assert!(loss.observe(start, 3) && loss.is_recent(start));
        assert!(!loss.observe(start, 3) && loss.is_recent(start));
        assert!(!loss.is_recent(start + RECENT));
    }
}
