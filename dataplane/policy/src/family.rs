//! The two families of addresses, for what is done alike with both.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use weir_config::LoadedSet;
use weir_rules::{IpAddress, Prefix, RuleFilter};

/// Filters or groups of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BothFamilies<T4, T6> {
    pub(crate) ipv4: T4,
    pub(crate) ipv6: T6,
}

/// The filters of all rules, in each family in the order of the rules.
pub(crate) type Filters = BothFamilies<Vec<RuleFilter<u32>>, Vec<RuleFilter<u128>>>;

/// A group for each prefix of homes.
pub(crate) type GroupPrefixes = BothFamilies<Vec<(Prefix<u32>, u8)>, Vec<(Prefix<u128>, u8)>>;

/// An address as rules have it, with its form in the configuration.
pub(crate) trait FamilyAddress: IpAddress {
    /// The name of the family.
    const NAME: &'static str;
    /// A prefix of the configuration.
    type Net: Copy;

    /// Returns the prefix, if it is of this family.
    fn net(net: IpNet) -> Option<Self::Net>;

    /// Returns the entries of a set.
    fn entries(set: &LoadedSet) -> &[Self::Net];

    /// Returns the same addresses as few prefixes.
    fn merged(nets: &[Self::Net]) -> Vec<Self::Net>;

    fn prefix(net: Self::Net) -> Prefix<Self>;

    /// Returns the addresses before the first and behind the last one; these if there are none.
    fn neighbours(first: Self, last: Self) -> [Self; 2];
}

impl FamilyAddress for u32 {
    const NAME: &'static str = "IPv4";
    type Net = Ipv4Net;

    fn net(net: IpNet) -> Option<Ipv4Net> {
        match net {
            IpNet::V4(net) => Some(net),
            IpNet::V6(_) => None,
        }
    }

    fn entries(set: &LoadedSet) -> &[Ipv4Net] {
        &set.ipv4
    }

    fn merged(nets: &[Ipv4Net]) -> Vec<Ipv4Net> {
        Ipv4Net::aggregate(&nets.to_vec())
    }

    fn prefix(net: Ipv4Net) -> Prefix<u32> {
        Prefix::new(net.network().into(), net.prefix_len())
    }

    fn neighbours(first: u32, last: u32) -> [u32; 2] {
        [first.saturating_sub(1), last.saturating_add(1)]
    }
}

impl FamilyAddress for u128 {
    const NAME: &'static str = "IPv6";
    type Net = Ipv6Net;

    fn net(net: IpNet) -> Option<Ipv6Net> {
        match net {
            IpNet::V4(_) => None,
            IpNet::V6(net) => Some(net),
        }
    }

    fn entries(set: &LoadedSet) -> &[Ipv6Net] {
        &set.ipv6
    }

    fn merged(nets: &[Ipv6Net]) -> Vec<Ipv6Net> {
        Ipv6Net::aggregate(&nets.to_vec())
    }

    fn prefix(net: Ipv6Net) -> Prefix<u128> {
        Prefix::new(net.network().into(), net.prefix_len())
    }

    fn neighbours(first: u128, last: u128) -> [u128; 2] {
        [first.saturating_sub(1), last.saturating_add(1)]
    }
}
