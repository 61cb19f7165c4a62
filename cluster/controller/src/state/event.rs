//! What the controller is told, and what it wants done.

use std::collections::BTreeMap;

use weir_etcd::{Key, MirrorEvent, Outcome, Revision, Swap, Versioned};
use weir_map::{Epoch, Incarnation, NodeId, ShardEntry, ShardId, Term};

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// From the mirror of all keys.
    Mirror(MirrorEvent),
    /// The create revision of the leader's key.
    Elected(Revision),
    Deposed,
    /// A node's answer.
    Report(NodeReport),
    /// How the write ended.
    Written(Outcome),
    /// What the keys asked for are now, in their order. None: etcd did not answer.
    Read(Option<Vec<Option<Versioned>>>),
    /// Nothing but time; to be told every [`Options::tick_busy_ms`](super::Options::tick_busy_ms).
    Tick,
}

/// What a node says of itself and of the nodes that it replicates with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    pub node: NodeId,
    /// Whether heartbeats of replication come from there.
    pub hears: BTreeMap<NodeId, bool>,
    /// Of the shards that it is primary of: public ports in use.
    pub loads: Vec<(ShardId, u64)>,
    /// Its workers, by their positions, with a port or gateway that is down, or not up yet.
    pub broken: Vec<u16>,
    /// Sides whose routes its BIRD does not announce, each once.
    pub bird_down: Vec<BirdDown>,
    /// Where one of its workers is acting primary, in the term of the entry that it holds.
    pub acting: Vec<(ShardId, Incarnation, Term)>,
    pub doubts: NodeDoubts,
    pub troubles: NodeTroubles,
}

/// What a node says is wrong with itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTroubles {
    /// Its routes or its roles do not follow a move now.
    pub is_still: bool,
    /// In words that change only with what they name.
    pub why: Vec<String>,
}

/// A side of a node that is not announced to the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BirdDown {
    /// access or internet.
    pub side: &'static str,
    /// For people.
    pub why: &'static str,
}

impl BirdDown {
    /// As a node says it. None: a side that this version does not know.
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

/// Shards whose entries in etcd a node does not obey, since it has seen newer ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDoubts {
    /// The highest epoch that it has seen of each, and the entry that it obeys instead, if any.
    pub shards: BTreeMap<ShardId, (Epoch, Option<ShardEntry>)>,
    /// There are no others. Else it has named those with the lowest numbers.
    pub are_all: bool,
}

/// What to do. The next action comes only after the answer to this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// One transaction that also compares the leader's key. [`Event::Written`] follows.
    Write(Vec<Swap>),
    /// Read these keys, linearizably. [`Event::Read`] follows.
    Read(Vec<Key>),
}
