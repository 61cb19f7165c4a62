//! What [`Roles`](crate::Roles) are told.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::role::RoleOptions;
use weir_map::{BootId, Epoch, NodeId, ShardEntry, ShardId};
use weir_stream::{Fingerprint, PeerIndex, PeerSigns};

use weir_replication::{News, order::ShardSetup};

/// What a node begins with.
#[derive(Clone, Debug)]
pub struct RolesConfig {
    pub node: NodeId,
    /// By their positions in the node's configuration.
    pub workers: Vec<LocalWorker>,
    /// The highest epoch of each shard that this node has ever seen, kept over its restarts.
    pub known_epochs: BTreeMap<ShardId, Epoch>,
    pub options: RolesOptions,
}

/// This life of a worker of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalWorker {
    pub boot_id: BootId,
    /// Where it is reached by others' copies.
    pub replication: SocketAddrV4,
    /// The life of it that the store was told of last, on disk before that: what an entry gave an earlier one may be
    /// another's since.
    pub former: Option<BootId>,
}

/// Times of a node's roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolesOptions {
    pub role: RoleOptions,
    /// A worker that is not registered and was not heard for so long is gone: others pass its lanes on.
    pub gone_ms: u64,
    /// A worker that is registered and was not heard for so long cannot be reached: others pass its lanes on until it is
    /// heard. Not before a failover is over: whose source changes gets a full copy.
    pub cut_off_ms: u64,
    /// Another node that was not heard for so long is no witness of who else is silent.
    pub witness_ms: u64,
    /// Replicas of a primary that nobody hears act one after the other, if the one in front does not.
    pub rank_step_ms: u64,
    /// A stream that is lost for less than this was no loss: its source has ended, and another one follows.
    pub lost_stream_ms: u64,
    /// Workers that only former lives are named for forget their copies when the store, which may know of their end, was not
    /// heard for so long.
    pub guest_ms: u64,
    /// Ports of flows that are forgotten are given to nobody for so long.
    pub quarantine_ms: u64,
    /// A peer that no shard needs is kept for so long.
    pub idle_peer_ms: u64,
    /// A worker without room for a shard is asked again after so long.
    pub room_retry_ms: u64,
    /// A change that was not taken is offered again after so long; doubled each time.
    pub pause_ms: u64,
    pub pause_max_ms: u64,
}

impl Default for RolesOptions {
    fn default() -> Self {
        Self {
            role: RoleOptions::default(),
            gone_ms: 1_000,
            cut_off_ms: 3_000,
            witness_ms: 100,
            rank_step_ms: 300,
            lost_stream_ms: 50,
            guest_ms: 10_000,
            quarantine_ms: 120_000,
            idle_peer_ms: 5_000,
            room_retry_ms: 5_000,
            pause_ms: 100,
            pause_max_ms: 2_000,
        }
    }
}

/// A shard of the cluster's file.
#[derive(Clone, Debug)]
pub struct DesiredShard {
    pub id: ShardId,
    /// Where its homes' packets come in: the tunnel endpoint; in plain mode the address that is steered to.
    pub access: Ipv4Addr,
    pub setup: ShardSetup,
}

impl DesiredShard {
    /// Whether tables made for the one serve the other.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let (one, two) = (&self.setup.engine, &other.setup.engine);
        self.access == other.access
            && (one.endpoint, &one.subscribers) == (two.endpoint, &two.subscribers)
            && self.setup.nat == other.setup.nat
    }
}

/// A worker as its node has registered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeWorker {
    pub index: u16,
    pub boot_id: BootId,
    pub replication: SocketAddrV4,
}

/// A worker's ports and gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidesUp {
    /// Both sides have been up since the start.
    pub is_ready: bool,
    pub is_access_up: bool,
    pub is_internet_up: bool,
}

impl SidesUp {
    pub fn is_up(self) -> bool {
        self.is_access_up && self.is_internet_up
    }
}

/// Something that happened. Workers are named by their positions.
#[derive(Clone, Debug)]
pub enum Input {
    /// The cluster's file: every shard.
    Desired {
        shards: Vec<DesiredShard>,
        fingerprint: Fingerprint,
    },
    /// The store's entry of a shard, in any order and as often as it likes.
    Entry {
        shard: ShardId,
        entry: Box<ShardEntry>,
    },
    /// To a node that began while the store could not be asked: the newest entry that it has kept of a shard. A worker that
    /// the entry names in a former life takes copies and translates them, and makes nothing.
    Kept {
        shard: ShardId,
        entry: Box<ShardEntry>,
    },
    /// The store is asked again, and told of this node: it may know from now on that the former lives have ended.
    Joining,
    /// The store has the node's record: of this life, and with the former ones whose seats it has resumed.
    Registered,
    /// The node's record names no former life of a worker any more: its end is proven.
    Resumed,
    /// The store has no entry of it any more.
    EntryGone(ShardId),
    /// A node's record: all its workers, those without an address left out. None: it is not registered.
    Node {
        node: NodeId,
        workers: Option<Vec<NodeWorker>>,
    },
    /// All that the store holds has been handed in.
    Fresh,
    /// The store tells another history than before: every entry follows anew, then `Fresh`.
    Restored,
    /// No news of the store: what it told may be old.
    Stale,
    /// How a change ended that was taken from [`Roles::take_changes`](crate::Roles::take_changes).
    Written {
        shard: ShardId,
        is_done: bool,
    },
    News {
        worker: usize,
        news: News,
    },
    /// Shards with translatable packets since the last tick.
    Traffic {
        worker: usize,
        shards: Vec<ShardId>,
    },
    /// Signs of life of a peer, by its place, as the worker has them now.
    Heard {
        worker: usize,
        place: PeerIndex,
        signs: PeerSigns,
    },
    Sides {
        worker: usize,
        sides: SidesUp,
    },
    /// The guard had fenced the worker, which goes on.
    Rejoined {
        worker: usize,
    },
    /// The routes of this number, and all before, are in the kernel.
    RoutesOut {
        worker: usize,
        number: u64,
    },
    /// Every 10 ms.
    Tick,
}
