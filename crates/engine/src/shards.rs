//! Which shard a packet belongs to: by tunnel endpoint, or by the prefix of its source.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::Ipv4Addr;

use weir_nat::ShardIndex;

use crate::{AccessMode, EngineConfig, EngineError};

/// Spreads configured addresses over a table. Its keys are the operator's own, so no seed is needed.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, address: u32) {
        let product = (self.0 ^ u64::from(address)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

/// A range of home addresses in plain mode, inclusive.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u32,
    last: u32,
    shard: ShardIndex,
}

pub(crate) struct Shards {
    by_endpoint: HashMap<u32, ShardIndex, BuildHasherDefault<AddressHasher>>,
    /// Sorted by `first`; disjoint.
    by_source: Box<[Range]>,
    endpoints: Box<[u32]>,
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shards").field("count", &self.endpoints.len()).finish_non_exhaustive()
    }
}

impl Shards {
    pub(crate) fn new(config: &EngineConfig) -> Result<Self, EngineError> {
        let mut by_endpoint = HashMap::default();
        let mut by_source = Vec::new();
        for (shard, index) in config.shards.iter().zip(0..) {
            let index = ShardIndex(index);
            if config.mode == AccessMode::Gre {
                let endpoint = shard.endpoint.ok_or(EngineError::NoEndpoint(shard.id))?;
                if let Some(first) = by_endpoint.insert(endpoint, index) {
                    return Err(EngineError::EndpointTwice {
                        endpoint: Ipv4Addr::from(endpoint),
                        first: config.shards[usize::from(first.0)].id,
                        second: shard.id,
                    });
                }
            }
            by_source.extend(shard.subscribers.iter().map(|prefix| Range {
                first: prefix.network().to_bits(),
                last: prefix.broadcast().to_bits(),
                shard: index,
            }));
        }
        by_source.sort_by_key(|range| range.first);
        let endpoints = config.shards.iter().map(|shard| shard.endpoint.unwrap_or(0)).collect();
        Ok(Self { by_endpoint, by_source: by_source.into_boxed_slice(), endpoints })
    }

    /// The shard whose tunnel endpoint this is.
    #[inline]
    pub(crate) fn of_endpoint(&self, endpoint: u32) -> Option<ShardIndex> {
        self.by_endpoint.get(&endpoint).copied()
    }

    /// The shard that a plain-mode home belongs to.
    #[inline]
    pub(crate) fn of_source(&self, source: u32) -> Option<ShardIndex> {
        let after = self.by_source.partition_point(|range| range.first <= source);
        let range = self.by_source.get(after.checked_sub(1)?)?;
        (source <= range.last).then_some(range.shard)
    }

    /// The tunnel endpoint of a shard, host order.
    #[inline]
    pub(crate) fn endpoint(&self, shard: ShardIndex) -> u32 {
        self.endpoints[usize::from(shard.0)]
    }
}
