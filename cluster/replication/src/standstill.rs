//! Whether a worker stood still for so long that others may serve its shards by now.
//!
//! The guard tells a worker so, unless it stood still itself, as on a machine that was paused as a whole. So a worker looks
//! at its own clock, too. A packet that waited meanwhile is late, but not lost: with a mapping it is translated, unless it
//! waited for so long that its mapping may have gone.

/// The silence after which the guard fences a worker, too.
pub const STANDSTILL_US: u64 = 50_000;

/// Packets that waited for longer are thrown away: their senders have given up or sent again.
pub const LATE_MAX_US: u64 = 1_000_000;

/// When a worker's last turn was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standstill {
    last_us: Option<u64>,
}

impl Standstill {
    /// A turn begins. Some: there was none for so many microseconds, so long that what waits in the worker's rings is late:
    /// who opened a flow with it has sent again and got another mapping elsewhere.
    #[inline]
    pub fn ended(&mut self, now_us: u64) -> Option<u64> {
        let last_us = self.last_us.replace(now_us)?;
        let length_us = now_us.saturating_sub(last_us);
        (length_us >= STANDSTILL_US).then_some(length_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_pause_is_a_standstill() {
        let mut standstill = Standstill::default();
        assert_eq!(standstill.ended(9_000_000), None, "nothing waited before the first turn");
        assert_eq!(standstill.ended(9_049_999), None);
        assert_eq!(standstill.ended(9_099_999), Some(50_000));
        assert_eq!(standstill.ended(9_100_000), None, "once");
    }
}
