//! The events that the controller takes, and the actions that it returns.

use std::collections::BTreeMap;

use weir_etcd::{Key, MirrorEvent, Outcome, Revision, Swap, Versioned};
use weir_map::{Epoch, Incarnation, NodeId, ShardEntry, ShardId, Term};

/// An event for the controller.
#[derive(Clone, Debug)]
pub enum ControllerEvent {
    /// From the mirror of all keys.
    Mirror(MirrorEvent),
    /// The create revision of the leader's key.
    Elected(Revision),
    Deposed,
    /// A node's answer.
    Report(NodeReport),
    /// The outcome of the write.
    Written(Outcome),
    /// The current values of the keys that were read, in their order. None: etcd did not answer.
    Read(Option<Vec<Option<Versioned>>>),
    /// The passage of time; to be sent every
    /// [`ControllerOptions::tick_busy_ms`](super::ControllerOptions::tick_busy_ms).
    Tick,
}

/// A node's report on itself and on the nodes that it replicates with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    pub node: NodeId,
    /// Whether replication heartbeats arrive from each node.
    pub hears: BTreeMap<NodeId, bool>,
    /// Public ports in use, of each shard that it is primary of.
    pub loads: Vec<(ShardId, u64)>,
    /// Its workers, by their positions, with a port or gateway that is down or not up yet.
    pub broken: Vec<u16>,
    /// Sides whose routes its BIRD does not announce, each once.
    pub bird_down: Vec<BirdDown>,
    /// Shards of which one of its workers is acting primary, in the term of the entry that it
    /// holds.
    pub acting: Vec<(ShardId, Incarnation, Term)>,
    pub doubts: NodeDoubts,
    /// Revision of the settings that all its workers have taken. None: an earlier version.
    pub generation: Option<u64>,
    pub troubles: NodeTroubles,
}

/// Troubles that a node reports of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTroubles {
    /// Whether its routes or its roles are stalled and would not follow a move.
    pub is_still: bool,
    /// Descriptions; they change only when the trouble changes.
    pub why: Vec<String>,
}

/// A side of a node that is not announced to the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BirdDown {
    /// access or internet.
    pub side: &'static str,
    /// Cause, for people.
    pub why: &'static str,
}

impl BirdDown {
    /// Parses a node's statement. None: a side that this version does not know.
    pub fn new(side: &str, cause: &str) -> Option<Self> {
        let side = ["access", "internet"].into_iter().find(|known| *known == side)?;
        let why = match cause {
            "no-answer" => "BIRD does not answer",
            "no-session" => "BIRD has no established BGP session",
            "not-exporting" => "BIRD does not export all routes",
            _ => "BIRD does not announce it",
        };
        Some(Self { side, why })
    }
}

/// Shards whose entries in etcd a node does not obey, because it has seen newer ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDoubts {
    /// The highest epoch that it has seen of each, and the entry that it obeys instead, if any.
    pub shards: BTreeMap<ShardId, (Epoch, Option<ShardEntry>)>,
    /// Whether the list is complete. If not, it holds the shards with the lowest numbers.
    pub are_all: bool,
}

/// An action to carry out. The next action comes only after the answer to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerAction {
    /// One transaction that also compares the leader's key. [`ControllerEvent::Written`] follows.
    Write(Vec<Swap>),
    /// Read these keys, linearizably. [`ControllerEvent::Read`] follows.
    Read(Vec<Key>),
}
