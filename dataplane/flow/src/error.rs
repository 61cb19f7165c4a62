//! Errors of the flow table: no memory at the start, no slot in an index later.

use std::{error, fmt};

/// The memory for a table was refused. Only constructors return it: nothing is allocated later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes of the mapping that was refused; `usize::MAX` when the size does not fit the address
    /// space.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for a table of {} bytes ({} MiB)", self.bytes, self.bytes >> 20)
    }
}

impl error::Error for OutOfMemory {}

/// No slot for an entry was found within the bound. The index is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index has no place for the entry")
    }
}

impl error::Error for Full {}
