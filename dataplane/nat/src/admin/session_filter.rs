//! Which sessions a listing shows.

use std::net::{IpAddr, SocketAddr};

use crate::admin::home_selector::HomeSelector;
use crate::endpoint::{Endpoint, Protocol};
use crate::ipv6::Endpoint6;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    Ipv4,
    Ipv6,
}

impl IpFamily {
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The number of the Internet protocol's version, as operators write it: `4` or `6`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "4",
            Self::Ipv6 => "6",
        }
    }
}

/// Which sessions to list; `None` matches all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    pub family: Option<IpFamily>,
    pub subscriber: Option<HomeSelector>,
    pub inside: Option<FamilyRange>,
    /// Only sessions of IPv4 have a public endpoint. One endpoint alone is looked up in the index;
    /// others are searched for.
    pub public: Option<EndpointRange>,
    /// With one IPv6 endpoint here and one in `inside` the flow is looked up in the index.
    pub remote: Option<FamilyRange>,
    pub protocol: Option<Protocol>,
    /// One of [`SESSION_STATES`](crate::SESSION_STATES).
    pub state: Option<&'static str>,
    /// Least age of the mapping.
    pub age_min_sec: Option<u32>,
    /// Greatest age of the mapping.
    pub age_max_sec: Option<u32>,
}

impl SessionFilter {
    /// Returns whether a session of this family can match.
    pub(crate) fn has_family(&self, family: IpFamily) -> bool {
        let ranges = [self.inside, self.remote];
        self.family.is_none_or(|wanted| wanted == family)
            && ranges.iter().flatten().all(|range| range.family() == family)
            && (self.public.is_none() || family == IpFamily::Ipv4)
    }

    pub(crate) fn public_endpoint(&self) -> Option<Endpoint> {
        self.public.and_then(|range| range.single())
    }

    /// Returns the inside and the remote endpoint of an IPv6 flow, if both are one endpoint alone.
    pub(crate) fn ends6(&self) -> Option<(Endpoint6, Endpoint6)> {
        match (self.inside?, self.remote?) {
            (FamilyRange::Ipv6(inside), FamilyRange::Ipv6(remote)) => {
                Some((inside.single()?, remote.single()?))
            }
            _ => None,
        }
    }
}

/// IPv4 endpoints of a network, with any port or with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRange {
    pub network: u32,
    /// Bits of an address that must be those of `network`.
    pub mask: u32,
    pub port: Option<u16>,
}

impl From<Endpoint> for EndpointRange {
    /// This endpoint alone.
    fn from(endpoint: Endpoint) -> Self {
        Self { network: endpoint.address, mask: u32::MAX, port: Some(endpoint.port) }
    }
}

impl EndpointRange {
    /// Returns the endpoint, if the range is one endpoint alone.
    pub(crate) fn single(&self) -> Option<Endpoint> {
        let port = self.port.filter(|_| self.mask == u32::MAX)?;
        Some(Endpoint::new(self.network, port))
    }

    pub(crate) fn has(&self, endpoint: Endpoint) -> bool {
        endpoint.address & self.mask == self.network & self.mask
            && self.port.is_none_or(|port| port == endpoint.port)
    }
}

/// IPv6 endpoints of a network, with any port or with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointRange6 {
    pub network: u128,
    /// Bits of an address that must be those of `network`.
    pub mask: u128,
    pub port: Option<u16>,
}

impl From<Endpoint6> for EndpointRange6 {
    /// This endpoint alone.
    fn from(endpoint: Endpoint6) -> Self {
        Self { network: endpoint.address, mask: u128::MAX, port: Some(endpoint.port) }
    }
}

impl EndpointRange6 {
    fn single(&self) -> Option<Endpoint6> {
        let port = self.port.filter(|_| self.mask == u128::MAX)?;
        Some(Endpoint6::new(self.network, port))
    }

    fn has(&self, endpoint: Endpoint6) -> bool {
        endpoint.address & self.mask == self.network & self.mask
            && self.port.is_none_or(|port| port == endpoint.port)
    }
}

/// Endpoints of one family. No endpoint of the other family is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyRange {
    Ipv4(EndpointRange),
    Ipv6(EndpointRange6),
}

impl From<EndpointRange> for FamilyRange {
    fn from(range: EndpointRange) -> Self {
        Self::Ipv4(range)
    }
}

impl From<EndpointRange6> for FamilyRange {
    fn from(range: EndpointRange6) -> Self {
        Self::Ipv6(range)
    }
}

impl From<Endpoint> for FamilyRange {
    fn from(endpoint: Endpoint) -> Self {
        Self::Ipv4(endpoint.into())
    }
}

impl From<Endpoint6> for FamilyRange {
    fn from(endpoint: Endpoint6) -> Self {
        Self::Ipv6(endpoint.into())
    }
}

impl FamilyRange {
    pub const fn family(&self) -> IpFamily {
        match self {
            Self::Ipv4(_) => IpFamily::Ipv4,
            Self::Ipv6(_) => IpFamily::Ipv6,
        }
    }

    pub fn has(&self, endpoint: SocketAddr) -> bool {
        let (port, address) = (endpoint.port(), endpoint.ip());
        match address {
            IpAddr::V4(address) => self.has4(Endpoint::new(address.to_bits(), port)),
            IpAddr::V6(address) => self.has6(Endpoint6::new(address.to_bits(), port)),
        }
    }

    pub(crate) fn has4(&self, endpoint: Endpoint) -> bool {
        matches!(self, Self::Ipv4(range) if range.has(endpoint))
    }

    pub(crate) fn has6(&self, endpoint: Endpoint6) -> bool {
        matches!(self, Self::Ipv6(range) if range.has(endpoint))
    }
}
