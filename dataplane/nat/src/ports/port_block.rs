//! Public ports, cut into blocks: which block belongs to which subscriber and which ports of it are
//! taken.
//!
//! ```text
//!   203.0.113.1   block: 0 .. 3   4     5      6     7     8   ...  255   (256 ports each)
//!                 lane:  0 .. 3   4     5      6     7     0   ...   7    block mod 8, permanently
//!                       below    free  owned  free  owned
//!                       port_min        |
//!                                       +-- TCP bits, UDP bits, ICMP bits: three spaces
//! ```
//!
//! Invariants: a block has no owner or one; a port bit is set only in an owned block; a block whose
//! bits are all clear is released by its owner. In a block that straddles `port_min` the ports
//! below it are marked taken at the start and never counted. An address of the pool that no shard
//! has is as at the start.

use std::ops::Range;

use weir_flow::{OutOfMemory, Region};

use self::bitmap::{first_set_from, take_behind};
use self::free_positions::FreePositions;
use self::service::OutOfService;
use self::shared::AddressRun;
use crate::config::NatConfig;
use crate::endpoint::{Endpoint, Protocol, ShardIndex};
use crate::ports::random::Random;
use crate::ports::shard_capacity::blocks_usable;
use crate::replication::lane::{ALL_LANES, LANES};

const SPACES: usize = Protocol::ALL.len();
const WORD_BITS: u32 = u64::BITS;

/// A block of the whole pool: position of the address * blocks per address + number of the block on
/// the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    /// No block: without translation.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

#[derive(Clone, Copy, Debug)]
struct BlockState {
    /// Slot of the subscriber, or `NO_OWNER`.
    owner: u32,
    /// Ports taken per protocol.
    used: [u16; SPACES],
    /// Whether a mapping has stood in the block since it was opened. Only then its owner is in the
    /// log.
    is_logged: bool,
}

const NO_OWNER: u32 = u32::MAX;
const FREE_BLOCK: BlockState = BlockState { owner: NO_OWNER, used: [0; SPACES], is_logged: false };

#[derive(Clone, Copy, Debug)]
struct PublicAddress {
    address: u32,
    /// Free blocks in the lanes that this worker owns; 0 out of service.
    blocks_free: u32,
    /// As `blocks_free`, of all blocks that can be given.
    blocks_total: u32,
    ports_used: u32,
    shard: ShardIndex,
    /// None: in service.
    out_of_service: Option<OutOfService>,
}

/// A port that was taken of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenPort {
    pub(crate) public: Endpoint,
    /// Whether the block is in the log.
    pub(crate) is_logged: bool,
}

/// A position that no shard has.
const NO_ADDRESS: PublicAddress = PublicAddress {
    address: 0,
    blocks_free: 0,
    blocks_total: 0,
    ports_used: 0,
    shard: ShardIndex(u16::MAX),
    out_of_service: None,
};

#[derive(Clone, Debug, Default)]
struct ShardPool {
    /// Positions of the shard's addresses.
    positions: Box<[u32]>,
    /// The lanes that this worker owns, repeated over a word of the free bitmap: bit i stands for a
    /// block of lane i mod 8.
    lanes: u64,
    /// Free blocks in those lanes, and all of their blocks, without addresses out of service.
    blocks_free: u32,
    blocks_total: u32,
}

/// All public ports of a worker.
#[derive(Debug)]
pub(crate) struct PortBlocks {
    /// The sizes are powers of two, so that positions are found without a division.
    block_ports: u32,
    blocks_per_address: u32,
    /// Their base-2 logarithms.
    port_shift: u32,
    address_shift: u32,
    port_min: u16,
    /// Number of the first block of an address that can be given.
    first_usable: u32,
    addresses: Box<[PublicAddress]>,
    shards: Box<[ShardPool]>,
    /// The addresses of all shards, sorted.
    runs: Vec<AddressRun>,
    free_positions: FreePositions,
    /// Number of addresses out of service.
    out_of_service: u32,
    /// Whether an address has been out of service, or a block reserved.
    is_any_set_apart: bool,
    /// Per address one bit per block, set = free.
    free: Region<u64>,
    /// As `free`, set = reserved for static mappings, and so not free.
    reserved: Region<u64>,
    blocks: Region<BlockState>,
    /// Per block, per protocol one bit per port, set = taken.
    ports: Region<u64>,
}

/// Number of elements of the three tables.
struct Sizes {
    free_words: usize,
    blocks: usize,
    port_words: usize,
}

