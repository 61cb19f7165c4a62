//! Which shard a packet belongs to: by tunnel endpoint, or by the prefix of its source.

use std::net::Ipv4Addr;

use weir_nat::{AddressRanges, ShardIndex};
use weir_wire::ipv4::{self, Ipv4};

use crate::{AccessMode, EngineConfig, EngineError};

/// Time to live of the tunnel packets.
const OUTER_TTL: u8 = 64;

/// Tunnel endpoints by address: open addressing, at most a quarter full, so that the first place nearly always decides.
/// The keys are the operator's own, so no secret is mixed in.
#[derive(Debug)]
struct Endpoints {
    /// A power of two of places. Address 0 is nobody's endpoint and marks a free one.
    places: Box<[(u32, ShardIndex)]>,
}

impl Endpoints {
    fn new(count: usize) -> Self {
        let places = (4 * count).next_power_of_two().max(2);
        Self { places: vec![(0, ShardIndex(0)); places].into_boxed_slice() }
    }

    /// The places of an address, the likeliest first. Fibonacci hashing (Knuth, volume 3, section 6.4).
    #[inline]
    fn probe(&self, address: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.places.len() - 1;
        let first = (u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (0..=mask).map(move |step| (first + step) & mask)
    }

    /// Returns the shard that has this endpoint already, if one has.
    fn insert(&mut self, address: u32, shard: ShardIndex) -> Option<ShardIndex> {
        let place = self
            .probe(address)
            .find(|&place| [0, address].contains(&self.places[place].0))
            .expect("three of four places are free");
        if self.places[place].0 == address {
            return Some(self.places[place].1);
        }
        self.places[place] = (address, shard);
        None
    }

    #[inline(always)]
    fn get(&self, address: u32) -> Option<ShardIndex> {
        let first = self.probe(address).next().map(|place| self.places[place]);
        match first {
            Some((found, shard)) if found == address && address != 0 => Some(shard),
            Some((0, _)) => None,
            _ => self.search(address),
        }
    }

    #[cold]
    fn search(&self, address: u32) -> Option<ShardIndex> {
        for place in self.probe(address) {
            let (found, shard) = self.places[place];
            if found == address && address != 0 {
                return Some(shard);
            }
            if found == 0 {
                break;
            }
        }
        None
    }
}

#[derive(Debug)]
pub(crate) struct Shards {
    by_endpoint: Endpoints,
    by_source: AddressRanges,
    /// Per shard the header of a tunnel packet from its endpoint: whole but for what differs from packet to packet.
    tunnel_headers: Box<[Ipv4]>,
}

impl Shards {
    pub(crate) fn new(config: &EngineConfig) -> Result<Self, EngineError> {
        let mut by_endpoint = Endpoints::new(config.shards.len());
        for (shard, index) in config.shards.iter().zip(0..) {
            if config.mode == AccessMode::Gre {
                let endpoint = shard.endpoint.ok_or(EngineError::NoEndpoint(shard.id))?;
                if let Some(first) = by_endpoint.insert(endpoint, ShardIndex(index)) {
                    return Err(EngineError::EndpointTwice {
                        endpoint: Ipv4Addr::from(endpoint),
                        first: config.shards[usize::from(first.0)].id,
                        second: shard.id,
                    });
                }
            }
        }
        let by_source =
            AddressRanges::new(config.shards.iter().zip(0..).flat_map(|(shard, index)| {
                shard.subscribers.iter().map(move |&net| (net, ShardIndex(index)))
            }));
        let tunnel_header = |endpoint: Option<u32>| {
            let mut header = Ipv4::new(endpoint.unwrap_or(0), 0, ipv4::PROTOCOL_GRE, 0);
            header.ttl = OUTER_TTL;
            header.set_checksum();
            header
        };
        let tunnel_headers =
            config.shards.iter().map(|shard| tunnel_header(shard.endpoint)).collect();
        Ok(Self { by_endpoint, by_source, tunnel_headers })
    }

    /// The shard whose tunnel endpoint this is.
    #[inline]
    pub(crate) fn of_endpoint(&self, endpoint: u32) -> Option<ShardIndex> {
        self.by_endpoint.get(endpoint)
    }

    /// The shard that a plain-mode home belongs to.
    #[inline]
    pub(crate) fn of_source(&self, source: u32) -> Option<ShardIndex> {
        self.by_source.shard_of(source)
    }

    /// The tunnel endpoint of a shard, host order.
    #[inline]
    pub(crate) fn endpoint(&self, shard: ShardIndex) -> u32 {
        self.tunnel_header(shard).source.get()
    }

    /// The header of a tunnel packet of a shard without payload, traffic class, identification, flags and
    /// destination, its checksum right for that.
    #[inline]
    pub(crate) fn tunnel_header(&self, shard: ShardIndex) -> &Ipv4 {
        &self.tunnel_headers[usize::from(shard.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_found_and_strangers_are_not() {
        let first = u32::from_be_bytes([10, 100, 0, 0]);
        let mut endpoints = Endpoints::new(1000);
        for number in 0..1000 {
            assert_eq!(endpoints.insert(first + number, ShardIndex(number as u16)), None);
        }
        assert_eq!(endpoints.insert(first + 7, ShardIndex(9)), Some(ShardIndex(7)));
        for number in 0..1000 {
            assert_eq!(endpoints.get(first + number), Some(ShardIndex(number as u16)));
        }
        for stranger in [0, 1, first - 1, first + 1000, u32::MAX] {
            assert_eq!(endpoints.get(stranger), None);
        }
        assert_eq!(Endpoints::new(0).get(1), None);
    }
}
