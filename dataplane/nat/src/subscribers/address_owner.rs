//! The home that an inside address belongs to: an IPv4 address without translation, or the /64 of
//! an IPv6 address that homes claim (`ipv6/delegation.rs`).
//!
//! ```text
//!   first flow of a home from an address --> owned --last record ends--> resting --hold--> free
//!                                              ^                            |
//!                                              +- a flow of the same home --+
//! ```
//!
//! An address belongs to the home that was first to open a flow from it, for every port and
//! protocol, until its last record has been gone for `quarantine_sec`. Another home is refused
//! meanwhile. A home may own many addresses.
//!
//! Copies count like flows in owned lanes, so a replica knows the address's owner when it has to
//! open flows itself. Two workers that did not reach each other may each have let another home in:
//! then both homes have an entry, their flows go on, and only the home that was first opens more.
//! An established packet needs no look-up here: its mapping names its home.
//!
//! A worker logs an address in each lane that it owns and in which the home has begun a flow since
//! it has the address, until the address is free here. So two workers that did not reach each other
//! log what they let in, each in lanes of its own.

mod listing;

use weir_flow::{Hash, HashKey, Index, OutOfMemory, Region};
use weir_ids::ShardId;

use crate::config::NatConfig;
use crate::endpoint::{Home, OuterAddress, Tick};
use crate::ipv6::Delegation;
use crate::logs::block_event::{BlockEventKind, BlockEvents, HoldingChange, HomeBlock, HomePrefix};
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::replication::lane::LANES;

const NONE: u32 = u32::MAX;
/// Addresses that there is room for: this many, and some for each home.
const OWNERS_MIN: u64 = 65_536;
const OWNERS_PER_HOME: u64 = 4;

/// A home as the log names it. It has the shard's id, which outlives the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    shard: ShardId,
    outer: OuterAddress,
    /// Only if it tells homes apart.
    gre_key: Option<u32>,
}

/// What a home has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldAddress {
    /// An inside IPv4 address, with all its ports.
    Address(u32),
    /// The inside IPv6 addresses that begin with these bits.
    Prefix(u64),
}

impl HeldAddress {
    fn word(self) -> u64 {
        match self {
            Self::Address(address) => address.into(),
            Self::Prefix(bits) => bits,
        }
    }
}

/// Room of a table, and how long an entry rests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnersRoom {
    entries: usize,
    hold_sec: u32,
    seed: [u64; 2],
}

impl OwnersRoom {
    /// Returns the room for inside IPv4 addresses; none with translation.
    pub(crate) fn of_addresses(config: &NatConfig) -> Self {
        Self::new(config, !config.enabled, config.quarantine_sec)
    }

    /// Returns the room for inside IPv6 prefixes; none where homes are prefixes.
    pub(crate) fn of_prefixes(config: &NatConfig) -> Self {
        match config.delegation {
            Some(Delegation::Claim { hold_sec }) => Self::new(config, true, hold_sec),
            // Claims may come with other settings.
            Some(Delegation::Static) => Self::new(config, true, 0),
            Some(Delegation::Prefix { .. }) | None => Self::new(config, false, 0),
        }
    }

    fn new(config: &NatConfig, is_wanted: bool, hold_sec: u32) -> Self {
        let entries = OWNERS_MIN + OWNERS_PER_HOME * config.subscribers_max();
        let entries = if is_wanted { entries.min(config.flows_max.into()) as usize } else { 0 };
        Self { entries, hold_sec, seed: [config.seed[2] ^ 0x6f77_6e65, config.seed[3]] }
    }

    /// Returns the bytes of memory that a table with this room takes.
    pub(crate) fn bytes(&self) -> usize {
        Region::<OwnedAddress>::bytes_for(self.entries) + Index::bytes_for(self.entries)
    }
}

/// An address and a home that has it. While the slot is free, `next` links to the next free slot.
#[derive(Clone, Copy, Debug)]
struct OwnedAddress {
    held: HeldAddress,
    owner: Owner,
    /// Mapping records of the home with this address, copies included.
    records: u32,
    /// When the first of its flows began, as far as is known here.
    since: Tick,
    /// When the last record went; valid while it rests.
    idle_since: Tick,
    /// Links of the list of resting entries, longest rest first; `NONE` at its ends and outside of
    /// it.
    previous: u32,
    next: u32,
    /// Whether a flow has stood here, or has only been attempted.
    is_used: bool,
    /// Lanes in which flows of the home have stood since it has the address, copies included, and
    /// the lane in which this worker logs it for the flows that it carries for others; a bit each.
    lanes: u8,
    /// Lanes, of those that this worker owned then, in which it has logged that the home has the
    /// address.
    logged: u8,
}

