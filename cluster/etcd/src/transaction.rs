//! What a transaction asks of etcd and what etcd says to it, apart from how either travels.

use crate::revision::{LeaseId, Revision, Versioned};

/// All comparisons hold and `then` is done, or `otherwise` is: at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub compares: Vec<Compare>,
    pub then: Vec<Operation>,
    pub otherwise: Vec<Operation>,
}

/// What a key, by its path, must be equal in. Of a key that does not exist everything is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    CreateRevision(String, Revision),
    ModRevision(String, Revision),
    Lease(String, LeaseId),
}

/// What is done to a key, by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Get(String),
    Put { path: String, value: Vec<u8>, lease: Option<LeaseId> },
    Delete(String),
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The comparisons held.
    pub has_held: bool,
    /// The store's revision then: of everything that was written, if anything was.
    pub revision: Revision,
    /// What each `Get` that was done has found, in their order.
    pub found: Vec<Option<Versioned>>,
}

impl Compare {
    /// The key must not exist.
    pub(crate) fn absent(path: &str) -> Self {
        Self::CreateRevision(path.to_owned(), Revision(0))
    }
}
