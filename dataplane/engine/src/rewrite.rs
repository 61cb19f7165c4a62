//! Hot. Edits of the packet that is being translated: endpoints, time to live, checksums (RFC 1624).

use weir_nat::{Endpoint, Protocol};
use weir_wire::checksum::Delta;
use weir_wire::icmp;
use weir_wire::ipv4::Ipv4;
use weir_wire::tcp::Tcp;
use weir_wire::udp::{self, Udp};
use zerocopy::FromBytes;
use zerocopy::byteorder::big_endian::{U16, U32};

/// Which end of the packet changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
}

/// As [`forward`], for UDP or TCP behind an IP header without options.
#[inline(always)]
pub(crate) fn forward_straight(packet: &mut [u8], protocol: Protocol, end: End, new: Endpoint) {
    if let Ok((ip, transport)) = Ipv4::mut_from_prefix(packet) {
        let delta = hop(ip, end, new.address);
        transport_endpoint(transport, protocol, end, new.port, delta);
    }
}

/// One hop of a translated packet: one end gets a new address and a new port (for ICMP queries: identifier), the
/// time to live goes down by one. Does nothing to a transport header that is cut off; the callers have checked that it
/// is not, and that there is a hop left.
///
/// `packet` starts at the IP header, `header_len` is its length in bytes.
pub(crate) fn forward(
    packet: &mut [u8],
    header_len: usize,
    protocol: Protocol,
    end: End,
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
    // ICMP has no pseudo-header: the address does not count.
    icmp::apply_delta(transport, Delta::new().replace16(old, new.port));
}

/// The IP header's part; returns the change that counts for the pseudo-header too.
#[inline(always)]
fn hop(ip: &mut Ipv4, end: End, new: u32) -> Delta {
    let field = match end {
        End::Source => &mut ip.source,
        End::Destination => &mut ip.destination,
    };
    let address = swap32(field, new);
    ip.ttl = ip.ttl.wrapping_sub(1);
    ip.checksum = address.decrement_upper().apply(ip.checksum.get()).into();
    address
}

/// The part of UDP or TCP.
#[inline(always)]
fn transport_endpoint(
    transport: &mut [u8],
    protocol: Protocol,
    end: End,
    port: u16,
    address: Delta,
) {
    if protocol == Protocol::Udp {
        let Ok((udp, _)) = Udp::mut_from_prefix(transport) else { return };
        let field = match end {
            End::Source => &mut udp.source_port,
            End::Destination => &mut udp.destination_port,
        };
        let delta = address.then(swap16(field, port));
        udp.checksum = udp::apply_delta(udp.checksum.get(), delta).into();
    } else {
        let Ok((tcp, _)) = Tcp::mut_from_prefix(transport) else { return };
        let field = match end {
            End::Source => &mut tcp.source_port,
            End::Destination => &mut tcp.destination_port,
        };
        let delta = address.then(swap16(field, port));
        tcp.checksum = delta.apply(tcp.checksum.get()).into();
    }
}

/// Gives one end of an IPv4 header a new address; for packets whose transport checksum lies elsewhere.
#[inline]
pub(crate) fn address(header: &mut [u8], end: End, new: u32) {
    if let Ok((ip, _)) = Ipv4::mut_from_prefix(header) {
        let field = match end {
            End::Source => &mut ip.source,
            End::Destination => &mut ip.destination,
        };
        ip.checksum = swap32(field, new).apply(ip.checksum.get()).into();
    }
}

/// One hop less. The caller has checked that more than one was left.
#[inline]
pub(crate) fn decrement_ttl(packet: &mut [u8]) {
    if let Ok((ip, _)) = Ipv4::mut_from_prefix(packet) {
        ip.decrement_ttl();
    }
}

/// A new traffic class octet (DSCP and ECN).
#[inline]
pub(crate) fn traffic_class(packet: &mut [u8], tos: u8) {
    if let Ok((ip, _)) = Ipv4::mut_from_prefix(packet) {
        let old = u16::from_be_bytes([ip.version_ihl, ip.tos]);
        ip.tos = tos;
        let new = u16::from_be_bytes([ip.version_ihl, ip.tos]);
        ip.checksum = Delta::new().replace16(old, new).apply(ip.checksum.get()).into();
    }
}

/// A new identification, so that the fragments of two homes behind one address never mix (RFC 6864 section 5.3.1).
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
