//! The addresses of the server.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Where the server listens: in one family, or in both.
#[derive(Clone, Copy, Debug)]
pub struct ServerAddress {
    /// For homes' IPv4 addresses.
    pub ipv4: SocketAddrV4,
    /// For their IPv6 addresses, if they have any.
    pub ipv6: Option<SocketAddrV6>,
}

impl ServerAddress {
    /// Returns all addresses.
    pub(super) fn all(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let ipv6 = self.ipv6.map(SocketAddr::V6);
        std::iter::once(SocketAddr::V4(self.ipv4)).chain(ipv6)
    }

    /// Returns the address of the family of a home's address; that of IPv4 if there is no other.
    pub(super) fn reached_from(&self, home: IpAddr) -> SocketAddr {
        match (home, self.ipv6) {
            (IpAddr::V6(_), Some(ipv6)) => ipv6.into(),
            _ => self.ipv4.into(),
        }
    }
}

impl From<SocketAddrV4> for ServerAddress {
    fn from(ipv4: SocketAddrV4) -> Self {
        Self { ipv4, ipv6: None }
    }
}
