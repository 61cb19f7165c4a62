//! What joins a worker of a cluster with the thread that decides its roles and with the guard that watches it.

use weir_map::ShardId;
use weir_nat::ShardIndex;
use weir_replication::{News, Order, Replication};
use weir_stream::{PeerIndex, PeerSigns};

/// Workers of other nodes that a worker exchanges datagrams with at most.
pub const PEERS_MAX: usize = 64;

/// A worker's end of the link. Nothing here may wait: neither for a lock nor for room.
pub trait Link {
    /// Tells the guard that the worker is alive: once a turn.
    fn beat(&mut self);

    /// Whether the guard has taken the worker for dead since it [went on](Self::rejoin) last: its routes are gone or
    /// going, and a replica may serve its shards. Asked once a turn, before a burst is received.
    fn is_fenced(&self) -> bool;

    /// The worker goes on with its tables and roles, although it was fenced: its routes may be set again. `waited`:
    /// packets that had waited in its ports.
    fn rejoin(&mut self, waited: usize);

    /// Whether an order may be there: one look at a flag.
    fn is_ordered(&self) -> bool;

    /// The next order. Orders are differences, so none may be left out.
    fn next_order(&mut self) -> Option<Order>;

    /// Whether there is room for news. Without it they stay in the worker, which merges them by shard and peer.
    fn has_room(&mut self) -> bool;

    /// Takes news; there is [room](Self::has_room). `place`: where the engine has a shard that was added.
    fn news(&mut self, news: News, place: Option<ShardIndex>);

    /// A shard had packets in the slot that ends.
    fn busy(&mut self, shard: ShardId);

    /// The signs of life of the peer at a place, if there is one: for each place below [`PEERS_MAX`] at the end of a
    /// slot.
    fn signs(&mut self, place: PeerIndex, signs: Option<PeerSigns>);

    /// A slot has ended, after all that was told of it.
    fn end_slot(&mut self);

    /// How the copies stand may be read: once a second.
    fn report(&mut self, replication: &Replication, now_us: u64);
}
