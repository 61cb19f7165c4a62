//! The outer IPv6 addresses of homes with tunnels over IPv6, each with a handle of 32 bits, which
//! stands where a record has an outer IPv4 address.
//!
//! ```text
//!   packet from a home: outer address, 128 bits --index--> slot --> handle --> Home::outer
//!   packet to a home:   Home::outer --> slot --> outer address
//!
//!   handle = 0xf (4 bits) | generation of the slot | slot
//! ```
//!
//! - An address and its handle are exact: two homes never share a handle, and no handle stands for
//!   two addresses.
//! - A handle lives as long as a subscriber with it. One that was made for a packet that begins no
//!   flow goes when the burst is over, so forged sources leave none behind.
//! - Handles are this worker's own. Other workers, logs and operators get the address.
//! - A packet finds its home's handle in one cache line, which is prefetched: the near homes. A
//!   home that has no place there, of a full table one in fifty, is found by the index.
//! - A slot that is given back waits behind all other free ones and has another generation then. So
//!   a handle comes again after 2^27 others, and what remembers a home for seconds after its last
//!   flow (fragments, limits) takes no other home for it.

use ipnet::Ipv6Net;
use weir_flow::{Hash, HashKey, Index, OutOfMemory, Region};
use weir_rules::OUTER_HANDLES;

use crate::config::NatConfig;
use crate::endpoint::{Home, OuterAddress, ShardIndex};
use crate::ipv6::PrefixRanges;
use crate::nat::Nat;

const HANDLE_BITS: u32 = 28;
const NONE: u32 = u32::MAX;
/// Slots for the sources of a burst that begin no flow, and for what changes in copies meanwhile.
const SPARE: usize = 256;

const _: () = assert!(OUTER_HANDLES == u32::MAX << HANDLE_BITS);

/// Prefixes of the outer IPv6 addresses of homes ([`NatConfig::subscribers6`]).
#[derive(Clone, Debug, Default)]
pub struct HomePrefixes(PrefixRanges);

impl HomePrefixes {
    pub fn new(prefixes: &[Ipv6Net]) -> Self {
        let disjoint = Ipv6Net::aggregate(&prefixes.to_vec());
        Self(PrefixRanges::new(std::iter::once((&*disjoint, ShardIndex(0)))))
    }

    pub(crate) fn contains(&self, address: [u64; 2]) -> bool {
        let [upper, lower] = address;
        self.0.shard_of(u128::from(upper) << 64 | u128::from(lower)).is_some()
    }
}

/// An address, or a free slot. `next` links a free slot to the next free one, and an address that
/// had no subscriber to the next such one.
#[derive(Clone, Copy, Debug)]
struct OuterSlot {
    address: [u64; 2],
    /// Counts the addresses that the slot has had.
    generation: u32,
    /// Subscribers with this handle.
    subscribers: u32,
    next: u32,
    is_used: bool,
    /// Whether it is in the list of addresses that had no subscriber.
    is_unused: bool,
}

impl OuterSlot {
    const FREE: Self = Self {
        address: [0; 2],
        generation: 0,
        subscribers: 0,
        next: NONE,
        is_used: false,
        is_unused: false,
    };
}

/// Homes of a line of [`NearHomes`].
const WAYS: usize = 3;

/// Addresses with the same place among the near homes, and the handle of each; 0: none.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct NearLine {
    addresses: [[u64; 2]; WAYS],
    handles: [u32; WAYS],
}

const _: () = assert!(size_of::<NearLine>() == 64);

impl NearLine {
    const EMPTY: Self = Self { addresses: [[0; 2]; WAYS], handles: [0; WAYS] };
}

/// Handles by address, as far as there is a place for them: a line for two slots.
#[derive(Debug)]
struct NearHomes {
    /// A power of two of them.
    lines: Region<NearLine>,
}

impl NearHomes {
    fn lines_for(slots: usize) -> usize {
        slots / 2
    }

    #[inline(always)]
    fn place(&self, hash: Hash) -> usize {
        hash.0 as usize & self.lines.len().wrapping_sub(1)
    }