impl Sizes {
    fn new(config: &NatConfig, addresses: usize) -> Self {
        if !config.enabled {
            return Self { free_words: 0, blocks: 0, port_words: 0 };
        }
        let block_ports = u32::from(config.port_block).max(WORD_BITS);
        let blocks_per_address = 65_536 / block_ports;
        let blocks = addresses * blocks_per_address as usize;
        Self {
            free_words: addresses * blocks_per_address.div_ceil(WORD_BITS) as usize,
            blocks,
            port_words: blocks * SPACES * (block_ports / WORD_BITS) as usize,
        }
    }
}

impl PortBlocks {
    /// Returns the bytes of memory that the pool of `config` takes.
    pub(crate) fn bytes_for(config: &NatConfig) -> usize {
        let addresses = config.public_addresses_max() as usize;
        let sizes = Sizes::new(config, addresses);
        2 * Region::<u64>::bytes_for(sizes.free_words)
            + Region::<BlockState>::bytes_for(sizes.blocks)
            + Region::<u64>::bytes_for(sizes.port_words)
    }

    /// Builds the pool of all shards: all blocks free, all lanes owned by this worker. Without
    /// translation it is empty.
    pub(crate) fn new(config: &NatConfig) -> Result<Self, OutOfMemory> {
        let block_ports = u32::from(config.port_block);
        let blocks_per_address = if config.enabled { 65_536 / block_ports } else { 0 };
        let addresses = if config.enabled { config.public_addresses_max() as usize } else { 0 };
        let sizes = Sizes::new(config, addresses);
        let mut pool = Self {
            block_ports,
            blocks_per_address,
            port_shift: block_ports.ilog2(),
            address_shift: u16::BITS - block_ports.ilog2(),
            port_min: config.port_min,
            first_usable: blocks_per_address.saturating_sub(blocks_usable(config)),
            free: Region::new(sizes.free_words, 0)?,
            reserved: Region::new(sizes.free_words, 0)?,
            blocks: Region::new(sizes.blocks, FREE_BLOCK)?,
            ports: Region::new(sizes.port_words, 0)?,
            addresses: vec![NO_ADDRESS; addresses].into(),
            shards: vec![ShardPool::default(); config.shards_max()].into(),
            runs: Vec::new(),
            free_positions: FreePositions::new(addresses as u32),
            out_of_service: 0,
            is_any_set_apart: false,
        };
        (0..addresses as u32).for_each(|address| pool.free_address(address));
        for (shard, index) in config.shards.iter().zip(0..) {
            pool.add(ShardIndex(index), &shard.public, ALL_LANES);
        }
        Ok(pool)
    }

    /// Marks every block of an address that can be given free, and the ports below `port_min`
    /// taken.
    fn free_address(&mut self, address: u32) {
        let words = self.blocks_per_address.div_ceil(WORD_BITS);
        for number in self.first_usable..self.blocks_per_address {
            let word = &mut self.free[(address * words + number / WORD_BITS) as usize];
            *word |= 1 << (number % WORD_BITS);
        }
        let straddling = BlockId(address * self.blocks_per_address + self.first_usable);
        for port in self.first_port(straddling)..u32::from(self.port_min) {
            for protocol in Protocol::ALL {
                let (word, bit) = self.port_bit(straddling, protocol, port as u16);
                self.ports[word] |= bit;
            }
        }
    }

    fn set_free(&mut self, block: BlockId, is_free: bool) {
        let (address, number) = self.address_and_number(block);
        let words = self.blocks_per_address.div_ceil(WORD_BITS);
        let at = (address * words + number / WORD_BITS) as usize;
        let bit = 1u64 << (number % WORD_BITS);
        if self.is_any_set_apart && self.reserved[at] & bit != 0 {
            return;
        }
        let word = &mut self.free[at];
        let place = &mut self.addresses[address as usize];
        let shard = &mut self.shards[usize::from(place.shard.0)];
        let owned = u32::from(shard.lanes & bit != 0 && place.out_of_service.is_none());
        if is_free {
            assert!(*word & bit == 0, "a block is freed once");
            *word |= bit;
            shard.blocks_free += owned;
            place.blocks_free += owned;
        } else {
            assert!(*word & bit != 0, "a block has one owner");
            *word &= !bit;
            shard.blocks_free -= owned;
            place.blocks_free -= owned;
        }
    }

    /// Returns (position of the block's address, the block's number on the address).
    fn address_and_number(&self, block: BlockId) -> (u32, u32) {
        (self.address_of(block), block.0 & (self.blocks_per_address - 1))
    }

    #[inline(always)]
    fn first_port(&self, block: BlockId) -> u32 {
        u32::from((block.0 << self.port_shift) as u16)
    }

