//! Homes that hold state: their public address, their blocks, their share of the table.
//!
//! A home becomes a subscriber with its first mapping and ceases to be one when its last record is
//! gone, quarantine included. The table is accessed when mappings and sessions begin and end, never
//! for an established packet.

mod block_lists;
mod shard_homes;
mod side_counts;

use weir_flow::{Candidate, Hash, HashKey, Index, OutOfMemory, Region};

use crate::config::NatConfig;
use crate::endpoint::{Home, OuterAddress, Protocol, ShardIndex, Tick, is_outer_handle};
use crate::packet::Refusal;
use crate::sessions::mapping::Mapping;
use crate::subscribers::admission::{AdmissionPace, Memory, spare_slots};
use crate::subscribers::allowance::HomeStart;
use crate::subscribers::outer_addresses::OuterAddresses;
pub(crate) use block_lists::HeldBlock;
use shard_homes::{ShardHomes, shard_maxima};
use side_counts::SideCounts;

/// Maximum number of subscribers of all shards of a worker.
pub const SUBSCRIBERS_TOTAL_MAX: u64 = 1 << 22;
/// Limit of subscribers * blocks of a quota: one u32 each.
pub(crate) const BLOCK_LISTS_MAX: u64 = 1 << 28;

/// No paired address: without translation.
pub(crate) const NO_ADDRESS: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

/// A home that holds state: one cache line. While the slot is free, `outer` links to the next free
/// slot.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Subscriber {
    pub(crate) outer: u32,
    /// Valid with `KEYED`.
    gre_key: u32,
    /// Position in the pool of its paired address.
    pub(crate) paired_address: u32,
    /// Number of blocks it holds.
    pub(crate) blocks: u32,
    /// Copy of the first element of its list of blocks: all that is read for a home with one.
    pub(crate) first_block: HeldBlock,
    /// Leased ports per protocol, those in quarantine included.
    pub(crate) ports_used: [u32; Protocol::ALL.len()],
    /// Mapping records, those in quarantine included.
    pub(crate) records: u32,
    /// Mappings and further sessions.
    pub(crate) flows: u32,
    /// Further sessions.
    pub(crate) sessions: u32,
    /// Its neighbours among the homes of its shard that wait for their first answer.
    previous: u32,
    next: u32,
    /// When `tokens` were last filled up.
    pub(crate) refilled: Tick,
    pub(crate) shard: ShardIndex,
    /// Flows that it may begin before tokens are filled up.
    pub(crate) tokens: u16,
    /// Lower half of the tick at which it was admitted.
    admitted: u16,
    flags: u8,
    /// Its group when it began a flow last; see [`group_of`](weir_rules::RuleSet::group_of).
    pub(crate) group: u8,
}

const _: () = assert!(size_of::<Subscriber>() == 64);

const LIVE: u8 = 1 << 0;
const KEYED: u8 = 1 << 1;
/// It has had an answered flow, here or at another worker.
const ANSWERED: u8 = 1 << 2;
/// Its share of the shard's capacity has gone to another home; it is not in the queue.
const DISPLACED: u8 = 1 << 3;
/// `outer` is the handle of an IPv6 address.
const OVER_IPV6: u8 = 1 << 5;

/// By how much the flags of a mapping lie above those of its home.
const MAPPING_SHIFT: u32 = 2;
const _: () = assert!(
    Mapping::ANSWERED == (ANSWERED as u16) << MAPPING_SHIFT
        && Mapping::OVER_IPV6 == (OVER_IPV6 as u16) << MAPPING_SHIFT
);

impl Subscriber {
    const FREE: Self = Self {
        outer: NONE,
        gre_key: 0,
        paired_address: NO_ADDRESS,
        blocks: 0,
        first_block: HeldBlock::NONE,
        ports_used: [0; Protocol::ALL.len()],
        records: 0,
        flows: 0,
        sessions: 0,
        previous: NONE,
        next: NONE,
        refilled: Tick(0),
        shard: ShardIndex(0),
        tokens: 0,
        admitted: 0,
        flags: 0,
        group: 0,
    };

