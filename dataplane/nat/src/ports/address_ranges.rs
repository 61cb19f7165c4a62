//! Hot. Sets of addresses: those of homes, and public addresses with their shards.

use ipnet::Ipv4Net;

use crate::config::NatShardConfig;
use crate::endpoint::ShardIndex;

/// Addresses, inclusive, and the shard that they belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressRange {
    first: u32,
    last: u32,
    shard: ShardIndex,
}

impl AddressRange {
    /// No address.
    pub(crate) const EMPTY: Self = Self { first: 1, last: 0, shard: ShardIndex(0) };

    #[inline(always)]
    pub(crate) fn has(&self, address: u32) -> bool {
        self.first <= address && address <= self.last
    }
}

/// Disjoint ranges of addresses, each with its shard. A look-up is one bit of the upper halves of
/// all addresses, which decides for nearly every other address, then the first range that reaches
/// into the address's /24, which is the right one unless ranges are smaller than that, then a
/// binary search among those of that /24.
#[derive(Clone, Debug)]
pub struct AddressRanges {
    /// Bit by bit, the upper halves that any range has a part in: 8 KiB.
    halves: Box<[u64; 1024]>,
    /// Sorted, disjoint.
    ranges: Vec<AddressRange>,
    /// For each upper half that has a page, where it begins in `firsts`.
    pages: Box<[u32]>,
    /// A page: for each /24 of a half, and for the end, the position of the first range that does
    /// not end below it.
    firsts: Vec<u32>,
}

impl AddressRanges {
    /// Builds ranges from prefixes in any order. Nested and repeated prefixes are accepted if they
    /// are of one shard.
    pub fn new(prefixes: impl IntoIterator<Item = (Ipv4Net, ShardIndex)>) -> Self {
        let mut found = Self {
            halves: Box::new([0; 1024]),
            ranges: Vec::new(),
            pages: vec![0; 1 << 16].into(),
            firsts: Vec::new(),
        };
        add(&mut found.ranges, prefixes);
        found.number();
        found
    }

    /// Adds the prefixes of a shard, disjoint from those of all others.
    pub fn insert(&mut self, prefixes: &[Ipv4Net], shard: ShardIndex) {
        let mut own = Vec::new();
        add(&mut own, prefixes.iter().map(|&net| (net, shard)));
        if own.is_empty() {
            return;
        }
        for range in own {
            let at = self.ranges.partition_point(|other| other.last < range.first);
            self.ranges.insert(at, range);
        }
        self.number();
    }

    /// Removes all ranges of a shard.
    pub fn remove(&mut self, shard: ShardIndex) {
        self.ranges.retain(|range| range.shard != shard);
        self.number();
    }

    /// Returns a shard that a part of the prefix belongs to.
    pub fn overlapping(&self, net: Ipv4Net) -> Option<ShardIndex> {
        let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
        let at = self.ranges.partition_point(|range| range.last < first);
        let range = self.ranges.get(at)?;
        (range.first <= last).then_some(range.shard)
    }

    /// Rebuilds from the ranges the tables that look-ups begin with.
    fn number(&mut self) {
        self.halves.fill(0);
        self.firsts.clear();
        for number in 0..self.ranges.len() {
            self.add_pages(number);
        }
    }

    /// Adds the pages of the halves that a range has a part in. Halves that it covers share one.
    fn add_pages(&mut self, number: usize) {
        let AddressRange { first, last, .. } = self.ranges[number];
        let mut shared = None;
        for half in first >> 16..=last >> 16 {
            let bit = 1 << (half % 64);
            if self.halves[(half / 64) as usize] & bit != 0 {
                continue;
            }
            self.halves[(half / 64) as usize] |= bit;
            let is_covered = first <= half << 16 && last >= half << 16 | 0xffff;
            self.pages[half as usize] = match shared.filter(|_| is_covered) {
                Some(page) => page,
                None => {
                    let page = self.add_page(half);
                    if is_covered {
                        shared = Some(page);
                    }
                    page
                }
            };
        }
    }

    fn add_page(&mut self, half: u32) -> u32 {
        let page = self.firsts.len() as u32;
        let starts = (0..=256).map(|third| (u64::from(half) << 16) + (third << 8));
        self.firsts.extend(starts.map(|start| {
            self.ranges.partition_point(|range| u64::from(range.last) < start) as u32
        }));
        page
    }

    /// Returns the shard of an address that is in a range.
    #[inline(always)]
    pub fn shard_of(&self, address: u32) -> Option<ShardIndex> {
        self.range_of(address).map(|range| range.shard)
    }

    #[inline(always)]
    pub(crate) fn range_of(&self, address: u32) -> Option<AddressRange> {
        let is_near = self.halves[(address >> 22) as usize] >> (address >> 16 & 63) & 1 != 0;
        if !is_near {
            return None;
        }
        let page_index = (self.pages[(address >> 16) as usize] + (address >> 8 & 255)) as usize;
        let first = self.ranges.get(self.firsts[page_index] as usize)?;
        match first.has(address) {
            true => Some(*first),
            false => self.search(page_index, address),
        }
    }

    #[inline(never)]
    fn search(&self, page_index: usize, address: u32) -> Option<AddressRange> {
        let (start, end) = (self.firsts[page_index] as usize, self.firsts[page_index + 1] as usize);
        let at = start + self.ranges[start..end].partition_point(|range| range.last < address);
        let range = self.ranges.get(at)?;
        (range.first <= address).then_some(*range)
    }

    #[inline(always)]
    pub fn contains(&self, address: u32) -> bool {
        self.shard_of(address).is_some()
    }
}

