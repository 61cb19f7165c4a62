//! The JSON values that the controller shares with operators and nodes.
//!
//! Unknown fields are kept where a value is rewritten, so that versions can work side by side.
//! Times are milliseconds since 1970.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_etcd::Revision;
use weir_map::{BootId, Epoch, Term, WorkerId};

/// Highest `format` of `/meta` that is read; of `/desired` it is [`weir_config::DESIRED_FORMAT`].
pub const FORMAT: u64 = 1;
/// Number of events that are kept.
pub const EVENTS_MAX: u32 = 512;
/// Most troubles that are taken from one node's report.
pub const TROUBLES_MAX: usize = 8;
/// Value of `balance` in `/desired` for shards that are spread by load.
pub const BY_LOAD: &str = "load";
/// Most doubts that a node reports at a time.
pub const DOUBTS_MAX: usize = 256;

/// The author of an order, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderAuthor {
    pub by: String,
    pub at_ms: u64,
}

/// `/intents/<node>`: the operator's orders for a node.
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

/// An order to empty the node and keep it empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    #[serde(flatten)]
    pub order: OrderAuthor,
    /// Accepts that shards are left with fewer copies than wanted.
    #[serde(default)]
    pub force: bool,
}

/// A statement that these incarnations of the node's workers have certainly ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceOrder {
    #[serde(flatten)]
    pub order: OrderAuthor,
    pub boot_ids: Vec<BootId>,
}

/// `/control`: the operator's orders for the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeOrder>,
    /// Balance at once, without waiting for the imbalance to last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<OrderAuthor>,
    /// Continue with the newest entries that nodes hold, although not everything is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebase: Option<OrderAuthor>,
    /// Shards whose entries are to be deleted, if they are not desired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retire: Vec<u32>,
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An order to move nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeOrder {
    #[serde(flatten)]
    pub order: OrderAuthor,
    #[serde(default)]
    pub why: String,
    /// Not even the consequences of a failure are written: the map itself is in doubt.
    #[serde(default)]
    pub is_total: bool,
}

/// `/meta`: the identity of the cluster. Written once, by the first leader or by the first operator
/// that applies a cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub format: u64,
    /// 32 hexadecimal digits; unique to the cluster.
    pub cluster_id: String,
}

/// The part of `/desired` that the controller needs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DesiredView {
    pub format: u64,
    pub cluster: DesiredCluster,
    #[serde(rename = "shard", default)]
    pub shards: Vec<DesiredShardId>,
    /// Author and time of the cluster file.
    #[serde(default)]
    pub applied: Option<OrderAuthor>,
}

impl DesiredView {
    /// Whether a shard of this number is desired.
    pub fn has(&self, shard: u32) -> bool {
        self.shards.iter().any(|wanted| wanted.id == shard)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DesiredCluster {
    /// Number of copies beside the primary.
    pub replicas: u8,
    /// Quantity that is spread over the workers: [`BY_LOAD`], or the number of shards.
    #[serde(default)]
    pub balance: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DesiredShardId {
    pub id: u32,
}

/// `/events/<number mod 512>`: a decision or an observation. The event of a decision is written in
/// the same transaction, so neither exists without the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
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
    /// Whether the event began a move: moves per minute are limited, across changes of the leader
    /// too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_move: bool,
}

/// `/report`: what the leader observes and waits for, written when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderReport {
    pub by: String,
    pub at_ms: u64,
    pub state: ControllerState,
    /// Reason of the state; empty if there is none.
    pub why: String,
    pub shards: usize,
    /// Whether shards are spread by load, not by number.
    #[serde(default)]
    pub is_by_load: bool,
    /// The revision of `/desired` that the leader decides on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<Revision>,
    /// Shards that have all their copies synced and are not moving.
    pub whole: usize,
    /// Shards whose synced copies are on fewer registered nodes than wanted.
    pub unprotected: usize,
    /// Shards in doubt: nodes have seen newer entries of them than etcd holds, and nothing is
    /// decided on them.
    #[serde(default)]
    pub in_doubt: usize,
    /// Reasons that the first twenty shards in doubt do not continue, and what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// Incarnations on unregistered nodes whose statement is missing, by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, Vec<BootId>>,
    pub nodes: Vec<ReportedNode>,
    /// Everything that is not normal, and what to do about it; the first twenty.
    pub notes: Vec<String>,
}

/// The leader's activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerState {
    /// Nothing is left to do.
    #[default]
    Resting,
    Working,
    /// Only the consequences of failures are written.
    Frozen,
    /// Nothing moves, because too many nodes look gone.
    Halted,
}

/// What a node answers to `GET /report` at the `admin` address of its record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// The node's name: an answer from another node than the one asked is rejected.
    pub node: String,
    /// Whether replication heartbeats arrive from each node that it replicates with.
    #[serde(default)]
    pub hears: BTreeMap<String, bool>,
    /// Public ports in use, of each shard that it is primary of.
    #[serde(default)]
    pub loads: BTreeMap<u32, u64>,
    /// Its workers with a port or gateway that is down or not up yet: these workers announce no
    /// routes.
    #[serde(default)]
    pub broken: Vec<u16>,
    /// Sides whose routes its BIRD has not announced for a while. Also empty where BIRD is not
    /// watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bird_down: Vec<BirdAnswer>,
    /// Shards of which one of its workers is acting primary.
    #[serde(default)]
    pub acting: Vec<ActingAnswer>,
    /// Shards whose entries in etcd it does not obey, because it has seen newer ones: the first
    /// [`DOUBTS_MAX`] by number.
    #[serde(default)]
    pub doubts: Vec<DoubtAnswer>,
    /// Total number of such shards. None: an earlier version, which does not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubts_total: Option<usize>,
    /// Whether its route guard or its roles thread is stalled: the node would not follow a move.
    #[serde(default)]
    pub is_still: bool,
    /// Revision of the settings that all its workers have taken; the lowest of them. None: an
    /// earlier version, which takes settings when it restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Everything wrong with the node except its ports: threads, disks, the guard; the first
    /// [`TROUBLES_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// A shard of which a node has seen a newer entry than etcd holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtAnswer {
    pub shard: u32,
    /// The highest epoch that it has seen.
    pub known: Epoch,
    /// The entry that it obeys, in the format of etcd. None: it has begun again since.
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
    /// Term of the entry that the worker holds.
    pub term: Term,
}

/// The state of a node as the leader reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedNode {
    pub node: String,
    /// alive, cut-off, stopping, suspect, dead, fenced.
    pub life: String,
    pub why: String,
    /// Revision of the settings that all its workers have taken. None: it has not answered lately,
    /// or is of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Its workers that run but are cut off; all workers of a cut-off node.
    #[serde(default)]
    pub cut_off: Vec<u16>,
    pub is_drained: bool,
    /// Number of shards that it is a member of.
    pub shards: usize,
    /// Those of these shards that it is primary of.
    pub primaries: usize,
    /// Reason that its drain does not proceed; empty if it does.
    pub waits: String,
    /// Its registered workers, in their order. Empty in a report of an earlier version.
    #[serde(default)]
    pub workers: Vec<WorkerReport>,
}

/// The load of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its position in the node's configuration.
    pub worker: u16,
    /// Public ports in use, of the shards that it is primary of. The value is that of the last
    /// reported change; the actual value differs from it by at most an eighth, or at most 100.
    pub load: u64,
    /// Highest load that it can carry, as its node's file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_max: Option<u64>,
}
