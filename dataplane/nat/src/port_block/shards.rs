//! The addresses of shards that come and go.

use ipnet::Ipv4Net;

use super::{AddressRun, NO_ADDRESS, PortBlocks, PublicAddress, ShardIndex, ShardPool};

impl PortBlocks {
    /// Gives a shard that has no addresses those of its prefixes, all their blocks free, and these lanes as ours. There
    /// must be room; without translation none is needed.
    pub(crate) fn add(&mut self, shard: ShardIndex, public: &[Ipv4Net], lanes: u8) {
        let is_translating = !self.addresses.is_empty();
        let mut positions = Vec::new();
        for net in public.iter().filter(|_| is_translating) {
            let (first, size) = (net.network().to_bits(), 1_u64 << (32 - net.prefix_len()));
            let (mut done, size) = (0, size as u32);
            while done < size {
                let run = self.free_positions.take(size - done).expect("room was asked for");
                let (address, position, count) = (first + done, run.start, run.len() as u32);
                for (offset, position) in run.clone().enumerate() {
                    let address = address + offset as u32;
                    self.addresses[position as usize] =
                        PublicAddress { address, shard, ..NO_ADDRESS };
                }
                positions.extend(run);
                let at = self.runs.partition_point(|run| run.address < address);
                self.runs.insert(at, AddressRun { address, position, count });
                done += count;
            }
        }
        self.shards[usize::from(shard.0)] =
            ShardPool { positions: positions.into(), ..ShardPool::default() };
        self.set_lanes(shard, lanes);
    }

    /// Takes its addresses from a shard that holds no block.
    ///
    /// # Panics
    /// If it holds one.
    pub(crate) fn remove(&mut self, shard: ShardIndex) {
        self.set_lanes(shard, 0xff);
        let pool = std::mem::take(&mut self.shards[usize::from(shard.0)]);
        assert_eq!(pool.blocks_free, pool.blocks_total, "a shard without records has no blocks");
        let Self { runs, addresses, free_positions, .. } = self;
        runs.retain(|run| {
            let is_its = addresses[run.position as usize].shard == shard;
            if is_its {
                free_positions.give(run.position..run.position + run.count);
            }
            !is_its
        });
        for position in pool.positions {
            addresses[position as usize] = NO_ADDRESS;
        }
    }

    /// Addresses that further shards can have.
    pub(crate) fn addresses_free(&self) -> u64 {
        self.free_positions.count().into()
    }
}
