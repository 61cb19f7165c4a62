//! How many homes the pool of a shard can take: arithmetic for `weir check`.

use crate::config::{NatConfig, NatShardConfig, Pooling};

/// Capacity of a shard's public addresses. Without translation nothing is limited: `blocks_total`
/// is 0 and both numbers of homes are `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardCapacity {
    /// Blocks of all addresses, without those wholly below `port_min`.
    pub blocks_total: u64,
    /// Number of homes that can hold one block each: with more of them some home gets no port at
    /// all.
    pub homes_one_block: u64,
    /// Number of homes that can hold their whole quota at the same time. With hard pooling a home's
    /// quota lies on one address.
    pub homes_full_quota: u64,
}

/// Returns the blocks of one address that can be given: those that end at or above `port_min`.
pub(crate) fn blocks_usable(config: &NatConfig) -> u32 {
    65_536 / u32::from(config.port_block)
        - u32::from(config.port_min) / u32::from(config.port_block)
}

/// Returns the blocks that a home with a quota of so many ports may open: the quota rounded up to
/// blocks. With hard pooling that is a whole address at most.
pub(crate) fn quota_blocks(config: &NatConfig, ports: u32) -> u32 {
    let quota = ports.div_ceil(u32::from(config.port_block));
    match config.pooling {
        Pooling::Hard => quota.min(blocks_usable(config)),
        Pooling::Soft => quota,
    }
}

/// Returns the capacity of `shard` under `config`. A pure function; `config` must have passed the
/// checks of [`Nat::new`](crate::Nat::new) on `port_block` and `ports_per_subscriber`, otherwise
/// all numbers are 0.
pub fn shard_capacity(shard: &NatShardConfig, config: &NatConfig) -> ShardCapacity {
    if !config.enabled {
        return ShardCapacity {
            blocks_total: 0,
            homes_one_block: u64::MAX,
            homes_full_quota: u64::MAX,
        };
    }
    if config.port_block == 0 || config.ports_per_subscriber == 0 {
        return ShardCapacity { blocks_total: 0, homes_one_block: 0, homes_full_quota: 0 };
    }
    let addresses = shard.addresses();
    let per_address = u64::from(blocks_usable(config));
    let blocks_total = addresses * per_address;
    let quota = u64::from(quota_blocks(config, config.ports_per_subscriber));
    let homes_full_quota = match config.pooling {
        Pooling::Hard => addresses * (per_address / quota),
        Pooling::Soft => blocks_total / quota,
    };
    ShardCapacity { blocks_total, homes_one_block: blocks_total, homes_full_quota }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ids::ShardId;

    fn shard(public: &str) -> NatShardConfig {
        NatShardConfig {
            id: ShardId(1),
            public: vec![public.parse().unwrap()],
            public6: Vec::new(),
            subscribers_max: 256,
        }
    }

    #[test]
    fn the_default_takes_31_homes_with_full_quota_per_address() {
        let capacity = shard_capacity(&shard("203.0.113.1/32"), &NatConfig::default());
        // 65,536 / 256 blocks, 4 of them below port 1024; 2,048 ports are 8 blocks.
        assert_eq!(capacity.blocks_total, 252);
        assert_eq!(capacity.homes_one_block, 252);
        assert_eq!(capacity.homes_full_quota, 31);
    }

    #[test]
    fn a_quota_above_the_address_is_the_whole_address() {
        let config = NatConfig { ports_per_subscriber: 65_536, ..NatConfig::default() };
        assert_eq!(shard_capacity(&shard("203.0.113.0/28"), &config).homes_full_quota, 16);
    }

    #[test]
    fn soft_pooling_counts_blocks_across_addresses() {
        let config = NatConfig { pooling: Pooling::Soft, ..NatConfig::default() };
        assert_eq!(shard_capacity(&shard("203.0.113.0/31"), &config).homes_full_quota, 63);
    }

    #[test]
    fn a_block_that_straddles_port_min_counts() {
        let config = NatConfig { port_block: 8192, ..NatConfig::default() };
        assert_eq!(shard_capacity(&shard("203.0.113.1/32"), &config).blocks_total, 8);
    }

    #[test]
    fn a_firewall_has_no_limit() {
        let config = NatConfig { enabled: false, ..NatConfig::default() };
        assert_eq!(shard_capacity(&shard("10.0.0.0/8"), &config).homes_one_block, u64::MAX);
    }
}