    #[inline]
    pub(crate) fn is(&self, home: &Home, by_key: bool) -> bool {
        let differs = (self.outer ^ home.outer) | u32::from(self.shard.0 ^ home.shard.0);
        differs == 0 && (!by_key || self.gre_key() == home.gre_key)
    }

    /// Counts a flow that is being opened.
    #[inline]
    pub(crate) fn count_prepared(&mut self) {
        self.records += 1;
        self.flows += 1;
        self.tokens -= 1;
    }

    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.flags & LIVE != 0
    }

    #[inline]
    pub(crate) fn is_answered(&self) -> bool {
        self.flags & ANSWERED != 0
    }

    /// Returns the flags of a mapping that is made for the home now.
    #[inline(always)]
    pub(crate) fn mapping_flags(&self) -> u16 {
        u16::from(self.flags & (ANSWERED | OVER_IPV6)) << MAPPING_SHIFT
    }

    #[inline]
    pub(crate) fn is_displaced(&self) -> bool {
        self.flags & DISPLACED != 0
    }

    /// True if it waits in the queue of its shard.
    fn is_queued(&self) -> bool {
        self.flags & (LIVE | ANSWERED | DISPLACED) == LIVE
    }

    #[inline]
    pub(crate) fn gre_key(&self) -> Option<u32> {
        (self.flags & KEYED != 0).then_some(self.gre_key)
    }

    #[inline(always)]
    pub(crate) fn home(&self) -> Home {
        Home { shard: self.shard, outer: self.outer, gre_key: self.gre_key() }
    }

    /// Remembers the GRE key that the home uses now. Where keys tell homes apart, it is the same.
    pub(crate) fn note_gre_key(&mut self, key: Option<u32>) {
        if self.gre_key() != key {
            self.gre_key = key.unwrap_or(0);
            self.flags = self.flags & !KEYED | if key.is_some() { KEYED } else { 0 };
        }
    }
}

/// All subscribers of a worker, found by home.
#[derive(Debug)]
pub(crate) struct Subscribers {
    slots: Region<Subscriber>,
    side_counts: SideCounts,
    /// Per slot room for `list_blocks`, the first `Subscriber::blocks` of them valid.
    block_lists: Region<HeldBlock>,
    /// The largest quota that the lists have room for: blocks that one worker may give a home.
    quota_blocks_max: u32,
    /// Blocks that all workers together may have given a home.
    list_blocks: u32,
    index: Index,
    /// The outer addresses of homes with tunnels over IPv6.
    pub(crate) outers: OuterAddresses,
    hash_key: HashKey,
    by_key: bool,
    free_head: u32,
    /// One element per shard that there is room for.
    shards: Vec<ShardHomes>,
    new_homes_per_sec: Option<u32>,
    /// Capacity that shards may be promised, in homes.
    homes_capacity: u64,
    /// Displaced homes of all shards, and how many there have been.
    pub(crate) displaced: u32,
    pub(crate) displaced_total: u64,
    pub(crate) memory: Memory,
}

impl Subscribers {
    /// Returns the bytes of memory that `Subscribers::new(config, quota_blocks)` takes.
    pub(crate) fn bytes_for(config: &NatConfig, quota_blocks: u32) -> usize {
        let total = Self::slots_for(config);
        Region::<Subscriber>::bytes_for(total)
            + SideCounts::bytes_for(config, total)
            + Region::<HeldBlock>::bytes_for(
                total * (quota_blocks * config.lists_per_home()) as usize,
            )
            + Index::bytes_for(total)
            + OuterAddresses::bytes_for(config, total)
            + Memory::bytes_for(config.subscribers_max() as usize)
    }

    /// Returns the number of slots: one for each home of the capacity, and the spare ones.
    fn slots_for(config: &NatConfig) -> usize {
        let homes_max = config.subscribers_max();
        // Every shard rounds up for itself.
        let spare = if homes_max == 0 { 0 } else { homes_max / 2 + config.shards_max() as u64 };
        (homes_max + spare) as usize
    }

