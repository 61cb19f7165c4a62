//! What the roles thread is told, by whomever.

use weir_cluster::{ClaimEvent, MirrorEvent, Outcome};
use weir_member::News;
use weir_member::replication::ReplicationStatus;
use weir_nat::ShardIndex;
use weir_replica::ClusterKeys;
use weir_shard::ShardId;
use weir_steer::Fence;

use super::bird_thread::BirdSide;
use super::guard_thread::GuardNews;

/// A message to the roles thread.
#[derive(Debug)]
pub(crate) enum Inbox {
    Etcd(MirrorEvent),
    Claim(ClaimEvent),
    /// To a node that started without etcd: etcd answers, and holds the cluster that the node knows, or the one of this id.
    ClusterFound(Result<(), String>),
    /// Something of the map is on disk, or could not be written.
    Saved,
    /// How the write of a shard's entry ended.
    Written {
        shard: ShardId,
        outcome: Outcome,
    },
    Guard(GuardNews),
    /// How BIRD announces each side, as it counts; twice a second where it is watched.
    Bird(Vec<BirdSide>),
    Worker {
        worker: usize,
        news: News,
        /// Of a shard that was added.
        place: Option<ShardIndex>,
    },
    /// How a worker's copies stand; once a second.
    Replication {
        worker: usize,
        status: Box<ReplicationStatus>,
    },
    /// A worker that the guard took for dead goes on: its routes are to be set under this fence.
    Rejoined {
        worker: usize,
        fence: Fence,
        /// Packets that had waited in its rings.
        waited: usize,
    },
    /// The keys of replication from now on, or why the former ones go on.
    Keys(Result<ClusterKeys, String>),
    /// The node is to end: hand over what can be handed over.
    HandOver,
    /// It ends now.
    End,
}
