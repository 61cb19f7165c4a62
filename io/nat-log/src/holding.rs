//! What a home may hold: ports of a public address, or a prefix of IPv6 addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::event::{AssignedBlock, PrefixClaim};

/// A /64 of IPv6 addresses. Its text is that of RFC 5952 with the length: `2001:db8:1000:1::/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix64(u64);

impl Prefix64 {
    /// Returns the prefix with these first 64 bits.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the prefix that the address lies in.
    pub fn of(address: Ipv6Addr) -> Self {
        Self((address.to_bits() >> 64) as u64)
    }

    /// Returns the first address of the prefix.
    pub fn first(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from(self.0) << 64)
    }

    /// Parses the text that `Display` writes and no other text of the same prefix: so lines about
    /// a prefix are found by their bytes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let address: Ipv6Addr = text.strip_suffix("/64")?.parse().ok()?;
        let prefix = Self::of(address);
        (prefix.to_string() == text).then_some(prefix)
    }
}

impl fmt::Display for Prefix64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/64", self.first())
    }
}

/// What one home holds for itself, whichever home it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holding {
    /// A port block; without translation an address with all its ports.
    Ports {
        public: Ipv4Addr,
        first: u16,
        /// Inclusive.
        last: u16,
    },
    /// The IPv6 addresses of a prefix, with all their ports.
    Prefix(Prefix64),
}

impl Holding {
    /// Whether homes claim it: two may hold it at a time, and its records are in each lane with
    /// flows of such a home. A block lies in one lane, whose owner gives it to one home.
    pub(crate) fn is_claim(self) -> bool {
        match self {
            Self::Ports { first, last, .. } => (first, last) == (0, u16::MAX),
            Self::Prefix(_) => true,
        }
    }

    /// Returns the address or prefix as lines of the log have it.
    pub(crate) fn subject(self) -> String {
        match self {
            Self::Ports { public, .. } => public.to_string(),
            Self::Prefix(prefix) => prefix.to_string(),
        }
    }
}

/// Outer address and key of a home.
pub(crate) type HomeKey = (IpAddr, Option<u32>);

/// A home with what it holds, as a record names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HomeHolding {
    pub(crate) home: HomeKey,
    pub(crate) holding: Holding,
}

impl From<&AssignedBlock> for HomeHolding {
    fn from(block: &AssignedBlock) -> Self {
        let (public, first, last) = (block.public, block.port_first, block.port_last);
        let holding = Holding::Ports { public, first, last };
        Self { home: (block.subscriber, block.gre_key), holding }
    }
}

impl From<&PrefixClaim> for HomeHolding {
    fn from(claim: &PrefixClaim) -> Self {
        let holding = Holding::Prefix(claim.prefix);
        Self { home: (claim.subscriber, claim.gre_key), holding }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_one_text_and_no_other_is_parsed() {
        let prefix = Prefix64::of("2001:db8:1000:1::7".parse().expect("an address"));
        assert_eq!(prefix.to_string(), "2001:db8:1000:1::/64");
        assert_eq!(prefix.first(), "2001:db8:1000:1::".parse::<Ipv6Addr>().expect("an address"));
        for other in [
            "2001:0db8:1000:1::/64",
            "2001:DB8:1000:1::/64",
            "2001:db8:1000:1:0:0:0:0/64",
            "2001:db8:1000:1::7/64",
            "2001:db8:1000:1::/48",
            "2001:db8:1000:1::/064",
            "2001:db8:1000:1::",
            "203.0.113.1/64",
            "/64",
            "",
        ] {
            assert_eq!(Prefix64::parse(other), None, "{other}");
        }
        bolero::check!().with_type::<u64>().for_each(|bits| {
            let prefix = Prefix64::from_bits(*bits);
            assert_eq!(Prefix64::parse(&prefix.to_string()), Some(prefix));
        });
    }
}
