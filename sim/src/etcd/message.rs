//! What clients ask of etcd and what it tells them. Keys are paths.

use weir_cluster::transaction::{Decided, Transaction};
use weir_cluster::{LeaseId, Place, Revision, Versioned};

/// A process that talks to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A request; of a watch, the watch too. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Grant {
        ttl_sec: u64,
    },
    KeepAlive(LeaseId),
    /// Takes the lease and its keys away.
    Revoke(LeaseId),
    Transact(Transaction),
    /// Keys from `start` up to, but not including, `end`, at most `limit`.
    Range {
        start: String,
        end: String,
        limit: usize,
        /// None: as of now.
        revision: Option<Revision>,
    },
    /// Everything below a prefix from this revision on.
    Watch {
        prefix: String,
        from: Revision,
    },
    /// A watch is to say that it lives.
    Progress(RequestId),
    Cancel(RequestId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted { lease: LeaseId, ttl_sec: u64 },
    KeptAlive,
    Revoked,
    Decided(Decided),
    Range { place: Place, found: Vec<(String, Versioned)>, has_more: bool },
}

/// Why a request was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens there. It was not done.
    Unreachable,
    /// The connection broke. Perhaps it was done.
    Broken,
    /// etcd had no leader. Perhaps it was done, or will be.
    NoLeader,
    NoSpace,
    NoSuchLease,
    /// The revision asked for is gone.
    Compacted,
    /// The revision asked for is still to come.
    Future,
    /// More operations than a transaction may have.
    TooLarge,
    /// A key is written twice in one transaction.
    Duplicate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Answered { request: RequestId, answer: Result<Answer, Failure> },
    Watched { watch: RequestId, news: WatchNews },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchNews {
    Created,
    /// All changes of one revision.
    Changes(Vec<Changed>),
    /// It lives: the answer to `Progress`.
    Progress,
    /// It ended: what it would need from this revision on is gone.
    Compacted(Revision),
    /// It ended with its connection or for want of a leader.
    Ended,
}

/// A key that was written, or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub path: String,
    /// None: deleted.
    pub value: Option<Vec<u8>>,
    pub revision: Revision,
}
