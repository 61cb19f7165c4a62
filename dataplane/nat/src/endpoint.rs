//! The parties of a flow: endpoints, protocols, homes, shards; and the coarse clock.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use weir_rules::OUTER_HANDLES;
use zerocopy::{Immutable, IntoBytes};

/// An IPv4 address and a port, both in host order. For ICMP queries the port is the query
/// identifier on the inside and the public endpoint, and 0 on the remote endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub address: u32,
    pub port: u16,
}

impl Endpoint {
    pub const fn new(address: u32, port: u16) -> Self {
        Self { address, port }
    }
}

impl From<Endpoint> for SocketAddrV4 {
    fn from(Endpoint { address, port }: Endpoint) -> Self {
        Self::new(Ipv4Addr::from(address), port)
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        Self::V4(endpoint.into())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddrV4::from(*self).fmt(f)
    }
}

/// The protocols that carry state, by their IANA number. Each has a port space of its own; ICMP's
/// ports are query identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Immutable, IntoBytes)]
#[repr(u8)]
pub enum Protocol {
    Icmp = 1,
    Tcp = 6,
    Udp = 17,
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Icmp, Self::Tcp, Self::Udp];

    /// Returns the protocol with this IANA number, if it is one that carries state.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Icmp),
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }

    /// Lower-case name, as `weir sessions` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Returns the index of the protocol's port space: 0, 1 or 2.
    #[inline]
    pub(crate) const fn space(self) -> usize {
        // A sixth of 1, 6 and 17: a multiplication instead of comparisons.
        self as usize / 6
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Index of a shard in the order of the configuration.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Immutable, IntoBytes,
)]
#[repr(transparent)]
pub struct ShardIndex(pub u16);

/// A home as its packets name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Home {
    pub shard: ShardIndex,
    /// GRE outer source address, or the [handle](is_outer_handle) of one of IPv6; in plain mode
    /// the inside address; the upper half of the prefix that a home without a tunnel is in IPv6.
    pub outer: u32,
    /// The lower half of that prefix ([`Home::of_prefix`]). Otherwise the key of the GRE header,
    /// which is part of the identity only with
    /// [`gre_key_identifies_home`](crate::NatConfig::gre_key_identifies_home); without it, the key
    /// is remembered and echoed.
    pub gre_key: Option<u32>,
}

impl Home {
    /// True if its tunnel is over IPv6, of homes that are not prefixes.
    #[inline(always)]
    pub const fn is_over_ipv6(&self) -> bool {
        is_outer_handle(self.outer)
    }
}

/// True if an outer address of a home stands for one of IPv6, which this worker's NAT knows by it
/// ([`Nat::outer_address`](crate::Nat::outer_address)).
#[inline(always)]
pub const fn is_outer_handle(outer: u32) -> bool {
    outer >= OUTER_HANDLES
}

/// The outer address of a home, as it is written to logs and sent to other workers; of a home
/// without a tunnel its inside address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OuterAddress {
    /// In host order.
    Ipv4(u32),
    Ipv6([u64; 2]),
}

impl OuterAddress {
    pub const fn of_ipv6(address: u128) -> Self {
        Self::Ipv6([(address >> 64) as u64, address as u64])
    }

    /// Returns the address of a tunnel over IPv6.
    pub const fn ipv6(self) -> Option<u128> {
        match self {
            Self::Ipv4(_) => None,
            Self::Ipv6([upper, lower]) => Some((upper as u128) << 64 | lower as u128),
        }
    }
}

impl From<OuterAddress> for IpAddr {
    fn from(outer: OuterAddress) -> Self {
        match (outer, outer.ipv6()) {
            (OuterAddress::Ipv4(address), _) => Self::V4(Ipv4Addr::from(address)),
            (_, address) => Self::V6(Ipv6Addr::from(address.unwrap_or(0))),
        }
    }
}

impl From<IpAddr> for OuterAddress {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::Ipv4(address.to_bits()),
            IpAddr::V6(address) => Self::of_ipv6(address.to_bits()),
        }
    }
}

impl From<u32> for OuterAddress {
    fn from(address: u32) -> Self {
        Self::Ipv4(address)
    }
}

impl fmt::Display for OuterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

/// Seconds of a monotonic clock. Comparisons survive the wrap of the u32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Immutable, IntoBytes)]
#[repr(transparent)]
pub struct Tick(pub u32);

impl Tick {
    /// Returns the seconds from `earlier` to `self`; 0 if `earlier` lies in the future.
    pub const fn since(self, earlier: Tick) -> u32 {
        let elapsed = self.0.wrapping_sub(earlier.0);
        if elapsed > u32::MAX / 2 { 0 } else { elapsed }
    }

    /// Returns the later of two moments in the past.
    pub(crate) const fn later(self, other: Tick, now: Tick) -> Tick {
        if now.since(other) < now.since(self) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_prints_as_operators_write_it() {
        assert_eq!(Endpoint::new(0xcb00_7101, 40_000).to_string(), "203.0.113.1:40000");
    }

    #[test]
    fn an_outer_address_is_that_of_its_text_in_either_family() {
        for text in ["10.200.0.1", "2001:db8:e::7", "::"] {
            let address: IpAddr = text.parse().unwrap();
            let outer = OuterAddress::from(address);
            assert_eq!((IpAddr::from(outer), outer.to_string()), (address, text.to_owned()));
        }
        assert!(is_outer_handle(0xf000_0000) && !is_outer_handle(0xefff_ffff));
    }

    #[test]
    fn ticks_survive_the_wrap_and_a_clock_that_stepped_back() {
        assert_eq!(Tick(5).since(Tick(u32::MAX - 4)), 10);
        assert_eq!(Tick(5).since(Tick(6)), 0);
    }

    #[test]
    fn protocol_numbers_are_ianas() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::from_number(protocol as u8), Some(protocol));
        }
        assert_eq!(Protocol::from_number(47), None);
    }

    #[test]
    fn each_protocol_has_a_port_space_of_its_own() {
        assert_eq!(Protocol::ALL.map(Protocol::space), [0, 1, 2]);
    }
}
