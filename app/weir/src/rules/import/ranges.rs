//! Sets of addresses, or of ports, as ranges.

use std::net::Ipv4Addr;

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};

use super::family::AddressFamily;

/// The last port, and the end of all ports.
pub(super) const LAST_PORT: u128 = u16::MAX as u128;

/// A set of numbers: inclusive ranges in ascending order, with a gap between any two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RangeSet(Vec<(u128, u128)>);

impl RangeSet {
    /// Returns the numbers from 0 to `last`.
    pub(super) fn up_to(last: u128) -> Self {
        Self(vec![(0, last)])
    }

    /// Returns the union of inclusive ranges, whatever their order.
    pub(super) fn of(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut union: Vec<(u128, u128)> = Vec::new();
        for (first, last) in ranges {
            match union.last_mut() {
                Some(former) if first <= former.1.saturating_add(1) => {
                    former.1 = former.1.max(last)
                }
                _ => union.push((first, last)),
            }
        }
        Self(union)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, number: u128) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&number))
    }

    /// Returns the number of a set of one.
    pub(super) fn only_number(&self) -> Option<u128> {
        match *self.0 {
            [(first, last)] if first == last => Some(first),
            _ => None,
        }
    }

    /// Whether it has all numbers from 0 to `last`.
    pub(super) fn has_all(&self, last: u128) -> bool {
        *self.0 == [(0, last)]
    }

    /// Returns the numbers up to `last` that are not in the set.
    pub(super) fn complement(&self, last: u128) -> Self {
        let mut gaps = Vec::new();
        let mut next = Some(0);
        for &(first, end) in &self.0 {
            if let Some(next) = next.filter(|next| *next < first) {
                gaps.push((next, first - 1));
            }
            next = end.checked_add(1);
        }
        gaps.extend(next.filter(|next| *next <= last).map(|next| (next, last)));
        Self(gaps)
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = Vec::new();
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let (first, last) = (x.0.max(y.0), x.1.min(y.1));
            if first <= last {
                common.push((first, last));
            }
            if x.1 < y.1 {
                a.next()
            } else {
                b.next()
            };
        }
        Self(common)
    }

    /// Returns the fewest prefixes that make up a set of addresses; one address has no length.
    pub(super) fn prefixes(&self, family: AddressFamily) -> Vec<String> {
        let words = |net: IpNet| match net.prefix_len() == net.max_prefix_len() {
            true => net.addr().to_string(),
            false => net.to_string(),
        };
        let nets = self.0.iter().flat_map(|&(first, last)| match family {
            AddressFamily::Ipv4 => {
                let [first, last] = [first, last].map(|it| Ipv4Addr::from(it as u32));
                IpSubnets::from(Ipv4Subnets::new(first, last, 0))
            }
            AddressFamily::Ipv6 => IpSubnets::from(Ipv6Subnets::new(first.into(), last.into(), 0)),
        });
        nets.map(words).collect()
    }

    /// Returns a set of ports as the elements of a TOML array.
    pub(super) fn ports(&self) -> Vec<String> {
        let port = |&(first, last): &(u128, u128)| {
            if first == last { first.to_string() } else { format!("\"{first}-{last}\"") }
        };
        self.0.iter().map(port).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_intersected_and_complemented() {
        let set = RangeSet::of(vec![(20, 30), (5, 9), (10, 12), (7, 3)]);
        assert_eq!(set, RangeSet::of(vec![(5, 12), (20, 30)]));
        assert_eq!(set.complement(40), RangeSet::of(vec![(0, 4), (13, 19), (31, 40)]));
        assert_eq!(set.complement(40).complement(40), set);
        let other = RangeSet::of(vec![(0, 6), (12, 25)]);
        assert_eq!(set.intersection(&other), RangeSet::of(vec![(5, 6), (12, 12), (20, 25)]));
        let all = RangeSet::up_to(u128::MAX);
        assert!(all.has_all(u128::MAX) && all.complement(u128::MAX).is_empty());
        assert_eq!(all.complement(u128::MAX).complement(u128::MAX), all);
        assert_eq!(set.ports(), ["\"5-12\"", "\"20-30\""]);
    }

    #[test]
    fn addresses_become_the_fewest_prefixes() {
        let of = |first: [u8; 4], last: [u8; 4]| {
            let [first, last] = [first, last].map(|it| u128::from(u32::from_be_bytes(it)));
            RangeSet::of(vec![(first, last)]).prefixes(AddressFamily::Ipv4)
        };
        assert_eq!(of([203, 0, 113, 10], [203, 0, 113, 12]), ["203.0.113.10/31", "203.0.113.12"]);
        assert_eq!(of([10, 0, 0, 0], [10, 255, 255, 255]), ["10.0.0.0/8"]);
        assert_eq!(of([0; 4], [255; 4]), ["0.0.0.0/0"]);
        assert_eq!(of([255; 4], [255; 4]), ["255.255.255.255"]);
        assert_eq!(of([0; 4], [0, 0, 0, 2]), ["0.0.0.0/31", "0.0.0.2"]);
        assert_eq!(of([0, 0, 0, 1], [255; 4]).len(), 32);
    }

    #[test]
    fn addresses_of_ipv6_become_the_fewest_prefixes() {
        let of = |first: &str, last: &str| {
            let [first, last] = [first, last].map(|it| it.parse::<std::net::Ipv6Addr>().unwrap());
            RangeSet::of(vec![(first.to_bits(), last.to_bits())]).prefixes(AddressFamily::Ipv6)
        };
        assert_eq!(of("2001:db8::", "2001:db8::2"), ["2001:db8::/127", "2001:db8::2"]);
        assert_eq!(of("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["::/0"]);
        assert_eq!(of("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").len(), 128);
    }
}
