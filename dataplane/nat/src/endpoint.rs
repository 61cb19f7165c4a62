//! The parties of a flow: endpoints, protocols, homes, shards; and the coarse clock.

use std::fmt;
use std::net::Ipv4Addr;

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

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Ipv4Addr::from(self.address), self.port)
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
    /// GRE outer source address; in plain mode the inside address; the upper half of the prefix
    /// that a home without a tunnel is in IPv6.
    pub outer: u32,
    /// The lower half of that prefix ([`Home::of_prefix`]). Otherwise the key of the GRE header,
    /// which is part of the identity only with
    /// [`gre_key_identifies_home`](crate::NatConfig::gre_key_identifies_home); without it, the key
    /// is remembered and echoed.
    pub gre_key: Option<u32>,
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
