//! Public addresses that operators take out of service, and give back, while packets pass.

use super::{PortBlocks, ShardIndex};

/// How a public address is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfService {
    /// No mapping begins on it; those that live go on.
    Drained,
    /// Its mappings end, too.
    Quarantined,
}

impl PortBlocks {
    /// Sets whether the address at a position is out of service. The blocks that homes hold there
    /// stay theirs. The counts of its shard go wrong: [`recount`](Self::recount) follows.
    pub(crate) fn set_service(&mut self, address: u32, out_of_service: Option<OutOfService>) {
        let place = &mut self.addresses[address as usize];
        self.out_of_service += u32::from(out_of_service.is_some());
        self.out_of_service -= u32::from(place.out_of_service.is_some());
        place.out_of_service = out_of_service;
    }

    /// Counts the free blocks of a shard again.
    pub(crate) fn recount(&mut self, shard: ShardIndex) {
        self.set_lanes(shard, self.lanes(shard));
    }

    /// True if an address is out of service.
    #[inline(always)]
    pub(crate) fn is_any_out_of_service(&self) -> bool {
        self.out_of_service > 0
    }

    /// Returns how the address at a position is out of service; `None` if it is in service.
    #[inline]
    pub(crate) fn out_of_service(&self, address: u32) -> Option<OutOfService> {
        self.addresses[address as usize].out_of_service
    }

    /// Returns the ports in use on the address at a position, all protocols.
    pub(crate) fn used_on(&self, address: u32) -> u32 {
        self.addresses[address as usize].ports_used
    }

    /// Returns the positions of the shard's addresses.
    pub(crate) fn positions(&self, shard: ShardIndex) -> &[u32] {
        &self.shards[usize::from(shard.0)].positions
    }
}
