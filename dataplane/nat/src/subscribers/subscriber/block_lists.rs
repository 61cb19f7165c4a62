//! Hot. The blocks of each home, and which of them are known to be full: a choice of a block with
//! room reads one list, not the state of every block in it.

use super::{Subscriber, Subscribers};
use crate::config_check::{PORT_BLOCK_MIN, PUBLIC_ADDRESSES_MAX};
use crate::endpoint::Protocol;
use crate::ports::port_block::BlockId;

/// A block in the list of its home. Above the block's number, one bit for each protocol says that
/// the block was found full and that no port of it was given back since. The bit stays clear while
/// no choice has come across the full block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldBlock(u32);

const FULL_SHIFT: u32 = u32::BITS - Protocol::ALL.len() as u32;

const _: () = assert!(
    PUBLIC_ADDRESSES_MAX * (65_536 / PORT_BLOCK_MIN as u64) <= 1 << FULL_SHIFT,
    "every block's number leaves the upper bits free"
);

impl HeldBlock {
    /// What a list has behind its last block.
    pub(super) const NONE: Self = Self(u32::MAX);

    #[inline]
    fn new(block: BlockId) -> Self {
        assert!(block.0 < 1 << FULL_SHIFT, "the number of a block that is held is in range");
        Self(block.0)
    }

    #[inline]
    pub(crate) fn block(self) -> BlockId {
        BlockId(self.0 & ((1 << FULL_SHIFT) - 1))
    }

    /// True if all ports of the block are known to be taken.
    #[inline]
    pub(crate) fn is_full(self, protocol: Protocol) -> bool {
        self.0 & Self::full_bit(protocol) != 0
    }

    #[inline]
    fn full_bit(protocol: Protocol) -> u32 {
        1 << (FULL_SHIFT + protocol.space() as u32)
    }
}

impl Subscribers {
    /// Returns the blocks of a subscriber.
    pub(crate) fn blocks(&self, slot: u32) -> impl ExactSizeIterator<Item = BlockId> + '_ {
        self.with_blocks(slot).1.iter().map(|held| held.block())
    }

    /// Returns a subscriber and its blocks.
    #[inline]
    pub(crate) fn with_blocks(&self, slot: u32) -> (&Subscriber, &[HeldBlock]) {
        let start = slot as usize * self.list_blocks as usize;
        let subscriber = &self.slots[slot as usize];
        (subscriber, &self.block_lists[start..start + subscriber.blocks as usize])
    }

    pub(crate) fn is_list_full(&self, slot: u32) -> bool {
        self.slots[slot as usize].blocks >= self.list_blocks
    }

    pub(crate) fn add_block(&mut self, slot: u32, block: BlockId) {
        assert!(!self.is_list_full(slot), "a list of blocks is not exceeded");
        let subscriber = &mut self.slots[slot as usize];
        let start = slot as usize * self.list_blocks as usize;
        self.block_lists[start + subscriber.blocks as usize] = HeldBlock::new(block);
        subscriber.blocks += 1;
        subscriber.first_block = self.block_lists[start];
    }

    pub(crate) fn remove_block(&mut self, slot: u32, block: BlockId) {
        let at = self.position_of(slot, block);
        let subscriber = &mut self.slots[slot as usize];
        subscriber.blocks -= 1;
        let last = slot as usize * self.list_blocks as usize + subscriber.blocks as usize;
        self.block_lists[at] = self.block_lists[last];
        self.copy_first_block(slot);
    }

    /// Records that all ports of a block were found taken.
    pub(crate) fn note_full(&mut self, slot: u32, block: BlockId, protocol: Protocol) {
        let at = self.position_of(slot, block);
        self.block_lists[at].0 |= HeldBlock::full_bit(protocol);
        self.copy_first_block(slot);
    }

    /// Records that a block has a free port again.
    pub(crate) fn note_room(&mut self, slot: u32, block: BlockId, protocol: Protocol) {
        let at = self.position_of(slot, block);
        self.block_lists[at].0 &= !HeldBlock::full_bit(protocol);
        self.copy_first_block(slot);
    }

    fn copy_first_block(&mut self, slot: u32) {
        let start = slot as usize * self.list_blocks as usize;
        self.slots[slot as usize].first_block = self.block_lists[start];
    }

    /// Returns the index of a subscriber's block in `block_lists`.
    fn position_of(&self, slot: u32, block: BlockId) -> usize {
        let at = self.blocks(slot).position(|held| held == block);
        slot as usize * self.list_blocks as usize + at.expect("a block is in its owner's list")
    }
}
