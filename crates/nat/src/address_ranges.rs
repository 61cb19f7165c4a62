//! Hot. Membership of addresses: is it a home, is it one of our public addresses and of which
//! shard.
//!
//! Sorted ranges and binary search: a few hundred prefixes stay in the first-level cache.

use ipnet::Ipv4Net;

use crate::config::ShardConfig;
use crate::endpoint::ShardIndex;

/// A set of addresses.
#[derive(Clone, Debug)]
pub(crate) struct AddressSet {
    /// (first, last), sorted, disjoint.
    ranges: Vec<(u32, u32)>,
}

impl AddressSet {
    /// Nested and repeated prefixes are fine.
    pub(crate) fn new(prefixes: &[Ipv4Net]) -> Self {
        let mut ranges: Vec<_> = prefixes.iter().map(bounds).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let overlap = next.0 <= kept.1;
            if overlap {
                kept.1 = kept.1.max(next.1);
            }
            overlap
        });
        Self { ranges }
    }

    pub(crate) fn contains(&self, address: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        after > 0 && address <= self.ranges[after - 1].1
    }
}

/// A public prefix.
#[derive(Clone, Copy, Debug)]
struct PublicRange {
    first: u32,
    last: u32,
    shard: ShardIndex,
}

/// The public addresses of all shards.
#[derive(Clone, Debug)]
pub(crate) struct PublicAddresses {
    /// Sorted, disjoint: checked by `config_check`.
    ranges: Vec<PublicRange>,
}

impl PublicAddresses {
    pub(crate) fn new(shards: &[ShardConfig]) -> Self {
        let mut ranges = Vec::new();
        for (index, shard) in shards.iter().enumerate() {
            for prefix in &shard.public {
                let (first, last) = bounds(prefix);
                ranges.push(PublicRange { first, last, shard: ShardIndex(index as u16) });
            }
        }
        ranges.sort_unstable_by_key(|range| range.first);
        Self { ranges }
    }

    pub(crate) fn shard_of(&self, address: u32) -> Option<ShardIndex> {
        let after = self.ranges.partition_point(|range| range.first <= address);
        let range = self.ranges[..after].last()?;
        (address <= range.last).then_some(range.shard)
    }
}

fn bounds(prefix: &Ipv4Net) -> (u32, u32) {
    (prefix.network().into(), prefix.broadcast().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::ShardId;

    fn address(text: &str) -> u32 {
        text.parse::<std::net::Ipv4Addr>().unwrap().into()
    }

    #[test]
    fn nested_prefixes_do_not_hide_each_other() {
        let set = AddressSet::new(&[
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
        assert!(AddressSet::new(&["0.0.0.0/0".parse().unwrap()]).contains(u32::MAX));
    }

    #[test]
    fn a_public_address_tells_its_shard() {
        let shard = |id, public: &[&str]| ShardConfig {
            id: ShardId(id),
            public: public.iter().map(|net| net.parse().unwrap()).collect(),
            subscribers_max: 1,
        };
        let public = PublicAddresses::new(&[
            shard(1, &["203.0.113.0/28", "198.51.100.0/31"]),
            shard(2, &["203.0.113.16/28"]),
        ]);
        assert_eq!(public.shard_of(address("203.0.113.15")), Some(ShardIndex(0)));
        assert_eq!(public.shard_of(address("203.0.113.16")), Some(ShardIndex(1)));
        assert_eq!(public.shard_of(address("198.51.100.1")), Some(ShardIndex(0)));
        assert_eq!(public.shard_of(address("203.0.113.32")), None);
        assert_eq!(public.shard_of(address("0.0.0.0")), None);
    }
}