    /// Returns the handle of an address with this hash, or 0.
    #[inline(always)]
    fn get(&self, hash: Hash, address: [u64; 2]) -> u32 {
        let Some(line) = self.lines.get(self.place(hash)) else { return 0 };
        let [upper, lower] = address;
        let is_it = |known: &[u64; 2]| (known[0] ^ upper) | (known[1] ^ lower) == 0;
        line.addresses.iter().position(is_it).map_or(0, |way| line.handles[way])
    }

    fn insert(&mut self, hash: Hash, address: [u64; 2], handle: u32) {
        let place = self.place(hash);
        let line = &mut self.lines[place];
        if let Some(way) = line.handles.iter().position(|&handle| handle == 0) {
            (line.addresses[way], line.handles[way]) = (address, handle);
        }
    }

    fn remove(&mut self, hash: Hash, handle: u32) {
        let place = self.place(hash);
        let line = &mut self.lines[place];
        if let Some(way) = line.handles.iter().position(|&known| known == handle) {
            (line.addresses[way], line.handles[way]) = ([0; 2], 0);
        }
    }
}

/// Outer addresses, found by address and by handle.
#[derive(Debug)]
pub(crate) struct OuterAddresses {
    /// A power of two of them, at least twice as many as there may be subscribers; none without
    /// prefixes of such homes.
    slots: Region<OuterSlot>,
    index: Index,
    near: NearHomes,
    hash_key: HashKey,
    /// Prefixes of the homes: no other address gets a handle.
    homes: HomePrefixes,
    oldest_free: u32,
    newest_free: u32,
    /// First of the addresses that had no subscriber at some time since the last call of
    /// [`release_unused`](Self::release_unused).
    unused: u32,
}

impl OuterAddresses {
    /// Returns the number of slots that `subscribers` need.
    fn slots_for(config: &NatConfig, subscribers: usize) -> usize {
        match config.subscribers6.is_empty() {
            true => 0,
            false => (2 * (subscribers + SPARE)).next_power_of_two(),
        }
    }

    /// Returns the bytes of memory that a table for so many subscribers takes.
    pub(crate) fn bytes_for(config: &NatConfig, subscribers: usize) -> usize {
        let slots = Self::slots_for(config, subscribers);
        Region::<OuterSlot>::bytes_for(slots)
            + Index::bytes_for(slots)
            + Region::<NearLine>::bytes_for(NearHomes::lines_for(slots))
    }

