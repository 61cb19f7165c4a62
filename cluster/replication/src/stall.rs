//! Detects a stall after which other workers may serve a worker's shards.
//!
//! The guard fences a stalled worker, unless the guard stalled itself, as on a machine that was
//! paused as a whole. So a worker checks its own clock, too. A packet that waited meanwhile is
//! late, but not lost: with a mapping it is translated, unless it waited for so long that its
//! mapping may have gone.

/// Silence in microseconds that makes a stall; the guard fences a worker after the same time.
pub const STALL_US: u64 = 50_000;

/// Packets that waited for longer, in microseconds, are discarded: their senders have given up or
/// sent again.
pub const LATE_MAX_US: u64 = 1_000_000;

/// Time of a worker's last turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stall {
    last_us: Option<u64>,
}

impl Stall {
    /// Begins a turn. Returns the length of the stall that it ends, in microseconds: packets in the
    /// worker's rings are late then, and a home that opened a flow with one has sent it again and
    /// got a mapping elsewhere.
    #[inline]
    pub fn ended(&mut self, now_us: u64) -> Option<u64> {
        let last_us = self.last_us.replace(now_us)?;
        let length_us = now_us.saturating_sub(last_us);
        (length_us >= STALL_US).then_some(length_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_pause_is_a_stall() {
        let mut stall = Stall::default();
        assert_eq!(stall.ended(9_000_000), None, "nothing waited before the first turn");
        assert_eq!(stall.ended(9_049_999), None);
        assert_eq!(stall.ended(9_099_999), Some(50_000));
        assert_eq!(stall.ended(9_100_000), None, "a stall is reported once");
    }
}
