//! A token bucket over the worker's clock: so many a second, and as many at once.

#[derive(Debug)]
pub(crate) struct RateLimit {
    per_sec: u64,
    tokens: u64,
    refilled_ms: u64,
}

impl RateLimit {
    /// `per_sec`: 1000 or more.
    pub(crate) const fn new(per_sec: u64) -> Self {
        Self { per_sec, tokens: per_sec, refilled_ms: 0 }
    }

    /// Takes a token, if there is one.
    pub(crate) fn admit(&mut self, now_ms: u64) -> bool {
        let earned = now_ms.saturating_sub(self.refilled_ms).min(1000) * self.per_sec / 1000;
        if earned > 0 {
            self.tokens = (self.tokens + earned).min(self.per_sec);
            self.refilled_ms = now_ms;
        }
        let is_admitted = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_rate() {
        let mut limit = RateLimit::new(1000);
        assert_eq!((0..2000).filter(|_| limit.admit(5000)).count(), 1000);
        assert_eq!((0..2000).filter(|_| limit.admit(5010)).count(), 10);
        assert_eq!((0..2000).filter(|_| limit.admit(60_000)).count(), 1000);
    }
}
