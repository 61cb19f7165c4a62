//! Homes that hold state: their public address, their blocks, their share of the table.
//!
//! A home becomes a subscriber with its first mapping and ceases to be one when its last record is
//! gone, quarantine included. The table is touched when mappings and sessions begin and end, never
//! for an established packet.

use weir_flow::{Hash, HashKey, Index, OutOfMemory, Region};

use crate::config::NatConfig;
use crate::endpoint::{Home, Protocol, ShardIndex};
use crate::packet::Refusal;
use crate::port_block::BlockId;

/// Subscribers of all shards of a worker.
pub const SUBSCRIBERS_TOTAL_MAX: u64 = 1 << 22;
/// Subscribers * blocks of a quota: one u32 each.
pub(crate) const BLOCK_LISTS_MAX: u64 = 1 << 28;

/// No seat: without translation.
pub(crate) const NO_ADDRESS: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

/// A home that holds state. While the slot is free, `outer` links to the next free slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscriber {
    pub(crate) outer: u32,
    pub(crate) gre_key: Option<u32>,
    pub(crate) shard: ShardIndex,
    pub(crate) is_live: bool,
    /// Position in the pool of the public address it is seated on.
    pub(crate) seat: u32,
    /// Blocks it holds.
    pub(crate) blocks: u32,
    /// Ports per protocol that its blocks offer.
    pub(crate) capacity: u32,
    /// Ports taken per protocol, those in quarantine included.
    pub(crate) ports_used: [u32; Protocol::ALL.len()],
    /// Mapping records, those in quarantine included.
    pub(crate) records: u32,
    /// Mappings and further sessions.
    pub(crate) flows: u32,
}

impl Subscriber {
    const FREE: Self = Self {
        outer: NONE,
        gre_key: None,
        shard: ShardIndex(0),
        is_live: false,
        seat: NO_ADDRESS,
        blocks: 0,
        capacity: 0,
        ports_used: [0; Protocol::ALL.len()],
        records: 0,
        flows: 0,
    };

    #[inline]
    fn is(&self, home: &Home, by_key: bool) -> bool {
        self.outer == home.outer
            && self.shard == home.shard
            && (!by_key || self.gre_key == home.gre_key)
    }
}

/// All subscribers of a worker, found by home.
#[derive(Debug)]
pub(crate) struct Subscribers {
    slots: Region<Subscriber>,
    /// Per slot room for `list_blocks`, the first `Subscriber::blocks` of them valid.
    block_lists: Region<BlockId>,
    /// Blocks that one worker may give a home.
    quota_blocks: u32,
    /// Blocks that all workers together may have given it.
    list_blocks: u32,
    index: Index,
    hash_key: HashKey,
    by_key: bool,
    free_head: u32,
    /// Per shard that there is room for: how many there are, how many there may be.
    counts: Vec<(u32, u32)>,
}

impl Subscribers {
    /// Bytes of memory that `Subscribers::new(config, quota_blocks)` takes.
    pub(crate) fn bytes_for(config: &NatConfig, quota_blocks: u32) -> usize {
        let total = config.subscribers_max() as usize;
        Region::<Subscriber>::bytes_for(total)
            + Region::<BlockId>::bytes_for(
                total * (quota_blocks * config.lists_per_home()) as usize,
            )
            + Index::bytes_for(total)
    }

    pub(crate) fn new(config: &NatConfig, quota_blocks: u32) -> Result<Self, OutOfMemory> {
        let mut counts = vec![(0, 0); config.shards_max()];
        for (count, shard) in counts.iter_mut().zip(&config.shards) {
            count.1 = shard.subscribers_max;
        }
        let total = config.subscribers_max() as usize;
        let list_blocks = quota_blocks * config.lists_per_home();
        let mut slots = Region::new(total, Subscriber::FREE)?;
        for (slot, subscriber) in slots.iter_mut().enumerate() {
            subscriber.outer = if slot + 1 < total { slot as u32 + 1 } else { NONE };
        }
        Ok(Self {
            slots,
            block_lists: Region::new(total * list_blocks as usize, BlockId(NONE))?,
            quota_blocks,
            list_blocks,
            index: Index::new(total)?,
            hash_key: HashKey::new([config.seed[2] ^ 0x7375, config.seed[3]]),
            by_key: config.gre_key_identifies_home,
            free_head: if total > 0 { 0 } else { NONE },
            counts,
        })
    }

    #[inline]
    pub(crate) fn hash(&self, home: &Home) -> Hash {
        let key = match home.gre_key {
            Some(key) if self.by_key => 1 << 32 | u64::from(key),
            _ => 0,
        };
        self.hash_key.hash([u64::from(home.shard.0) << 32 | u64::from(home.outer), key, 0])
    }

    pub(crate) fn find(&self, home: &Home) -> Option<u32> {
        self.find_by(self.hash(home), home)
    }

    /// The same by the home's hash.
    #[inline]
    pub(crate) fn find_by(&self, hash: Hash, home: &Home) -> Option<u32> {
        self.index.find(hash, |slot| self.slots[slot as usize].is(home, self.by_key))
    }

    pub(crate) fn is_shard_full(&self, shard: ShardIndex) -> bool {
        let (count, max) = self.counts[usize::from(shard.0)];
        count >= max
    }

    /// How many more a further shard may be promised.
    pub(crate) fn room(&self) -> u64 {
        let promised: u64 = self.counts.iter().map(|&(count, max)| u64::from(count.max(max))).sum();
        self.slots.len() as u64 - promised
    }

    /// From now on there may be so many in a shard; those that there are stay.
    pub(crate) fn set_max(&mut self, shard: ShardIndex, max: u32) {
        self.counts[usize::from(shard.0)].1 = max;
    }

