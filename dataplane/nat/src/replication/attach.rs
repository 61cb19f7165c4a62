//! Hot. Attaching a copied mapping: its home, its block and port, its entries in both indexes.
//!
//! ```text
//!   for each change of a burst: record in its slot, WAITING; prefetch the lines of what follows
//!   for each record: prefetch its home
//!   for each record: home, block, port, both indexes
//! ```
//!
//! The cache misses of a datagram's changes thus overlap each other and the work on the records.
//! Between two bursts no copy waits, and code that changes a waiting record first attaches them
//! all.

use weir_flow::{Hash, RecordId, SlabId};

use crate::endpoint::{Home, Protocol};
use crate::nat::{Nat, WALK_STEP};
use crate::ports::port_block::BlockId;
use crate::ports::port_choice::PortLease;
use crate::replication::lane::slab_of;
use crate::replication::mirror::CopyRemoval;
use crate::sessions::mapping::{Mapping, MappingKind};

/// Copies attached together: the mappings of a datagram, and some more.
const BURST: usize = 32;

/// Hashes under which a copy will be found, and the block of its port.
#[derive(Clone, Copy, Debug)]
struct CopyKeys {
    outbound: Hash,
    inbound: Hash,
    block: BlockId,
}

/// Copies that are stored and not yet attached. Empty between two bursts.
#[derive(Debug)]
pub(crate) struct WaitingCopies(Vec<(RecordId, CopyKeys)>);

impl WaitingCopies {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(BURST))
    }
}

impl Nat {
    /// Queues a copy that is in its slot, and prefetches the lines that attaching it will read.
    #[inline(always)]
    pub(crate) fn wait_to_attach(&mut self, id: RecordId) {
        if self.waiting.0.len() == BURST {
            self.attach_waiting();
        }
        let mapping = self.mappings.get(id);
        let keys = self.keys_of(mapping);
        self.prefetch_outbound(keys.outbound);
        self.prefetch_inbound(keys.inbound);
        if keys.block != BlockId::NONE {
            self.ports.prefetch(keys.block, mapping.protocol, mapping.public_port);
        }
        self.waiting.0.push((id, keys));
    }

