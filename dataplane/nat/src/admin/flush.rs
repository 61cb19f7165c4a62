//! Ending everything a home holds, in pieces between bursts: a home may hold a whole public
//! address.

use weir_flow::RecordId;

use crate::admin::facet::{Admin, AdminMut};
use crate::admin::home_selector::HomeSelector;
use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::nat::Nat;
use crate::replication::lane::{LANES, slab_of};

/// Homes' positions, slots of a slab or ports of a block that one piece looks at.
const LOOKS_PER_PIECE: u32 = 256;
/// Mappings and further sessions that one piece ends.
const ENDS_PER_PIECE: usize = 256;

/// A flush in progress.
#[derive(Debug)]
pub struct Flush {
    name: HomeSelector,
    /// Where the next home is looked for: a shard, or a slot if keys tell homes apart.
    next_home: u32,
    /// The home in work.
    home: Option<FlushedHome>,
    /// The mappings found last that are still to be ended.
    ids: Vec<RecordId>,
    ended: usize,
}

/// A home in work.
#[derive(Clone, Copy, Debug)]
struct FlushedHome {
    slot: u32,
    home: Home,
    position: FlushPosition,
}

/// How far the home in work is done.
#[derive(Clone, Copy, Debug)]
enum FlushPosition {
    Start,
    /// Left are the home's static mappings from this one on and, of this one, the protocols behind
    /// the given one and the ports of that from the given one on; then its blocks.
    Static {
        at: usize,
        protocol: usize,
        port: u32,
    },
    /// Left are the ports of blocks below this position and, of the block at this position, those
    /// of the protocols behind the given one and those of the given one from an offset on.
    /// Downward, because a released block's slot in the list is taken by the last one, which is
    /// done already.
    Block {
        position: usize,
        protocol: usize,
        offset: u32,
    },
    /// Left are the slots of the shard's lanes behind this one and, of this one, those from the
    /// given one on: IPv6 flows, and without translation all.
    Slot {
        lane: u32,
        slot: u32,
    },
    /// Only the mappings found last are left.
    Done,
}

impl Flush {
    /// Returns the number of mappings and IPv6 flows ended so far.
    pub fn ended(&self) -> usize {
        self.ended
    }
}

impl Admin<'_> {
    /// Prepares to end all mappings and IPv6 flows of the homes with this name, as far as they lie
    /// in lanes owned here.
    #[inline]
    pub fn begin_flush(self, name: impl Into<HomeSelector>) -> Flush {
        let ids = Vec::with_capacity(LOOKS_PER_PIECE as usize);
        Flush { name: name.into(), next_home: 0, home: None, ids, ended: 0 }
    }
}

impl AdminMut<'_> {
    /// Does a piece of a flush: looks at 256 positions, ports or slots, and ends at most 256
    /// mappings and further sessions. The ports go through the quarantine. A home that appears
    /// meanwhile may be left alone. Returns whether there is more to do.
    pub fn flush(&mut self, flush: &mut Flush, now: Tick) -> bool {
        match flush.home {
            _ if !flush.ids.is_empty() => {}
            None => self.nat.find_home(flush),
            Some(of) => {
                // Between two pieces the home may have gone and its slot may have been given to
                // another.
                let next = if self.nat.subscribers.is_of(of.slot, &of.home) {
                    self.nat.find_piece(of.slot, of.position, flush)
                } else {
                    None
                };
                flush.home = match next {
                    None if flush.ids.is_empty() => None,
                    next => {
                        let position = next.unwrap_or(FlushPosition::Done);
                        Some(FlushedHome { position, ..of })
                    }
                };
            }
        }
        self.nat.end_some(flush, now);
        flush.home.is_some() || flush.next_home < self.read().positions_of(flush.name)
    }

    /// Ends all mappings and IPv6 flows of the homes with this name at once and returns their
    /// number; for callers whose thread carries no packets.
    pub fn flush_subscriber(&mut self, name: impl Into<HomeSelector>, now: Tick) -> usize {
        let mut flush = self.read().begin_flush(name);
        while self.flush(&mut flush, now) {}
        flush.ended()
    }
}

impl Nat {
    fn find_home(&self, flush: &mut Flush) {
        let positions = self.admin().positions_of(flush.name);
        let end = positions.min(flush.next_home.saturating_add(LOOKS_PER_PIECE));
        while flush.home.is_none() && flush.next_home < end {
            let slot = self.admin().slot_with_name(flush.name, flush.next_home);
            flush.home = slot.map(|slot| {
                let home = self.subscribers.get(slot).home();
                FlushedHome { slot, home, position: FlushPosition::Start }
            });
            flush.next_home += 1;
        }
    }

