//! What a worker is told to do for the cluster.

use std::net::SocketAddrV4;
use std::sync::Arc;

use weir_engine::ShardConfig;
use weir_map::{Epoch, Grant, LANES, LaneSet, ShardId, Term};
use weir_nat::AddressRanges;
use weir_stream::{BootId, ClusterKeys, Comeback, Fingerprint};

pub use weir_wire::Misses;

use crate::PeerId;

/// An order of the control thread to a worker. They are obeyed in their order.
#[derive(Clone, Debug)]
pub enum Order {
    /// Exchange datagrams with this worker. Known already: its address is replaced.
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
    /// Forget a shard and all its flows. Ordered only when it has no duties any more.
    RemoveShard(ShardId),
    /// All that is to be done for a shard.
    Duties(Box<ShardDuties>),
    /// What new sessions with peers compare.
    SetFingerprint(Fingerprint),
    SetKeys(ClusterKeys),
    /// The public addresses of all shards, whichever worker serves them.
    SetAllPublic(Arc<AddressRanges>),
    /// What peers are told of shards that this worker came back to while the store could not be asked.
    SetComebacks(Vec<Comeback>),
    /// The map may have changed unheard: others may have copies that nobody has ordered here, or not.
    SetMapStale(bool),
}

impl Order {
    /// Whether it may take as long as there are shards: such orders are better not obeyed in one turn.
    pub fn takes_long(&self) -> bool {
        use Order::{AddPeer, AddShard, RemovePeer, RemoveShard};
        matches!(self, AddPeer { .. } | RemovePeer(_) | AddShard(_) | RemoveShard(_))
    }
}

/// A shard as the data path and the NAT know it.
#[derive(Clone, Debug)]
pub struct ShardSetup {
    pub engine: ShardConfig,
    pub nat: weir_nat::ShardConfig,
    /// Packets that make or change its flows wait until replicas have that, if the worker
    /// [waits at all](crate::Replication::await_replicas).
    pub awaits_replicas: bool,
}

/// The duties of a worker for a shard, with names turned into peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardDuties {
    pub shard: ShardId,
    /// Translate packets of known sessions, and answer for the shard's endpoint.
    pub serves_hits: bool,
    /// Lanes that this worker writes.
    pub lanes: LaneSet,
    /// Of each of them, the epoch of the map entry since which it does; 0 of the others.
    pub lanes_since: [Epoch; LANES],
    /// When this is first ordered nobody has anything of the shard: what is here of others' lanes, nothing, is all of them.
    pub begins_empty: bool,
    pub misses: Misses<PeerId>,
    /// Who is to have copies from here.
    pub copies: Vec<CopyOrder>,
    /// From whom the copy of each lane comes here. None: from nobody, so nothing of it is awaited; or the lane is ours.
    pub sources: [Option<PeerId>; LANES],
    /// Lanes to be given away.
    pub grants: Vec<GrantOrder>,
    /// The routes of this term are out: these peers are to hear it, in this life of theirs.
    pub announced: Option<(Term, Vec<(PeerId, BootId)>)>,
}

impl ShardDuties {
    /// Nothing is to be done.
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
    /// Lanes that this worker writes, and frozen ones, which it passes on as it got them.
    pub lanes: LaneSet,
    /// Packets may wait for it: it has no reason to forget its copies.
    pub is_awaited: bool,
    /// The entry names its former life. It may forget its copies when the entry names it in its place.
    pub is_guest: bool,
}

/// A lane that this worker has put down and gives to this life of a peer: all changes first, then the grant.
pub type GrantOrder = Grant<(PeerId, BootId)>;
