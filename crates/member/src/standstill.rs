//! Whether a worker stood still for so long that others may serve its shards by now.
//!
//! The guard tells a worker so, unless it stood still itself, as on a machine that was paused as a whole. So a worker looks
//! at its own clock, too.

/// The silence after which the guard fences a worker, too.
pub const STANDSTILL_US: u64 = 50_000;

/// When a worker's last turn was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standstill {
    last_us: Option<u64>,
}

impl Standstill {
    /// A turn begins. True: there was none for so long that what waits in the worker's rings is late: who opened a flow
    /// with it has sent again and got another mapping elsewhere.
    #[inline]
    pub fn is_after(&mut self, now_us: u64) -> bool {
        let last_us = self.last_us.replace(now_us);
        last_us.is_some_and(|last_us| now_us.saturating_sub(last_us) >= STANDSTILL_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_pause_is_a_standstill() {
        let mut standstill = Standstill::default();
        assert!(!standstill.is_after(9_000_000), "nothing waited before the first turn");
        assert!(!standstill.is_after(9_049_999));
        assert!(standstill.is_after(9_099_999));
        assert!(!standstill.is_after(9_100_000), "once");
    }
}
