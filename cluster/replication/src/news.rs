//! What a worker tells of its part in the cluster.

use serde::{Deserialize, Serialize};
use weir_map::{Epoch, ShardId, Term};
use weir_stream::{BootId, ComebackState, PeerIndex};

use crate::PeerId;

/// Something that happened at a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    ShardAdded(ShardId),
    /// There was no room for it.
    ShardRefused {
        shard: ShardId,
        why: String,
    },
    /// Its flows and tables are gone.
    ShardRemoved(ShardId),
    /// A session with this life of the peer is set up; signs of life are told by its place.
    PeerMet {
        peer: PeerId,
        place: PeerIndex,
        boot: BootId,
    },
    /// The copy of every lane that has a source is complete and followed.
    CopyDone(ShardId),
    /// Some lane's stream has begun anew: its copy may be out of date.
    StreamLost(ShardId),
    /// The grant of a lane has come, and everything before it is applied.
    Granted {
        shard: ShardId,
        lane: usize,
        since: Epoch,
    },
    /// What the life of a peer that was met last says of a shard that it came back to.
    CameBack {
        peer: PeerId,
        shard: ShardId,
        epoch: Epoch,
        state: ComebackState,
    },
    /// The routes of the shard's primary of this term are out.
    Announced {
        shard: ShardId,
        term: Term,
    },
}
