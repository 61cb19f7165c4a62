//! The IPv6 prefixes of all shards, found by address. Asked when a flow begins, never for an
//! established packet: the flow's record names its shard.

use ipnet::Ipv6Net;

use crate::endpoint::ShardIndex;

/// Disjoint ranges of addresses, each with its shard; a look-up is a binary search.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixRanges {
    /// First and last address of each, in order.
    ranges: Vec<(u128, u128, ShardIndex)>,
}

impl PrefixRanges {
    /// Makes ranges of the prefixes of each shard; no two overlap.
    pub(crate) fn new<'a>(shards: impl Iterator<Item = (&'a [Ipv6Net], ShardIndex)>) -> Self {
        let mut all = Self::default();
        shards.for_each(|(prefixes, shard)| all.insert(prefixes, shard));
        all
    }

    /// Adds the prefixes of a shard, disjoint from those of all others.
    pub(crate) fn insert(&mut self, prefixes: &[Ipv6Net], shard: ShardIndex) {
        let range = |net: &Ipv6Net| (net.network().to_bits(), net.broadcast().to_bits(), shard);
        self.ranges.extend(prefixes.iter().map(range));
        self.ranges.sort_unstable_by_key(|&(first, ..)| first);
    }

    /// Removes all ranges of a shard.
    pub(crate) fn remove(&mut self, shard: ShardIndex) {
        self.ranges.retain(|&(.., of)| of != shard);
    }

    /// Returns the shard of an address that is in a range.
    #[inline]
    pub(crate) fn shard_of(&self, address: u128) -> Option<ShardIndex> {
        let behind = self.ranges.partition_point(|&(first, ..)| first <= address);
        let &(_, last, shard) = self.ranges[..behind].last()?;
        (address <= last).then_some(shard)
    }

    /// Returns a shard that a part of the prefix belongs to.
    pub(crate) fn overlapping(&self, net: &Ipv6Net) -> Option<ShardIndex> {
        let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
        let is_it = |&&(start, end, _): &&(u128, u128, ShardIndex)| start <= last && first <= end;
        self.ranges.iter().find(is_it).map(|&(.., shard)| shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<Ipv6Net> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn shard_of_an_address_is_that_of_its_prefix_while_shards_come_and_go() {
        let [one, two] = [nets(&["2001:db8::/48", "2001:db8:2::/64"]), nets(&["2001:db8:1::/48"])];
        let of = |ranges: &PrefixRanges, text: &str| {
            ranges.shard_of(text.parse::<std::net::Ipv6Addr>().unwrap().to_bits()).map(|it| it.0)
        };
        let both = [(&*one, ShardIndex(0)), (&*two, ShardIndex(1))];
        let mut ranges = PrefixRanges::new(both.into_iter());
        assert_eq!(of(&ranges, "2001:db8::"), Some(0));
        assert_eq!(of(&ranges, "2001:db8:0:ffff:ffff:ffff:ffff:ffff"), Some(0));
        assert_eq!(of(&ranges, "2001:db8:1::"), Some(1));
        assert_eq!(of(&ranges, "2001:db8:2::7"), Some(0));
        for stranger in ["2001:db8:2:1::", "2001:db7:ffff::", "::", "ffff::"] {
            assert_eq!(of(&ranges, stranger), None, "{stranger}");
        }
        assert_eq!(ranges.overlapping(&nets(&["2001:db8::/32"])[0]), Some(ShardIndex(0)));
        assert_eq!(ranges.overlapping(&nets(&["2001:db8:1:7::/64"])[0]), Some(ShardIndex(1)));
        assert_eq!(ranges.overlapping(&nets(&["2001:db8:3::/48"])[0]), None);
        ranges.remove(ShardIndex(0));
        assert_eq!([of(&ranges, "2001:db8::"), of(&ranges, "2001:db8:1::")], [None, Some(1)]);
    }
}
