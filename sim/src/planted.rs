//! Bugs planted on purpose: how many histories it takes until one fails of each.
//!
//! A bug is there in the thread that plays, and only while it plays. A history that fails without it
//! as well says nothing of it.

use weir_planted::{Bug, plant};

use crate::play::play;

/// The history that found a bug.
#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    /// Histories played, this one included.
    pub played: u64,
    /// Events of all of them.
    pub events: u64,
    /// The first line of what was violated.
    pub violation: String,
}

/// Plays the seeds until one fails with this bug planted and not without it. None: none does.
pub fn find(bug: Bug, seeds: impl IntoIterator<Item = u64>) -> Option<Found> {
    let (mut played, mut events) = (0, 0);
    for seed in seeds {
        plant(Some(bug));
        // Catches panics.
        let outcome = play(seed);
        plant(None);
        played += 1;
        events += outcome.events;
        // What fails without it too says nothing of the bug.
        if let Some(violation) = outcome.violation.filter(|_| play(seed).violation.is_none()) {
            let violation = violation.lines().next().unwrap_or_default().to_owned();
            return Some(Found { seed, played, events, violation });
        }
    }
    None
}

/// The bug of this name, as it stands in the code.
pub fn by_name(name: &str) -> Option<Bug> {
    Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name)
}