    pub(crate) fn new(config: &NatConfig, quota_blocks: u32) -> Result<Self, OutOfMemory> {
        let total = Self::slots_for(config);
        let list_blocks = quota_blocks * config.lists_per_home();
        let mut slots = Region::new(total, Subscriber::FREE)?;
        for (slot, subscriber) in slots.iter_mut().enumerate() {
            subscriber.outer = if slot + 1 < total { slot as u32 + 1 } else { NONE };
        }
        Ok(Self {
            slots,
            side_counts: SideCounts::new(config, total)?,
            block_lists: Region::new(total * list_blocks as usize, HeldBlock::NONE)?,
            quota_blocks_max: quota_blocks,
            list_blocks,
            index: Index::new(total)?,
            outers: OuterAddresses::new(config, total)?,
            hash_key: HashKey::new([config.seed[2] ^ 0x7375, config.seed[3]]),
            by_key: config.tells_homes_by_key(),
            free_head: if total > 0 { 0 } else { NONE },
            shards: shard_maxima(config).map(|max| ShardHomes::new(config, max)).collect(),
            new_homes_per_sec: config.new_homes_per_sec,
            homes_capacity: config.subscribers_max(),
            displaced: 0,
            displaced_total: 0,
            memory: Memory::new(config.subscribers_max() as usize)?,
        })
    }

    #[inline]
    pub(crate) fn hash(&self, home: &Home) -> Hash {
        let key = match home.gre_key {
            Some(key) if self.by_key => 1 << 32 | u64::from(key),
            _ => 0,
        };
        self.hash_key.hash2([u64::from(home.shard.0) << 32 | u64::from(home.outer), key])
    }

    /// Returns a hash of the home that is the same whenever the home comes again: the handle of an
    /// outer IPv6 address is not.
    pub(crate) fn lasting_hash(&self, home: &Home) -> Hash {
        let known = if home.is_over_ipv6() { self.outers.address(home.outer) } else { None };
        let Some([upper, lower]) = known else { return self.hash(home) };
        let key = home.gre_key.filter(|_| self.by_key).map_or(0, |key| 1 << 32 | u64::from(key));
        self.hash_key.hash5([u64::from(home.shard.0) << 32, key, upper, lower, 6])
    }

    /// Returns the outer address of a home, by what stands for it in records.
    pub(crate) fn outer_of(&self, outer: u32) -> OuterAddress {
        if !is_outer_handle(outer) {
            return OuterAddress::Ipv4(outer);
        }
        self.outers.address(outer).map_or(OuterAddress::Ipv4(outer), OuterAddress::Ipv6)
    }

    /// Keeps the handle of a home that is created. Returns the home's flag for it: a prefix may
    /// look like a handle where there are none.
    #[cold]
    fn retain_outer(&mut self, outer: u32) -> u8 {
        if !self.outers.is_on() {
            return 0;
        }
        self.outers.retain(outer);
        OVER_IPV6
    }

    pub(crate) fn find(&self, home: &Home) -> Option<u32> {
        self.find_by(self.hash(home), home)
    }

    /// As [`find`](Self::find), by the home's hash.
    #[inline]
    pub(crate) fn find_by(&self, hash: Hash, home: &Home) -> Option<u32> {
        self.index.find(hash, |slot| self.slots[slot as usize].is(home, self.by_key))
    }

    fn of(&self, shard: ShardIndex) -> &ShardHomes {
        &self.shards[usize::from(shard.0)]
    }

    fn of_mut(&mut self, shard: ShardIndex) -> &mut ShardHomes {
        &mut self.shards[usize::from(shard.0)]
    }

    pub(crate) fn pace(&mut self, shard: ShardIndex) -> &mut AdmissionPace {
        &mut self.of_mut(shard).pace
    }

    /// True if the shard's capacity is used up.
    pub(crate) fn is_shard_full(&self, shard: ShardIndex) -> bool {
        let homes = self.of(shard);
        homes.admitted >= homes.max
    }

