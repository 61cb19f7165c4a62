//! Keeps any kind of log event from flooding the log: a token bucket per kind.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Lines of one kind that may come at once.
const BURST: u32 = 20;
/// After a burst, one more line of the kind per this time.
const REFILL: Duration = Duration::from_secs(1);
/// Kinds followed; there are far fewer in the code.
const KINDS_MAX: usize = 1024;

/// The buckets of all kinds.
#[derive(Debug, Default)]
pub(crate) struct LogRate {
    buckets: HashMap<String, LineAllowance>,
    suppressed: u64,
}

#[derive(Debug)]
struct LineAllowance {
    tokens: u32,
    refilled: Instant,
}

impl LogRate {
    /// Whether a line of this kind may be written now.
    pub(crate) fn admit(&mut self, kind: &str, now: Instant) -> bool {
        if !self.buckets.contains_key(kind) && self.buckets.len() < KINDS_MAX {
            self.buckets.insert(kind.into(), LineAllowance { tokens: BURST, refilled: now });
        }
        let is_admitted = self.buckets.get_mut(kind).is_some_and(|bucket| bucket.take(now));
        self.suppressed += u64::from(!is_admitted);
        is_admitted
    }

    /// Returns the number of lines suppressed since start.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

impl LineAllowance {
    fn take(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.refilled);
        let refills = u32::try_from(elapsed.as_nanos() / REFILL.as_nanos()).unwrap_or(u32::MAX);
        if refills > 0 {
            self.tokens = self.tokens.saturating_add(refills).min(BURST);
            self.refilled = now;
        }
        let has_token = self.tokens > 0;
        self.tokens -= u32::from(has_token);
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_floods_is_kept_back_and_others_are_not() {
        let mut rate = LogRate::default();
        let start = Instant::now();
        let admitted = (0..1000).filter(|_| rate.admit("gateway-down", start)).count();
        assert_eq!(admitted as u32, BURST);
        assert_eq!(rate.suppressed(), 1000 - u64::from(BURST));
        assert!(rate.admit("link-down", start));
        let later = start + REFILL * 3;
        assert_eq!((0..10).filter(|_| rate.admit("gateway-down", later)).count(), 3);
        let much_later = later + REFILL * 1000;
        let admitted = (0..1000).filter(|_| rate.admit("gateway-down", much_later)).count();
        assert_eq!(admitted as u32, BURST);
    }
}
