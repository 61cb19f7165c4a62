//! The way of a packet through a worker, as a node reports it. A request for a trace chooses
//! packets by `worker=&side=&subscriber=&protocol=&remote=`, and ends after `count=` packets or
//! `seconds=`. An empty line is a heartbeat.

use serde::{Deserialize, Serialize};

/// One packet that a trace was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPacket {
    pub worker: usize,
    /// The side that it came from.
    pub side: String,
    /// `sent`, `held`, `dropped` or `taken` (by the worker itself).
    pub outcome: String,
    /// Why it was dropped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drop_reason: Option<String>,
    /// What happened to it, in order.
    pub steps: Vec<TraceStep>,
}

/// A step of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// `input`, `key`, `index`, `record`, `filter`, `rule`, `mapping`, `flow`, `session`, `edit`,
    /// `output`, `wait`, `drop`.
    pub step: String,
    pub text: String,
}
