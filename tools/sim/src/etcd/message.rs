//! The clients of the model, and the reasons for which it refuses a request.

use weir_etcd::Cause;
use weir_etcd::message::RequestFailure;

/// A process that is a client of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No process listens there. The request was not done.
    Unreachable,
    /// The connection broke. The request may have been done.
    Broken,
    /// etcd had no leader. The request may have been done, or will be.
    NoLeader,
    NoSpace,
    NoSuchLease,
    /// The requested revision is compacted.
    Compacted,
    /// The requested revision does not exist yet.
    Future,
    /// More operations than a transaction may have.
    TooLarge,
    /// A key is written twice in one transaction.
    Duplicate,
}

impl From<Refusal> for RequestFailure {
    /// Converts to the error that the client library reports, in etcd's words. The library cannot
    /// report that a request on an open connection was not sent.
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