    /// Returns how many homes a further shard may be promised.
    pub(crate) fn room(&self) -> u64 {
        let promised: u64 =
            self.shards.iter().map(|homes| u64::from(homes.held().max(homes.max))).sum();
        self.homes_capacity.saturating_sub(promised)
    }

    /// Sets the capacity of a shard; homes above it stay.
    pub(crate) fn set_max(&mut self, shard: ShardIndex, max: u32) {
        let per_sec = self.new_homes_per_sec;
        let homes = self.of_mut(shard);
        (homes.max, homes.pace) = (max, AdmissionPace::new(per_sec, max));
    }

    /// Creates a slot for a home that has none, within the shard's capacity.
    ///
    /// # Errors
    /// [`Refusal::SubscribersMax`]
    pub(crate) fn create(
        &mut self,
        home: &Home,
        start: HomeStart,
        now: Tick,
    ) -> Result<u32, Refusal> {
        if self.is_shard_full(home.shard) {
            return Err(Refusal::SubscribersMax);
        }
        self.create_copy(home, start, now)
    }

    /// As [`create`](Self::create), for a home that another worker has admitted. Homes that it
    /// displaced may not have gone here yet, so spare slots may be used.
    ///
    /// # Errors
    /// [`Refusal::SubscribersMax`]
    pub(crate) fn create_copy(
        &mut self,
        home: &Home,
        start: HomeStart,
        now: Tick,
    ) -> Result<u32, Refusal> {
        if self.of(home.shard).is_out_of_slots() || self.free_head == NONE {
            return Err(Refusal::SubscribersMax);
        }
        let slot = self.free_head;
        self.index.insert(self.hash(home), slot).map_err(|_| Refusal::SubscribersMax)?;
        let over_ipv6 = if home.is_over_ipv6() { self.retain_outer(home.outer) } else { 0 };
        let subscriber = &mut self.slots[slot as usize];
        self.free_head = subscriber.outer;
        *subscriber = Subscriber {
            outer: home.outer,
            gre_key: home.gre_key.unwrap_or(0),
            paired_address: start.paired_address,
            shard: home.shard,
            tokens: start.tokens,
            group: start.group,
            refilled: now,
            flags: LIVE | over_ipv6 | if home.gre_key.is_some() { KEYED } else { 0 },
            ..Subscriber::FREE
        };
        self.of_mut(home.shard).admitted += 1;
        self.queue(slot, now);
        Ok(slot)
    }

    /// Frees the slot of a home without records and blocks.
    pub(crate) fn remove(&mut self, slot: u32) {
        let subscriber = self.slots[slot as usize];
        assert!(subscriber.is_live(), "a subscriber is removed once");
        assert!(
            subscriber.records == 0 && subscriber.blocks == 0,
            "a subscriber that is removed holds nothing"
        );
        let hash = self.hash(&subscriber.home());
        let was_indexed = self.index.remove(hash, slot);
        assert!(was_indexed, "a subscriber is in the index");
        if subscriber.is_answered() {
            self.memory.note_known(self.lasting_hash(&subscriber.home()));
        }
        if subscriber.flags & OVER_IPV6 != 0 {
            self.outers.release(subscriber.outer);
        }
        if subscriber.is_displaced() {
            self.of_mut(subscriber.shard).displaced -= 1;
            self.displaced -= 1;
        } else {
            self.unqueue(slot);
            self.of_mut(subscriber.shard).admitted -= 1;
        }
        self.slots[slot as usize] = Subscriber { outer: self.free_head, ..Subscriber::FREE };
        self.side_counts.clear(slot);
        self.free_head = slot;
    }

    /// Appends the home to its shard's queue, if it belongs there.
    fn queue(&mut self, slot: u32, now: Tick) {
        let subscriber = self.slots[slot as usize];
        if !subscriber.is_queued() {
            return;
        }
        let homes = self.of_mut(subscriber.shard);
        let previous = std::mem::replace(&mut homes.newest, slot);
        match previous {
            NONE => homes.oldest = slot,
            previous => self.slots[previous as usize].next = slot,
        }
        let subscriber = self.get_mut(slot);
        (subscriber.previous, subscriber.next) = (previous, NONE);
        subscriber.admitted = now.0 as u16;
    }