    /// Attaches all copies that wait, so that look-ups find them.
    #[inline(never)]
    pub(crate) fn attach_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting.0);
        for (_, keys) in &waiting {
            self.prefetch_owner(keys.block);
        }
        for (id, keys) in waiting.drain(..) {
            self.attach(id, &keys);
        }
        self.waiting.0 = waiting;
    }

    /// Prefetches the home that has the block.
    #[inline]
    fn prefetch_owner(&self, block: BlockId) {
        if block != BlockId::NONE {
            if let Some(owner) = self.ports.owner(block) {
                self.subscribers.prefetch(owner);
            }
        }
    }

    #[inline]
    fn keys_of(&self, mapping: &Mapping) -> CopyKeys {
        let (outbound, inbound) = self.hashes_of(mapping);
        let block = match self.policy.enabled {
            true => self.ports.block_of(mapping.address, mapping.public_port),
            false => BlockId::NONE,
        };
        CopyKeys { outbound, inbound, block }
    }

    /// Makes a waiting copy a mapping like any other. If there is no room for what belongs to it,
    /// the copy is forgotten.
    #[inline]
    fn attach(&mut self, id: RecordId, keys: &CopyKeys) {
        let mapping = *self.mappings.get(id);
        if self.try_attach(id, &mapping, keys).is_none() {
            let slab = self.mappings.slab_of(id);
            let gives_way = self.gives_way(slab, &mapping, keys.block);
            self.mappings.forget(id);
            if !gives_way {
                self.totals.changes_full += 1;
                self.lane_is_full(slab);
            }
        }
    }

    /// True if a relayed mapping conflicts with one held here; the relayed one may be stale.
    #[cold]
    fn gives_way(&self, slab: SlabId, mapping: &Mapping, block: BlockId) -> bool {
        let is_anothers = |owner: u32| !self.subscribers.is_of(owner, &mapping.home());
        let is_held = self.find_holder(slab, mapping.public(), mapping.protocol).is_some()
            || self.policy.enabled && self.ports.owner(block).is_some_and(is_anothers);
        self.is_relayed && is_held
    }

    /// None if there is no room or the copy gives way itself; only records that conflicted with it
    /// may then be gone.
    #[inline]
    fn try_attach(&mut self, id: RecordId, mapping: &Mapping, keys: &CopyKeys) -> Option<()> {
        let is_live = mapping.kind == MappingKind::Live;
        if is_live && self.flows >= self.policy.flows_max {
            return None;
        }
        let subscriber = match self.policy.enabled {
            true => self.hold_port(id, mapping, keys.block)?,
            false => self.hold_address(id, mapping)?,
        };
        let may_have_duplicate = is_live && self.outbound_index.may_hold(keys.outbound);
        if !self.index(id, is_live, keys) {
            self.give_up_port(id, mapping);
            self.dismiss_home(subscriber);
            return None;
        }
        let record = self.mappings.get_mut(id);
        record.flags &= !Mapping::WAITING;
        record.subscriber = subscriber;
        if record.flags & Mapping::ANSWERED != 0 {
            self.subscribers.set_answered(subscriber);
        } else if self.subscribers.get(subscriber).is_answered() {
            record.flags |= Mapping::ANSWERED;
        }
        let home = self.subscribers.get_mut(subscriber);
        home.records += 1;
        if is_live {
            home.flows += 1;
            self.flows += 1;
        } else {
            self.quarantined += 1;
        }
        if may_have_duplicate {
            self.look_for_duplicate(keys.outbound, id);
        }
        Some(())
    }

    /// Takes the mapping's port in its block, which becomes the home's; returns the home's slot.
    #[inline]
    fn hold_port(&mut self, id: RecordId, mapping: &Mapping, block: BlockId) -> Option<u32> {
        let port_bit = self.ports.bit_of(block, mapping.protocol, mapping.public_port);
        if self.ports.is_taken(port_bit) {
            self.evict_holder(id, mapping)?;
        }
        let home = mapping.home();
        let subscriber = match self.ports.owner(block) {
            Some(owner) if self.subscribers.is_of(owner, &home) => owner,
            former => self.claim(mapping, &home, block, former)?,
        };
        self.ports.take_at(port_bit, block, mapping.shard, mapping.protocol);
        self.subscribers.get_mut(subscriber).ports_used[mapping.protocol.space()] += 1;
        Some(subscriber)
    }

    /// Takes the mapping's address for its home; returns the home's slot. Without translation no
    /// other mapping of the lane may have the inside endpoint.
    #[cold]
    fn hold_address(&mut self, id: RecordId, mapping: &Mapping) -> Option<u32> {
        self.evict_holder(id, mapping)?;
        let home = mapping.home();
        let subscriber = self.find_or_create(&home, mapping.subscriber)?;
        match self.hold_copied_address(&home, mapping.inside_address, mapping.created) {
            Some(slot) => self.mappings.get_mut(id).address = slot,
            None => {
                self.dismiss_home(subscriber);
                return None;
            }
        }
        Some(subscriber)
    }

    fn find_or_create(&mut self, home: &Home, paired_address: u32) -> Option<u32> {
        match self.subscribers.find(home) {
            Some(slot) => Some(slot),
            None => self.subscribers.create_copy(home, paired_address, self.now).ok(),
        }
    }

    /// Gives the home the mapping's block, which is not the home's yet; returns the home's slot.
    #[inline(never)]
    fn claim(
        &mut self,
        mapping: &Mapping,
        home: &Home,
        block: BlockId,
        former: Option<u32>,
    ) -> Option<u32> {
        if former.is_some() && self.is_relayed {
            return None;
        }
        let subscriber = self.find_or_create(home, mapping.subscriber)?;
        if let Some(former) = former {
            self.evict(former, block);
        }
        if self.subscribers.is_list_full(subscriber) {
            self.dismiss_home(subscriber);
            return None;
        }
        let is_of_shard = self.ports.shard_of(block) == mapping.shard;
        assert!(is_of_shard, "a copy's public address is one of its shard");
        let is_ours = self.lanes.get(slab_of(mapping.shard, self.ports.lane(block))).is_owned;
        assert!(!is_ours, "a copied mapping claims no block in a lane that this worker owns");
        let capacity = self.ports.capacity(block);
        self.ports.claim(block, subscriber);
        self.subscribers.add_block(subscriber, block, capacity);
        Some(subscriber)
    }

    /// Enters a record into both indexes, or into none. Returns whether there was room.
    #[inline]
    fn index(&mut self, id: RecordId, is_live: bool, keys: &CopyKeys) -> bool {
        if self.inbound_index.insert(keys.inbound, id.0).is_err() {
            return false;
        }
        if is_live && self.outbound_index.insert(keys.outbound, id.0).is_err() {
            self.inbound_index.remove(keys.inbound, id.0);
            return false;
        }
        true
    }

    /// Removes the former mapping of a public endpoint, whose end has not arrived yet. None if that
    /// mapping stays.
    #[cold]
    fn evict_holder(&mut self, id: RecordId, mapping: &Mapping) -> Option<()> {
        let slab = self.mappings.slab_of(id);
        if let Some(former) = self.find_holder(slab, mapping.public(), mapping.protocol) {
            if self.is_relayed {
                return None;
            }
            self.remove_mapping(former, CopyRemoval::Forgotten);
        }
        Some(())
    }

    fn give_up_port(&mut self, id: RecordId, mapping: &Mapping) {
        if !self.policy.enabled {
            self.release_address(self.mappings.get(id).address);
        } else {
            let block = self.ports.block_of(mapping.address, mapping.public_port);
            let subscriber = self.ports.owner(block).expect("the port's block has an owner");
            let public = mapping.public();
            let lease = PortLease { subscriber, block, public };
            self.give_port_back(&lease, mapping.protocol);
        }
    }

    /// Removes the former home's mappings from a block that the lane's owner has given to another
    /// home: their ends have not arrived yet.
    #[cold]
    fn evict(&mut self, former: u32, block: BlockId) {
        let lane = self.ports.lane(block);
        let slab = slab_of(self.subscribers.get(former).shard, lane);
        let mut holders = std::mem::take(&mut self.due);
        for protocol in Protocol::ALL {
            loop {
                self.ports.each_taken(block, protocol, |public| {
                    if holders.len() < WALK_STEP {
                        holders.extend(self.find_holder(slab, public, protocol));
                    }
                });
                if holders.is_empty() {
                    break;
                }
                for holder in holders.drain(..) {
                    self.remove_mapping(holder, CopyRemoval::Forgotten);
                }
            }
        }
        self.due = holders;
    }
}