impl OwnedAddress {
    const FREE: Self = Self {
        held: HeldAddress::Address(0),
        owner: Owner { shard: ShardId(0), outer: OuterAddress::Ipv4(0), gre_key: None },
        records: 0,
        since: Tick(0),
        idle_since: Tick(0),
        previous: NONE,
        next: NONE,
        is_used: false,
        lanes: 0,
        logged: 0,
    };

    fn is_over(&self, hold_sec: u32, now: Tick) -> bool {
        self.records == 0 && now.since(self.idle_since) >= hold_sec
    }

    /// True if it was there before the other. Workers with the same records agree, but for the
    /// second that an age is rounded to.
    fn is_before(&self, other: &Self) -> bool {
        match (other.since.since(self.since), self.since.since(other.since)) {
            (0, 0) => {
                (self.owner.outer, self.owner.gre_key) < (other.owner.outer, other.owner.gre_key)
            }
            (later, _) => later > 0,
        }
    }

    /// Returns what the log says of it: an address with all its ports, or a prefix.
    fn event(&self, change: HoldingChange) -> BlockEventKind {
        let Owner { outer: subscriber, gre_key, .. } = self.owner;
        match self.held {
            HeldAddress::Address(public_address) => {
                let (port_first, port_last) = (0, u16::MAX);
                let block =
                    HomeBlock { subscriber, gre_key, public_address, port_first, port_last };
                match change {
                    HoldingChange::Taken => BlockEventKind::Allocated(block),
                    HoldingChange::Listed => BlockEventKind::Held(block),
                    HoldingChange::Released => BlockEventKind::Released(block),
                }
            }
            HeldAddress::Prefix(prefix64) => {
                BlockEventKind::Prefix(change, HomePrefix { subscriber, gre_key, prefix64 })
            }
        }
    }
}

/// Addresses with their homes, found by address. Empty with translation.
#[derive(Debug)]
pub(crate) struct AddressOwners {
    slots: Region<OwnedAddress>,
    /// Several homes of one address have the same hash.
    index: Index,
    hash_key: HashKey,
    hold_sec: u32,
    free_head: u32,
    /// The ends of the list of resting entries.
    oldest: u32,
    newest: u32,
    /// Entries, of all shards, whose home has had flows in each lane.
    in_lane: [u32; LANES as usize],
}