    /// Removes the home from its shard's queue, if it is there.
    fn unqueue(&mut self, slot: u32) {
        let subscriber = self.slots[slot as usize];
        if !subscriber.is_queued() {
            return;
        }
        let Subscriber { previous, next, shard, .. } = subscriber;
        match previous {
            NONE => self.of_mut(shard).oldest = next,
            previous => self.slots[previous as usize].next = next,
        }
        match next {
            NONE => self.of_mut(shard).newest = previous,
            next => self.slots[next as usize].previous = previous,
        }
    }

    /// Records that a flow of the home was answered: it stays admitted, or is admitted again.
    /// Returns whether that is new.
    pub(crate) fn set_answered(&mut self, slot: u32) -> bool {
        let subscriber = self.slots[slot as usize];
        if subscriber.is_answered() {
            return false;
        }
        self.unqueue(slot);
        if subscriber.is_displaced() {
            self.end_displacement(slot);
        }
        self.get_mut(slot).flags |= ANSWERED;
        true
    }

    fn end_displacement(&mut self, slot: u32) {
        let subscriber = self.get_mut(slot);
        subscriber.flags &= !DISPLACED;
        let shard = subscriber.shard;
        let homes = self.of_mut(shard);
        homes.displaced -= 1;
        homes.admitted += 1;
        self.displaced -= 1;
    }

    /// Admits a displaced home again.
    pub(crate) fn readmit(&mut self, slot: u32, now: Tick) {
        self.end_displacement(slot);
        self.queue(slot, now);
    }

    /// Displaces the home that has waited longest for its first answer, if it has waited `min_sec`
    /// and the shard may have one more displaced home. Returns whether it did.
    pub(crate) fn displace_oldest(&mut self, shard: ShardIndex, min_sec: u16, now: Tick) -> bool {
        let homes = *self.of(shard);
        let Some(oldest) = self.slots.get(homes.oldest as usize) else { return false };
        let waited_sec = (now.0 as u16).wrapping_sub(oldest.admitted);
        if waited_sec < min_sec || homes.displaced >= spare_slots(homes.max) {
            return false;
        }
        self.unqueue(homes.oldest);
        let displaced = self.get_mut(homes.oldest);
        displaced.flags |= DISPLACED;
        // The next flow that it begins has to ask for admission.
        displaced.tokens = 0;
        let homes = self.of_mut(shard);
        homes.admitted -= 1;
        homes.displaced += 1;
        self.displaced += 1;
        self.displaced_total += 1;
        true
    }

    pub(crate) fn displaced(&self, shard: ShardIndex) -> u32 {
        self.of(shard).displaced
    }

    /// Prefetches the index line of the home with this hash: step 1 of [`find`](Self::find) in a
    /// burst.
    #[inline]
    pub(crate) fn prefetch_home(&self, hash: Hash) {
        self.index.prefetch(hash);
    }

    /// Step 2: returns the slot that the index names, and prefetches it with its list of blocks. It
    /// may be another home's.
    #[inline]
    pub(crate) fn candidate(&self, hash: Hash) -> Option<u32> {
        let slot = match self.index.candidate(hash) {
            Candidate::Found(slot) => slot,
            Candidate::Elsewhere => self.index.candidate_elsewhere(hash)?,
            Candidate::Absent => return None,
        };
        self.slots.prefetch(slot as usize);
        self.block_lists.prefetch(slot as usize * self.list_blocks as usize);
        Some(slot)
    }

    /// True if the slot is this home's.
    #[inline]
    pub(crate) fn is_of(&self, slot: u32, home: &Home) -> bool {
        let subscriber = &self.slots[slot as usize];
        subscriber.is_live() && subscriber.is(home, self.by_key)
    }

