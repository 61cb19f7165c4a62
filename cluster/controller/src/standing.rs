//! The state that a controller shows in its metrics and its log.

use std::collections::BTreeMap;

/// The state of a controller at one moment. A controller that does not lead has the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerStanding {
    pub is_leading: bool,
    /// Reason that only the consequences of failures are written; none: the map is not frozen.
    pub frozen: Option<String>,
    /// Reason that nothing moves: too many nodes look gone.
    pub halted: Option<String>,
    /// Number of shards of which nodes have seen newer entries than etcd holds.
    pub in_doubt: usize,
    /// Drain orders, by node; a completed one stays until it is withdrawn.
    pub drains: BTreeMap<String, Drain>,
}

/// An order to empty a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    pub by: String,
    /// Time of the order, in milliseconds since 1970.
    pub since_ms: u64,
    /// Number of shards that the node is still a member of.
    pub shards: usize,
    /// Reason that the drain does not proceed; empty if it does.
    pub waits: String,
}
