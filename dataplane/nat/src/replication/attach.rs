//! Hot. Attaching a copied mapping to what it belongs to: its home, its block and port, its entries
//! in both indexes.

use weir_flow::{Hash, OFFSET_BITS, RecordId, SlabId, Slabs};

use crate::endpoint::{Endpoint, Home, Protocol, Tick};
use crate::nat::{Nat, WALK_STEP};
use crate::ports::address_ranges::AddressRange;
use crate::ports::port_block::BlockId;
use crate::ports::port_block::shared::{AddressRun, PortBit};
use crate::ports::port_choice::PortLease;
use crate::replication::change::{Applied, OFFSET_MASK};
use crate::replication::image::MappingImage;
use crate::replication::lane::{lane_of, slab_of};
use crate::replication::mirror::CopyRemoval;
use crate::replication::owner_update::never;
use crate::sessions::mapping::Mapping;
use crate::subscribers::subscriber::NO_ADDRESS;

/// A mapping that another worker owns, as its change tells of it, and where it belongs here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappingCopy {
    pub(crate) image: MappingImage,
    outbound: Hash,
    inbound: Hash,
    pub(crate) place: PoolPlace,
    /// Where the slot lies, if its slab has it; see [`weir_flow::Slabs::put`].
    pub(crate) hint: RecordId,
}

/// Where a mapping stands in the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolPlace {
    /// Position of the public address.
    pub(crate) address: u32,
    /// Position of the home's paired address.
    paired_address: u32,
    pub(crate) block: BlockId,
    port_bit: PortBit,
}

impl PoolPlace {
    /// Without translation.
    const NONE: Self = Self {
        address: NO_ADDRESS,
        paired_address: NO_ADDRESS,
        block: BlockId::NONE,
        port_bit: PortBit::NONE,
    };

    /// True if the mapping has a port of a block: with translation, unless it is static.
    #[inline(always)]
    fn has_block(&self) -> bool {
        self.block != BlockId::NONE
    }
}

/// Where the copy before lay: the next one is probably near it.
#[derive(Debug)]
pub(crate) struct Nearby {
    homes: AddressRange,
    pool: AddressRun,
    /// Position of its extent in the lane, and the extent's first record.
    extent: (u32, RecordId),
}

impl Nearby {
    pub(crate) const NOWHERE: Self = Self {
        homes: AddressRange::EMPTY,
        pool: AddressRun::EMPTY,
        extent: (u32::MAX, RecordId::NONE),
    };

    /// Prefetches the record at a slot of the lane. Returns where it lies, if the lane has an
    /// extent there; else any id.
    #[inline(always)]
    pub(crate) fn prefetch_slot(
        &mut self,
        mappings: &mut Slabs<Mapping>,
        slab: SlabId,
        slot: u32,
    ) -> RecordId {
        let (position, offset) = (slot >> OFFSET_BITS, slot & OFFSET_MASK);
        if self.extent.0 != position {
            let RecordId(found) = mappings.prefetch_slot(slab, slot);
            self.extent = (position, RecordId(found & !OFFSET_MASK));
        }
        let id = RecordId(self.extent.1.0 | offset);
        mappings.prefetch(id);
        id
    }
}

impl MappingCopy {
    pub(crate) const EMPTY: Self = Self {
        image: MappingImage::EMPTY,
        outbound: Hash(0),
        inbound: Hash(0),
        place: PoolPlace::NONE,
        hint: RecordId::NONE,
    };

    /// Returns the home of a mapping of this lane.
    #[inline(always)]
    fn home(&self, slab: SlabId) -> Home {
        let gre_key = self.image.gre_key();
        Home { shard: lane_of(slab).0, outer: self.image.outer(), gre_key }
    }
}

