//! A node that is asked to end: other nodes take its shards over while it still serves them.
//!
//! ```text
//!   asked --guard goes on--> its record says so --> nothing is left for a second --> handed over
//!     |                                                                                 ^
//!     +---------------------------- after a minute, whatever is left -------------------+
//! ```

use std::time::Duration;

/// The longest time for a hand-over. A service manager must wait longer before it kills.
pub const HAND_OVER_MAX: Duration = Duration::from_secs(60);
/// Time after the last shard was handed over: both switches have settled, and no straggler comes.
const SETTLE: Duration = Duration::from_secs(1);

/// The progress of a hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HandOver {
    #[default]
    NotAsked,
    /// The cluster has not been notified yet.
    Asked {
        began: Duration,
    },
    /// The cluster has been notified. Nothing is left since `quiet_since`.
    Announced {
        began: Duration,
        quiet_since: Duration,
    },
    Over,
}

impl HandOver {
    pub(crate) fn ask(&mut self, now: Duration) {
        if *self == Self::NotAsked {
            *self = Self::Asked { began: now };
        }
    }

    /// True if the cluster is to be asked now to take the shards over. That waits until the routes
    /// can follow: a guard that stalls withdraws nothing, and goes on or is replaced within
    /// seconds.
    pub(crate) fn announce(&mut self, now: Duration, can_routes_follow: bool) -> bool {
        match *self {
            Self::Asked { began } if can_routes_follow => {
                *self = Self::Announced { began, quiet_since: now };
                true
            }
            _ => false,
        }
    }

    /// Ends a slot. `is_left`: a shard is served here, or announced better than by a replica, that
    /// another node could serve. True if the hand-over is over.
    pub(crate) fn slot(&mut self, now: Duration, is_left: bool) -> bool {
        let (began, is_quiet) = match self {
            Self::NotAsked | Self::Over => return false,
            Self::Asked { began } => (*began, false),
            Self::Announced { began, quiet_since } => {
                if is_left {
                    *quiet_since = now;
                }
                (*began, now >= *quiet_since + SETTLE)
            }
        };
        if is_quiet {
            tracing::info!(event = "handed-over", "others serve what they have copies of");
        } else if now >= began + HAND_OVER_MAX {
            tracing::warn!(event = "hand-over-late", "ending with shards that no other node took");
        } else {
            return false;
        }
        *self = Self::Over;
        true
    }

    /// True if the cluster has been notified that the node ends.
    pub(crate) fn is_announced(&self) -> bool {
        matches!(self, Self::Announced { .. } | Self::Over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const SLOT: Duration = Duration::from_millis(10);

    #[test]
    fn a_hand_over_ends_when_nothing_was_left_for_a_second() {
        let mut hand_over = HandOver::default();
        assert!(!hand_over.slot(NOW, false), "no hand-over was asked for");
        hand_over.ask(NOW);
        assert!(hand_over.announce(NOW, true) && !hand_over.announce(NOW, true), "once");
        assert!(!hand_over.slot(NOW, true));
        let taken = NOW + Duration::from_secs(7);
        assert!(!hand_over.slot(taken, true));
        assert!(!hand_over.slot(taken + SETTLE - SLOT, false));
        assert!(hand_over.slot(taken + SETTLE, false));
        assert!(!hand_over.slot(taken + SETTLE + SLOT, false), "once");
    }

    #[test]
    fn a_hand_over_ends_after_a_minute_with_shards_that_no_node_takes() {
        let mut hand_over = HandOver::default();
        hand_over.ask(NOW);
        hand_over.announce(NOW, true);
        assert!(!hand_over.slot(NOW + HAND_OVER_MAX - SLOT, true));
        assert!(hand_over.slot(NOW + HAND_OVER_MAX, true));
    }

    #[test]
    fn a_stalled_guard_is_waited_for_and_counts_into_the_minute() {
        let mut hand_over = HandOver::default();
        hand_over.ask(NOW);
        assert!(!hand_over.announce(NOW, false) && !hand_over.is_announced());
        assert!(!hand_over.slot(NOW + SETTLE, false), "the cluster is not notified yet");
        assert!(hand_over.announce(NOW + SETTLE, true) && hand_over.is_announced());
        assert!(hand_over.slot(NOW + HAND_OVER_MAX, true));
    }
}
