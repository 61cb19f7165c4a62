//! The two directions of the tunnel, on bytes: no device, no socket.
//!
//! For outbound packets the caller leaves [`headroom`] bytes before the inner packet, so no byte is
//! copied.

use std::net::Ipv4Addr;

use weir_wire::ipv4::{self, Ipv4, PROTOCOL_GRE};
use weir_wire::{checksum, gre};
use zerocopy::IntoBytes;

/// Bytes of an IPv4 header without options.
const IPV4_LEN: usize = 20;
/// "Don't fragment" in `Ipv4::flags_fragment`.
const DONT_FRAGMENT: u16 = 0x4000;
/// Outer time to live. RFC 2784 leaves it open; RFC 1700 recommends 64.
const TTL: u8 = 64;

const ECN: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// The ends of one tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Tunnel {
    /// Outer source of sent packets.
    pub local: Ipv4Addr,
    /// Outer destination of sent packets: weir's tunnel endpoint.
    pub remote: Ipv4Addr,
    /// GRE key, in both directions.
    pub key: Option<u32>,
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The inner packet is not IPv4, or a length field does not fit the bytes.
    Malformed,
    /// GRE carries a protocol other than IPv4.
    Protocol,
    /// The key is not the tunnel's.
    Key,
    /// The outer header says "congestion experienced", but the inner one does not support ECN (RFC
    /// 6040 section 4.2).
    Congestion,
}

impl Tunnel {
    /// Bytes to leave free in front of an inner packet: outer IPv4 and GRE headers.
    pub fn headroom(&self) -> usize {
        IPV4_LEN + gre::header_len(self.key)
    }

    /// Writes the outer headers into the first [`headroom`](Self::headroom) bytes of `buffer`; the
    /// inner packet is the rest.
    ///
    /// DSCP and ECN are the inner ones (RFC 2983 uniform model, RFC 6040 section 4.1 normal mode),
    /// and so is "don't fragment": a path MTU below the tunnel's must reach the sender.
    /// `identification` matters only to packets that may be fragmented (RFC 6864).
    pub fn encapsulate(&self, buffer: &mut [u8], identification: u16) -> Result<(), Refused> {
        let headroom = self.headroom();
        let inner = buffer.get(headroom..).ok_or(Refused::Malformed)?;
        let (inner, _, total_length) = ipv4::parse(inner).map_err(|_| Refused::Malformed)?;
        let outer_length =
            u16::try_from(headroom + total_length).map_err(|_| Refused::Malformed)?;
        let mut outer = Ipv4 {
            version_ihl: 0x45,
            tos: inner.tos,
            total_length: outer_length.into(),
            identification: identification.into(),
            flags_fragment: if inner.dont_fragment() { DONT_FRAGMENT.into() } else { 0.into() },
            ttl: TTL,
            protocol: PROTOCOL_GRE,
            checksum: 0.into(),
            source: u32::from(self.local).into(),
            destination: u32::from(self.remote).into(),
        };
        outer.checksum = checksum::sum(outer.as_bytes()).into();
        buffer[..IPV4_LEN].copy_from_slice(outer.as_bytes());
        gre::emit(&mut buffer[IPV4_LEN..headroom], gre::PROTOCOL_IPV4, self.key);
        Ok(())
    }

    /// Returns the inner packet of a datagram from the raw socket, which begins with the outer
    /// header. The outer congestion mark is merged into it (RFC 6040 section 4.2).
    pub fn decapsulate<'a>(&self, packet: &'a mut [u8]) -> Result<&'a [u8], Refused> {
        let (outer, outer_len, outer_end) = ipv4::parse(packet).map_err(|_| Refused::Malformed)?;
        let outer_ecn = outer.tos & ECN;
        let header = gre::parse(&packet[outer_len..outer_end]).map_err(|_| Refused::Malformed)?;
        if header.protocol != gre::PROTOCOL_IPV4 {
            return Err(Refused::Protocol);
        }
        if header.key != self.key {
            return Err(Refused::Key);
        }
        let inner = &mut packet[outer_len + header.len..outer_end];
        let (head, inner_len, inner_end) = ipv4::parse(inner).map_err(|_| Refused::Malformed)?;
        let tos = head.tos & !ECN | merge_ecn(head.tos & ECN, outer_ecn)?;
        if tos != head.tos {
            inner[1] = tos;
            inner[10..12].fill(0);
            let sum = checksum::sum(&inner[..inner_len]);
            inner[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Ok(&inner[..inner_end])
    }
}