    pub(crate) fn new(config: &NatConfig, subscribers: usize) -> Result<Self, OutOfMemory> {
        let count = Self::slots_for(config, subscribers);
        let mut slots = Region::new(count, OuterSlot::FREE)?;
        for (at, slot) in slots.iter_mut().enumerate() {
            slot.next = if at + 1 < count { at as u32 + 1 } else { NONE };
        }
        Ok(Self {
            slots,
            index: Index::new(count)?,
            near: NearHomes { lines: Region::new(NearHomes::lines_for(count), NearLine::EMPTY)? },
            hash_key: HashKey::new([config.seed[2] ^ 0x6f75_7436, config.seed[3]]),
            homes: HomePrefixes::new(&config.subscribers6),
            oldest_free: if count > 0 { 0 } else { NONE },
            newest_free: if count > 0 { count as u32 - 1 } else { NONE },
            unused: NONE,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.index.bytes() + self.near.lines.bytes()
    }

    /// True if there can be handles.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Returns the number of addresses that have a handle.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of addresses that there is room for.
    pub(crate) fn capacity(&self) -> u64 {
        self.slots.len().saturating_sub(1) as u64
    }

    /// Puts other prefixes of homes in force, for handles that are made from now on, and leaves the
    /// former ones in their place.
    pub(crate) fn swap_homes(&mut self, homes: &mut HomePrefixes) {
        std::mem::swap(&mut self.homes, homes);
    }

    /// True if an address lies in a prefix of homes.
    pub(crate) fn is_home(&self, address: [u64; 2]) -> bool {
        self.is_on() && self.homes.contains(address)
    }

    #[inline(always)]
    fn slot_bits(&self) -> u32 {
        self.slots.len().trailing_zeros()
    }

    #[inline(always)]
    fn slot_of(&self, handle: u32) -> usize {
        handle as usize & self.slots.len().wrapping_sub(1)
    }

    fn handle_of(&self, slot: u32) -> u32 {
        let generation = self.slots[slot as usize].generation;
        OUTER_HANDLES | (generation << self.slot_bits() & !OUTER_HANDLES) | slot
    }

    #[inline(always)]
    fn hash(&self, address: [u64; 2]) -> Hash {
        self.hash_key.hash2(address)
    }

    /// Returns the handle of an address that has one.
    #[inline(always)]
    pub(crate) fn find(&self, address: [u64; 2]) -> Option<u32> {
        let hash = self.hash(address);
        match self.near.get(hash, address) {
            0 => self.find_far(hash, address),
            handle => Some(handle),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_far(&self, hash: Hash, address: [u64; 2]) -> Option<u32> {
        if !self.is_on() {
            return None;
        }
        let is_it = |slot: u32| self.slots[slot as usize].address == address;
        self.index.find(hash, is_it).map(|slot| self.handle_of(slot))
    }

    /// Prefetches what [`find`](Self::find) reads of this address.
    #[inline(always)]
    pub(crate) fn prefetch(&self, address: [u64; 2]) {
        self.near.lines.prefetch(self.near.place(self.hash(address)));
    }

    /// Returns the address of a handle of this table; None for one that was given back, whatever
    /// its slot has now.
    #[inline]
    pub(crate) fn address(&self, handle: u32) -> Option<[u64; 2]> {
        let at = self.slot_of(handle);
        let slot = self.slots.get(at)?;
        (slot.is_used && self.handle_of(at as u32) == handle).then_some(slot.address)
    }

    /// Returns the handle of an address. One without a subscriber yet is given back by the next
    /// [`release_unused`](Self::release_unused). None for an address that is no home's, or if
    /// there is no room.
    pub(crate) fn intern(&mut self, address: [u64; 2]) -> Option<u32> {
        if let Some(handle) = self.find(address) {
            return Some(handle);
        }
        let slot = self.oldest_free;
        // The last free slot stays in the list, which so has two ends.
        let has_room = slot != NONE && slot != self.newest_free;
        if !self.homes.contains(address) || !has_room {
            return None;
        }
        let hash = self.hash(address);
        self.index.insert(hash, slot).ok()?;
        let entry = &mut self.slots[slot as usize];
        self.oldest_free = entry.next;
        *entry = OuterSlot {
            address,
            generation: entry.generation.wrapping_add(1),
            is_used: true,
            ..OuterSlot::FREE
        };
        self.note_unused(slot);
        let handle = self.handle_of(slot);
        self.near.insert(hash, address, handle);
        Some(handle)
    }

    fn note_unused(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if !entry.is_unused {
            (entry.is_unused, entry.next) = (true, self.unused);
            self.unused = slot;
        }
    }

    /// Gives the handles back that have no subscriber.
    #[inline]
    pub(crate) fn release_unused(&mut self) {
        if self.unused != NONE {
            self.release_listed();
        }
    }

    #[inline(never)]
    fn release_listed(&mut self) {
        while self.unused != NONE {
            let slot = self.unused;
            let entry = &mut self.slots[slot as usize];
            self.unused = entry.next;
            entry.is_unused = false;
            if entry.subscribers == 0 {
                self.free(slot);
            }
        }
    }

    /// Counts a subscriber with this handle.
    pub(crate) fn retain(&mut self, handle: u32) {
        let (slot, is_known) = (self.slot_of(handle), self.address(handle).is_some());
        let entry = &mut self.slots[slot];
        assert!(is_known, "a home's outer address has its handle");
        entry.subscribers += 1;
    }

    /// Takes a subscriber back. After the last one the handle stays until the next call of
    /// [`release_unused`](Self::release_unused): packets of the burst may have it.
    pub(crate) fn release(&mut self, handle: u32) {
        let slot = self.slot_of(handle);
        let entry = &mut self.slots[slot];
        assert!(entry.is_used && entry.subscribers > 0, "an outer address is given back once");
        entry.subscribers -= 1;
        if entry.subscribers == 0 {
            self.note_unused(slot as u32);
        }
    }

    fn free(&mut self, slot: u32) {
        let OuterSlot { address, generation, .. } = self.slots[slot as usize];
        let hash = self.hash(address);
        self.near.remove(hash, self.handle_of(slot));
        let was_indexed = self.index.remove(hash, slot);
        assert!(was_indexed, "an outer address is in the index");
        self.slots[slot as usize] = OuterSlot { generation, ..OuterSlot::FREE };
        self.slots[self.newest_free as usize].next = slot;
        self.newest_free = slot;
    }

    /// Panics unless each handle has as many subscribers as it counts.
    #[cfg(any(test, feature = "audit"))]
    pub(crate) fn audit(&self, subscribers: impl Iterator<Item = u32>) {
        let mut counts = vec![0; self.slots.len()];
        for handle in subscribers.filter(|&outer| outer >= OUTER_HANDLES) {
            assert!(self.address(handle).is_some(), "a subscriber's handle has its address");
            counts[self.slot_of(handle)] += 1;
        }
        for (slot, count) in self.slots.iter().zip(&counts) {
            assert_eq!(slot.subscribers, *count, "subscribers of an outer address");
            assert!(slot.is_used || *count == 0);
        }
        for line in self.near.lines.iter() {
            for (address, handle) in line.addresses.iter().zip(line.handles) {
                let known = self.address(handle).filter(|_| handle != 0);
                assert_eq!(known.unwrap_or_default(), *address, "a near home");
            }
        }
        let used = self.slots.iter().filter(|slot| slot.is_used).count();
        assert_eq!(used, self.index.len());
        let is_listed = |slot: &&OuterSlot| !slot.is_used || slot.subscribers > 0 || slot.is_unused;
        assert!(self.slots.iter().all(|slot| is_listed(&slot)), "no outer address is forgotten");
    }
}

impl Nat {
    /// True if there may be homes with tunnels over IPv6.
    #[inline]
    pub fn has_outer_ipv6(&self) -> bool {
        self.subscribers.outers.is_on()
    }

    /// Returns the outer address of a home, as others know it.
    pub fn outer_address(&self, home: &Home) -> OuterAddress {
        self.outer_of(home.outer)
    }

    pub(crate) fn outer_of(&self, outer: u32) -> OuterAddress {
        self.subscribers.outer_of(outer)
    }

    /// Returns the address of a handle, to write it into a tunnel header.
    #[inline]
    pub fn outer_ipv6(&self, outer: u32) -> Option<[u64; 2]> {
        self.subscribers.outers.address(outer)
    }

    /// True if a home may have this outer IPv6 address.
    pub fn is_home_over_ipv6(&self, address: [u64; 2]) -> bool {
        self.subscribers.outers.is_home(address)
    }

    /// Prefetches what [`find_outer`](Self::find_outer) reads of this address.
    #[inline(always)]
    pub fn begin_find_outer(&self, address: [u64; 2]) {
        self.subscribers.outers.prefetch(address);
    }

    /// Returns the handle by which a home with this outer IPv6 address is known, if it is known.
    #[inline(always)]
    pub fn find_outer(&self, address: [u64; 2]) -> Option<u32> {
        self.subscribers.outers.find(address)
    }

    /// As [`find_outer`](Self::find_outer), and makes a handle for a home that is not known. It
    /// stays if the home begins a flow before the next call of
    /// [`release_outers`](Self::release_outers). None for an address that is no home's, or if there
    /// is no room.
    #[inline(never)]
    pub fn intern_outer(&mut self, address: [u64; 2]) -> Option<u32> {
        self.subscribers.outers.intern(address)
    }

    /// Gives back the handles of homes that have begun no flow. No packet that was read before may
    /// be in work.
    #[inline]
    pub fn release_outers(&mut self) {
        self.subscribers.outers.release_unused();
    }

    /// Returns the handle of a home's outer address, or the address itself.
    pub(crate) fn intern_address(&mut self, outer: OuterAddress) -> Option<u32> {
        match outer {
            OuterAddress::Ipv4(address) => Some(address),
            OuterAddress::Ipv6(address) => self.intern_outer(address),
        }
    }

    /// As [`intern_address`](Self::intern_address), of a home that is known.
    pub(crate) fn known_outer(&self, outer: OuterAddress) -> Option<u32> {
        match outer {
            OuterAddress::Ipv4(address) => Some(address),
            OuterAddress::Ipv6(address) => self.find_outer(address),
        }
    }
}

#[cfg(test)]
#[path = "outer_addresses_tests.rs"]
mod tests;
