//! The JSON values that the controller shares with operators and nodes.
//!
//! Fields that are unknown are kept where a value is written again, so that versions can work side
//! by side. Times are milliseconds since 1970.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_etcd::Revision;
use weir_map::{BootId, Epoch, Term, WorkerId};

/// Highest `format` of `/meta` and `/desired` that is read.
pub const FORMAT: u64 = 1;
/// Events that are kept.
pub const EVENTS_MAX: u32 = 512;
/// Sentences on its own troubles that are taken of a node.
pub const TROUBLES_MAX: usize = 8;
/// The word of `/desired` for shards that are spread by load.
pub const BY_LOAD: &str = "load";
/// Doubts that a node names at a time.
pub const DOUBTS_MAX: usize = 256;

/// Who wants something, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub by: String,
    pub at_ms: u64,
}

/// `/intents/<node>`: what the operator wants of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOrder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceOrder>,
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Intent {
    pub fn is_empty(&self) -> bool {
        self.drain.is_none() && self.fence.is_none() && self.other.is_empty()
    }
}

/// The node is to be emptied, and to stay empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    #[serde(flatten)]
    pub order: Order,
    /// Even where shards are left with fewer copies than wanted.
    #[serde(default)]
    pub force: bool,
}

/// These lives of the node's workers have certainly ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceOrder {
    #[serde(flatten)]
    pub order: Order,
    pub boot_ids: Vec<BootId>,
}

/// `/control`: what the operator wants of the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeOrder>,
    /// Balance now, without waiting whether the imbalance lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<Order>,
    /// Go on with the newest entries that nodes hold, although not all is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebase: Option<Order>,
    /// Shards whose entries are to go, if they are not desired any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retire: Vec<u32>,
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Nothing is to be moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeOrder {
    #[serde(flatten)]
    pub order: Order,
    #[serde(default)]
    pub why: String,
    /// Not even what follows from a failure is written: the map itself is in doubt.
    #[serde(default)]
    pub is_total: bool,
}

/// `/meta`: what the cluster is. Written once, by the first leader or the first who applies a cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub format: u64,
    /// 32 hexadecimal digits; never the same for two clusters.
    pub cluster_id: String,
}

/// The part of `/desired` that the controller needs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Desired {
    pub format: u64,
    pub cluster: DesiredCluster,
    #[serde(rename = "shard", default)]
    pub shards: Vec<DesiredShard>,
    /// Who applied it.
    #[serde(default)]
    pub applied: Option<Order>,
}

impl Desired {
    /// Whether there is to be a shard of this number.
    pub fn has(&self, shard: u32) -> bool {
        self.shards.iter().any(|wanted| wanted.id == shard)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DesiredCluster {
    /// Copies beside the primary.
    pub replicas: u8,
    /// What is spread over the workers: [`BY_LOAD`], or the number of shards.
    #[serde(default)]
    pub balance: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DesiredShard {
    pub id: u32,
}

/// `/events/<number mod 512>`: something that was decided or seen. A decision's event is written in
/// the same transaction, so there is never one without the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts the events of the cluster, without gaps.
    pub number: u64,
    pub at_ms: u64,
    /// The controller's name.
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    pub what: String,
    pub why: String,
    /// It began a move: such are limited in a minute, over changes of the leader too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_move: bool,
}

/// `/report`: what the leader sees and waits for, written when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub by: String,
    pub at_ms: u64,
    pub state: ControllerState,
    /// Why it is in that state; empty when there is nothing to say.
    pub why: String,
    pub shards: usize,
    /// Shards are spread by load, not by number.
    #[serde(default)]
    pub is_by_load: bool,
    /// The revision of `/desired` that it decides on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<Revision>,
    /// Shards with all their copies, synced and at rest.
    pub whole: usize,
    /// Shards without any synced copy beside the primary.
    pub unprotected: usize,
    /// Shards of which etcd has forgotten what nodes have seen: nothing is decided on them.
    #[serde(default)]
    pub in_doubt: usize,
    /// Why the first twenty of them do not go on, and what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Lives of nodes that are not registered and whose word is missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, Vec<BootId>>,
    pub nodes: Vec<NodeReport>,
    /// What is not as it should be, and what to do about it; the first twenty.
    pub notes: Vec<String>,
}

/// What the leader is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerState {
    /// Nothing is left to do.
    #[default]
    Resting,
    Working,
    /// Only what has happened already is written.
    Frozen,
    /// So many nodes look gone that nothing moves.
    Halted,
}

/// What a node answers to `GET /report` at the `admin` address of its record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// Its name: what comes from another node than was asked is not taken.
    pub node: String,
    /// Whether heartbeats of replication come from each node that it replicates with.
    #[serde(default)]
    pub hears: BTreeMap<String, bool>,
    /// Of the shards that it is primary of: public ports in use.
    #[serde(default)]
    pub loads: BTreeMap<u32, u64>,
    /// Its workers with a port or gateway that is down, or not up yet, so that they announce no routes.
    #[serde(default)]
    pub broken: Vec<u16>,
    /// Sides whose routes its BIRD does not announce, once that has lasted. Empty also where BIRD is not watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bird_down: Vec<BirdAnswer>,
    /// Where one of its workers is acting primary.
    #[serde(default)]
    pub acting: Vec<ActingAnswer>,
    /// Shards whose entries in etcd it does not obey, since it has seen newer ones: the first [`DOUBTS_MAX`] by number.
    #[serde(default)]
    pub doubts: Vec<DoubtAnswer>,
    /// How many there are. None: an earlier version, which does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubts_total: Option<usize>,
    /// Its guard of the routes or its thread of the roles stands still: a move would not be followed.
    #[serde(default)]
    pub is_still: bool,
    /// What is wrong with it beside its ports: threads, disks, the guard; the first [`TROUBLES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// A shard of which etcd has forgotten what a node has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtAnswer {
    pub shard: u32,
    /// The highest epoch that it has seen.
    pub known: Epoch,
    /// The entry that it obeys, as in etcd. None: it has begun anew since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Value>,
}

/// A side whose routes BIRD does not announce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BirdAnswer {
    /// access or internet.
    pub side: String,
    /// no-answer, no-session or not-exporting.
    pub cause: String,
}

/// A worker that serves a shard as acting primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActingAnswer {
    pub shard: u32,
    pub worker: WorkerId,
    pub boot_id: BootId,
    /// Of the entry that it holds.
    pub term: Term,
}

/// A node as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: String,
    /// alive, cut-off, stopping, suspect, dead, fenced.
    pub life: String,
    pub why: String,
    /// Its workers that run but are of no use now; of a cut-off node all.
    #[serde(default)]
    pub cut_off: Vec<u16>,
    pub is_drained: bool,
    /// Shards it is a member of.
    pub shards: usize,
    /// Of these, as primary.
    pub primaries: usize,
    /// Why a drain does not go on; empty if it does.
    pub waits: String,
    /// Of its registered workers, in their order. Empty in a report of an earlier version.
    #[serde(default)]
    pub workers: Vec<WorkerReport>,
}

/// What a worker carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its position in the node's configuration.
    pub worker: u16,
    /// Public ports in use of the shards that it is primary of, as when it was reported last that they were another
    /// number: what has changed since is less than an eighth, or than 100.
    pub load: u64,
    /// Most that it can carry, as its node's file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_max: Option<u64>,
}
