//! The public address for a home's next block, and what addresses have to choose from.

use super::{PortBlocks, PublicAddress};
use crate::endpoint::ShardIndex;
use crate::ports::random::Random;

/// Blocks that can be given, on some addresses of a shard, in the lanes that this worker owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCount {
    pub free: u32,
    pub total: u32,
}

impl PortBlocks {
    /// Counts the blocks of a shard's addresses that are in service, by what `kind_of` returns for
    /// an address, below `KINDS`.
    pub(crate) fn count_blocks<const KINDS: usize>(
        &self,
        shard: ShardIndex,
        kind_of: impl Fn(u32) -> usize,
    ) -> [BlockCount; KINDS] {
        let mut counts = [BlockCount::default(); KINDS];
        for &position in self.positions(shard) {
            let PublicAddress { address, blocks_free, blocks_total, .. } =
                self.addresses[position as usize];
            let count = &mut counts[kind_of(address)];
            count.free += blocks_free;
            count.total += blocks_total;
        }
        counts
    }

    /// Returns the shard's address with the most free blocks, None if all are taken. Equal ones are
    /// chosen from at random, so that homes spread and an outsider cannot foretell the paired
    /// address.
    pub(crate) fn least_loaded(&self, shard: ShardIndex, random: &mut Random) -> Option<u32> {
        let pool = &self.shards[usize::from(shard.0)];
        if pool.blocks_free == 0 {
            return None;
        }
        let start = random.below(pool.positions.len() as u32) as usize;
        let (before, from) = pool.positions.split_at(start);
        // max_by_key takes the last of equal ones; going backwards, that is the first one from the
        // start on.
        let round = from.iter().chain(before).rev();
        round.max_by_key(|&&address| self.addresses[address as usize].blocks_free).copied()
    }

    /// As [`least_loaded`](Self::least_loaded), among the addresses that are wanted.
    #[cold]
    pub(crate) fn least_loaded_of(
        &self,
        shard: ShardIndex,
        random: &mut Random,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let positions = &self.shards[usize::from(shard.0)].positions;
        if positions.is_empty() {
            return None;
        }
        let start = random.below(positions.len() as u32) as usize;
        let (before, from) = positions.split_at(start);
        let blocks_free = |position: u32| {
            let PublicAddress { address, blocks_free, .. } = self.addresses[position as usize];
            if is_wanted(address) { blocks_free } else { 0 }
        };
        let round = from.iter().chain(before).map(|&position| (position, blocks_free(position)));
        let (position, blocks_free) = round.max_by_key(|&(_, blocks_free)| blocks_free)?;
        (blocks_free > 0).then_some(position)
    }
}
