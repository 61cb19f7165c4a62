//! Positions in etcd's history.

use serde::{Deserialize, Serialize};

/// A revision of etcd's store: each write creates the next one. 0 is before the first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Revision(pub i64);

/// A lease of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId(pub i64);

/// A position in the history of one etcd. A process that stores it over a restart notices an etcd
/// that was restored from a backup in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPosition {
    /// etcd's own identity. A restored etcd may have the same one.
    pub cluster_id: u64,
    pub revision: Revision,
    /// Grows with each election inside etcd, and restarts when etcd is restored.
    pub raft_term: u64,
}

/// One key as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// JSON, as written by the key's writer.
    pub value: Vec<u8>,
    /// The revision that created the key; a key that was deleted and written again has a new one.
    pub create_revision: Revision,
    /// The revision that wrote this value; compared by a compare-and-swap.
    pub mod_revision: Revision,
    /// The lease it goes with, if any.
    pub lease: Option<LeaseId>,
}