    /// Ends mappings that were found, each after its further sessions.
    fn end_some(&mut self, flush: &mut Flush, now: Tick) {
        let Some(FlushedHome { slot, home, .. }) = flush.home else { return };
        if !self.subscribers.is_of(slot, &home) {
            flush.ids.clear();
        }
        for _ in 0..ENDS_PER_PIECE {
            let Some(&id) = flush.ids.last() else { return };
            let mapping = self.mappings.get(id);
            // Between two pieces it may have ended and its slot may have been given to another.
            if !mapping.kind.is_in_use() || mapping.subscriber != slot || !self.is_ours(id) {
                flush.ids.pop();
            } else if mapping.kind.is_ipv6() {
                self.end_flow6(id);
                flush.ended += 1;
                flush.ids.pop();
            } else if mapping.sessions > 0 {
                self.end_session(mapping.sessions_head);
            } else {
                self.end_mapping(id, now);
                flush.ended += 1;
                flush.ids.pop();
            }
        }
    }

    fn is_ours(&self, mapping: RecordId) -> bool {
        self.lanes.get(self.mappings.slab_of(mapping)).is_owned
    }

    /// Collects the next mappings of a home and returns where to continue; `None` when the home is
    /// done.
    fn find_piece(
        &self,
        home: u32,
        home_position: FlushPosition,
        flush: &mut Flush,
    ) -> Option<FlushPosition> {
        match home_position {
            FlushPosition::Done => None,
            FlushPosition::Start if self.policy.enabled => {
                Some(FlushPosition::Static { at: 0, protocol: 0, port: 0 })
            }
            FlushPosition::Static { at, protocol, port } => {
                if let Some(next) = self.find_static_piece(home, (at, protocol, port), flush) {
                    return Some(next);
                }
                Some(match self.subscribers.blocks(home).len().checked_sub(1) {
                    Some(position) => FlushPosition::Block { position, protocol: 0, offset: 0 },
                    None => FlushPosition::Slot { lane: 0, slot: 0 },
                })
            }
            FlushPosition::Start => Some(FlushPosition::Slot { lane: 0, slot: 0 }),
            FlushPosition::Block { position, protocol, offset } => {
                let end = offset + LOOKS_PER_PIECE;
                if let Some(block) = self.subscribers.blocks(home).nth(position) {
                    let number = Protocol::ALL[protocol];
                    self.ports.each_taken_of(block, number, offset..end, |public| {
                        let hash = self.inbound_hash(public, number);
                        let found = self.find_inbound(hash, public, number);
                        flush.ids.extend(found.filter(|&id| self.is_ours(id)));
                    });
                }
                if end < self.ports.block_ports() {
                    Some(FlushPosition::Block { position, protocol, offset: end })
                } else if protocol + 1 < Protocol::ALL.len() {
                    Some(FlushPosition::Block { position, protocol: protocol + 1, offset: 0 })
                } else {
                    Some(match position.checked_sub(1) {
                        Some(position) => FlushPosition::Block { position, protocol: 0, offset: 0 },
                        None => FlushPosition::Slot { lane: 0, slot: 0 },
                    })
                }
            }
            FlushPosition::Slot { lane: LANES.., .. } => None,
            FlushPosition::Slot { lane, slot } => {
                let slab = slab_of(self.subscribers.get(home).shard, lane);
                let (ids, is_ours) = (&mut flush.ids, self.lanes.get(slab).is_owned);
                // With translation the IPv4 flows were found by their ports.
                let is_translating = self.policy.enabled;
                let is_its = |mapping: &crate::sessions::mapping::Mapping| {
                    mapping.kind.is_in_use()
                        && mapping.subscriber == home
                        && is_ours
                        && (mapping.kind.is_ipv6() || !is_translating)
                };
                let looks = LOOKS_PER_PIECE as usize;
                let next = self.mappings.walk_slab(slab, slot, looks, |id, mapping| {
                    if is_its(mapping) {
                        ids.push(id);
                    }
                });
                Some(match next {
                    Some(slot) => FlushPosition::Slot { lane, slot },
                    None => FlushPosition::Slot { lane: lane + 1, slot: 0 },
                })
            }
        }
    }

    /// As [`find_piece`](Self::find_piece), for the ports of a home's static mappings. `None`:
    /// there are no more.
    fn find_static_piece(
        &self,
        home: u32,
        (at, protocol, port): (usize, usize, u32),
        flush: &mut Flush,
    ) -> Option<FlushPosition> {
        let outer = self.outer_of(self.subscribers.get(home).outer);
        let mapping = self.statics.of_home(outer).get(at)?;
        let number = Protocol::ALL[protocol];
        let ports = mapping.ports(number);
        for port in ports.clone().skip(port as usize).take(LOOKS_PER_PIECE as usize) {
            let public = Endpoint::new(mapping.public.address, port);
            let hash = self.inbound_hash(public, number);
            let found = self.find_inbound(hash, public, number);
            flush.ids.extend(found.filter(|&id| self.is_ours(id)));
        }
        let end = port + LOOKS_PER_PIECE;
        Some(if (end as usize) < ports.len() {
            FlushPosition::Static { at, protocol, port: end }
        } else if protocol + 1 < Protocol::ALL.len() {
            FlushPosition::Static { at, protocol: protocol + 1, port: 0 }
        } else {
            FlushPosition::Static { at: at + 1, protocol: 0, port: 0 }
        })
    }
}
