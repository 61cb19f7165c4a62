//! Commands to a worker's replication.

use std::net::SocketAddrV4;
use std::sync::Arc;

use weir_engine::ShardConfig;
use weir_map::{Epoch, Grant, LANES, LaneSet, ShardId, Term};
use weir_nat::AddressRanges;
use weir_stream::{BootId, ClusterKeys, Comeback, Fingerprint};

pub use weir_wire::Misses;

use crate::PeerId;

/// A command of the control thread to a worker. Commands are carried out in their order.
#[derive(Clone, Debug)]
pub enum WorkerCommand {
    /// Exchange datagrams with this worker. The address of a known peer is replaced.
    AddPeer {
        peer: PeerId,
        address: SocketAddrV4,
    },
    /// The node that a peer belongs to, by its number in heartbeats.
    SetPeerNode {
        peer: PeerId,
        node: u64,
    },
    RemovePeer(PeerId),
    /// Make room for a shard: no lane, nothing served, until its duties come.
    AddShard(Box<ShardSetup>),
    /// Forget a shard and all its flows. Given only for a shard without duties.
    RemoveShard(ShardId),
    /// All duties for a shard.
    Duties(Box<ShardDuties>),
    /// Fingerprint that new sessions with peers compare.
    SetFingerprint(Fingerprint),
    SetKeys(ClusterKeys),
    /// The public addresses of all shards, whichever worker serves them.
    SetAllPublic(Arc<AddressRanges>),
    /// Reports that heartbeats carry on shards that this worker came back to while etcd did not
    /// answer.
    SetComebacks(Vec<Comeback>),
    /// True if the map may have changed without notice: workers other than the ordered ones may
    /// have copies.
    SetMapStale(bool),
}

impl WorkerCommand {
    /// True if the command may take time in proportion to the number of shards: only one such
    /// command is carried out in a turn.
    pub fn takes_long(&self) -> bool {
        use WorkerCommand::{AddPeer, AddShard, RemovePeer, RemoveShard};
        matches!(self, AddPeer { .. } | RemovePeer(_) | AddShard(_) | RemoveShard(_))
    }
}

/// A shard as the data path and the NAT know it.
#[derive(Clone, Debug)]
pub struct ShardSetup {
    pub engine: ShardConfig,
    pub nat: weir_nat::NatShardConfig,
    /// Packets that make or change its flows wait until replicas have the change, if the worker
    /// [waits at all](crate::Replication::await_replicas).
    pub awaits_replicas: bool,
}

/// The duties of a worker for a shard, with names resolved to peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardDuties {
    pub shard: ShardId,
    /// Translate packets of known sessions, and answer for the shard's endpoint.
    pub serves_hits: bool,
    /// Lanes that this worker writes.
    pub lanes: LaneSet,
    /// For each of these lanes, the epoch of the map entry since which this worker writes it; 0 for
    /// the others.
    pub lanes_since: [Epoch; LANES],
    /// When a command first sets this, no worker has records of the shard: the others' lanes, which
    /// are empty here, are complete.
    pub begins_empty: bool,
    pub misses: Misses<PeerId>,
    /// Peers that get copies from here.
    pub copies: Vec<CopyOrder>,
    /// Peer that each lane's copy comes from. None: no copy is awaited, or the lane is ours.
    pub sources: [Option<PeerId>; LANES],
    /// Lanes to be given away.
    pub grants: Vec<GrantOrder>,
    /// Term whose routes are out, and the incarnations of peers to notify of it.
    pub announced: Option<(Term, Vec<(PeerId, BootId)>)>,
}

impl ShardDuties {
    /// Returns duties that ask for nothing.
    pub fn none(shard: ShardId) -> Self {
        Self {
            shard,
            serves_hits: false,
            lanes: LaneSet::EMPTY,
            lanes_since: [Epoch(0); LANES],
            begins_empty: false,
            misses: Misses::Refuse,
            copies: Vec::new(),
            sources: [None; LANES],
            grants: Vec::new(),
            announced: None,
        }
    }
}

/// Copies of some lanes for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOrder {
    pub peer: PeerId,
    pub boot: BootId,
    /// Lanes that this worker writes, and frozen ones, which it relays as it got them.
    pub lanes: LaneSet,
    /// Packets may wait for the peer: it has no reason to forget its copies.
    pub is_awaited: bool,
    /// The entry names the peer's former incarnation. The peer may forget its copies when the entry
    /// names it instead.
    pub is_guest: bool,
}

/// A lane that this worker has put down and gives to this incarnation of a peer: all changes first,
/// then the grant.
pub type GrantOrder = Grant<(PeerId, BootId)>;
