//! The two directions of the tunnel, on bytes: no device, no socket.
//!
//! The outer header is IPv4 (RFC 2784) or IPv6 (RFC 7676), by the family of the endpoints; the
//! inner packet is of either family, whichever the outer is. GRE carries no checksum: behind an
//! outer IPv6 header, which has none either, the inner packet's own checksums cover its addresses
//! (RFC 7676).
//!
//! For outbound packets the caller leaves [`headroom`](Tunnel::headroom) bytes before the inner
//! packet, so no byte is copied.

mod ecn;
mod fragment;
mod inner;
#[cfg(test)]
mod tests;

use std::hash::RandomState;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4, PROTOCOL_GRE};
use weir_wire::ipv6::Ipv6;

pub(crate) use fragment::fragments;
use inner::Inner;

/// Outer time to live and hop limit. RFC 2784 leaves it open; RFC 1700 recommends 64.
const TTL: u8 = 64;

/// One tunnel: its ends, its key and what it carries.
#[derive(Clone, Debug)]
pub struct Tunnel {
    ends: Ends,
    key: Option<u32>,
    inside: Inside,
    /// Key of the hash that outer flow labels are: others cannot predict them (RFC 6437 section 3).
    labels: RandomState,
}

/// The two endpoints: outer source and outer destination of sent packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// GRE over IPv4.
    V4 {
        /// This end.
        local: Ipv4Addr,
        /// The other end: weir's tunnel endpoint.
        remote: Ipv4Addr,
    },
    /// GRE over IPv6.
    V6 {
        /// This end.
        local: Ipv6Addr,
        /// The other end: weir's tunnel endpoint.
        remote: Ipv6Addr,
    },
}

impl Ends {
    /// Pairs the endpoints. None if they are of different families.
    pub fn new(local: IpAddr, remote: IpAddr) -> Option<Self> {
        match (local, remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => Some(Self::V4 { local, remote }),
            (IpAddr::V6(local), IpAddr::V6(remote)) => Some(Self::V6 { local, remote }),
            _ => None,
        }
    }
}

/// The families of inner packets that a tunnel carries, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// GRE protocol 0x0800.
    pub ipv4: bool,
    /// GRE protocol 0x86DD.
    pub ipv6: bool,
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A packet is neither IPv4 nor IPv6, not what GRE says it is, or a length field does not fit
    /// the bytes.
    Malformed,
    /// The inner packet is of a protocol or a family that the tunnel does not carry.
    Protocol,
    /// The key is not the tunnel's.
    Key,
    /// The outer header says "congestion experienced", but the inner one does not support ECN (RFC
    /// 6040 section 4.2).
    Congestion,
}

impl Tunnel {
    /// Makes a tunnel; `key` is the GRE key in both directions.
    pub fn new(ends: Ends, key: Option<u32>, inside: Inside) -> Self {
        Self { ends, key, inside, labels: RandomState::new() }
    }

    /// Returns the endpoints.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// Returns the number of bytes to leave free in front of an inner packet: the outer header and
    /// GRE's.
    pub fn headroom(&self) -> usize {
        headroom(self.ends, self.key)
    }

    /// Writes the outer headers into the first [`headroom`](Self::headroom) bytes of `buffer`; the
    /// inner packet is the rest.
    ///
    /// DSCP and ECN are the inner ones (RFC 2983 uniform model, RFC 6040 section 4.1 normal mode).
    /// An outer IPv4 header has "don't fragment" if the inner IPv4 header has it, and for each
    /// inner IPv6 packet above 1280 bytes: a path MTU below the tunnel's must reach the sender. An
    /// outer IPv6 header gets a flow label of its inner flow (RFC 6438). `identification` matters
    /// only to outer IPv4 packets that may be fragmented (RFC 6864).
    ///
    /// # Errors
    /// [`Refused::Malformed`], [`Refused::Protocol`].
    pub fn encapsulate(&self, buffer: &mut [u8], identification: u16) -> Result<(), Refused> {
        let headroom = self.headroom();
        let inner = Inner::parse(buffer.get(headroom..).ok_or(Refused::Malformed)?)?;
        self.check_protocol(inner.protocol)?;
        let protocol = inner.protocol;
        let outer_len = match self.ends {
            Ends::V4 { local, remote } => {
                let length = u16::try_from(headroom + inner.len());
                let length = length.map_err(|_| Refused::Malformed)? - Ipv4::LEN as u16;
                let mut outer = Ipv4::new(local.into(), remote.into(), PROTOCOL_GRE, length);
                outer.tos = inner.traffic_class;
                outer.ttl = TTL;
                outer.identification = identification.into();
                outer.set_fragment(inner.dont_fragment, false, 0);
                outer.set_checksum();
                outer.emit(buffer);
                Ipv4::LEN
            }
            Ends::V6 { local, remote } => {
                let length = u16::try_from(headroom + inner.len() - Ipv6::LEN);
                let length = length.map_err(|_| Refused::Malformed)?;
                let mut outer = Ipv6::new(local.into(), remote.into(), PROTOCOL_GRE, length);
                outer.set_traffic_class(inner.traffic_class);
                outer.set_flow_label(inner.flow_label(&self.labels));
                outer.hop_limit = TTL;
                outer.emit(buffer);
                Ipv6::LEN
            }
        };
        gre::emit(&mut buffer[outer_len..headroom], protocol, self.key);
        Ok(())
    }

    /// Returns the inner packet of `gre`, which is a GRE header and all behind it.
    /// `outer_traffic_class` is the traffic class (IPv6) or type of service (IPv4) of the outer
    /// header, whose congestion mark is merged into the inner packet (RFC 6040 section 4.2).
    ///
    /// # Errors
    /// All of [`Refused`].
    pub fn decapsulate<'a>(
        &self,
        gre: &'a mut [u8],
        outer_traffic_class: u8,
    ) -> Result<&'a [u8], Refused> {
        let header = gre::parse(gre).map_err(|_| Refused::Malformed)?;
        self.check_protocol(header.protocol)?;
        if header.key != self.key {
            return Err(Refused::Key);
        }
        inner::mark(&mut gre[header.len..], header.protocol, outer_traffic_class & ecn::ECN)
    }

    fn check_protocol(&self, protocol: u16) -> Result<(), Refused> {
        let is_carried = match protocol {
            gre::PROTOCOL_IPV4 => self.inside.ipv4,
            gre::PROTOCOL_IPV6 => self.inside.ipv6,
            _ => false,
        };
        is_carried.then_some(()).ok_or(Refused::Protocol)
    }
}

/// Returns the bytes that a tunnel between `ends` adds to each packet: outer header and GRE's.
pub fn headroom(ends: Ends, key: Option<u32>) -> usize {
    let outer = match ends {
        Ends::V4 { .. } => Ipv4::LEN,
        Ends::V6 { .. } => Ipv6::LEN,
    };
    outer + gre::header_len(key)
}

/// Returns where the GRE header and all behind it lie in an outer IPv4 packet, and the type of
/// service.
///
/// # Errors
/// [`Refused::Malformed`].
pub fn behind_ipv4(packet: &[u8]) -> Result<(Range<usize>, u8), Refused> {
    let (outer, outer_len, end) = ipv4::parse(packet).map_err(|_| Refused::Malformed)?;
    Ok((outer_len..end, outer.tos))
}
