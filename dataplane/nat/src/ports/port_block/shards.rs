//! The addresses of shards that are added and removed.

use ipnet::Ipv4Net;

use super::{AddressRun, NO_ADDRESS, PortBlocks, PublicAddress, ShardIndex, ShardPool};

impl PortBlocks {
    /// Gives a shard without addresses those of its prefixes, with all blocks free, and makes these
    /// lanes this worker's own. There must be room; without translation none is needed.
    pub(crate) fn add(&mut self, shard: ShardIndex, public: &[Ipv4Net], lanes: u8) {
        let is_translating = !self.addresses.is_empty();
        let mut positions = Vec::new();
        for net in public.iter().filter(|_| is_translating) {
            let (first, size) = (net.network().to_bits(), 1_u64 << (32 - net.prefix_len()));
            let (mut done, size) = (0, size as u32);
            while done < size {
                let run = self.free_positions.take(size - done).expect("room was checked");
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
    /// If the shard holds a block.
    pub(crate) fn remove(&mut self, shard: ShardIndex) {
        for at in 0..self.positions(shard).len() {
            self.reserve(self.positions(shard)[at], std::iter::empty());
        }
        self.set_lanes(shard, 0xff);
        let pool = std::mem::take(&mut self.shards[usize::from(shard.0)]);
        assert_eq!(pool.blocks_free, pool.blocks_total, "a shard without records has no blocks");
        let Self { runs, addresses, free_positions, out_of_service, .. } = self;
        runs.retain(|run| {
            let is_its = addresses[run.position as usize].shard == shard;
            if is_its {
                free_positions.give(run.position..run.position + run.count);
            }
            !is_its
        });
        for position in pool.positions {
            let removed = std::mem::replace(&mut addresses[position as usize], NO_ADDRESS);
            *out_of_service -= u32::from(removed.out_of_service.is_some());
        }
    }

    /// Returns the number of addresses that further shards can have.
    pub(crate) fn addresses_free(&self) -> u64 {
        self.free_positions.count().into()
    }
}