impl Nat {
    /// Returns the copy that an image makes, if such a mapping can lie in this lane. `asked` as in
    /// [`attach`](Self::attach).
    #[inline]
    pub(crate) fn copy_of(
        &self,
        slab: SlabId,
        image: &MappingImage,
        asked: Option<Endpoint>,
        paired_address: Option<u32>,
    ) -> Option<MappingCopy> {
        let mut nowhere = Nearby::NOWHERE;
        let place = self.place_of::<true>(slab, image, paired_address, &mut nowhere)?;
        let mut copy = self.copy_at(slab, image, place, RecordId::NONE);
        if let Some(asked) = asked {
            copy.outbound = self.redirected_hash(copy.outbound, asked);
        }
        Some(copy)
    }

    #[inline(always)]
    pub(crate) fn copy_at(
        &self,
        slab: SlabId,
        image: &MappingImage,
        place: PoolPlace,
        hint: RecordId,
    ) -> MappingCopy {
        let words = image.outbound_words(lane_of(slab).0);
        let outbound = self.hash_outbound_words(words, image.gre_key());
        let inbound = self.hash_inbound(image.inbound_word());
        MappingCopy { image: *image, outbound, inbound, place, hint }
    }

    /// Returns where the mapping stands in the pool, if it can lie in this lane. `HANDLES`: whether
    /// its outer address may be a handle, which this worker has put there.
    #[inline(always)]
    pub(crate) fn place_of<const HANDLES: bool>(
        &self,
        slab: SlabId,
        image: &MappingImage,
        paired_address: Option<u32>,
        nearby: &mut Nearby,
    ) -> Option<PoolPlace> {
        let (shard, lane) = lane_of(slab);
        let public @ Endpoint { address, port } = image.public();
        if !nearby.homes.has(image.outer()) {
            let is_handle = HANDLES && self.outer_ipv6(image.outer()).is_some();
            if !is_handle {
                nearby.homes = self.homes.range_of(image.outer())?;
            }
        }
        if !self.policy.enabled {
            let is_ours = image.inside() == public && self.public.shard_of(address) == Some(shard);
            return is_ours.then_some(PoolPlace::NONE);
        }
        let position = match nearby.pool.position_of(address) {
            Some(position) => position,
            None => {
                let run = self.ports.run_at(address)?;
                let position = run.position_of(address)?;
                // A run is of one shard.
                if self.ports.shard_at(position) != shard {
                    return None;
                }
                nearby.pool = run;
                position
            }
        };
        let block = self.ports.block_of(position, port);
        let (_, lane_of_block) = self.ports.address_and_lane(block);
        let is_foreign = !self.ports.is_usable(port) || lane_of_block != u32::from(lane);
        if is_foreign && !image.is_static() {
            return None;
        }
        let paired_address = match paired_address {
            None => position,
            Some(paired_address) => self
                .ports
                .position_of(paired_address)
                .filter(|&paired_address| self.ports.shard_at(paired_address) == shard)?,
        };
        let port_bit = self.ports.bit_of(block, image.protocol(), port);
        // A static mapping has no block.
        let block = if image.is_static() { BlockId::NONE } else { block };
        Some(PoolPlace { address: position, paired_address, block, port_bit })
    }

    /// Prefetches both index lines, the block and the word of the port.
    #[inline(always)]
    pub(crate) fn prefetch_copy(&self, copy: &MappingCopy) {
        self.prefetch_outbound(copy.outbound);
        self.prefetch_inbound(copy.inbound);
        if copy.place.block != BlockId::NONE {
            self.ports.prefetch(copy.place.block, copy.place.port_bit);
        }
    }

    /// Prefetches the home that has the block.
    #[inline]
    pub(crate) fn prefetch_owner(&self, block: BlockId) {
        if block != BlockId::NONE {
            if let Some(owner) = self.ports.owner(block) {
                self.subscribers.prefetch(owner);
            }
        }
    }

    /// Makes a record that was put into its slot the mapping of a copy. If there is no room for
    /// what belongs to it, the record is forgotten. `asked`: the destination that the home asks, if
    /// the mapping's flow has another one.
    #[inline(always)]
    pub(crate) fn attach(
        &mut self,
        slab: SlabId,
        id: RecordId,
        copy: &MappingCopy,
        asked: Option<Endpoint>,
        now: Tick,
    ) -> Applied {
        match self.try_attach(slab, id, copy, asked, now) {
            Some(()) => Applied::Done,
            None => self.refuse(slab, id, copy),
        }
    }

