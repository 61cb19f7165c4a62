//! IPv6 of a worker and of the homes: plain values, defaults filled in, no spans.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ipnet::Ipv6Net;
use serde::{Serialize, Serializer};

use crate::public_types::home;

/// IPv6 of one side of a worker, beside its IPv4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface6 {
    /// The worker's own address, global or unique local, and the length of the connected prefix,
    /// 64 to 127.
    pub address: Ipv6Net,
    /// The gateways, at least one, each inside `address`'s prefix or link-local.
    pub gateways: Vec<Ipv6Addr>,
}

/// `[ipv6]` and the `[[delegation]]` tables: the right of homes to their source addresses. Values
/// that are the default are not written: earlier versions do not know the section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipv6Settings {
    /// In plain mode always [`DelegationMode::Claim`]: the prefix itself names the home.
    #[serde(skip_serializing_if = "DelegationMode::is_claim")]
    pub delegation: DelegationMode,
    /// Time that a home holds a claimed prefix after its last flow, in seconds.
    #[serde(skip_serializing_if = "is_default_hold")]
    pub claim_hold_sec: u32,
    /// Length of the prefixes that are one home each in plain mode, 48 to 64.
    #[serde(skip_serializing_if = "is_default_length")]
    pub home_length6: u8,
    /// The static delegations, in order of their prefixes; empty with [`DelegationMode::Claim`].
    #[serde(skip)]
    pub delegations: Vec<DelegationSettings>,
}

impl Ipv6Settings {
    const CLAIM_HOLD_SEC: u32 = 600;
    const HOME_LENGTH6: u8 = 64;

    /// Whether the file has nothing of it, or only defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Puts the delegations in one order, so that equal settings are equal values.
    pub(crate) fn sorted(mut self) -> Self {
        self.delegations.sort_unstable_by_key(|it| (it.prefix, it.home));
        self
    }
}

impl Default for Ipv6Settings {
    fn default() -> Self {
        Self {
            delegation: DelegationMode::Claim,
            claim_hold_sec: Self::CLAIM_HOLD_SEC,
            home_length6: Self::HOME_LENGTH6,
            delegations: Vec::new(),
        }
    }
}

fn is_default_hold(seconds: &u32) -> bool {
    *seconds == Ipv6Settings::CLAIM_HOLD_SEC
}

fn is_default_length(length: &u8) -> bool {
    *length == Ipv6Settings::HOME_LENGTH6
}

/// How a home behind a tunnel gets the right to a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DelegationMode {
    /// The first home of a shard that sends from a /64 of the shard's `public6` holds that /64
    /// while it has flows, and `claim_hold_sec` longer.
    Claim,
    /// A home has the prefixes that the `[[delegation]]` tables give it, and no others.
    Static,
}

impl DelegationMode {
    fn is_claim(&self) -> bool {
        *self == Self::Claim
    }
}

/// `[[delegation]]`: an IPv6 prefix of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DelegationSettings {
    pub home: DelegatedHome,
    /// 48 to 64 bits, inside the `public6` of one shard; disjoint from all others.
    pub prefix: Ipv6Net,
}

/// A home behind a tunnel. In text its outer address, of either family, with its GRE key as
/// `10.200.1.5,7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelegatedHome {
    /// Outer source of the home's packets.
    pub address: IpAddr,
    /// Present if it tells homes apart.
    pub gre_key: Option<u32>,
}

impl fmt::Display for DelegatedHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        self.gre_key.map_or(Ok(()), |key| write!(f, ",{key}"))
    }
}

impl Serialize for DelegatedHome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for DelegatedHome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        home(text).map(|(address, gre_key)| Self { address, gre_key })
    }
}

impl fmt::Display for DelegationSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of home {}", self.prefix, self.home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegated_home_reads_as_it_is_written() {
        for text in [
            "10.200.1.5",
            "10.200.1.5,0",
            "10.200.1.5,4294967295",
            "2001:db8:e::1",
            "2001:db8:e::1,7",
        ] {
            assert_eq!(text.parse::<DelegatedHome>().unwrap().to_string(), text);
        }
        for (text, why) in [
            ("10.200.1", "\"10.200.1\" is not an IPv4 address"),
            ("10.200.1.5,+1", "\"+1\" is not a GRE key"),
        ] {
            assert_eq!(text.parse::<DelegatedHome>().unwrap_err(), why);
        }
    }
}
