//! The time, as the owner says it.

/// Both clocks of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Never goes back: what waits are measured with.
    pub monotonic_ms: u64,
    /// Since 1970: what is written for people, and for the next leader.
    pub unix_ms: u64,
}

impl Now {
    /// Milliseconds since an earlier moment of the monotonic clock.
    pub(super) fn since(self, earlier_ms: u64) -> u64 {
        self.monotonic_ms.saturating_sub(earlier_ms)
    }
}
