//! The part of [`Nat`] that operators use. Each method stands in the file of its subject:
//! `listings.rs`, `flush.rs` and `gauges.rs` here, and for the logs in the folder `logs`.

use crate::nat::Nat;

/// The tables as operators read them: see [`Nat::admin`].
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(crate) nat: &'a Nat,
}

/// The tables as operators change them: see [`Nat::admin_mut`].
#[derive(Debug)]
pub struct AdminMut<'a> {
    pub(crate) nat: &'a mut Nat,
}

impl Nat {
    /// Returns the part that operators read: listings of sessions and homes, numbers.
    #[inline]
    pub fn admin(&self) -> Admin<'_> {
        Admin { nat: self }
    }

    /// Returns the part that operators change: flushes of flows, events taken out of the logs.
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
