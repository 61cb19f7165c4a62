//! The part of [`Nat`] that operators use. What it can do stands in the file of its subject:
//! `listings.rs`, `flush.rs` and `gauges.rs` here, what is read of the logs in `logs`.

use crate::nat::Nat;

/// What administration reads of the tables. See [`Nat::admin`].
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(crate) nat: &'a Nat,
}

/// What administration changes in the tables. See [`Nat::admin_mut`].
#[derive(Debug)]
pub struct AdminMut<'a> {
    pub(crate) nat: &'a mut Nat,
}

impl Nat {
    /// Returns what operators may read: listings of sessions and homes, numbers.
    #[inline]
    pub fn admin(&self) -> Admin<'_> {
        Admin { nat: self }
    }

    /// Returns what operators may change: flows that they flush, events that they read.
    #[inline]
    pub fn admin_mut(&mut self) -> AdminMut<'_> {
        AdminMut { nat: self }
    }
}

impl AdminMut<'_> {
    /// Returns the same tables for reading.
    #[inline]
    pub fn read(&self) -> Admin<'_> {
        Admin { nat: self.nat }
    }
}
