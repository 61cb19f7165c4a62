//! Interfaces that an endpoint needs from its owner: slabs to copy from, slabs to copy to, and a
//! way to send datagrams.

use std::net::SocketAddr;
use std::ops::Range;

use weir_ids::{Lane, ShardId};

use crate::control::Comeback;
use crate::copy::CopyRoom;
use crate::identity::{Lineage, Origin, PeerIndex};
use crate::record::StreamRecord;

/// The slabs of this worker that other workers have copies of.
pub trait Source {
    /// Returns lineage and provenance of the slab.
    fn lineage(&self, shard: ShardId, lane: Lane) -> Lineage;

    /// Returns the slot after the last that is in use: the progress of a copy is measured against
    /// it.
    fn slots(&self, shard: ShardId, lane: Lane) -> u32;

    /// Walks over slots: adds a [`Create`](crate::RecordKind::Create) for each live one, and for
    /// each run of others a [`Clear`](crate::RecordKind::Clear), whose version no earlier record of
    /// the run exceeds; runs reach to the end of `slots`, however far that is. Looks at no more
    /// than `budget` slots that exist.
    ///
    /// Returns the slot to go on from: `slots.end` if all records were added, or that of the record
    /// which `room` did not take.
    fn walk(
        &mut self,
        shard: ShardId,
        lane: Lane,
        slots: Range<u32>,
        budget: u32,
        room: &mut CopyRoom<'_>,
    ) -> u32;

    /// Returns the [`Sum`](crate::Sum) of the live records in these slots, over the fields that
    /// replication keeps equal.
    fn sum(&self, shard: ShardId, lane: Lane, slots: Range<u32>) -> u64;
}

/// The slabs that this worker keeps for their owners.
pub trait Sink {
    /// Returns how many records can be applied now. Nothing is delivered while there are fewer than
    /// [`ITEMS_MAX`](crate::ITEMS_MAX), and the sender gets a window of 0.
    fn room(&self) -> usize;

    /// Applies records in order: each is one store, unless its version is older than the slot's. A
    /// stream delivers a record once, but a copy repeats what changes brought, and a repair brings
    /// a version that is there already.
    fn apply(&mut self, origin: Origin, records: &[StreamRecord<'_>]);

    /// Notes that the stream restarted: what it brought may be out of date until it is copied
    /// again.
    fn stream_reset(&mut self, origin: Origin);

    /// Notes that the copy of a slab, of this lineage, begins; it has about `slots` slots.
    fn copy_started(&mut self, origin: Origin, shard: ShardId, slots: u32, lineage: Lineage);

    /// Notes that all records of the slab at the copy's start, and all changes since, have been
    /// applied.
    fn copy_finished(&mut self, origin: Origin, shard: ShardId);

    /// Notes that no changes of the slab will follow, until it is copied again.
    fn copy_stopped(&mut self, origin: Origin, shard: ShardId);

    /// Returns the same sum as [`Source::sum`], of the copy.
    fn sum(&self, origin: Origin, shard: ShardId, slots: Range<u32>) -> u64;

    /// Takes a peer's report on a shard that it came back to; the peer repeats it. By default it is
    /// ignored.
    fn came_back(&mut self, _peer: PeerIndex, _comeback: Comeback) {}
}

/// Sends datagrams to the network.
pub trait Transmit {
    /// Sends a datagram. False if it could not be sent: it counts as lost on the way, and nothing
    /// more is sent in this poll.
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool;
}
