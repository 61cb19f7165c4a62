//! The link between a worker of a cluster, the thread that decides its roles and the guard that
//! watches it.

use weir_map::ShardId;
use weir_nat::ShardIndex;
use weir_replication::{Replication, WorkerCommand, WorkerEvent};
use weir_stream::{PeerIndex, PeerSigns};

/// Largest number of workers of other nodes that a worker exchanges datagrams with.
pub const PEERS_MAX: usize = 64;

/// A worker's end of the link. No method may wait: neither for a lock nor for room.
pub trait RolesLink {
    /// Shows the guard that the worker is alive: once a turn.
    fn beat(&mut self);

    /// True if the guard has declared the worker dead since the last [`rejoin`](Self::rejoin): its
    /// routes are gone or going, and a replica may serve its shards. Asked once a turn, before a
    /// burst is received.
    fn is_fenced(&self) -> bool;

    /// Notes that the worker goes on with its tables and roles, although it was fenced: its routes
    /// may be set again. `waited`: packets that had waited in its ports.
    fn rejoin(&mut self, waited: usize);

    /// True if a command may be there: one look at a flag.
    fn is_ordered(&self) -> bool;

    /// Returns the next command. Commands are differences, so none may be left out.
    fn next_command(&mut self) -> Option<WorkerCommand>;

    /// True if there is room for an event. Without it events stay in the worker, which merges them
    /// by shard and peer.
    fn has_room(&mut self) -> bool;

    /// Takes an event; there is [room](Self::has_room). `shard_index`: the engine's index of a
    /// shard that was added.
    fn send_event(&mut self, event: WorkerEvent, shard_index: Option<ShardIndex>);

    /// Notes that a shard had packets in the slot that ends.
    fn busy(&mut self, shard: ShardId);

    /// Takes the heartbeat state of the peer at an index, if there is one: for each index below
    /// [`PEERS_MAX`] at the end of a slot.
    fn signs(&mut self, peer: PeerIndex, signs: Option<PeerSigns>);

    /// Notes that a slot has ended, after all reports on it.
    fn end_slot(&mut self);

    /// Publishes the state of the copies: once a second.
    fn report(&mut self, replication: &Replication, now_us: u64);
}
