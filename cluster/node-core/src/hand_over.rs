//! A node that is asked to end: others take its shards over while it still serves them.
//!
//! ```text
//!   asked --guard goes on--> its record says so --> nothing is left for a second --> handed over
//!     |                                                                                 ^
//!     +---------------------------- after a minute, whatever is left -------------------+
//! ```

use std::time::Duration;

/// The longest time for a hand-over. A service manager must wait longer before it kills.
pub const HAND_OVER_MAX: Duration = Duration::from_secs(60);
/// After the last shard was handed over: both switches have settled, and no straggler comes.
const SETTLE: Duration = Duration::from_secs(1);

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HandOver {
    #[default]
    NotAsked,
    /// The cluster does not know yet.
    Asked {
        began: Duration,
    },
    /// Nothing is left since then.
    Told {
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

    /// The cluster is asked to take the shards over, once the routes can follow: a guard that stands still withdraws nothing.
    /// It goes on or is replaced within seconds. True: it is to be told now.
    pub(crate) fn tell(&mut self, now: Duration, can_routes_follow: bool) -> bool {
        match *self {
            Self::Asked { began } if can_routes_follow => {
                *self = Self::Told { began, quiet_since: now };
                true
            }
            _ => false,
        }
    }

    /// A slot has ended. `is_left`: a shard is served here, or announced better than by a replica, that another node could
    /// serve. True: it is over.
    pub(crate) fn slot(&mut self, now: Duration, is_left: bool) -> bool {
        let (began, is_quiet) = match self {
            Self::NotAsked | Self::Over => return false,
            Self::Asked { began } => (*began, false),
            Self::Told { began, quiet_since } => {
                if is_left {
                    *quiet_since = now;
                }
                (*began, now >= *quiet_since + SETTLE)
            }
        };
        if is_quiet {
            tracing::info!(event = "handed-over", "others serve what they have copies of");
        } else if now >= began + HAND_OVER_MAX {
            tracing::warn!(event = "hand-over-late", "ending with shards nobody took");
        } else {
            return false;
        }
        *self = Self::Over;
        true
    }

    /// The cluster has been told that the node ends.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self, Self::Told { .. } | Self::Over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const SLOT: Duration = Duration::from_millis(10);

    #[test]
    fn it_is_over_when_nothing_was_left_for_a_second() {
        let mut hand_over = HandOver::default();
        assert!(!hand_over.slot(NOW, false), "nobody has asked");
        hand_over.ask(NOW);
        assert!(hand_over.tell(NOW, true) && !hand_over.tell(NOW, true), "once");
        assert!(!hand_over.slot(NOW, true));
        let taken = NOW + Duration::from_secs(7);
        assert!(!hand_over.slot(taken, true));
        assert!(!hand_over.slot(taken + SETTLE - SLOT, false));
        assert!(hand_over.slot(taken + SETTLE, false));
        assert!(!hand_over.slot(taken + SETTLE + SLOT, false), "once");
    }

    #[test]
    fn what_nobody_takes_ends_it_after_a_minute() {
        let mut hand_over = HandOver::default();
        hand_over.ask(NOW);
        hand_over.tell(NOW, true);
        assert!(!hand_over.slot(NOW + HAND_OVER_MAX - SLOT, true));
        assert!(hand_over.slot(NOW + HAND_OVER_MAX, true));
    }

    #[test]
    fn a_guard_that_stands_still_is_waited_for_and_counts_into_the_minute() {
        let mut hand_over = HandOver::default();
        hand_over.ask(NOW);
        assert!(!hand_over.tell(NOW, false) && !hand_over.is_told());
        assert!(!hand_over.slot(NOW + SETTLE, false), "nobody knows that it ends");
        assert!(hand_over.tell(NOW + SETTLE, true) && hand_over.is_told());
        assert!(hand_over.slot(NOW + HAND_OVER_MAX, true));
    }
}