impl AddressOwners {
    pub(crate) fn new(room: OwnersRoom) -> Result<Self, OutOfMemory> {
        let OwnersRoom { entries: capacity, hold_sec, seed } = room;
        let mut slots = Region::new(capacity, OwnedAddress::FREE)?;
        for (slot, entry) in slots.iter_mut().enumerate() {
            entry.next = if slot + 1 < capacity { slot as u32 + 1 } else { NONE };
        }
        Ok(Self {
            slots,
            index: Index::new(capacity)?,
            hash_key: HashKey::new(seed),
            hold_sec,
            free_head: if capacity > 0 { 0 } else { NONE },
            oldest: NONE,
            newest: NONE,
            in_lane: [0; LANES as usize],
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.index.bytes()
    }

    /// Sets how long entries rest from now on.
    pub(crate) fn set_hold_sec(&mut self, hold_sec: u32) {
        self.hold_sec = hold_sec;
    }

    fn hash(&self, held: HeldAddress) -> Hash {
        self.hash_key.hash2([held.word(), 0])
    }

    fn find(&self, held: HeldAddress, mut is_it: impl FnMut(&OwnedAddress) -> bool) -> Option<u32> {
        self.index.find(self.hash(held), |slot| {
            let entry = &self.slots[slot as usize];
            entry.held == held && is_it(entry)
        })
    }

    /// Returns the outer address and the key of the home of this shard that has an address: of
    /// several, the one that was first.
    pub(crate) fn holder(
        &self,
        held: HeldAddress,
        shard: ShardId,
    ) -> Option<(OuterAddress, Option<u32>)> {
        let mut first: Option<&OwnedAddress> = None;
        self.index.find(self.hash(held), |slot| {
            let entry = &self.slots[slot as usize];
            let is_it = entry.held == held && entry.owner.shard == shard;
            if is_it && first.is_none_or(|first| entry.is_before(first)) {
                first = Some(entry);
            }
            false
        });
        first.map(|entry| (entry.owner.outer, entry.owner.gre_key))
    }

    /// Adds a record of the owner with this address, if no other home has it.
    pub(crate) fn claim(
        &mut self,
        address: HeldAddress,
        owner: Owner,
        now: Tick,
        events: &mut BlockEvents,
    ) -> Result<u32, Refusal> {
        let hold_sec = self.hold_sec;
        // Other homes' entries whose rest is over, or that rest in a shard that has lost the
        // address.
        while let Some(over) = self.find(address, |entry| {
            entry.owner != owner
                && (entry.is_over(hold_sec, now)
                    || entry.records == 0 && entry.owner.shard != owner.shard)
        }) {
            self.free(over, events);
        }
        let own = self.find(address, |entry| entry.owner == owner);
        let standing = own.map(|slot| self.slots[slot as usize]);
        let standing = standing.filter(|entry| !entry.is_over(hold_sec, now));
        let is_anothers = self.find(address, |entry| {
            entry.owner != owner && standing.is_none_or(|own| entry.is_before(&own))
        });
        if is_anothers.is_some() {
            return Err(Refusal::AddressConflict);
        }
        self.enter(address, owner, own, now, events).ok_or(Refusal::TableFull)
    }

    /// Adds a record of a copy: its lane's owner has decided, so nothing is checked. None if there
    /// is no room.
    pub(crate) fn hold(
        &mut self,
        address: HeldAddress,
        owner: Owner,
        lane: u8,
        created: Tick,
        events: &mut BlockEvents,
    ) -> Option<u32> {
        let own = self.find(address, |entry| entry.owner == owner);
        let slot = self.enter(address, owner, own, created, events)?;
        let entry = &mut self.slots[slot as usize];
        entry.is_used = true;
        if created.since(entry.since) == 0 {
            entry.since = created;
        }
        self.log_use(slot, lane, events);
        Some(slot)
    }

    fn enter(
        &mut self,
        address: HeldAddress,
        owner: Owner,
        own: Option<u32>,
        since: Tick,
        events: &mut BlockEvents,
    ) -> Option<u32> {
        let slot = match own {
            Some(slot) => slot,
            None => self.create(address, owner, since, events)?,
        };
        if self.is_resting(slot) {
            self.unlink(slot);
        }
        self.slots[slot as usize].records += 1;
        Some(slot)
    }

    fn create(
        &mut self,
        address: HeldAddress,
        owner: Owner,
        since: Tick,
        events: &mut BlockEvents,
    ) -> Option<u32> {
        if self.free_head == NONE && self.oldest != NONE {
            // A home with flows comes before a home that had some.
            self.free(self.oldest, events);
        }
        let slot = self.free_head;
        if slot == NONE || self.index.insert(self.hash(address), slot).is_err() {
            return None;
        }
        let entry = &mut self.slots[slot as usize];
        self.free_head = entry.next;
        *entry = OwnedAddress { held: address, owner, since, ..OwnedAddress::FREE };
        Some(slot)
    }

    /// Records that a flow in an owned lane stands.
    pub(crate) fn note_use(&mut self, slot: u32, lane: u8, now: Tick, events: &mut BlockEvents) {
        let entry = &mut self.slots[slot as usize];
        if !std::mem::replace(&mut entry.is_used, true) {
            entry.since = now;
        }
        if entry.lanes >> lane & 1 == 0 {
            self.log_use(slot, lane, events);
        }
    }

    /// Records that the home has a flow in this lane, or one of another lane that the owner of this
    /// lane carries. Logs the first one if this worker owns the lane: a lane that is taken is
    /// listed.
    #[cold]
    #[inline(never)]
    pub(crate) fn log_use(&mut self, slot: u32, lane: u8, events: &mut BlockEvents) {
        let entry = &mut self.slots[slot as usize];
        let bit = 1 << lane;
        if entry.lanes & bit != 0 {
            return;
        }
        entry.lanes |= bit;
        entry.logged |= events.owned(entry.owner.shard, bit);
        if entry.logged & bit != 0 {
            events.push_claim(entry.owner.shard, bit, entry.event(HoldingChange::Taken));
        }
        self.in_lane[usize::from(lane)] += 1;
    }

    /// Removes a record. After the last one the address rests; one that no flow stood on is free at
    /// once.
    pub(crate) fn release(&mut self, slot: u32, now: Tick, events: &mut BlockEvents) {
        let entry = &mut self.slots[slot as usize];
        entry.records -= 1;
        if entry.records > 0 {
            return;
        }
        if !entry.is_used || self.hold_sec == 0 {
            return self.free(slot, events);
        }
        entry.idle_since = now;
        entry.previous = self.newest;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.slots[newest as usize].next = slot,
        }
        self.newest = slot;
    }

    /// Frees up to `ends_max` addresses that have rested.
    pub(crate) fn expire(&mut self, now: Tick, ends_max: usize, events: &mut BlockEvents) {
        for _ in 0..ends_max {
            let oldest = self.oldest;
            if oldest == NONE || !self.slots[oldest as usize].is_over(self.hold_sec, now) {
                return;
            }
            self.free(oldest, events);
        }
    }

    fn is_resting(&self, slot: u32) -> bool {
        self.oldest == slot || self.slots[slot as usize].previous != NONE
    }

    fn unlink(&mut self, slot: u32) {
        let OwnedAddress { previous, next, .. } = self.slots[slot as usize];
        match previous {
            NONE => self.oldest = next,
            previous => self.slots[previous as usize].next = next,
        }
        match next {
            NONE => self.newest = previous,
            next => self.slots[next as usize].previous = previous,
        }
        let entry = &mut self.slots[slot as usize];
        (entry.previous, entry.next) = (NONE, NONE);
    }

    fn free(&mut self, slot: u32, events: &mut BlockEvents) {
        if self.is_resting(slot) {
            self.unlink(slot);
        }
        let entry = self.slots[slot as usize];
        assert!(entry.records == 0, "an address that is freed has no record");
        let was_indexed = self.index.remove(self.hash(entry.held), slot);
        assert!(was_indexed, "an owner is in the index");
        for lane in 0..LANES {
            self.in_lane[lane as usize] -= u32::from(entry.lanes >> lane & 1);
        }
        let logged = events.owned(entry.owner.shard, entry.logged);
        events.push_claim(entry.owner.shard, logged, entry.event(HoldingChange::Released));
        self.slots[slot as usize] = OwnedAddress { next: self.free_head, ..OwnedAddress::FREE };
        self.free_head = slot;
    }
}

impl Nat {
    pub(crate) fn owner(&self, home: &Home) -> Owner {
        let Home { shard, outer, gre_key } = self.identity(home);
        Owner { shard: self.shards.id(shard), outer: self.outer_of(outer), gre_key }
    }

