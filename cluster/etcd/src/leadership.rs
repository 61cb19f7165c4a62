//! The evidence that a process is the leader.

use std::time::Instant;

use crate::claim::state::HeldKey;
use crate::revision::{LeaseId, Revision};

/// The election of this process, and the time until which it may rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Create revision of the leader's key: different for each leader.
    pub create_revision: Revision,
    /// Lease of the leader's key: different as well, even when etcd was restored and counts the
    /// same revisions again.
    pub lease: LeaseId,
    /// Grows with each renewal.
    pub valid_until: Instant,
}

impl Leadership {
    /// Returns the leadership of the holder of the leader's key, while it lasts: to be asked for
    /// before each step, not stored.
    pub fn of(held: Option<HeldKey>, now: Instant) -> Option<Self> {
        let HeldKey { create_revision, lease, valid_until } =
            held.filter(|it| now < it.valid_until)?;
        Some(Self { create_revision, lease, valid_until })
    }
}
