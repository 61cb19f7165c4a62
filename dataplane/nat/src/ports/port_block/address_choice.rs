//! The public address for a home's next block.

use super::PortBlocks;
use crate::endpoint::ShardIndex;
use crate::ports::random::Random;

impl PortBlocks {
    /// Returns the shard's address with the most free blocks among those that are wanted, None if
    /// all are taken. Equal ones are chosen from at random, so that homes spread and an outsider
    /// cannot foretell the paired address.
    #[inline]
    pub(crate) fn least_loaded(
        &self,
        shard: ShardIndex,
        random: &mut Random,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let pool = &self.shards[usize::from(shard.0)];
        if pool.blocks_free == 0 {
            return None;
        }
        let start = random.below(pool.positions.len() as u32) as usize;
        let (before, from) = pool.positions.split_at(start);
        // max_by_key takes the last of equal ones; going backwards, that is the first one from the
        // start on.
        let round = from.iter().chain(before).rev().map(|&at| (at, &self.addresses[at as usize]));
        let wanted = round.filter(|(_, place)| is_wanted(place.address));
        let (position, place) = wanted.max_by_key(|(_, place)| place.blocks_free)?;
        (place.blocks_free > 0).then_some(position)
    }
}
