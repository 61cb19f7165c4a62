//! The pool of a shard that several workers write: lanes owned here, and ports given by owners of
//! other lanes.

use super::{
    BlockId, BlockState, FREE_BLOCK, LANES, NO_OWNER, PortBlocks, Protocol, ShardIndex, WORD_BITS,
    lanes_word,
};

/// The bit of a port of a block and protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortBit {
    word: usize,
    bit: u64,
}

impl PortBit {
    /// No port: without translation.
    pub(crate) const NONE: Self = Self { word: 0, bit: 0 };
}

/// Consecutive public addresses in consecutive positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressRun {
    pub(super) address: u32,
    pub(super) position: u32,
    pub(super) count: u32,
}

impl AddressRun {
    /// No address.
    pub(crate) const EMPTY: Self = Self { address: 0, position: 0, count: 0 };

    /// Returns the position of an address of the run.
    #[inline(always)]
    pub(crate) fn position_of(&self, address: u32) -> Option<u32> {
        let offset = address.wrapping_sub(self.address);
        (offset < self.count).then(|| self.position + offset)
    }
}

impl PortBlocks {
    /// Sets the lanes of the shard in which blocks are opened. Blocks that are open stay open.
    pub(crate) fn set_lanes(&mut self, shard: ShardIndex, lanes: u8) {
        let lanes = lanes_word(lanes);
        let words = self.blocks_per_address.div_ceil(WORD_BITS);
        let pool = &mut self.shards[usize::from(shard.0)];
        (pool.lanes, pool.blocks_free, pool.blocks_total) = (lanes, 0, 0);
        for &address in &pool.positions {
            let place = &mut self.addresses[address as usize];
            (place.blocks_free, place.blocks_total) = (0, 0);
            if place.out_of_service.is_some() {
                continue;
            }
            let start = (address * words) as usize;
            for (at, number) in (start..start + words as usize).zip((0..).step_by(64)) {
                let usable =
                    lanes & usable_word(number, self.first_usable, self.blocks_per_address);
                place.blocks_free += (self.free[at] & lanes).count_ones();
                place.blocks_total += (usable & !self.reserved[at]).count_ones();
            }
            pool.blocks_free += place.blocks_free;
            pool.blocks_total += place.blocks_total;
        }
    }

    /// Returns the lanes of the shard that this worker owns, a bit each.
    #[inline]
    pub(crate) fn lanes(&self, shard: ShardIndex) -> u8 {
        self.shards[usize::from(shard.0)].lanes as u8
    }

    /// True if the block, which is of this shard, lies in a lane that this worker owns.
    #[inline]
    pub(crate) fn is_ours(&self, shard: ShardIndex, block: BlockId) -> bool {
        self.lanes(shard) >> self.lane(block) & 1 != 0
    }

    /// Gives a free block to a subscriber because its lane's owner did; that owner has logged it.
    pub(crate) fn claim(&mut self, block: BlockId, owner: u32) {
        self.set_free(block, false);
        self.blocks[block.0 as usize] = BlockState { owner, is_logged: true, ..FREE_BLOCK };
    }

    /// Returns the subscriber that holds the block, if a mapping has stood in it: the log names no
    /// other.
    pub(crate) fn logged_owner(&self, block: BlockId) -> Option<u32> {
        let record = &self.blocks[block.0 as usize];
        (record.owner != NO_OWNER && record.is_logged).then_some(record.owner)
    }

    /// Returns a block of a lane of the shard by its index among them; None behind the last.
    pub(crate) fn block_of_lane(
        &self,
        shard: ShardIndex,
        lane: u32,
        index: u32,
    ) -> Option<BlockId> {
        let per_address = (self.blocks_per_address + LANES - 1).saturating_sub(lane) / LANES;
        let address = index.checked_div(per_address)?;
        let position = self.shards[usize::from(shard.0)].positions.get(address as usize)?;
        let number = lane + index % per_address * LANES;
        Some(BlockId(position * self.blocks_per_address + number))
    }

    /// Returns the subscriber that holds the block.
    #[inline]
    pub(crate) fn owner(&self, block: BlockId) -> Option<u32> {
        let owner = self.blocks[block.0 as usize].owner;
        (owner != NO_OWNER).then_some(owner)
    }

    /// Returns the position of a port's bit.
    #[inline]
    pub(crate) fn bit_of(&self, block: BlockId, protocol: Protocol, port: u16) -> PortBit {
        let (word, bit) = self.port_bit(block, protocol, port);
        PortBit { word, bit }
    }

    /// Prefetches the block and the word of the port's bit.
    #[inline(always)]
    pub(crate) fn prefetch(&self, block: BlockId, port_bit: PortBit) {
        self.blocks.prefetch(block.0 as usize);
        self.ports.prefetch(port_bit.word);
    }

    #[inline]
    pub(crate) fn is_taken(&self, port_bit: PortBit) -> bool {
        self.ports[port_bit.word] & port_bit.bit != 0
    }

    /// Takes this free port of an owned block of the shard.
    #[inline]
    pub(crate) fn take_at(&mut self, port_bit: PortBit, block: BlockId, protocol: Protocol) {
        assert!(!self.is_taken(port_bit), "a port is taken once");
        self.ports[port_bit.word] |= port_bit.bit;
        let address = self.address_of(block);
        self.addresses[address as usize].ports_used += 1;
        self.blocks[block.0 as usize].used[protocol.space()] += 1;
    }

    /// Returns the position of a public address in the pool.
    pub(crate) fn position_of(&self, address: u32) -> Option<u32> {
        self.run_at(address)?.position_of(address)
    }

    /// Returns the run that has the address, or the last one below it.
    #[inline(never)]
    pub(crate) fn run_at(&self, address: u32) -> Option<AddressRun> {
        let behind = self.runs.partition_point(|run| run.address <= address);
        self.runs.get(behind.checked_sub(1)?).copied()
    }

    /// True if this port may be given at all.
    pub(crate) fn is_usable(&self, port: u16) -> bool {
        port >= self.port_min
    }

    /// Returns the shard of the address at a position of the pool.
    pub(crate) fn shard_at(&self, address: u32) -> ShardIndex {
        self.addresses[address as usize].shard
    }
}

/// Returns a bit for each of the 64 blocks of an address from `number` on that homes may hold.
pub(super) fn usable_word(number: u32, first_usable: u32, blocks: u32) -> u64 {
    let upto = |end: u32| match end.saturating_sub(number) {
        0 => 0,
        count => u64::MAX >> (WORD_BITS - count.min(WORD_BITS)),
    };
    upto(blocks) & !upto(first_usable)
}
