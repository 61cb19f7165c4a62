//! The input of [`Roles`](crate::Roles).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use crate::role::RoleOptions;
use weir_map::{BootId, Epoch, NodeId, ShardEntry, ShardId};
use weir_stream::{Fingerprint, PeerIndex, PeerSigns};

use weir_replication::{WorkerEvent, command::ShardSetup};

/// The configuration with which a node's roles begin.
#[derive(Clone, Debug)]
pub struct RolesConfig {
    pub node: NodeId,
    /// By index in the node's configuration.
    pub workers: Vec<LocalWorker>,
    /// The highest epoch of each shard that this node has ever seen, kept across restarts.
    pub known_epochs: BTreeMap<ShardId, Epoch>,
    pub options: RolesOptions,
}

/// The current incarnation of a worker of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalWorker {
    pub boot_id: BootId,
    /// Address at which other workers' replication reaches it.
    pub replication: SocketAddrV4,
    /// The incarnation that the store was last sent, on disk before that: a lane that an entry
    /// gives to an earlier one may belong to another worker since.
    pub former: Option<BootId>,
}

/// Times of a node's roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolesOptions {
    pub role: RoleOptions,
    /// A worker that is not registered and was not heard for this long is gone: others relay its
    /// lanes.
    pub gone_ms: u64,
    /// A worker that is registered and was not heard for this long cannot be reached: others relay
    /// its lanes until it is heard. It is longer than a failover takes: a member whose source
    /// changes gets a full copy.
    pub cut_off_ms: u64,
    /// Another node that was not heard for this long is no witness of which nodes are silent.
    pub witness_ms: u64,
    /// Replicas of a primary that no node hears act one after another, this far apart, if the one
    /// in front does not.
    pub rank_step_ms: u64,
    /// A stream that is lost for less than this counts as not lost: its source has ended, and
    /// another one follows.
    pub lost_stream_ms: u64,
    /// Guests forget their copies when the store, which may know of their former incarnations' end,
    /// was not heard for this long.
    pub guest_ms: u64,
    /// Ports of forgotten flows are not leased for this long.
    pub quarantine_ms: u64,
    /// A peer that no shard needs is kept for this long.
    pub idle_peer_ms: u64,
    /// A worker without room for a shard is asked again after this long.
    pub room_retry_ms: u64,
    /// A change that was not taken is tried again after this long; doubled each time.
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
    /// Address at which its homes' packets come in: the tunnel endpoint; in plain mode the address
    /// that is steered to.
    pub access: Ipv4Addr,
    /// The same for IPv6, if there is one.
    pub access6: Option<Ipv6Addr>,
    pub setup: ShardSetup,
}

impl DesiredShard {
    /// True if tables made for the one serve the other.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let (one, two) = (&self.setup.engine, &other.setup.engine);
        (self.access, self.access6) == (other.access, other.access6)
            && (one.endpoint, one.endpoint6) == (two.endpoint, two.endpoint6)
            && one.subscribers == two.subscribers
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
    /// Whether both sides have been up since the start.
    pub is_ready: bool,
    pub is_access_up: bool,
    pub is_internet_up: bool,
}

impl SidesUp {
    pub fn is_up(self) -> bool {
        self.is_access_up && self.is_internet_up
    }
}

/// An input. Workers are named by their indices.
#[derive(Clone, Debug)]
pub enum RolesInput {
    /// The cluster's file: every shard.
    Desired {
        shards: Vec<DesiredShard>,
        fingerprint: Fingerprint,
    },
    /// The store's entry of a shard. Entries may come in any order and more than once.
    Entry {
        shard: ShardId,
        entry: Box<ShardEntry>,
    },
    /// For a node that started while the store was unreachable: the newest entry that it has kept
    /// of a shard. A worker that the entry names in a former incarnation takes copies and
    /// translates them, and creates nothing.
    Kept {
        shard: ShardId,
        entry: Box<ShardEntry>,
    },
    /// The store is reachable again and is being sent this node's record: from here on it may know
    /// that the former incarnations have ended.
    Joining,
    /// The store has the node's record, of the current incarnations and with the former ones whose
    /// member slots they have resumed.
    Registered,
    /// The node's record names no former incarnation of a worker any more, which proves their end.
    Resumed,
    /// The store has no entry of the shard any more.
    EntryGone(ShardId),
    /// A node's record: all its workers, except those without an address. None: it is not
    /// registered.
    Node {
        node: NodeId,
        workers: Option<Vec<NodeWorker>>,
    },
    /// Everything that the store holds has been handed in.
    Fresh,
    /// The store reports another history than before: every entry follows again, then `Fresh`.
    Restored,
    /// The store is not heard: what it reported may be old.
    Stale,
    /// The result of a change that was taken from
    /// [`Roles::take_changes`](crate::Roles::take_changes).
    Written {
        shard: ShardId,
        is_done: bool,
    },
    Worker {
        worker: usize,
        event: WorkerEvent,
    },
    /// Shards with translatable packets since the last tick.
    Traffic {
        worker: usize,
        shards: Vec<ShardId>,
    },
    /// Heartbeats of a peer, by its index, as the worker has them now.
    Heartbeats {
        worker: usize,
        peer_index: PeerIndex,
        signs: PeerSigns,
    },
    Sides {
        worker: usize,
        sides: SidesUp,
    },
    /// The guard had fenced the worker, and the worker goes on.
    Rejoined {
        worker: usize,
    },
    /// The routes of this number, and all earlier ones, are in the kernel.
    RoutesOut {
        worker: usize,
        number: u64,
    },
    /// Every 10 ms.
    Tick,
}
