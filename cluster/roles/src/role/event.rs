//! The events of a role machine.

use weir_ids::{Epoch, Incarnation, Term};

use weir_map::ShardEntry;

/// Something that concerns this worker and this shard. Its time is passed separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleEvent {
    /// The store's entry. Entries may come in any order and more than once.
    Entry(Box<ShardEntry>),
    /// The newest known entry, while the store is unreachable: it names a former incarnation of
    /// this worker.
    Guest(Box<ShardEntry>),
    /// These incarnations have resumed their former member slots in a guest's entry. If this worker
    /// becomes one of them, its copy is all that there is; `is_empty`: no member has any copy.
    Resumed { lives: Vec<Incarnation>, is_empty: bool },
    /// A heartbeat of another worker, or records of its streams.
    Heartbeat { from: Incarnation },
    /// The primary of this term reports that its routes of the shard are out.
    Announced { term: Term },
    /// A slot of 10 ms has ended in which this many translatable packets of the shard came.
    Slot { packets: u32 },
    /// The copy is complete, and the stream of changes is followed.
    CopyDone,
    /// Records of the stream are lost permanently.
    StreamLost,
    /// The grant of a lane has come, and all records before it are applied.
    Granted { lane: usize, since: Epoch },
    /// The state of the worker's ports and gateways.
    Ports(PortHealth),
    /// Neither this node nor any witness hears the primary's node, and this worker did not stall
    /// meanwhile.
    PrimaryLost,
    /// Time has passed.
    Tick,
}

/// Whether a route to this worker leads anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortHealth {
    /// Ports are starting, or gateways not resolved: nothing is announced.
    NotReady,
    Ready,
    /// One side is down. Both share its fate, unless no other member has a copy.
    Broken,
}
