//! The time, as the owner of the state passes it in.

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerTime {
    /// Never goes back; used for waits.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970; written for people, and for the next leader.
    pub unix_ms: u64,
}

impl ControllerTime {
    /// Milliseconds since an earlier moment of the monotonic clock.
    pub(super) fn since(self, earlier_ms: u64) -> u64 {
        self.monotonic_ms.saturating_sub(earlier_ms)
    }
}
