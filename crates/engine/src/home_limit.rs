//! So many a second for each home, known or not, in bounded memory.
//!
//! A home's tokens lie in the place that its keyed hash leads to; homes that share a place share them. So nobody who makes
//! up homes fills anything, and nobody can aim at the place of another.

use weir_nat::Hash;

/// Places; 32 KiB.
const PLACES: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Tokens {
    left: u32,
    refilled_ms: u32,
}

#[derive(Debug)]
pub(crate) struct HomeLimit {
    per_sec: u32,
    places: Box<[Tokens]>,
}

impl HomeLimit {
    /// `u32::MAX`: no limit.
    pub(crate) fn new(per_sec: u32) -> Self {
        let places = if per_sec == u32::MAX { 0 } else { PLACES };
        let full = Tokens { left: per_sec, refilled_ms: 0 };
        Self { per_sec, places: vec![full; places].into_boxed_slice() }
    }

    /// Takes a token of the home with this hash, if there is one.
    pub(crate) fn admit(&mut self, home: Hash, now_ms: u64) -> bool {
        let Some(last) = self.places.len().checked_sub(1) else { return true };
        let tokens = &mut self.places[home.0 as usize & last];
        let now_ms = now_ms as u32;
        let elapsed_ms = now_ms.wrapping_sub(tokens.refilled_ms).min(1000);
        let earned = (u64::from(elapsed_ms) * u64::from(self.per_sec) / 1000) as u32;
        if earned > 0 {
            tokens.left = tokens.left.saturating_add(earned).min(self.per_sec);
            tokens.refilled_ms = now_ms;
        }
        let is_admitted = tokens.left > 0;
        tokens.left = tokens.left.saturating_sub(1);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_home_has_its_rate() {
        let mut limit = HomeLimit::new(100);
        let count = |limit: &mut HomeLimit, home, now_ms| {
            (0..500).filter(|_| limit.admit(Hash(home), now_ms)).count()
        };
        assert_eq!(count(&mut limit, 1, 5000), 100);
        assert_eq!(count(&mut limit, 2, 5000), 100);
        assert_eq!(count(&mut limit, 1, 5100), 10);
        assert_eq!(count(&mut limit, 1, 5105), 0);
        assert_eq!(count(&mut limit, 1, 5110), 1, "what was earned meanwhile is not lost");
        assert_eq!(count(&mut limit, 1, 90_000), 100);
        // The clock wraps.
        assert_eq!(count(&mut limit, 1, (1 << 32) + 90_500), 50);
        let mut none = HomeLimit::new(u32::MAX);
        assert_eq!(count(&mut none, 1, 0), 500);
    }
}
