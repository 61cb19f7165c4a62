//! Source pools: public addresses for the flows to which a rule gives them, and for no others.
//!
//! Pool 0 has all addresses that are in no pool; a home is paired with one of these. The rules say
//! which address is of which pool, so that both change at once: a block keeps its home and a
//! mapping its port while their address is put into another pool, and nothing new is chosen there.
//!
//! An inside endpoint has at most one mapping in each pool, so mapping is endpoint-independent
//! within a pool. A static mapping serves flows of all pools: its inside endpoint has one public
//! endpoint for good.

use weir_flow::RecordId;
use weir_rules::{SOURCE_POOLS, SourcePool};

use crate::config::Pooling;
use crate::endpoint::ShardIndex;
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::ports::port_block::BlockId;
use crate::ports::port_block::address_choice::BlockCount;

impl Nat {
    /// Returns the source pool of the public address at a position.
    pub(crate) fn source_pool_at(&self, position: u32) -> SourcePool {
        self.rules.set.source_pool_of(self.ports.public_address(position))
    }

    /// Whether a flow of a source pool may begin in a block of the address at a position.
    #[cold]
    pub(crate) fn may_choose(&self, position: u32, pool: SourcePool) -> bool {
        self.ports.out_of_service(position).is_none() && self.source_pool_at(position) == pool
    }

    /// Whether the flows of a source pool may use a mapping.
    pub(crate) fn is_of_source_pool(&self, id: RecordId, pool: SourcePool) -> bool {
        let mapping = self.mappings.get(id);
        mapping.is_static() || self.rules.set.source_pool_of(mapping.public_address) == pool
    }

    /// Returns the position of the shard's address with the most free blocks in a source pool; None
    /// if all are taken.
    #[inline]
    pub(crate) fn least_loaded(&mut self, shard: ShardIndex, pool: SourcePool) -> Option<u32> {
        let Self { ports, rules, random, .. } = self;
        match rules.set.has_source_pools() {
            false => ports.least_loaded(shard, random),
            true => {
                let is_its = |address| rules.set.source_pool_of(address) == pool;
                ports.least_loaded_of(shard, random, is_its)
            }
        }
    }

    /// Returns the blocks of a shard's addresses, by source pool.
    pub(crate) fn blocks_by_source_pool(
        &self,
        shard: ShardIndex,
    ) -> [BlockCount; SOURCE_POOLS as usize] {
        let set = &*self.rules.set;
        if set.has_source_pools() {
            let number = |address| usize::from(set.source_pool_of(address).number());
            return self.ports.count_blocks(shard, number);
        }
        let mut counts = [BlockCount::default(); SOURCE_POOLS as usize];
        let (free, total) = (self.ports.blocks_free(shard), self.ports.blocks_total(shard));
        counts[0] = BlockCount { free, total };
        counts
    }

    /// Returns the position of an address for a home whose first flow is of a source pool, in case
    /// that no other address has room.
    #[inline]
    pub(crate) fn address_of_source_pool(
        &mut self,
        shard: ShardIndex,
        pool: SourcePool,
    ) -> Option<u32> {
        if pool == SourcePool::COMMON { None } else { self.least_loaded(shard, pool) }
    }

    /// Opens a block in a source pool that the home's paired address is not in: pairs the home with
    /// another address for pool 0; for another pool, on the address that the home has in it. With
    /// hard pooling a home has one address in each pool (RFC 4787 REQ-2).
    #[cold]
    pub(crate) fn open_block_of_pool(
        &mut self,
        subscriber: u32,
        shard: ShardIndex,
        pool: SourcePool,
    ) -> Result<BlockId, Refusal> {
        if pool == SourcePool::COMMON {
            return self.open_block_elsewhere(subscriber, shard, pool);
        }
        let held = self.subscribers.blocks(subscriber).map(|block| self.ports.address_of(block));
        let is_its = |&address: &u32| {
            self.source_pool_at(address) == pool && !self.ports.gives_no_block(address)
        };
        let own = { held }.find(is_its);
        let mut block =
            own.and_then(|address| self.ports.open(address, subscriber, &mut self.random));
        if block.is_none() && (own.is_none() || self.policy.live.pooling == Pooling::Soft) {
            block = self
                .least_loaded(shard, pool)
                .and_then(|address| self.ports.open(address, subscriber, &mut self.random));
        }
        let block = block.ok_or(Refusal::PortsExhausted)?;
        self.subscribers.add_block(subscriber, block);
        Ok(block)
    }
}
