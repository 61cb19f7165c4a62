//! The address families of the load.

use std::fmt;
use std::net::IpAddr;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpVersion {
    /// Translated.
    #[default]
    V4,
    /// Not translated.
    V6,
}

impl IpVersion {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];
}

impl From<IpAddr> for IpVersion {
    fn from(address: IpAddr) -> Self {
        if address.is_ipv6() { Self::V6 } else { Self::V4 }
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
