//! Counts the open connections of a listener, and those that it ended or refused, by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a connection was refused, or ended by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// All slots were taken by connections whose answers were being made.
    Limit,
    /// Its slot was given to a newer connection while it waited.
    Displaced,
    /// Its request did not come in time.
    HeadTimeout,
    /// No further request came. The end of an ordinary connection.
    Idle,
    /// Its answer was not made in time, or not taken in time.
    AnswerTimeout,
    /// It did not read its answer, or read it too slowly.
    SlowReader,
    /// Bytes that are not HTTP/1, or a head that is too large.
    Malformed,
    /// HTTP/2, which the server does not support.
    Http2,
    BodyTooLarge,
    /// The process had no file descriptor for it.
    NotAccepted,
}

impl ConnectionRefusal {
    pub const ALL: [Self; 10] = [
        Self::Limit,
        Self::Displaced,
        Self::HeadTimeout,
        Self::Idle,
        Self::AnswerTimeout,
        Self::SlowReader,
        Self::Malformed,
        Self::Http2,
        Self::BodyTooLarge,
        Self::NotAccepted,
    ];

    /// Returns the reason as a label of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Displaced => "displaced",
            Self::HeadTimeout => "head-timeout",
            Self::Idle => "idle",
            Self::AnswerTimeout => "answer-timeout",
            Self::SlowReader => "slow-reader",
            Self::Malformed => "malformed",
            Self::Http2 => "http2",
            Self::BodyTooLarge => "body-too-large",
            Self::NotAccepted => "not-accepted",
        }
    }
}

/// Numbers of one listener.
#[derive(Debug, Default)]
pub struct ListenerNumbers {
    refusals: [AtomicU64; ConnectionRefusal::ALL.len()],
    open: AtomicU64,
}

impl ListenerNumbers {
    pub fn count(&self, refusal: ConnectionRefusal) {
        self.refusals[refusal as usize].fetch_add(1, Relaxed);
    }

    pub fn refused(&self, refusal: ConnectionRefusal) -> u64 {
        self.refusals[refusal as usize].load(Relaxed)
    }

    pub(super) fn set_open(&self, connections: usize) {
        self.open.store(connections as u64, Relaxed);
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }
}

/// Numbers of both listeners of a node.
#[derive(Debug, Default)]
pub struct HttpNumbers {
    pub admin: ListenerNumbers,
    pub metrics: ListenerNumbers,
}

impl HttpNumbers {
    /// Returns the numbers of each listener with its value of the label `listener`.
    pub fn all(&self) -> [(&'static str, &ListenerNumbers); 2] {
        [("admin", &self.admin), ("metrics", &self.metrics)]
    }
}
