//! What a client asks of etcd and what etcd tells it, apart from how either travels. Keys are paths.
//!
//! A client gives each of its requests an id of its own; whatever carries the requests uses it for the answer.

use crate::error::Cause;
use crate::revision::{LeaseId, Place, Revision, Versioned};
use crate::transaction::{Decided, Operation, Transaction};

/// A request of one client; of a watch, the watch too. Never used twice by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request to etcd.
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
    /// Asks a watch for a sign of life.
    Progress(RequestId),
    /// Ends a watch.
    Cancel(RequestId),
}

/// What a transport carries out for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Makes a connection to the endpoint of this index, and answers with what `probe` is answered on it. If it is
    /// answered, everything that is ordered afterwards goes over this connection.
    Connect { id: RequestId, endpoint: usize, probe: Request },
    /// Asks over the newest connection. `Progress` and `Cancel` go over the connection of their watch, and are not
    /// answered.
    Ask { id: RequestId, request: Request },
    /// The client waits for no answer any more: the transport may give the request up.
    Forget(RequestId),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted { lease: LeaseId, ttl_sec: u64 },
    KeptAlive,
    Revoked,
    Decided(Decided),
    Range { place: Place, found: Vec<(String, Versioned)>, has_more: bool },
}

/// Why a request failed, as the transport saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    NoSuchLease,
    Failed {
        cause: Cause,
        /// The words of the layer that noticed.
        detail: String,
    },
}

/// What a transport tells a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Answered { request: RequestId, answer: Result<Answer, Failure> },
    Watched { watch: RequestId, news: WatchNews },
}

/// What a watch says. After `Compacted` or `Ended` it says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchNews {
    /// It is open. The first news of each watch that could be opened.
    Created,
    /// Changes in the order of their revisions; a revision is never split.
    Changes(Vec<Changed>),
    /// The answer to `Progress`.
    Progress,
    /// It ended: what it would need from this revision on is gone.
    Compacted(Revision),
    /// It ended for another reason, or could not be opened.
    Ended(Failure),
}

/// A key that was written, or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub path: String,
    /// None: deleted.
    pub value: Option<Vec<u8>>,
    pub revision: Revision,
}

impl Request {
    /// Reads one key as of now.
    pub fn get(path: &str) -> Self {
        Self::Range { start: path.to_owned(), end: format!("{path}\0"), limit: 1, revision: None }
    }

    /// For messages about a failure.
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

/// The first path behind all that begin with `prefix`, which ends with a character of ASCII.
///
/// # Panics
/// When `prefix` ends with another character.
pub fn end_of(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    String::from_utf8(end).expect("a prefix ends with a character of ASCII")
}
