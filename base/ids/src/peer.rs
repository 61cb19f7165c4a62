//! A worker as its peers identify it.

use std::fmt;
use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};

/// A worker's replication address, with the port in the low 16 bits. Datagrams of replication carry
/// it as a u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeerId(pub u64);

impl PeerId {
    /// Creates the identity of the worker with this address.
    #[inline]
    pub fn at(address: SocketAddrV4) -> Self {
        Self(u64::from(u32::from(*address.ip())) << 16 | u64::from(address.port()))
    }

    /// Returns the worker's address.
    #[inline]
    pub fn address(self) -> SocketAddrV4 {
        SocketAddrV4::new(((self.0 >> 16) as u32).into(), self.0 as u16)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_names_its_address() {
        let address = SocketAddrV4::new([10, 0, 255, 1].into(), 65_535);
        assert_eq!(PeerId::at(address), PeerId(0x0a00_ff01_ffff));
        assert_eq!(PeerId::at(address).address(), address);
    }
}
