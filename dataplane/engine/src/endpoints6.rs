//! The tunnel endpoints of shards whose homes have tunnels over IPv6.

use weir_nat::ShardIndex;

/// An address, by its octets as they lie in memory.
pub(crate) type Octets6 = [u64; 2];

/// Tunnel endpoints by address: open addressing, at most a quarter full, so that the first slot
/// nearly always decides. The operator chooses the keys, so no secret is mixed in.
#[derive(Debug)]
pub(crate) struct Endpoints6 {
    /// The slots, a power of two. The unspecified address is no endpoint and marks a free slot.
    slots: Box<[(Octets6, ShardIndex)]>,
    /// 64 less the bits of a slot's number.
    shift: u32,
    /// The endpoint of each possible shard index, or the unspecified address.
    by_shard: Box<[Octets6]>,
}

impl Endpoints6 {
    /// Makes a table for as many shards.
    pub(crate) fn new(shards: usize) -> Self {
        let slots = (4 * shards).next_power_of_two().max(2);
        Self {
            slots: vec![([0; 2], ShardIndex(0)); slots].into(),
            shift: u64::BITS - slots.trailing_zeros(),
            by_shard: vec![[0; 2]; shards].into(),
        }
    }

    /// Returns the likeliest slot of an address. Fibonacci hashing (Knuth, volume 3, section 6.4)
    /// of the sum of both halves. The top bits of the product are the only ones that each bit of
    /// the sum changes.
    #[inline(always)]
    fn first_slot(&self, [upper, lower]: Octets6) -> usize {
        let folded = upper.wrapping_add(lower.rotate_left(32));
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Returns the slots of an address, the likeliest first.
    #[inline]
    fn probe(&self, address: Octets6) -> impl Iterator<Item = usize> + use<> {
        let (first, mask) = (self.first_slot(address), self.slots.len() - 1);
        (0..=mask).map(move |step| (first + step) & mask)
    }

    /// Returns the shard with this endpoint, if it is in its likeliest slot.
    #[inline(always)]
    pub(crate) fn likely(&self, address: Octets6) -> Option<ShardIndex> {
        let (found, shard) = *self.slots.get(self.first_slot(address))?;
        (found == address).then_some(shard)
    }

    /// Returns the shard with this endpoint.
    #[inline]
    pub(crate) fn get(&self, address: Octets6) -> Option<ShardIndex> {
        for slot in self.probe(address) {
            let (found, shard) = self.slots[slot];
            if found == [0; 2] {
                break;
            }
            if found == address {
                return Some(shard);
            }
        }
        None
    }

    /// Returns the endpoint of a shard, if it has one.
    #[inline]
    pub(crate) fn of_shard(&self, shard: ShardIndex) -> Option<Octets6> {
        self.by_shard.get(usize::from(shard.0)).copied().filter(|endpoint| *endpoint != [0; 2])
    }

    /// Sets the endpoint of a shard that has none.
    pub(crate) fn insert(&mut self, address: Octets6, shard: ShardIndex) {
        self.by_shard[usize::from(shard.0)] = address;
        self.enter(address, shard);
    }

    fn enter(&mut self, address: Octets6, shard: ShardIndex) {
        let mut slots = self.probe(address);
        let free = slots.find(|&slot| self.slots[slot].0 == [0; 2]);
        self.slots[free.expect("three of four slots are free")] = (address, shard);
    }

    /// Removes the endpoint of a shard. Those behind it, up to the next free slot, are entered
    /// again: a look-up ends at a free slot.
    pub(crate) fn remove(&mut self, shard: ShardIndex) {
        let Some(address) = self.of_shard(shard) else { return };
        self.by_shard[usize::from(shard.0)] = [0; 2];
        let mut is_behind = false;
        for slot in self.probe(address) {
            let (found, of) = self.slots[slot];
            if found == [0; 2] {
                break;
            }
            if found == address || is_behind {
                self.slots[slot].0 = [0; 2];
            }
            if is_behind {
                self.enter(found, of);
            }
            is_behind |= found == address;
        }
    }
}

/// Returns the octets of an address as they lie in memory.
#[inline(always)]
pub(crate) fn octets(address: [u8; 16]) -> Octets6 {
    zerocopy::transmute!(address)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn endpoints_of_usual_address_plans_are_in_their_first_slots() {
        const SHARDS: u16 = 256;
        let plans: [fn(u16) -> [u16; 8]; 4] = [
            |shard| [0x2001, 0xdb8, shard, 0, 0, 0, 0, 1],
            |shard| [0x2001, 0xdb8, 0x64, shard, 0, 0, 0, 1],
            |shard| [0x2001, 0xdb8, 0x64, 0, 0, 0, 0, shard],
            |shard| [0x2001, 0xdb8, 0x64, 0, 0, 0, shard, 1],
        ];
        for plan in plans {
            let address = |shard| octets(std::net::Ipv6Addr::from(plan(shard + 1)).octets());
            let mut endpoints = Endpoints6::new(SHARDS.into());
            (0..SHARDS).for_each(|shard| endpoints.insert(address(shard), ShardIndex(shard)));
            let found = (0..SHARDS).filter(|&shard| endpoints.likely(address(shard)).is_some());
            let (found, text) = (found.count(), std::net::Ipv6Addr::from(plan(1)));
            assert!(found >= 192, "{found} of {SHARDS} endpoints like {text}");
        }
    }

    #[test]
    fn table_of_endpoints_equals_a_map_while_endpoints_come_and_go() {
        let mut endpoints = Endpoints6::new(64);
        let mut present: HashMap<u16, Octets6> = HashMap::new();
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let shard = (random >> 33) as u16 % 64;
            let address = [0x2001_0db8, 1 + (random >> 40) % 100_000];
            if present.remove(&shard).is_some() {
                endpoints.remove(ShardIndex(shard));
            } else if !present.values().any(|it| *it == address) {
                endpoints.insert(address, ShardIndex(shard));
                present.insert(shard, address);
            }
            for (shard, address) in &present {
                assert_eq!(endpoints.get(*address), Some(ShardIndex(*shard)));
                assert_eq!(endpoints.of_shard(ShardIndex(*shard)), Some(*address));
            }
            assert_eq!(endpoints.get([0x2001_0db8, 0]), None);
            assert_eq!(endpoints.get([0; 2]), None);
        }
    }
}