/// Adds ranges, and keeps them sorted and disjoint.
fn add(ranges: &mut Vec<AddressRange>, prefixes: impl IntoIterator<Item = (Ipv4Net, ShardIndex)>) {
    ranges.extend(prefixes.into_iter().map(|(net, shard)| AddressRange {
        first: net.network().to_bits(),
        last: net.broadcast().to_bits(),
        shard,
    }));
    ranges.sort_unstable_by_key(|range| range.first);
    ranges.dedup_by(|next, kept| {
        let overlap = next.first <= kept.last;
        if overlap {
            kept.last = kept.last.max(next.last);
        }
        overlap
    });
}

/// Returns the addresses of all homes.
pub fn home_addresses(prefixes: &[Ipv4Net]) -> AddressRanges {
    AddressRanges::new(prefixes.iter().map(|&net| (net, ShardIndex(0))))
}

/// Returns the public addresses of all shards.
pub(crate) fn public_addresses(shards: &[NatShardConfig]) -> AddressRanges {
    AddressRanges::new(
        shards.iter().zip(0..).flat_map(|(shard, index)| {
            shard.public.iter().map(move |&net| (net, ShardIndex(index)))
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use weir_ids::ShardId;

    use super::*;

    fn address(text: &str) -> u32 {
        text.parse::<Ipv4Addr>().unwrap().into()
    }

    #[test]
    fn nested_prefixes_do_not_hide_each_other() {
        let set = home_addresses(&[
            "10.0.0.0/8".parse().unwrap(),
            "10.1.0.0/16".parse().unwrap(),
            "192.0.2.7/32".parse().unwrap(),
        ]);
        for inside in ["10.0.0.0", "10.255.255.255", "10.2.0.0", "192.0.2.7"] {
            assert!(set.contains(address(inside)), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "192.0.2.6", "192.0.2.8", "0.0.0.0"] {
            assert!(!set.contains(address(outside)), "{outside}");
        }
        let all = home_addresses(&["0.0.0.0/0".parse().unwrap()]);
        assert!(all.contains(u32::MAX) && all.contains(0) && all.contains(address("192.0.2.1")));
        assert_eq!(all.firsts.len(), 257, "what a range covers shares a page");
    }

    #[test]
    fn the_shard_of_a_public_address_is_found() {
        let shard = |id, public: &[&str]| NatShardConfig {
            id: ShardId(id),
            public: public.iter().map(|net| net.parse().unwrap()).collect(),
            public6: Vec::new(),
            subscribers_max: 1,
        };
        let public = public_addresses(&[
            shard(1, &["203.0.113.0/28", "198.51.100.0/31"]),
            shard(2, &["203.0.113.16/28"]),
        ]);
        assert_eq!(public.shard_of(address("203.0.113.15")), Some(ShardIndex(0)));
        assert_eq!(public.shard_of(address("203.0.113.16")), Some(ShardIndex(1)));
        assert_eq!(public.shard_of(address("198.51.100.1")), Some(ShardIndex(0)));
        assert_eq!(public.shard_of(address("203.0.113.32")), None);
        assert_eq!(public.shard_of(address("0.0.0.0")), None);
    }

    /// Shards are added and removed: the ranges are as if they were made from the start.
    #[test]
    fn ranges_are_added_and_removed_with_their_shards() {
        let nets = ["10.0.0.0/15", "10.2.0.64/26", "10.2.0.0/27", "10.2.3.0/24", "203.0.113.7/32"];
        let nets: Vec<Ipv4Net> = nets.iter().map(|net| net.parse().unwrap()).collect();
        let mut ranges = AddressRanges::new([]);
        let mut present = [false; 5];
        for step in 0..200_usize {
            let number = step * step % 7 % 5;
            let shard = ShardIndex(number as u16);
            present[number] = !present[number];
            if present[number] {
                assert_eq!(ranges.overlapping(nets[number]), None);
                ranges.insert(&nets[number..=number], shard);
            } else {
                ranges.remove(shard);
            }
            for (net, number) in nets.iter().zip(0..) {
                let wanted = present[usize::from(number)].then_some(ShardIndex(number));
                for address in [net.network(), net.broadcast()] {
                    assert_eq!(ranges.shard_of(address.to_bits()), wanted, "{address}");
                }
                assert_eq!(ranges.overlapping(*net), wanted);
                let (above, below) = (net.network().to_bits() - 1, net.broadcast().to_bits() + 1);
                for stranger in [above, below] {
                    let holder =
                        nets.iter().position(|net| net.contains(&Ipv4Addr::from(stranger)));
                    let holder = holder.filter(|&holder| present[holder]);
                    let found = ranges.shard_of(stranger).map(|shard| usize::from(shard.0));
                    assert_eq!(found, holder);
                }
            }
        }
    }

    /// Compares with a linear search, at the edges of ranges and of upper halves.
    #[test]
    fn ranges_across_upper_halves_are_found_from_each_of_them() {
        let nets = [
            "10.0.0.0/15",
            "10.2.0.0/24",
            "10.2.1.0/26",
            "10.2.1.128/27",
            "10.2.255.0/24",
            "10.3.0.0/32",
            "255.255.255.255/32",
        ];
        let nets: Vec<Ipv4Net> = nets.iter().map(|net| net.parse().unwrap()).collect();
        let ranges = AddressRanges::new(nets.iter().zip(0..).map(|(&net, i)| (net, ShardIndex(i))));
        for edge in nets.iter().flat_map(|net| [net.network().to_bits(), net.broadcast().to_bits()])
        {
            for address in [edge.wrapping_sub(1), edge, edge.wrapping_add(1)] {
                let wanted = nets.iter().position(|net| net.contains(&Ipv4Addr::from(address)));
                assert_eq!(
                    ranges.shard_of(address).map(|shard| usize::from(shard.0)),
                    wanted,
                    "{}",
                    Ipv4Addr::from(address)
                );
            }
        }
    }
}