    /// Claims an inside address for a home, without translation: the address must be one that its
    /// shard announces, and belongs to one home. Returns the slot to remember in the mapping's
    /// record.
    ///
    /// # Errors
    /// [`Refusal::InsideNotPublic`], [`Refusal::AddressConflict`], [`Refusal::TableFull`]
    #[cold]
    pub(crate) fn claim_address(&mut self, home: &Home, address: u32) -> Result<u32, Refusal> {
        if self.public.shard_of(address) != Some(home.shard) {
            return Err(Refusal::InsideNotPublic);
        }
        let owner = self.owner(home);
        self.owners.claim(HeldAddress::Address(address), owner, self.now, &mut self.events)
    }

    /// As [`claim_address`](Self::claim_address), for a copy. None if there is no room.
    #[cold]
    pub(crate) fn hold_copied_address(
        &mut self,
        home: &Home,
        address: u32,
        lane: u8,
        created: Tick,
    ) -> Option<u32> {
        let owner = self.owner(home);
        self.owners.hold(HeldAddress::Address(address), owner, lane, created, &mut self.events)
    }

    /// Records that this worker, the owner of a lane, carries a flow of another owner's lane.
    #[cold]
    pub(crate) fn note_carried_address(&mut self, slot: u32, lane: u8) {
        self.owners.log_use(slot, lane, &mut self.events);
    }

    /// Removes the record that an address was claimed or held for.
    #[cold]
    pub(crate) fn release_address(&mut self, slot: u32) {
        self.owners.release(slot, self.now, &mut self.events);
    }

    /// Frees the addresses whose rest is over.
    pub(crate) fn expire_addresses(&mut self, now: Tick, ends_max: usize) {
        self.owners.expire(now, ends_max, &mut self.events);
        self.claims.expire(now, ends_max, &mut self.events);
    }
}