/// RFC 6040 figure 4: returns the ECN field to forward for the given arriving inner and outer ones.
fn merge_ecn(inner: u8, outer: u8) -> Result<u8, Refused> {
    match (inner, outer) {
        (NOT_ECT, CE) => Err(Refused::Congestion),
        (NOT_ECT, _) => Ok(NOT_ECT),
        (_, CE) => Ok(CE),
        (ECT_0, ECT_1) => Ok(ECT_1),
        (inner, _) => Ok(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(key: Option<u32>) -> Tunnel {
        Tunnel { local: Ipv4Addr::new(10, 200, 0, 1), remote: Ipv4Addr::new(10, 100, 0, 1), key }
    }

    /// Returns an inner packet of 28 bytes with the given type of service and flags.
    fn inner(tos: u8, flags_fragment: u16) -> Vec<u8> {
        let mut head = Ipv4 {
            version_ihl: 0x45,
            tos,
            total_length: 28.into(),
            identification: 7.into(),
            flags_fragment: flags_fragment.into(),
            ttl: 64,
            protocol: 17,
            checksum: 0.into(),
            source: u32::from(Ipv4Addr::new(192, 168, 1, 2)).into(),
            destination: u32::from(Ipv4Addr::new(198, 51, 100, 1)).into(),
        };
        head.checksum = checksum::sum(head.as_bytes()).into();
        let mut packet = head.as_bytes().to_vec();
        packet.extend_from_slice(&[1, 2, 3, 4, 0, 8, 0, 0]);
        packet
    }

    fn sealed(tunnel: &Tunnel, inner: &[u8]) -> Vec<u8> {
        let mut buffer = vec![0xee; tunnel.headroom()];
        buffer.extend_from_slice(inner);
        tunnel.encapsulate(&mut buffer, 99).unwrap();
        buffer
    }

    #[test]
    fn decapsulation_restores_the_encapsulated_packet() {
        for key in [None, Some(0xdead_beef)] {
            let there = tunnel(key);
            let packet = inner(0, DONT_FRAGMENT);
            let mut outer = sealed(&there, &packet);
            assert_eq!(outer.len(), packet.len() + if key.is_some() { 28 } else { 24 });
            assert_eq!(there.decapsulate(&mut outer).unwrap(), packet);
        }
    }

    #[test]
    fn the_outer_header_follows_the_inner_one() {
        let outer = sealed(&tunnel(None), &inner(0xb8 | ECT_0, DONT_FRAGMENT));
        let (head, _, total_length) = ipv4::parse(&outer).unwrap();
        assert_eq!(head.tos, 0xb8 | ECT_0);
        assert!(head.dont_fragment());
        assert_eq!(total_length, outer.len());
        assert_eq!(checksum::sum(&outer[..IPV4_LEN]), 0);
        let outer = sealed(&tunnel(None), &inner(0, 0));
        assert!(!ipv4::parse(&outer).unwrap().0.dont_fragment());
    }

    #[test]
    fn a_congestion_mark_on_the_way_reaches_the_inner_packet() {
        let there = tunnel(None);
        let mut outer = sealed(&there, &inner(ECT_0, 0));
        outer[1] = CE;
        let packet = there.decapsulate(&mut outer).unwrap();
        assert_eq!(packet[1] & ECN, CE);
        assert_eq!(checksum::sum(&packet[..IPV4_LEN]), 0);
    }

    #[test]
    fn a_congestion_mark_is_never_lost_on_a_sender_without_ecn() {
        let there = tunnel(None);
        let mut outer = sealed(&there, &inner(NOT_ECT, 0));
        outer[1] = CE;
        assert_eq!(there.decapsulate(&mut outer), Err(Refused::Congestion));
    }

    #[test]
    fn a_foreign_key_is_refused() {
        let mut outer = sealed(&tunnel(Some(1)), &inner(0, 0));
        assert_eq!(tunnel(Some(2)).decapsulate(&mut outer), Err(Refused::Key));
        assert_eq!(tunnel(None).decapsulate(&mut outer), Err(Refused::Key));
    }

    #[test]
    fn cut_packets_are_refused_at_every_length() {
        let there = tunnel(Some(5));
        let whole = sealed(&there, &inner(0, 0));
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            assert_eq!(there.decapsulate(&mut cut), Err(Refused::Malformed));
        }
    }

    #[test]
    fn ipv6_is_not_sent() {
        let there = tunnel(None);
        let mut buffer = vec![0; there.headroom() + 40];
        buffer[there.headroom()] = 0x60;
        assert_eq!(there.encapsulate(&mut buffer, 0), Err(Refused::Malformed));
    }
}