    /// Returns the index of the word and the mask of a port's bit.
    fn port_bit(&self, block: BlockId, protocol: Protocol, port: u16) -> (usize, u64) {
        let offset = u32::from(port) & (self.block_ports - 1);
        let word = self.space_start(block, protocol) + (offset / WORD_BITS) as usize;
        (word, 1 << (offset % WORD_BITS))
    }

    #[inline(always)]
    fn space_start(&self, block: BlockId, protocol: Protocol) -> usize {
        (block.0 as usize * SPACES + protocol.space()) << (self.port_shift - WORD_BITS.ilog2())
    }

    /// Prefetches what [`take`](Self::take) reads of a block, as far as it is known before.
    #[inline]
    pub(crate) fn prefetch_take(&self, block: BlockId, protocol: Protocol) {
        self.blocks.prefetch(block.0 as usize);
        self.ports.prefetch(self.space_start(block, protocol));
    }

    /// Opens a random free block of the address for a subscriber. None if the address has none in
    /// the lanes that this worker owns.
    pub(crate) fn open(
        &mut self,
        address: u32,
        owner: u32,
        random: &mut Random,
    ) -> Option<BlockId> {
        let PublicAddress { blocks_free, shard, .. } = self.addresses[address as usize];
        if blocks_free == 0 {
            return None;
        }
        let lanes = self.shards[usize::from(shard.0)].lanes;
        let words = self.blocks_per_address.div_ceil(WORD_BITS) as usize;
        let bitmap = &self.free[address as usize * words..][..words];
        let start = random.below(self.blocks_per_address);
        let number = first_set_from(bitmap, start, |word| word & lanes)?;
        let block = BlockId(address * self.blocks_per_address + number);
        self.set_free(block, false);
        let record = &mut self.blocks[block.0 as usize];
        assert!(record.owner == NO_OWNER, "a block that is opened has no owner");
        assert!(record.used == [0; SPACES], "a block that is opened has no port in use");
        record.owner = owner;
        Some(block)
    }

    /// Records that a mapping stands in the block. True if it is the first since the block was
    /// opened: to be logged.
    #[inline]
    pub(crate) fn note_use(&mut self, block: BlockId) -> bool {
        !std::mem::replace(&mut self.blocks[block.0 as usize].is_logged, true)
    }

    /// Takes the owner from a block without taken ports. True if the owner was logged.
    pub(crate) fn release(&mut self, block: BlockId) -> bool {
        let record = &mut self.blocks[block.0 as usize];
        assert!(record.owner != NO_OWNER, "a released block had an owner");
        assert!(record.used == [0; SPACES], "a released block has no port in use");
        let was_logged = record.is_logged;
        *record = FREE_BLOCK;
        self.set_free(block, true);
        was_logged
    }

