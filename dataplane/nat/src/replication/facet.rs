//! The part of [`Nat`] that replication uses. Each method stands in the file of its subject:
//!
//! ```text
//!   ownership, shards/shard_change   which lanes and shards are here, and who writes them
//!   journal                          the changes of owned lanes, to be sent
//!   mirror                           changes of other workers, to be applied
//!   lane_copy, lane_forget           whole lanes
//!   commit                           batches of changes that packets wait for
//!   logs/block_listing               that a lane was taken, for the block log
//! ```

use crate::nat::Nat;

/// The tables as replication reads them: see [`Nat::replica`].
#[derive(Clone, Copy, Debug)]
pub struct Replica<'a> {
    pub(crate) nat: &'a Nat,
}

/// The tables as replication changes them: see [`Nat::replica_mut`].
#[derive(Debug)]
pub struct ReplicaMut<'a> {
    pub(crate) nat: &'a mut Nat,
}

impl Nat {
    /// Returns the part that replication reads: lanes, journal, batches, copies to be sent.
    #[inline]
    pub fn replica(&self) -> Replica<'_> {
        Replica { nat: self }
    }

    /// Returns the part that replication changes: shards, ownership of lanes, the journal, batches,
    /// copies of other workers' lanes.
    #[inline]
    pub fn replica_mut(&mut self) -> ReplicaMut<'_> {
        ReplicaMut { nat: self }
    }
}

impl ReplicaMut<'_> {
    /// Returns the same tables for reading.
    #[inline]
    pub fn read(&self) -> Replica<'_> {
        Replica { nat: self.nat }
    }
}
