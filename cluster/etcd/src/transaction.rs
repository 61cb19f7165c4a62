//! Transactions and their results, independent of how they are carried.

use crate::revision::{LeaseId, Revision, Versioned};

/// Either all comparisons hold and `then` is done, or `otherwise` is: at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub compares: Vec<Compare>,
    pub then: Vec<Operation>,
    pub otherwise: Vec<Operation>,
}

/// A property of a key, by its path, that must have this value. For a key that does not exist every
/// property is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    CreateRevision(String, Revision),
    ModRevision(String, Revision),
    Lease(String, LeaseId),
}

/// An operation on a key, by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Get(String),
    Put { path: String, value: Vec<u8>, lease: Option<LeaseId> },
    Delete(String),
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Whether the comparisons held.
    pub has_held: bool,
    /// The store's revision after the transaction: that of everything written, if anything was.
    pub revision: Revision,
    /// The results of the `Get` operations that were done, in their order.
    pub found: Vec<Option<Versioned>>,
}

impl Compare {
    /// Requires that the key does not exist.
    pub(crate) fn absent(path: &str) -> Self {
        Self::CreateRevision(path.to_owned(), Revision(0))
    }
}
