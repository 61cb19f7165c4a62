//! The shard of a packet, by tunnel endpoint or by the prefix of its source.

use std::net::{Ipv4Addr, Ipv6Addr};

use weir_nat::{AddressRanges, ShardId, ShardIndex};
use weir_wire::ipv4::{self, Ipv4};

use crate::endpoints6::{Endpoints6, Octets6, octets};
use crate::{AccessMode, EngineConfig, EngineError, ShardConfig};

/// TTL of the tunnel packets.
pub(crate) const OUTER_TTL: u8 = 64;

/// Tunnel endpoints by address: open addressing, at most a quarter full, so that the first slot
/// nearly always decides. The operator chooses the keys, so no secret is mixed in.
#[derive(Debug)]
struct Endpoints {
    /// The slots, a power of two. Address 0 is no endpoint and marks a free slot.
    slots: Box<[(u32, ShardIndex)]>,
}

impl Endpoints {
    fn new(count: usize) -> Self {
        let slots = (4 * count).next_power_of_two().max(2);
        Self { slots: vec![(0, ShardIndex(0)); slots].into_boxed_slice() }
    }

    /// Returns the slots of an address, the likeliest first. Fibonacci hashing (Knuth, volume 3,
    /// section 6.4).
    #[inline]
    fn probe(&self, address: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        let first = (u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (0..=mask).map(move |step| (first + step) & mask)
    }

    /// Adds an endpoint. Returns the shard that has this endpoint already, if there is one.
    fn insert(&mut self, address: u32, shard: ShardIndex) -> Option<ShardIndex> {
        let slot = self
            .probe(address)
            .find(|&slot| [0, address].contains(&self.slots[slot].0))
            .expect("three of four slots are free");
        if self.slots[slot].0 == address {
            return Some(self.slots[slot].1);
        }
        self.slots[slot] = (address, shard);
        None
    }

    /// Removes an endpoint. The endpoints behind it, up to the next free slot, are inserted again:
    /// a look-up ends at a free slot.
    fn remove(&mut self, address: u32) {
        let mut is_behind = false;
        for slot in self.probe(address) {
            let (found, shard) = self.slots[slot];
            if found == 0 {
                break;
            }
            if found == address || is_behind {
                self.slots[slot].0 = 0;
            }
            if is_behind {
                self.insert(found, shard);
            }
            is_behind |= found == address;
        }
    }

    #[inline(always)]
    fn get(&self, address: u32) -> Option<ShardIndex> {
        let first = self.probe(address).next().map(|slot| self.slots[slot]);
        match first {
            Some((found, shard)) if found == address && address != 0 => Some(shard),
            Some((0, _)) => None,
            _ => self.search(address),
        }
    }

    #[cold]
    fn search(&self, address: u32) -> Option<ShardIndex> {
        for slot in self.probe(address) {
            let (found, shard) = self.slots[slot];
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

/// Number of places of [`ServedEndpoints`], a power of two.
const PLACES: usize = 1 << 12;

/// Endpoints of the shards that are served, each at the one place that its address leads to: the
/// fast path looks nowhere else. An endpoint whose place another one holds is not here.
#[derive(Debug)]
struct ServedEndpoints {
    /// Address as it lies in memory, and shard. A free place has an address of another place.
    places: Box<[(u32, ShardIndex); PLACES]>,
}

impl ServedEndpoints {
    fn new() -> Self {
        let free = (0..PLACES).map(|place| (Self::stranger(place), ShardIndex(0)));
        let places = free.collect::<Box<[_]>>().try_into();
        Self { places: places.expect("there are PLACES places") }
    }

    /// Returns an address that does not lead to this place.
    const fn stranger(place: usize) -> u32 {
        // 0 leads to place 0, and 1 to another one.
        if place == 0 { 1 } else { 0 }
    }

    #[inline(always)]
    const fn place(address: u32) -> usize {
        (address.wrapping_mul(0x9e37_79b9) >> (u32::BITS - PLACES.ilog2())) as usize
    }

    fn set(&mut self, endpoint: u32, shard: ShardIndex, is_served: bool) {
        let address = endpoint.to_be();
        let place = Self::place(address);
        if is_served {
            self.places[place] = (address, shard);
        } else if self.places[place].0 == address {
            self.places[place].0 = Self::stranger(place);
        }
    }

    #[inline(always)]
    fn get(&self, address: u32) -> Option<ShardIndex> {
        let (found, shard) = self.places[Self::place(address)];
        (found == address).then_some(shard)
    }
}

#[derive(Debug)]
pub(crate) struct Shards {
    mode: AccessMode,
    by_endpoint: Endpoints,
    served: ServedEndpoints,
    by_endpoint6: Endpoints6,
    /// Whether the access side has an IPv6 address.
    has_access6: bool,
    by_source: AddressRanges,
    /// For each possible shard index, the header of a tunnel packet from the shard's endpoint,
    /// complete except for the fields that differ from packet to packet.
    tunnel_headers: Box<[Ipv4]>,
    /// For each possible shard index, the shard's id, for errors.
    ids: Box<[ShardId]>,
}

impl Shards {
    pub(crate) fn new(config: &EngineConfig) -> Result<Self, EngineError> {
        let room = config.nat.shards_max();
        let mut shards = Self {
            mode: config.mode,
            by_endpoint: Endpoints::new(room),
            served: ServedEndpoints::new(),
            by_endpoint6: Endpoints6::new(room),
            has_access6: config.access.ipv6.is_some(),
            by_source: AddressRanges::new([]),
            tunnel_headers: vec![tunnel_header(None); room].into(),
            ids: vec![ShardId(0); room].into(),
        };
        for (shard, index) in config.shards.iter().zip(0..) {
            shards.check_endpoint(shard)?;
            shards.enter(shard, ShardIndex(index));
            shards.set_serving(ShardIndex(index), true);
        }
        shards.by_source =
            AddressRanges::new(config.shards.iter().zip(0..).flat_map(|(shard, index)| {
                shard.subscribers.iter().map(move |&net| (net, ShardIndex(index)))
            }));
        Ok(shards)
    }

    fn check_endpoint(&self, shard: &ShardConfig) -> Result<(), EngineError> {
        if self.mode != AccessMode::Gre {
            return Ok(());
        }
        let endpoint = shard.endpoint.ok_or(EngineError::NoEndpoint(shard.id))?;
        if let Some(endpoint) = shard.endpoint6 {
            if !self.has_access6 {
                return Err(EngineError::NoAccess6(shard.id));
            }
            if let Some(first) = self.by_endpoint6.get(octets(endpoint.to_be_bytes())) {
                return Err(EngineError::Endpoint6Twice {
                    endpoint: Ipv6Addr::from(endpoint),
                    first: self.ids[usize::from(first.0)],
                    second: shard.id,
                });
            }
        }
        match self.by_endpoint.get(endpoint) {
            Some(first) => Err(EngineError::EndpointTwice {
                endpoint: Ipv4Addr::from(endpoint),
                first: self.ids[usize::from(first.0)],
                second: shard.id,
            }),
            None => Ok(()),
        }
    }

    /// Checks that this shard is compatible with the present ones.
    pub(crate) fn check(&self, shard: &ShardConfig) -> Result<(), EngineError> {
        self.check_endpoint(shard)?;
        for &net in &shard.subscribers {
            if let Some(first) = self.by_source.overlapping(net) {
                let first = self.ids[usize::from(first.0)];
                return Err(EngineError::SourceOverlap { net, first, second: shard.id });
            }
        }
        Ok(())
    }

    fn enter(&mut self, shard: &ShardConfig, index: ShardIndex) {
        let row = usize::from(index.0);
        self.tunnel_headers[row] = tunnel_header(shard.endpoint);
        self.ids[row] = shard.id;
        if let (AccessMode::Gre, Some(endpoint)) = (self.mode, shard.endpoint) {
            self.by_endpoint.insert(endpoint, index);
        }
        if let (AccessMode::Gre, Some(endpoint)) = (self.mode, shard.endpoint6) {
            self.by_endpoint6.insert(octets(endpoint.to_be_bytes()), index);
        }
    }

    /// Adds a shard that was checked: packets of its homes belong to it.
    pub(crate) fn add(&mut self, shard: &ShardConfig, index: ShardIndex) {
        self.enter(shard, index);
        self.by_source.insert(&shard.subscribers, index);
    }

    /// Sets whether the endpoint of a shard is found by
    /// [`of_served_endpoint`](Self::of_served_endpoint).
    pub(crate) fn set_serving(&mut self, index: ShardIndex, is_serving: bool) {
        let Some(header) = self.tunnel_headers.get(usize::from(index.0)) else { return };
        let endpoint = header.source.get();
        if self.by_endpoint.get(endpoint) == Some(index) {
            self.served.set(endpoint, index, is_serving);
        }
    }

    /// Removes a shard: packets of its homes belong to no shard.
    pub(crate) fn remove(&mut self, index: ShardIndex) {
        self.set_serving(index, false);
        let endpoint = self.endpoint(index);
        if self.by_endpoint.get(endpoint) == Some(index) {
            self.by_endpoint.remove(endpoint);
        }
        self.by_endpoint6.remove(index);
        self.by_source.remove(index);
    }

    /// Returns the shard with this tunnel endpoint.
    #[inline]
    pub(crate) fn of_endpoint(&self, endpoint: u32) -> Option<ShardIndex> {
        self.by_endpoint.get(endpoint)
    }

    /// Returns the shard with this tunnel endpoint, the address as it lies in memory, if the shard
    /// is served. It may miss an endpoint that [`of_endpoint`](Self::of_endpoint) finds.
    #[inline(always)]
    pub(crate) fn of_served_endpoint(&self, address: u32) -> Option<ShardIndex> {
        self.served.get(address)
    }

    /// Returns the shard with this IPv6 tunnel endpoint, its octets as they lie in memory.
    #[inline]
    pub(crate) fn of_endpoint6(&self, endpoint: Octets6) -> Option<ShardIndex> {
        self.by_endpoint6.get(endpoint)
    }

    /// As [`of_endpoint6`](Self::of_endpoint6). It may miss an endpoint.
    #[inline(always)]
    pub(crate) fn of_likely_endpoint6(&self, endpoint: Octets6) -> Option<ShardIndex> {
        self.by_endpoint6.likely(endpoint)
    }

    /// Returns the IPv6 tunnel endpoint of a shard, if it has one.
    #[inline]
    pub(crate) fn endpoint6_of(&self, shard: ShardIndex) -> Option<Octets6> {
        self.by_endpoint6.of_shard(shard)
    }

    /// Returns the shard of a plain-mode home.
    #[inline]
    pub(crate) fn of_source(&self, source: u32) -> Option<ShardIndex> {
        self.by_source.shard_of(source)
    }

    /// Returns the tunnel endpoint of a shard, host order.
    #[inline]
    pub(crate) fn endpoint(&self, shard: ShardIndex) -> u32 {
        self.tunnel_header(shard).source.get()
    }

    /// Returns the header of a shard's tunnel packets with no payload, and with traffic class,
    /// identification, flags and destination 0; its checksum is right for these values.
    #[inline]
    pub(crate) fn tunnel_header(&self, shard: ShardIndex) -> &Ipv4 {
        &self.tunnel_headers[usize::from(shard.0)]
    }
}

fn tunnel_header(endpoint: Option<u32>) -> Ipv4 {
    let mut header = Ipv4::new(endpoint.unwrap_or(0), 0, ipv4::PROTOCOL_GRE, 0);
    header.ttl = OUTER_TTL;
    header.set_checksum();
    header
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

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

    #[test]
    fn only_a_served_endpoint_is_found_at_its_place() {
        let mut served = ServedEndpoints::new();
        let endpoints: Vec<u32> = (0..200).map(|number| 0x0a64_0001 + number).collect();
        for (&endpoint, number) in endpoints.iter().zip(0..) {
            served.set(endpoint, ShardIndex(number), true);
        }
        for (&endpoint, number) in endpoints.iter().zip(0..) {
            assert_eq!(served.get(endpoint.to_be()), Some(ShardIndex(number)));
            served.set(endpoint, ShardIndex(number), false);
            assert_eq!(served.get(endpoint.to_be()), None);
        }
        for address in (0..1 << 20).chain(u32::MAX - 1000..=u32::MAX) {
            assert_eq!(served.get(address), None, "{address:#x}");
        }
        // Two addresses of one place: the later one has it, and only it leaves it.
        let [first, second] = [1_u32, 0x1000_0001].map(|start| {
            let place = ServedEndpoints::place(7);
            (start..)
                .find(|&address| ServedEndpoints::place(address) == place)
                .expect("one of many")
        });
        served.set(u32::from_be(first), ShardIndex(1), true);
        served.set(u32::from_be(second), ShardIndex(2), true);
        served.set(u32::from_be(first), ShardIndex(1), false);
        assert_eq!((served.get(first), served.get(second)), (None, Some(ShardIndex(2))));
    }

    /// Compares a table that is three quarters full, more than it ever is, with a map.
    #[test]
    fn table_of_endpoints_equals_a_map_while_endpoints_come_and_go() {
        let mut endpoints = Endpoints::new(16);
        let mut present = HashMap::new();
        let mut random = 1_u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let address = 1 + (random >> 33) as u32 % 200;
            if present.remove(&address).is_some() {
                endpoints.remove(address);
            } else if present.len() < endpoints.slots.len() * 3 / 4 {
                assert_eq!(endpoints.insert(address, ShardIndex(step)), None);
                present.insert(address, ShardIndex(step));
            } else {
                endpoints.remove(address);
            }
            for address in 0..=201 {
                assert_eq!(endpoints.get(address), present.get(&address).copied());
            }
        }
    }
}