    /// Prefetches the slot.
    pub(crate) fn prefetch(&self, slot: u32) {
        self.slots.prefetch(slot as usize);
    }

    /// As [`get`](Self::get); None if there is no such slot.
    #[inline(always)]
    pub(crate) fn try_get(&self, slot: u32) -> Option<&Subscriber> {
        self.slots.get(slot as usize)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Subscriber {
        &self.slots[slot as usize]
    }

    /// As [`get_mut`](Self::get_mut); None if there is no such slot.
    #[inline(always)]
    pub(crate) fn try_get_mut(&mut self, slot: u32) -> Option<&mut Subscriber> {
        self.slots.get_mut(slot as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Subscriber {
        &mut self.slots[slot as usize]
    }

    /// Returns the number of slots, free ones included.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the number of positions of homes with one outer address: shards, or slots with keys.
    pub(crate) fn home_positions(&self) -> u32 {
        if self.by_key { self.slots() } else { self.shards.len() as u32 }
    }

    /// Returns the slot of the home with this outer address at a position, if there is one.
    pub(crate) fn home_at(&self, position: u32, outer: u32) -> Option<u32> {
        if self.by_key {
            let subscriber = self.get(position);
            return (subscriber.is_live() && subscriber.outer == outer).then_some(position);
        }
        self.find(&Home { shard: ShardIndex(position as u16), outer, gre_key: None })
    }

    /// Returns the number of admitted homes of a shard.
    pub(crate) fn count(&self, shard: ShardIndex) -> u32 {
        self.of(shard).admitted
    }

    /// Returns the number of homes of a shard, admitted or displaced.
    pub(crate) fn held(&self, shard: ShardIndex) -> u32 {
        self.of(shard).held()
    }

    /// Returns the number of homes of all shards, admitted or displaced.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of admitted homes of all shards, and their capacity.
    pub(crate) fn admitted(&self) -> (u64, u64) {
        let sum =
            |of: fn(&ShardHomes) -> u32| self.shards.iter().map(|homes| u64::from(of(homes))).sum();
        (sum(|homes| homes.admitted), sum(|homes| homes.max))
    }

    /// Returns how many homes of all shards may be displaced at once.
    pub(crate) fn spare(&self) -> u64 {
        self.shards.iter().map(|homes| u64::from(spare_slots(homes.max))).sum()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes()
            + self.side_counts.bytes()
            + self.block_lists.bytes()
            + self.index.bytes()
            + self.outers.bytes()
            + self.memory.bytes()
    }
}

#[cfg(any(test, feature = "audit"))]
impl Subscribers {
    /// Panics if the counts or the queues of the shards do not match these homes, which are all.
    pub(crate) fn audit(&self, homes: impl Iterator<Item = u32>) {
        let mut counts = vec![(0, 0, 0); self.shards.len()];
        let homes: Vec<u32> = homes.collect();
        self.outers.audit(homes.iter().map(|&slot| self.get(slot).outer));
        for slot in homes {
            let home = self.get(slot);
            assert!(home.is_live());
            let (_, blocks) = self.with_blocks(slot);
            assert!(blocks.first().is_none_or(|first| *first == home.first_block));
            let count = &mut counts[usize::from(home.shard.0)];
            count.0 += u32::from(!home.is_displaced());
            count.1 += u32::from(home.is_displaced());
            count.2 += u32::from(home.is_queued());
        }
        for (homes, &(admitted, displaced, queued)) in self.shards.iter().zip(&counts) {
            assert_eq!((homes.admitted, homes.displaced), (admitted, displaced));
            let (mut slot, mut previous, mut length) = (homes.oldest, NONE, 0);
            while slot != NONE {
                let home = self.get(slot);
                assert!(home.is_queued() && home.previous == previous);
                (previous, slot, length) = (slot, home.next, length + 1);
            }
            assert_eq!(
                (homes.newest, length),
                (previous, queued),
                "every home without an answer is in the queue"
            );
        }
        assert_eq!(self.displaced, counts.iter().map(|count| count.1).sum::<u32>());
    }
}