    #[cold]
    fn refuse(&mut self, slab: SlabId, id: RecordId, copy: &MappingCopy) -> Applied {
        let gives_way = self.gives_way(slab, copy);
        self.mappings.forget(id);
        if gives_way { Applied::Old } else { self.lane_is_full(slab) }
    }

    /// True if a relayed mapping conflicts with one held here; the relayed one may be stale.
    fn gives_way(&self, slab: SlabId, copy: &MappingCopy) -> bool {
        let is_anothers = |owner: u32| !self.subscribers.is_of(owner, &copy.home(slab));
        let (public, protocol) = (copy.image.public(), copy.image.protocol());
        let is_held = self.find_holder(slab, public, protocol).is_some()
            || copy.place.has_block()
                && self.ports.owner(copy.place.block).is_some_and(is_anothers);
        self.is_relayed && is_held
    }

    /// None if there is no room or the copy gives way itself; only records that conflicted with it
    /// may then be gone.
    #[inline(always)]
    fn try_attach(
        &mut self,
        slab: SlabId,
        id: RecordId,
        copy: &MappingCopy,
        asked: Option<Endpoint>,
        now: Tick,
    ) -> Option<()> {
        let image = &copy.image;
        let is_live = !image.is_quarantined();
        if is_live && self.flows >= self.policy.live.flows_max {
            return None;
        }
        let created = Tick(now.0.wrapping_sub(image.age_sec()));
        let (subscriber, address) = match copy.place.has_block() {
            true => (self.port_holder(slab, copy)?, copy.place.address),
            false => self.hold_address(slab, copy, created)?,
        };
        let Some(may_have_duplicate) = self.index(id, is_live, copy) else {
            self.give_up_holding(subscriber, address, copy);
            return None;
        };
        let home = self.subscribers.get_mut(subscriber);
        home.records += 1;
        let (is_answered, flags) = (home.is_answered(), home.mapping_flags());
        if is_live {
            home.flows += 1;
            self.flows += 1;
        } else {
            self.quarantined += 1;
        }
        if copy.place.has_block() {
            home.ports_used[image.protocol().space()] += 1;
            self.take_copied_port(copy);
        }
        let mapping = self.mappings.get_mut(id);
        image.fill(mapping, lane_of(slab).0);
        mapping.first.last_seen = never(now);
        mapping.created = created;
        mapping.address = address;
        mapping.subscriber = subscriber;
        mapping.flags |= flags;
        mapping.count_inbound(image.state(), 1);
        if image.gre_key().is_some() {
            self.policy.has_keyed = true;
        }
        if let Some(asked) = asked {
            self.policy.has_redirected = true;
            self.mappings.get_mut(id).set_asked(asked);
        }
        if image.flags() & Mapping::ANSWERED != 0 && !is_answered {
            self.subscribers.set_answered(subscriber);
        }
        if may_have_duplicate {
            self.look_for_duplicate(copy.outbound, id);
        }
        Some(())
    }

    /// Makes the mapping's port free and its block the home's; returns the home's slot.
    #[inline(always)]
    fn port_holder(&mut self, slab: SlabId, copy: &MappingCopy) -> Option<u32> {
        let PoolPlace { block, port_bit, .. } = copy.place;
        if self.ports.is_taken(port_bit) {
            self.evict_holder(slab, copy)?;
        }
        let home = copy.home(slab);
        match self.ports.owner(block) {
            Some(owner) if self.subscribers.get(owner).is(&home, self.policy.by_key) => Some(owner),
            former => self.claim(slab, copy, former),
        }
    }

    #[inline(always)]
    fn take_copied_port(&mut self, copy: &MappingCopy) {
        let (PoolPlace { block, port_bit, .. }, protocol) = (copy.place, copy.image.protocol());
        self.ports.take_at(port_bit, block, protocol);
    }