    /// A slot for a home that has none.
    ///
    /// # Errors
    /// [`Refusal::SubscribersMax`]
    pub(crate) fn create(&mut self, home: &Home, seat: u32) -> Result<u32, Refusal> {
        if self.is_shard_full(home.shard) || self.free_head == NONE {
            return Err(Refusal::SubscribersMax);
        }
        let slot = self.free_head;
        self.index.insert(self.hash(home), slot).map_err(|_| Refusal::SubscribersMax)?;
        let subscriber = &mut self.slots[slot as usize];
        self.free_head = subscriber.outer;
        *subscriber = Subscriber {
            outer: home.outer,
            gre_key: home.gre_key,
            shard: home.shard,
            is_live: true,
            seat,
            ..Subscriber::FREE
        };
        self.counts[usize::from(home.shard.0)].0 += 1;
        Ok(slot)
    }

    /// Frees the slot of a home without records and blocks.
    pub(crate) fn remove(&mut self, slot: u32) {
        let subscriber = self.slots[slot as usize];
        assert!(subscriber.is_live, "a subscriber is removed once");
        assert!(
            subscriber.records == 0 && subscriber.blocks == 0,
            "a subscriber that is removed holds nothing"
        );
        let home =
            Home { shard: subscriber.shard, outer: subscriber.outer, gre_key: subscriber.gre_key };
        let was_indexed = self.index.remove(self.hash(&home), slot);
        assert!(was_indexed, "a subscriber is in the index");
        self.slots[slot as usize] = Subscriber { outer: self.free_head, ..Subscriber::FREE };
        self.free_head = slot;
        self.counts[usize::from(subscriber.shard.0)].0 -= 1;
    }

    /// Asks for the index line of the home with this hash: step 1 of [`find`](Self::find) in a burst.
    #[inline]
    pub(crate) fn prefetch_home(&self, hash: Hash) {
        self.index.prefetch(hash);
    }

    /// Step 2: the slot that the index names, asked for with its list of blocks. It may be another home's.
    #[inline]
    pub(crate) fn candidate(&self, hash: Hash) -> Option<u32> {
        let candidate = self.index.candidate(hash);
        let slot = candidate.or_else(|| self.index.candidate_elsewhere(hash))?;
        self.slots.prefetch(slot as usize);
        self.block_lists.prefetch(slot as usize * self.list_blocks as usize);
        Some(slot)
    }

    /// Is the slot this home's?
    #[inline]
    pub(crate) fn is_of(&self, slot: u32, home: &Home) -> bool {
        let subscriber = &self.slots[slot as usize];
        subscriber.is_live && subscriber.is(home, self.by_key)
    }

    /// Asks for the slot.
    pub(crate) fn prefetch(&self, slot: u32) {
        self.slots.prefetch(slot as usize);
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Subscriber {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Subscriber {
        &mut self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn blocks(&self, slot: u32) -> &[BlockId] {
        self.with_blocks(slot).1
    }

    /// A subscriber and its blocks.
    #[inline]
    pub(crate) fn with_blocks(&self, slot: u32) -> (&Subscriber, &[BlockId]) {
        let start = slot as usize * self.list_blocks as usize;
        let subscriber = &self.slots[slot as usize];
        (subscriber, &self.block_lists[start..start + subscriber.blocks as usize])
    }

    /// May a home that has this many blocks of ours have no more?
    pub(crate) fn is_at_quota(&self, blocks: u32) -> bool {
        blocks >= self.quota_blocks
    }

    pub(crate) fn is_list_full(&self, slot: u32) -> bool {
        self.slots[slot as usize].blocks >= self.list_blocks
    }

    pub(crate) fn add_block(&mut self, slot: u32, block: BlockId, capacity: u32) {
        assert!(!self.is_list_full(slot), "a list of blocks is not exceeded");
        let subscriber = &mut self.slots[slot as usize];
        let start = slot as usize * self.list_blocks as usize;
        self.block_lists[start + subscriber.blocks as usize] = block;
        subscriber.blocks += 1;
        subscriber.capacity += capacity;
    }

    pub(crate) fn remove_block(&mut self, slot: u32, block: BlockId, capacity: u32) {
        let at = self
            .blocks(slot)
            .iter()
            .position(|&held| held == block)
            .expect("a block is in its owner's list");
        let start = slot as usize * self.list_blocks as usize;
        let subscriber = &mut self.slots[slot as usize];
        subscriber.blocks -= 1;
        subscriber.capacity -= capacity;
        self.block_lists[start + at] = self.block_lists[start + subscriber.blocks as usize];
    }

    /// Places where homes of one outer address may be: the shards, or every slot if keys tell homes apart.
    pub(crate) fn home_places(&self) -> u32 {
        if self.by_key { self.slots.len() as u32 } else { self.counts.len() as u32 }
    }

    /// The slot of the home with this outer address at a place, if there is one.
    pub(crate) fn home_at(&self, place: u32, outer: u32) -> Option<u32> {
        if self.by_key {
            let subscriber = self.get(place);
            return (subscriber.is_live && subscriber.outer == outer).then_some(place);
        }
        self.find(&Home { shard: ShardIndex(place as u16), outer, gre_key: None })
    }

    /// What tells a home from others with its outer address.
    pub(crate) fn identity(&self, slot: u32) -> (ShardIndex, Option<u32>) {
        let subscriber = self.get(slot);
        (subscriber.shard, subscriber.gre_key.filter(|_| self.by_key))
    }

    pub(crate) fn count(&self, shard: ShardIndex) -> u32 {
        self.counts[usize::from(shard.0)].0
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.block_lists.bytes() + self.index.bytes()
    }
}
