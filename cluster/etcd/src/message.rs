//! Requests to etcd and its answers, independent of how they are carried. Keys are paths.
//!
//! A client gives each of its requests an id of its own; the transport uses the id for the answer.

use crate::error::Cause;
use crate::revision::{HistoryPosition, LeaseId, Revision, Versioned};
use crate::transaction::{Decided, Operation, Transaction};

/// Identifies a request of one client, and the watch that it opens. A client never reuses an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdRequest {
    Grant {
        ttl_sec: u64,
    },
    KeepAlive(LeaseId),
    /// Ends the lease and deletes its keys.
    Revoke(LeaseId),
    Transact(Transaction),
    /// Keys from `start` up to, but not including, `end`, at most `limit`.
    Range {
        start: String,
        end: String,
        limit: usize,
        /// None: the current revision.
        revision: Option<Revision>,
    },
    /// Opens a watch on every key below a prefix from this revision on.
    Watch {
        prefix: String,
        from: Revision,
    },
    /// Asks a watch for its progress, which shows that it is alive.
    Progress(RequestId),
    /// Ends a watch.
    Cancel(RequestId),
}

/// An order from a client to its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportOrder {
    /// Connects to the endpoint of this index, and returns the answer to `probe` on the new
    /// connection. If the probe is answered, all later requests use this connection.
    Connect { id: RequestId, endpoint: usize, probe: EtcdRequest },
    /// Sends a request on the newest connection. `Progress` and `Cancel` use the connection of
    /// their watch, and have no answer.
    Ask { id: RequestId, request: EtcdRequest },
    /// The client does not wait for the answer: the transport may abandon the request.
    Forget(RequestId),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdAnswer {
    Granted { lease: LeaseId, ttl_sec: u64 },
    KeptAlive,
    Revoked,
    Decided(Decided),
    Range { position: HistoryPosition, found: Vec<(String, Versioned)>, has_more: bool },
}

/// Cause of a failed request, as the transport saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    NoSuchLease,
    Failed {
        cause: Cause,
        /// Message of the layer that detected the failure.
        detail: String,
    },
}

/// An event from a transport to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportEvent {
    Answered { request: RequestId, answer: Result<EtcdAnswer, RequestFailure> },
    Watched { watch: RequestId, event: WatchEvent },
}

/// News of a watch. Nothing follows `Compacted` or `Ended`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The watch is open: the first news of every watch that could be opened.
    Created,
    /// Changes in the order of their revisions; a revision is never split.
    Changes(Vec<ChangedKey>),
    /// The answer to `Progress`.
    Progress,
    /// The watch ended: it needs revisions before this one, which etcd has compacted.
    Compacted(Revision),
    /// The watch ended for another reason, or could not be opened.
    Ended(RequestFailure),
}

/// A key that was written or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    pub path: String,
    /// None: deleted.
    pub value: Option<Vec<u8>>,
    pub revision: Revision,
}

impl EtcdRequest {
    /// Returns a request that reads one key at the current revision.
    pub fn get(path: &str) -> Self {
        Self::Range { start: path.to_owned(), end: format!("{path}\0"), limit: 1, revision: None }
    }

    /// Describes the request in messages about a failure.
    pub(crate) fn operation(&self) -> String {
        match self {
            Self::Grant { .. } => "grant a lease".to_owned(),
            Self::KeepAlive(_) => "renew the lease".to_owned(),
            Self::Revoke(_) => "revoke the lease".to_owned(),
            Self::Transact(transaction) => match &transaction.then[..] {
                [Operation::Get(path) | Operation::Put { path, .. } | Operation::Delete(path)] => {
                    format!("write {path}")
                }
                many => format!("write {} keys", many.len()),
            },
            Self::Range { start, limit: 1, .. } => format!("get {start}"),
            Self::Range { start, .. } => format!("list {start}"),
            Self::Watch { prefix, .. } => format!("watch {prefix}"),
            Self::Progress(_) => "ask a watch for its progress".to_owned(),
            Self::Cancel(_) => "end a watch".to_owned(),
        }
    }
}

/// Returns the first path after all paths that begin with `prefix`, whose last character must be
/// ASCII.
///
/// # Panics
/// When `prefix` ends with another character.
pub fn end_of(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    String::from_utf8(end).expect("a prefix ends with an ASCII character")
}
