//! Failures between this process and etcd: where, in which operation, why, and what to do about it.

use std::error::Error as StdError;
use std::fmt;

use etcd_client::Error as ClientError;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("etcd {endpoint}: {operation}: {cause}: {detail}; {}", cause.advice())]
pub struct Error {
    /// The member that was asked, or all of them if none could be reached.
    pub endpoint: String,
    /// The operation that was requested.
    pub operation: String,
    pub cause: Cause,
    /// Message of the layer that detected the failure.
    pub detail: String,
    /// Whether etcd may have carried the request out despite the failure.
    pub may_have_happened: bool,
}

/// Cause of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is no connection, or it broke.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// A file of the TLS connection cannot be used, or one side does not trust the other.
    Tls,
    /// The user or password is wrong, or etcd requires them.
    NotAuthenticated,
    /// The user's role does not permit the request.
    PermissionDenied,
    /// The member has no leader, or etcd has no quorum.
    NoQuorum,
    /// The database has reached its quota.
    NoSpace,
    /// etcd is overloaded.
    Overloaded,
    /// The requested revision has been compacted.
    Compacted,
    /// The request is larger than etcd or this crate accepts.
    TooLarge,
    /// The request is inconsistent.
    Invalid,
    /// Anything else.
    Other,
}

impl Cause {
    /// Advice for the operator.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Unreachable => "check that etcd runs there and that no firewall is between",
            Self::Timeout => "check the load and the disk of etcd, and the network to it",
            Self::Tls => "check the certificates of both sides, their names and their dates",
            Self::NotAuthenticated => "check the user and the password",
            Self::PermissionDenied => {
                "grant the user's role readwrite on the prefix of the cluster"
            }
            Self::NoQuorum => "check that most members of etcd run and reach each other",
            Self::NoSpace => {
                "compact and defragment etcd, then clear its alarm (etcdctl alarm disarm)"
            }
            Self::Overloaded => "check what else writes to this etcd",
            Self::Compacted => "nothing to do, the keys are listed again",
            Self::TooLarge => "split it",
            Self::Invalid => "report it, this is an error in weir",
            Self::Other => "see the log of etcd",
        }
    }

    /// Whether a new connection, perhaps to another member, may help.
    pub fn wants_another_connection(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::Timeout | Self::Tls | Self::NotAuthenticated | Self::NoQuorum
        )
    }

    /// Whether etcd gave no answer of its own.
    pub fn is_silence(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout | Self::Tls | Self::NoQuorum)
    }

    /// Whether etcd itself refused: the request was not carried out.
    fn is_refusal(self) -> bool {
        !matches!(self, Self::Unreachable | Self::Timeout | Self::NoQuorum | Self::Other)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unreachable => "not reachable",
            Self::Timeout => "no answer in time",
            Self::Tls => "no trust (TLS)",
            Self::NotAuthenticated => "not authenticated",
            Self::PermissionDenied => "not permitted",
            Self::NoQuorum => "no quorum",
            Self::NoSpace => "no space",
            Self::Overloaded => "overloaded",
            Self::Compacted => "compacted",
            Self::TooLarge => "too large",
            Self::Invalid => "not valid",
            Self::Other => "failed",
        })
    }
}

impl Error {
    /// Creates the error of a request that was never sent.
    pub fn unsent(endpoint: &str, operation: &str, cause: Cause, detail: String) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            operation: operation.to_owned(),
            cause,
            detail,
            may_have_happened: false,
        }
    }

    /// Creates the error of a request without an answer in time.
    pub fn timeout(endpoint: &str, operation: &str, after: std::time::Duration) -> Self {
        let detail = format!("none within {after:?}");
        Self {
            may_have_happened: true,
            ..Self::unsent(endpoint, operation, Cause::Timeout, detail)
        }
    }

    /// Creates the error of a request that was sent and failed.
    pub fn asked(endpoint: &str, operation: &str, cause: Cause, detail: String) -> Self {
        Self {
            may_have_happened: !cause.is_refusal(),
            ..Self::unsent(endpoint, operation, cause, detail)
        }
    }
}

