//! Hot. Edits of the packet that is being translated: endpoints, TTL, checksums (RFC 1624).

use weir_nat::{Endpoint, Protocol};
use weir_wire::checksum::Delta;
use weir_wire::icmp;
use weir_wire::ipv4::Ipv4;
use weir_wire::tcp::Tcp;
use weir_wire::udp::{self, Udp};
use zerocopy::FromBytes;
use zerocopy::byteorder::big_endian::{U16, U32};

/// The end of the packet that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketEnd {
    Source,
    Destination,
}

/// Fast path of [`forward`]: UDP or TCP behind an IP header without options.
#[inline(always)]
pub(crate) fn forward_fast_path(
    packet: &mut [u8],
    protocol: Protocol,
    end: PacketEnd,
    new: Endpoint,
) {
    if let Ok((ip, transport)) = Ipv4::mut_from_prefix(packet) {
        let delta = hop(ip, end, new.address);
        transport_endpoint(transport, protocol, end, new.port, delta);
    }
}

/// Does one hop of a translated packet: one end gets a new address and a new port (for ICMP
/// queries: identifier), and the TTL is decremented. Leaves a truncated transport header unchanged;
/// the callers have checked that it is whole, and that the TTL is above 1.
///
/// `packet` starts at the IP header, whose length is `header_len` bytes.
pub(crate) fn forward(
    packet: &mut [u8],
    header_len: usize,
    protocol: Protocol,
    end: PacketEnd,
    new: Endpoint,
) {
    let Some((header, transport)) = packet.split_at_mut_checked(header_len) else { return };
    let Ok((ip, _)) = Ipv4::mut_from_prefix(header) else { return };
    let delta = hop(ip, end, new.address);
    if protocol != Protocol::Icmp {
        return transport_endpoint(transport, protocol, end, new.port, delta);
    }
    let Ok(query) = icmp::parse_mut(transport) else { return };
    let old = query.identifier();
    query.set_identifier(new.port);
    // ICMP has no pseudo-header: the address does not enter its checksum.
    icmp::apply_delta(transport, Delta::new().replace16(old, new.port));
}

/// Edits the IP header; returns the change that enters the checksum of the pseudo-header too.
#[inline(always)]
fn hop(ip: &mut Ipv4, end: PacketEnd, new: u32) -> Delta {
    let field = match end {
        PacketEnd::Source => &mut ip.source,
        PacketEnd::Destination => &mut ip.destination,
    };
    let address = swap32(field, new);
    ip.ttl = ip.ttl.wrapping_sub(1);
    ip.checksum = address.decrement_upper().apply(ip.checksum.get()).into();
    address
}

/// Edits the UDP or TCP header.
#[inline(always)]
fn transport_endpoint(
    transport: &mut [u8],
    protocol: Protocol,
    end: PacketEnd,
    port: u16,
    address: Delta,
) {
    if protocol == Protocol::Udp {
        let Ok((udp, _)) = Udp::mut_from_prefix(transport) else { return };
        let field = match end {
            PacketEnd::Source => &mut udp.source_port,
            PacketEnd::Destination => &mut udp.destination_port,
        };
        let delta = address.then(swap16(field, port));
        udp.checksum = udp::apply_delta(udp.checksum.get(), delta).into();
    } else {
        let Ok((tcp, _)) = Tcp::mut_from_prefix(transport) else { return };
        let field = match end {
            PacketEnd::Source => &mut tcp.source_port,
            PacketEnd::Destination => &mut tcp.destination_port,
        };
        let delta = address.then(swap16(field, port));
        tcp.checksum = delta.apply(tcp.checksum.get()).into();
    }
}

/// Replaces one address of an IPv4 header; for packets whose transport checksum lies elsewhere
/// (later fragments, quotes).
#[inline]
pub(crate) fn address(header: &mut [u8], end: PacketEnd, new: u32) {
    if let Ok((ip, _)) = Ipv4::mut_from_prefix(header) {
        let field = match end {
            PacketEnd::Source => &mut ip.source,
            PacketEnd::Destination => &mut ip.destination,
        };
        ip.checksum = swap32(field, new).apply(ip.checksum.get()).into();
    }
}

/// Decrements the TTL. The caller has checked that it is above 1.
#[inline]
pub(crate) fn decrement_ttl(packet: &mut [u8]) {
    if let Ok((ip, _)) = Ipv4::mut_from_prefix(packet) {
        ip.decrement_ttl();
    }
}

/// Replaces the traffic class octet (DSCP and ECN).
#[inline]
pub(crate) fn traffic_class(packet: &mut [u8], tos: u8) {
    if let Ok((ip, _)) = Ipv4::mut_from_prefix(packet) {
        let old = u16::from_be_bytes([ip.version_ihl, ip.tos]);
        ip.tos = tos;
        let new = u16::from_be_bytes([ip.version_ihl, ip.tos]);
        ip.checksum = Delta::new().replace16(old, new).apply(ip.checksum.get()).into();
    }
}

/// Replaces the identification, so that the fragments of two homes behind one address never mix
/// (RFC 6864 section 5.3.1).
#[inline]
pub(crate) fn identification(packet: &mut [u8], new: u16) {
    if let Ok((ip, _)) = Ipv4::mut_from_prefix(packet) {
        let delta = swap16(&mut ip.identification, new);
        ip.checksum = delta.apply(ip.checksum.get()).into();
    }
}

#[inline]
pub(crate) fn swap16(field: &mut U16, new: u16) -> Delta {
    let delta = Delta::new().replace16(field.get(), new);
    *field = new.into();
    delta
}

#[inline]
pub(crate) fn swap32(field: &mut U32, new: u32) -> Delta {
    let delta = Delta::new().replace32(field.get(), new);
    *field = new.into();
    delta
}
