//! Ending everything a home holds, in pieces between bursts: a home may hold a whole public address.

use weir_flow::RecordId;

use crate::endpoint::{Protocol, Tick};
use crate::lane::{LANES, slab_of};
use crate::nat::Nat;

/// Slots of a slab that one piece looks at, without translation.
const SLOTS_PER_PIECE: usize = 256;

/// A flush in progress.
#[derive(Debug)]
pub struct Flush {
    outer: u32,
    /// Subscriber slots still to do, the last one in work.
    homes: Vec<u32>,
    place: Place,
    ids: Vec<RecordId>,
    ended: usize,
}

/// How far the home in work is done.
#[derive(Clone, Copy, Debug)]
enum Place {
    Start,
    /// Ports of blocks below this position, and of this one the protocols from the given on, are left. Downward,
    /// because a released block's place in the list is taken by the last one, which is done already.
    Block {
        position: usize,
        protocol: usize,
    },
    /// Slots of the shard's slab from this one on are left (without translation there are no blocks).
    Slot(u32),
}

impl Flush {
    /// Mappings ended so far.
    pub fn ended(&self) -> usize {
        self.ended
    }
}

impl Nat {
    /// Prepares to end all mappings of the homes with this outer address, as far as they lie in our lanes.
    pub fn begin_flush(&self, outer: u32) -> Flush {
        let homes = self.subscribers.with_outer(outer);
        Flush { outer, homes, place: Place::Start, ids: Vec::new(), ended: 0 }
    }

    /// Ends a piece of them: at most one block's ports of one protocol. Their ports go through the quarantine.
    /// Returns whether there is more to do.
    pub fn flush(&mut self, flush: &mut Flush, now: Tick) -> bool {
        let Some(&home) = flush.homes.last() else { return false };
        let subscriber = self.subscribers.get(home);
        // Between two pieces the home may have gone and its slot may have been given to another.
        let is_still_it = subscriber.is_live() && subscriber.outer == flush.outer;
        let next = if is_still_it { self.find_piece(home, flush) } else { None };
        while let Some(id) = flush.ids.pop() {
            while self.mappings.get(id).sessions > 0 {
                self.end_session(self.mappings.get(id).sessions_head);
            }
            self.end_mapping(id, now);
            flush.ended += 1;
        }
        flush.place = next.unwrap_or(Place::Start);
        if next.is_none() {
            flush.homes.pop();
        }
        !flush.homes.is_empty()
    }

    fn is_ours(&self, mapping: RecordId) -> bool {
        self.lanes.get(self.mappings.slab_of(mapping)).is_owned
    }

    /// Collects the next mappings of a home and returns where to go on; `None` when it is done.
    fn find_piece(&self, home: u32, flush: &mut Flush) -> Option<Place> {
        match flush.place {
            Place::Start if self.policy.enabled => {
                let position = self.subscribers.blocks(home).len().checked_sub(1)?;
                Some(Place::Block { position, protocol: 0 })
            }
            Place::Start => Some(Place::Slot(0)),
            Place::Block { position, protocol } => {
                if let Some(&block) = self.subscribers.blocks(home).get(position) {
                    let number = Protocol::ALL[protocol];
                    self.ports.each_taken(block, number, |public| {
                        let hash = self.inbound_hash(public, number);
                        let found = self.find_inbound(hash, public, number);
                        flush.ids.extend(found.filter(|&id| self.is_ours(id)));
                    });
                }
                match protocol + 1 {
                    next if next < Protocol::ALL.len() => {
                        Some(Place::Block { position, protocol: next })
                    }
                    _ => {
                        let position = position.checked_sub(1)?;
                        Some(Place::Block { position, protocol: 0 })
                    }
                }
            }
            Place::Slot(slot) => {
                let shard = self.subscribers.get(home).shard;
                let slab = slab_of(shard, self.ports.lanes(shard).trailing_zeros() % LANES);
                let (ids, is_ours) = (&mut flush.ids, self.lanes.get(slab).is_owned);
                let is_its = |mapping: &crate::mapping::Mapping| {
                    mapping.kind.is_in_use() && mapping.subscriber == home && is_ours
                };
                let next = self.mappings.walk_slab(slab, slot, SLOTS_PER_PIECE, |id, mapping| {
                    if is_its(mapping) {
                        ids.push(id);
                    }
                });
                next.map(Place::Slot)
            }
        }
    }

    /// Ends all mappings of the homes with this outer address at once and returns their number; for callers
    /// that share their thread with no packets.
    pub fn flush_subscriber(&mut self, outer: u32, now: Tick) -> usize {
        let mut flush = self.begin_flush(outer);
        while self.flush(&mut flush, now) {}
        flush.ended()
    }
}
