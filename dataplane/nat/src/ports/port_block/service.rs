//! Public addresses that operators take out of service, and blocks that they reserve for static
//! mappings, while packets pass.

use std::ops::RangeInclusive;

use super::shared::usable_word;
use super::{NO_OWNER, PortBlocks, ShardIndex, WORD_BITS};

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
        self.is_any_set_apart |= out_of_service.is_some();
    }

    /// Counts the free blocks of a shard again.
    pub(crate) fn recount(&mut self, shard: ShardIndex) {
        self.set_lanes(shard, self.lanes(shard));
    }

    /// True if an address has been out of service or a block reserved: else no choice has to look.
    #[inline(always)]
    pub(crate) fn is_any_set_apart(&self) -> bool {
        self.is_any_set_apart
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

    /// Reserves the blocks of an address that have one of these ports, and no others. Returns
    /// whether that changed what is free; the counts of the shard are wrong then, see
    /// [`recount`](Self::recount). A block that a home holds stays the home's until it is released.
    pub(crate) fn reserve(
        &mut self,
        address: u32,
        ports: impl Iterator<Item = RangeInclusive<u16>> + Clone,
    ) -> bool {
        let mut has_changed = false;
        let words = self.blocks_per_address.div_ceil(WORD_BITS);
        for number in (0..self.blocks_per_address).step_by(WORD_BITS as usize) {
            let mut reserved = 0;
            for range in ports.clone() {
                let block = |port: u16| u32::from(port) >> self.port_shift;
                let (first, end) = (block(*range.start()), block(*range.end()) + 1);
                reserved |= usable_word(number, first, end);
            }
            let at = (address * words + number / WORD_BITS) as usize;
            let former = std::mem::replace(&mut self.reserved[at], reserved);
            if former == reserved {
                continue;
            }
            has_changed = true;
            self.is_any_set_apart |= reserved != 0;
            self.free[at] &= !reserved;
            let usable = usable_word(number, self.first_usable, self.blocks_per_address);
            let mut given_back = former & !reserved & usable;
            while given_back != 0 {
                let bit = given_back.trailing_zeros();
                given_back &= given_back - 1;
                let block = address * self.blocks_per_address + number + bit;
                let is_free = self.blocks[block as usize].owner == NO_OWNER;
                self.free[at] |= u64::from(is_free) << bit;
            }
        }
        has_changed
    }

    /// Returns the number of the shard's addresses that are out of service, and of the ports in use
    /// there, all protocols.
    pub(crate) fn out_of_service_in(&self, shard: ShardIndex) -> (u32, u32) {
        if self.out_of_service == 0 {
            return (0, 0);
        }
        let all = self.positions(shard).iter().map(|&address| &self.addresses[address as usize]);
        let these = all.filter(|address| address.out_of_service.is_some());
        these.fold((0, 0), |(count, used), address| (count + 1, used + address.ports_used))
    }

    /// Returns the number of the shard's reserved blocks that homes still hold.
    pub(crate) fn blocks_awaited(&self, shard: ShardIndex) -> u32 {
        if !self.is_any_set_apart {
            return 0;
        }
        let words = self.blocks_per_address.div_ceil(WORD_BITS);
        let mut awaited = 0;
        for &address in self.positions(shard) {
            for word in 0..words {
                let mut reserved = self.reserved[(address * words + word) as usize];
                while reserved != 0 {
                    let number = word * WORD_BITS + reserved.trailing_zeros();
                    reserved &= reserved - 1;
                    let block = address * self.blocks_per_address + number;
                    awaited += u32::from(self.blocks[block as usize].owner != NO_OWNER);
                }
            }
        }
        awaited
    }

    /// True if no block of the address at a position is given, whatever homes hold: it is out of
    /// service, or has a block reserved and none that is not.
    pub(crate) fn gives_no_block(&self, address: u32) -> bool {
        let words = self.blocks_per_address.div_ceil(WORD_BITS);
        let is_reserved = |number: u32| {
            let usable = usable_word(number, self.first_usable, self.blocks_per_address);
            usable & !self.reserved[(address * words + number / WORD_BITS) as usize] == 0
        };
        self.out_of_service(address).is_some()
            || (0..self.blocks_per_address).step_by(WORD_BITS as usize).all(is_reserved)
    }

    /// Returns the positions of the shard's addresses.
    pub(crate) fn positions(&self, shard: ShardIndex) -> &[u32] {
        &self.shards[usize::from(shard.0)].positions
    }
}
