//! The state that a controller shows in its metrics and its log.

use std::collections::BTreeMap;

/// The state of a controller at one moment. One that does not lead has the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub is_leading: bool,
    /// Why only what has happened already is written; none: it is not frozen.
    pub frozen: Option<String>,
    /// Why nothing moves: so many nodes look gone.
    pub halted: Option<String>,
    /// Shards of which etcd has forgotten what nodes have seen.
    pub in_doubt: usize,
    /// By node, orders to empty it; one that is done stays until it is taken back.
    pub drains: BTreeMap<String, Drain>,
}

/// An order to empty a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    pub by: String,
    /// When it was given, since 1970.
    pub since_ms: u64,
    /// Shards that it is still a member of.
    pub shards: usize,
    /// Why it does not go on; empty if it does.
    pub waits: String,
}