/// Returns the cause of a client library error, and the message of the layer that detected it.
pub(crate) fn classify(error: &ClientError) -> (Cause, String) {
    match error {
        ClientError::GRpcStatus(status) => {
            // The error that broke the connection is more specific than the status that reports it.
            let detail = status.source().map_or_else(|| status.message().to_owned(), chain);
            // `Code` is of a crate that is no direct dependency; its `Debug` is the name in the
            // gRPC specification.
            (cause_of(&format!("{:?}", status.code()), &detail), detail)
        }
        ClientError::TransportError(error) => {
            let detail = chain(error);
            (if is_about_trust(&detail) { Cause::Tls } else { Cause::Unreachable }, detail)
        }
        ClientError::IoError(error) => (Cause::Unreachable, error.to_string()),
        other => (Cause::Other, other.to_string()),
    }
}

/// Matches etcd's messages (`api/v3rpc/rpctypes/error.go`) first, since several causes share a
/// code.
fn cause_of(code: &str, words: &str) -> Cause {
    let has = |text: &str| words.contains(text);
    if has("database space exceeded") {
        Cause::NoSpace
    } else if has("required revision has been compacted") {
        Cause::Compacted
    } else if has("permission denied") || code == "PermissionDenied" {
        Cause::PermissionDenied
    } else if has("invalid auth token")
        || has("user name is empty")
        || has("authentication failed")
        || has("authentication is not enabled")
        || code == "Unauthenticated"
    {
        Cause::NotAuthenticated
    } else if has("no leader") || has("leader changed") || has("request timed out") {
        Cause::NoQuorum
    } else if has("too many requests") {
        Cause::Overloaded
    } else if has("is too large") || has("too many operations") || code == "OutOfRange" {
        Cause::TooLarge
    } else if has("duplicate key given") {
        Cause::Invalid
    } else if is_about_trust(words) {
        Cause::Tls
    } else if has("Timeout expired") || code == "DeadlineExceeded" {
        Cause::Timeout
    } else if code == "Unavailable" || has("transport error") || has("h2 protocol error") {
        Cause::Unreachable
    } else {
        Cause::Other
    }
}

/// Returns the cause for which etcd canceled a watch, from etcd's message.
pub(crate) fn cause_of_cancel(words: &str) -> Cause {
    cause_of("", words)
}

fn is_about_trust(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["certificate", "tls", "fatal alert"].iter().any(|word| words.contains(word))
}

/// Joins an error and its sources.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let words = source.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_from_the_messages_of_etcd() {
        let cases = [
            ("ResourceExhausted", "etcdserver: mvcc: database space exceeded", Cause::NoSpace),
            ("ResourceExhausted", "etcdserver: too many requests", Cause::Overloaded),
            ("Unavailable", "etcdserver: no leader", Cause::NoQuorum),
            ("Unavailable", "etcdserver: request timed out", Cause::NoQuorum),
            ("Unavailable", "tcp connect error: Connection refused", Cause::Unreachable),
            (
                "OutOfRange",
                "etcdserver: mvcc: required revision has been compacted",
                Cause::Compacted,
            ),
            ("PermissionDenied", "etcdserver: permission denied", Cause::PermissionDenied),
            ("Unauthenticated", "etcdserver: invalid auth token", Cause::NotAuthenticated),
            ("InvalidArgument", "etcdserver: user name is empty", Cause::NotAuthenticated),
            ("InvalidArgument", "etcdserver: request is too large", Cause::TooLarge),
            ("Unavailable", "invalid peer certificate: UnknownIssuer", Cause::Tls),
            ("Unavailable", "received fatal alert: BadCertificate", Cause::Tls),
            ("Internal", "what", Cause::Other),
        ];
        for (code, words, cause) in cases {
            assert_eq!(cause_of(code, words), cause, "{code} {words}");
        }
    }

    #[test]
    fn only_a_refused_request_has_certainly_not_happened() {
        assert!(Error::timeout("a", "put", std::time::Duration::from_secs(1)).may_have_happened);
        assert!(Cause::NoSpace.is_refusal() && Cause::PermissionDenied.is_refusal());
        assert!(!Cause::NoQuorum.is_refusal() && !Cause::Other.is_refusal());
    }

    #[test]
    fn an_error_names_endpoint_operation_cause_and_advice() {
        let error =
            Error::unsent("http://a", "put /weir/n/meta", Cause::NoSpace, "full".to_owned());
        assert_eq!(
            error.to_string(),
            "etcd http://a: put /weir/n/meta: no space: full; \
             compact and defragment etcd, then clear its alarm (etcdctl alarm disarm)"
        );
    }
}
