//! Counts of a shard's changes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Counts the changes of a shard's map entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// At one change per nanosecond it takes 292 years to reach. Below the end of u64, so its
    /// successor exists.
    pub const MAX: Self = Self(1 << 63);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Counts the changes of a shard's primary.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Term(pub u32);

impl Term {
    /// Metrics of routes begin at 2^31 and fall by 8 per term.
    pub const MAX: Self = Self((1 << 28) - 2);
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