    /// Takes a port of the block: a random one, or the next free one after it. None if the
    /// protocol's space of the block is full, or if the block is not this owner's.
    ///
    /// RFC 6056 section 3.3.2: random start, then the next ephemeral port that is free.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        block: BlockId,
        owner: u32,
        protocol: Protocol,
        random: &mut Random,
    ) -> Option<TakenPort> {
        let record = self.blocks.get(block.0 as usize).filter(|record| record.owner == owner)?;
        let is_logged = record.is_logged;
        let space_start = self.space_start(block, protocol);
        let start = random.bits(self.port_shift);
        let word = self.ports.get_mut(space_start + (start / WORD_BITS) as usize)?;
        let free = !*word & (u64::MAX << (start % WORD_BITS));
        let offset = match free {
            0 => take_behind(&mut self.ports[space_start..], self.block_ports, start)?,
            _ => {
                *word |= free & free.wrapping_neg();
                start / WORD_BITS * WORD_BITS + free.trailing_zeros()
            }
        };
        self.blocks.get_mut(block.0 as usize)?.used[protocol.space()] += 1;
        let first_port = self.first_port(block);
        let address = self.address_of(block);
        let address = self.addresses.get_mut(address as usize)?;
        address.ports_used += 1;
        let public = Endpoint::new(address.address, (first_port + offset) as u16);
        Some(TakenPort { public, is_logged })
    }

    /// Gives a port back. True if it was the last one of the block: its owner must release the
    /// block.
    pub(crate) fn put(&mut self, block: BlockId, protocol: Protocol, port: u16) -> bool {
        let (word, bit) = self.port_bit(block, protocol, port);
        assert!(self.ports[word] & bit != 0, "a port that is given back was taken");
        self.ports[word] &= !bit;
        let address = self.address_of(block);
        self.addresses[address as usize].ports_used -= 1;
        let record = &mut self.blocks[block.0 as usize];
        record.used[protocol.space()] -= 1;
        record.used == [0; SPACES]
    }

    /// Returns the ports of the block that can be given, per protocol.
    pub(crate) fn capacity(&self, block: BlockId) -> u32 {
        let first = self.first_port(block);
        let below = u32::from(self.port_min).saturating_sub(first);
        self.block_ports - below
    }

    pub(crate) fn is_full(&self, block: BlockId, protocol: Protocol) -> bool {
        let used = self.blocks[block.0 as usize].used[protocol.space()];
        u32::from(used) == self.capacity(block)
    }

    /// Returns the block of a port.
    #[inline]
    pub(crate) fn block_of(&self, address: u32, port: u16) -> BlockId {
        BlockId((address << 16 | u32::from(port)) >> self.port_shift)
    }

    /// Returns the position of the block's address in the pool, and the block's lane.
    #[inline(always)]
    pub(crate) fn address_and_lane(&self, block: BlockId) -> (u32, u32) {
        // Blocks of an address, and so blocks of the pool, are in lanes in turn.
        (self.address_of(block), block.0 % LANES)
    }

    pub(crate) fn lane(&self, block: BlockId) -> u32 {
        self.address_and_number(block).1 % LANES
    }

    /// Returns the position of the block's address in the pool.
    #[inline(always)]
    pub(crate) fn address_of(&self, block: BlockId) -> u32 {
        block.0 >> self.address_shift
    }

    /// Returns the address at a position of the pool.
    pub(crate) fn public_address(&self, address: u32) -> u32 {
        self.addresses[address as usize].address
    }

    pub(crate) fn shard_of(&self, block: BlockId) -> ShardIndex {
        self.addresses[self.address_and_number(block).0 as usize].shard
    }

    /// Returns the first and last port of the block, both included; ports below `port_min` are
    /// never given.
    pub(crate) fn port_range(&self, block: BlockId) -> (u16, u16) {
        let first = self.first_port(block);
        let last = first + self.block_ports - 1;
        (first.max(u32::from(self.port_min)) as u16, last as u16)
    }

    /// Calls `visit` for each taken port of a block.
    pub(crate) fn each_taken(
        &self,
        block: BlockId,
        protocol: Protocol,
        visit: impl FnMut(Endpoint),
    ) {
        self.each_taken_of(block, protocol, 0..self.block_ports, visit);
    }

    /// As [`each_taken`](Self::each_taken), for the ports at these offsets behind the block's first
    /// port.
    pub(crate) fn each_taken_of(
        &self,
        block: BlockId,
        protocol: Protocol,
        offsets: Range<u32>,
        mut visit: impl FnMut(Endpoint),
    ) {
        let address = self.public_address(self.address_of(block));
        let (first, last) = self.port_range(block);
        let ports = usize::from(first)..=usize::from(last);
        let ports = ports.skip(offsets.start as usize).take(offsets.len());
        for port in ports.map(|port| port as u16) {
            let (word, bit) = self.port_bit(block, protocol, port);
            if self.ports[word] & bit != 0 {
                visit(Endpoint::new(address, port));
            }
        }
    }

    /// Returns the number of ports of a block.
    pub(crate) fn block_ports(&self) -> u32 {
        self.block_ports
    }

    pub(crate) fn ports_used(&self, shard: ShardIndex) -> u32 {
        let positions = self.shards[usize::from(shard.0)].positions.iter();
        positions.map(|&address| self.addresses[address as usize].ports_used).sum()
    }

    pub(crate) fn blocks_free(&self, shard: ShardIndex) -> u32 {
        self.shards[usize::from(shard.0)].blocks_free
    }

    pub(crate) fn blocks_total(&self, shard: ShardIndex) -> u32 {
        self.shards[usize::from(shard.0)].blocks_total
    }

    /// Returns, over all shards and the lanes that this worker owns, the number of held blocks and
    /// of all blocks.
    pub(crate) fn blocks_in_use(&self) -> (u64, u64) {
        let sum =
            |of: fn(&ShardPool) -> u32| self.shards.iter().map(|pool| u64::from(of(pool))).sum();
        let (free, total): (u64, u64) =
            (sum(|pool| pool.blocks_free), sum(|pool| pool.blocks_total));
        (total - free, total)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.free.bytes() + self.reserved.bytes() + self.blocks.bytes() + self.ports.bytes()
    }
}

/// Returns a bit per lane, repeated for all blocks of a word.
fn lanes_word(lanes: u8) -> u64 {
    u64::from_ne_bytes([lanes; 8])
}

pub(crate) mod address_choice;
mod bitmap;
mod free_positions;
pub(crate) mod service;
mod shards;
pub(crate) mod shared;

#[cfg(test)]
#[path = "port_block_tests.rs"]
mod tests;