    /// Takes the mapping's address for its home; returns the slots of both, for a static mapping
    /// the position of its public address. No other mapping of the lane may have the public
    /// endpoint, which without translation is the inside one.
    #[cold]
    fn hold_address(
        &mut self,
        slab: SlabId,
        copy: &MappingCopy,
        created: Tick,
    ) -> Option<(u32, u32)> {
        self.evict_holder(slab, copy)?;
        let home = copy.home(slab);
        let subscriber = self.find_or_create(&home, copy.place.paired_address)?;
        if self.policy.enabled {
            return Some((subscriber, copy.place.address));
        }
        let (inside, (_, lane)) = (copy.image.inside().address, lane_of(slab));
        let Some(address) = self.hold_copied_address(&home, inside, lane, created) else {
            self.dismiss_home(subscriber);
            return None;
        };
        Some((subscriber, address))
    }

    pub(crate) fn find_or_create(&mut self, home: &Home, paired_address: u32) -> Option<u32> {
        match self.subscribers.find(home) {
            Some(slot) => Some(slot),
            None => {
                let start = self.home_start(home, paired_address);
                self.subscribers.create_copy(home, start, self.now).ok()
            }
        }
    }

    /// Gives the mapping's home the block, which is not its own yet; returns the home's slot.
    #[inline(never)]
    fn claim(&mut self, slab: SlabId, copy: &MappingCopy, former: Option<u32>) -> Option<u32> {
        let block = copy.place.block;
        if former.is_some() && self.is_relayed {
            return None;
        }
        let subscriber = self.find_or_create(&copy.home(slab), copy.place.paired_address)?;
        if let Some(former) = former {
            self.evict(former, block);
        }
        if self.subscribers.is_list_full(subscriber) {
            self.dismiss_home(subscriber);
            return None;
        }
        let is_of_lane = slab_of(self.ports.shard_of(block), self.ports.lane(block)) == slab;
        assert!(is_of_lane, "a copy's block is one of its lane");
        let is_ours = self.lanes.get(slab).is_owned;
        assert!(!is_ours, "a copied mapping claims no block in a lane that this worker owns");
        self.ports.claim(block, subscriber);
        self.subscribers.add_block(subscriber, block);
        Some(subscriber)
    }

    /// Enters a record into both indexes, or into none. Returns whether another one may have the
    /// same inside endpoint; None if there was no room.
    #[inline(always)]
    fn index(&mut self, id: RecordId, is_live: bool, copy: &MappingCopy) -> Option<bool> {
        self.inbound_index.insert(copy.inbound, id.0).ok()?;
        if !is_live {
            return Some(false);
        }
        let may_be_second = self.outbound_index.insert_noting(copy.outbound, id.0).ok();
        if may_be_second.is_none() {
            self.inbound_index.remove(copy.inbound, id.0);
        }
        may_be_second
    }

    /// Removes the former mapping of a public endpoint, whose end has not arrived yet. None if that
    /// mapping stays.
    #[cold]
    fn evict_holder(&mut self, slab: SlabId, copy: &MappingCopy) -> Option<()> {
        let (public, protocol) = (copy.image.public(), copy.image.protocol());
        if let Some(former) = self.find_holder(slab, public, protocol) {
            if self.is_relayed {
                return None;
            }
            self.remove_mapping(former, CopyRemoval::Forgotten);
        }
        Some(())
    }

    /// Gives up the port or the address of a copy that found no room in the indexes.
    #[cold]
    fn give_up_holding(&mut self, subscriber: u32, address: u32, copy: &MappingCopy) {
        if !self.policy.enabled {
            self.release_address(address);
        } else if copy.place.has_block() {
            let (protocol, block) = (copy.image.protocol(), copy.place.block);
            self.take_copied_port(copy);
            self.subscribers.get_mut(subscriber).ports_used[protocol.space()] += 1;
            let lease = PortLease { subscriber, block, public: copy.image.public() };
            self.give_port_back(&lease, protocol);
        }
        self.dismiss_home(subscriber);
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
