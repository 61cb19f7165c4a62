//! The clients of the model, and why it does not do what they ask.

use weir_etcd::Cause;
use weir_etcd::message::Failure;

/// A process that talks to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
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

impl From<Refusal> for Failure {
    /// As the client library reports it, in the words of etcd. It cannot say that a request on an open connection was
    /// not sent.
    fn from(refusal: Refusal) -> Self {
        let (cause, detail) = match refusal {
            Refusal::NoSuchLease => return Self::NoSuchLease,
            Refusal::Unreachable => (Cause::Unreachable, "connection refused"),
            Refusal::Broken => (Cause::Unreachable, "the connection broke"),
            Refusal::NoLeader => (Cause::NoQuorum, "no leader"),
            Refusal::NoSpace => (Cause::NoSpace, "database space exceeded"),
            Refusal::Compacted => (Cause::Compacted, "required revision has been compacted"),
            Refusal::Future => (Cause::Other, "required revision is a future revision"),
            Refusal::TooLarge => (Cause::TooLarge, "too many operations in txn request"),
            Refusal::Duplicate => (Cause::Invalid, "duplicate key given in txn request"),
        };
        Self::Failed { cause, detail: detail.to_owned() }
    }
}
