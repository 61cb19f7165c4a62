//! What a role machine is told.

use weir_ids::{Epoch, Incarnation, Term};

use weir_map::ShardEntry;

/// Something that concerns this worker and this shard. The time comes beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The store's entry, in any order and as often as it likes.
    Entry(Box<ShardEntry>),
    /// The newest known entry, while the store cannot be asked: it names a former life of this worker.
    Guest(Box<ShardEntry>),
    /// Of a guest's entry: these lives have resumed the seats of their former ones. If this worker is one of them now, it
    /// has all that there is; `is_empty`: nobody has any copy.
    Resumed { lives: Vec<Incarnation>, is_empty: bool },
    /// A sign of life of another worker: a heartbeat, or records of its streams.
    Heartbeat { from: Incarnation },
    /// The primary of this term says that its routes of the shard are out.
    Announced { term: Term },
    /// A slot of 10 ms has ended in which so many translatable packets of the shard came.
    Slot { packets: u32 },
    /// The copy is complete, and the stream of changes is followed.
    CopyDone,
    /// Records of the stream are missing for good.
    StreamLost,
    /// The grant of a lane has come, and all records before it are applied.
    Granted { lane: usize, since: Epoch },
    /// The worker's ports and gateways.
    Ports(Ports),
    /// The primary's node is heard neither here nor by any witness, and this worker did not stand still meanwhile.
    PrimaryLost,
    /// Time has passed.
    Tick,
}

/// Whether a route to this worker leads anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Ports are starting, or gateways not resolved: nothing is announced.
    NotReady,
    Ready,
    /// One side is down. Both share its fate, unless nobody else has a copy.
    Broken,
}
