//! The text by which operators name a home.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

/// A home in answers, and in questions about it. In JSON it is a string: `10.200.0.1`,
/// `2001:db8:1000:100::/56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum HomeName {
    /// The outer source of its tunnel, or its IPv4 address with plain access.
    Ipv4(Ipv4Addr),
    /// In an answer: the prefix that a home with plain access is, or the outer source of a tunnel
    /// over IPv6. In a question: also any of a home's inside IPv6 addresses, or a prefix of them; a
    /// single address has 128 bits.
    Ipv6(Ipv6Net),
}

/// A text that names no home.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' names no home: write the address of its tunnel, or an IPv6 address or prefix of it, for example \
     10.200.0.1, 2001:db8:1000:100::7 or 2001:db8:1000:100::/56"
)]
pub struct HomeNameError {
    text: String,
}

impl FromStr for HomeName {
    type Err = HomeNameError;

    fn from_str(text: &str) -> Result<Self, HomeNameError> {
        let ipv4 = text.parse().map(Self::Ipv4).ok();
        let address = || text.parse::<Ipv6Addr>().ok().map(Ipv6Net::from);
        let prefix = || text.parse::<Ipv6Net>().ok().map(|net| net.trunc());
        ipv4.or_else(|| address().or_else(prefix).map(Self::Ipv6))
            .ok_or_else(|| HomeNameError { text: text.to_owned() })
    }
}

impl TryFrom<String> for HomeName {
    type Error = HomeNameError;

    fn try_from(text: String) -> Result<Self, HomeNameError> {
        text.parse()
    }
}

impl From<HomeName> for String {
    fn from(name: HomeName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for HomeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(address) => address.fmt(f),
            Self::Ipv6(net) if net.prefix_len() == net.max_prefix_len() => net.addr().fmt(f),
            Self::Ipv6(net) => net.fmt(f),
        }
    }
}

impl From<weir_nat::HomeView> for HomeName {
    fn from(home: weir_nat::HomeView) -> Self {
        match home {
            weir_nat::HomeView::Ipv4 { outer, .. } => Self::Ipv4(outer.into()),
            weir_nat::HomeView::TunnelIpv6 { outer, .. } => Self::Ipv6(outer.into()),
            weir_nat::HomeView::Ipv6(net) => Self::Ipv6(net),
        }
    }
}

impl From<HomeName> for weir_nat::HomeSelector {
    fn from(name: HomeName) -> Self {
        match name {
            HomeName::Ipv4(address) => Self::Ipv4(address.into()),
            HomeName::Ipv6(net) => Self::Ipv6(net),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_read_as_it_is_written() {
        for text in ["10.200.0.1", "2001:db8:1000:100::7", "2001:db8:1000:100::/56", "::/0"] {
            let name: HomeName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<HomeName>(&json).unwrap(), name);
        }
        let inside: HomeName = "2001:db8:1000:1ab::7/56".parse().unwrap();
        assert_eq!(inside.to_string(), "2001:db8:1000:100::/56");
    }

    #[test]
    fn text_that_names_no_home_is_refused_with_the_forms_that_do() {
        for text in ["", "10.200.0", "10.200.0.0/16", "2001:db8::/129", "[2001:db8::1]", "edge1"] {
            let error = text.parse::<HomeName>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{text}' ")), "{error}");
            assert!(error.contains("2001:db8:1000:100::/56"), "{error}");
        }
    }
}
