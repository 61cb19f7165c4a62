//! Events since the endpoint started, counted per peer. One writer; the owner publishes copies.

use crate::refusal::Refusals;

/// All counters only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Datagrams of any kind sent.
    pub datagrams_sent: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Datagrams that were accepted.
    pub datagrams_received: u64,
    /// Records and marks appended to streams to this peer.
    pub records_sent: u64,
    /// Records given to the sink.
    pub records_applied: u64,
    /// Items of unknown type, or truncated ones, that were skipped.
    pub items_skipped: u64,
    /// Datagrams sent again.
    pub retransmissions: u64,
    /// Datagrams that came before a missing one.
    pub gaps: u64,
    /// Datagrams of a stream that came again.
    pub duplicates: u64,
    /// Streams that fell out of sync: the peer did not keep up or did not answer.
    pub resyncs: u64,
    /// Heartbeats that did not come in time.
    pub heartbeats_missed: u64,
    /// Sessions set up.
    pub sessions: u64,
    /// Times the peer came back under a new boot id.
    pub restarts: u64,
    /// Extents whose sums were compared.
    pub scrubbed_extents: u64,
    /// Extents that differed twice and were copied again.
    pub scrub_differences: u64,
    /// Datagrams from the peer that were refused.
    pub refused: Refusals,
}

/// Amount that a peer has not acknowledged yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Records and marks.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Age of the oldest, in milliseconds.
    pub age_ms: u64,
}
