//! The interface between a slab and its records, and the identifiers of records and slabs.

use std::fmt;
use zerocopy::{Immutable, IntoBytes};

/// A fixed-size record kept in [`Slabs`](crate::Slabs).
///
/// While a record is dead the slab keeps two numbers in it: the version and the link of the free
/// list. The link may share its bytes with anything except the version and what
/// [`is_live`](Record::is_live) reads.
pub trait Record: Copy {
    /// A dead record. `EMPTY.is_live()` is false.
    const EMPTY: Self;

    /// Whether the record holds a flow. [`Slabs::alloc`](crate::Slabs::alloc) returns a record that
    /// is not live yet: it becomes live when its owner fills it.
    fn is_live(&self) -> bool;

    /// Returns how many times the slot was used; never 0 in an allocated record. Code that
    /// overwrites a record must keep it.
    fn version(&self) -> u32;

    /// Stores the version.
    fn set_version(&mut self, version: u32);

    /// Returns the link that [`set_next_free`](Record::set_next_free) stored.
    fn next_free(&self) -> u32;

    /// Stores the link of the free list in a dead record, which stays dead. With the link of
    /// [`EMPTY`](Record::EMPTY) an empty record is empty again.
    fn set_next_free(&mut self, next: u32);
}

/// Location of a record in the arena of this table: extent * 1,024 + offset. Meaningless in another
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Immutable, IntoBytes)]
#[repr(transparent)]
pub struct RecordId(pub u32);

impl RecordId {
    /// No record.
    pub const NONE: RecordId = RecordId(u32::MAX);
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// One slab of a table: all records of one lane of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlabId(pub u32);

/// Returns the version after `version`; skips 0, which means "never used".
#[inline]
pub(crate) fn next_version(version: u32) -> u32 {
    match version.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Returns the version before `version`; skips 0.
#[inline]
pub(crate) fn previous_version(version: u32) -> u32 {
    match version.wrapping_sub(1) {
        0 => u32::MAX,
        previous => previous,
    }
}

/// Returns the later of two versions in serial number arithmetic (RFC 1982 section 3.2). 0, "never
/// used", is the earliest.
#[inline]
pub(crate) fn later_version(a: u32, b: u32) -> u32 {
    if a != 0 && is_later_version(a, b) { a } else { b }
}

/// True if `version` is later than `than` in serial number arithmetic. Any version is later than 0,
/// "never used".
#[inline]
pub fn is_later_version(version: u32, than: u32) -> bool {
    than == 0 || (version.wrapping_sub(than) as i32) > 0
}
