//! Events that a worker's replication reports to its roles.

use serde::{Deserialize, Serialize};
use weir_map::{Epoch, ShardId, Term};
use weir_stream::{BootId, ComebackState, PeerIndex};

use crate::PeerId;

/// Something that happened at a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerEvent {
    ShardAdded(ShardId),
    /// The worker had no room for the shard.
    ShardRefused {
        shard: ShardId,
        why: String,
    },
    /// Flows and tables of the shard are gone.
    ShardRemoved(ShardId),
    /// A session with this incarnation of the peer is set up; its heartbeats are reported under its
    /// index `peer_index`.
    PeerMet {
        peer: PeerId,
        peer_index: PeerIndex,
        boot: BootId,
    },
    /// The copy of every lane that has a source is complete and followed.
    CopyDone(ShardId),
    /// Some lane's stream restarted: its copy may be out of date.
    StreamLost(ShardId),
    /// The grant of a lane has come, and everything before it is applied.
    Granted {
        shard: ShardId,
        lane: usize,
        since: Epoch,
    },
    /// Report of a peer's last met incarnation on a shard that it came back to.
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
