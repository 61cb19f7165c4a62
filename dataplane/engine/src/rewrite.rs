//! Hot. Edits of the packet that is being translated: endpoints, TTL, checksums (RFC 1624).

use weir_nat::{Endpoint, Protocol};
use weir_wire::checksum::Delta;
use weir_wire::icmp;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::tcp::Tcp;
use weir_wire::udp::{self, Udp};
use zerocopy::FromBytes;
use zerocopy::byteorder::big_endian::{U16, U32};

use crate::fast_path::{Headers, TCP_CHECKSUM};

/// The end of the packet that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketEnd {
    Source,
    Destination,
}

/// Fast path of [`forward`]: UDP or TCP behind an IP header without options, by words as they lie
/// in memory.
#[inline(always)]
pub(crate) fn forward_fast_path(
    packet: &mut [u8],
    protocol: Protocol,
    end: PacketEnd,
    new: Endpoint,
) {
    let Some((front, rest)) = packet.split_first_chunk_mut::<{ size_of::<Headers>() }>() else {
        return;
    };
    let Ok(headers) = Headers::mut_from_bytes(front) else { return };
    let Headers { ip, source_port, destination_port, .. } = *headers;
    let (address, port) = (new.address.to_be(), new.port.to_be());
    let (old_address, old_port) = match end {
        PacketEnd::Source => {
            (headers.ip.source, headers.source_port) = (address, port);
            (ip.source, source_port)
        }
        PacketEnd::Destination => {
            (headers.ip.destination, headers.destination_port) = (address, port);
            (ip.destination, destination_port)
        }
    };
    let delta = Delta::new().replace32(old_address, address);
    headers.ip.ttl = ip.ttl.wrapping_sub(1);
    headers.ip.checksum = delta.decrement_first().apply(ip.checksum);
    let delta = delta.replace16(old_port, port);
    if protocol == Protocol::Udp {
        // RFC 768: 0 means no checksum, and a sum of 0 is sent as all ones, which are their own
        // swap.
        if headers.udp_checksum != 0 {
            let sum = delta.apply(headers.udp_checksum);
            headers.udp_checksum = if sum == 0 { 0xffff } else { sum };
        }
    } else if let Some(field) = rest.get_mut(TCP_CHECKSUM - size_of::<Headers>()..)
        && let Some(field) = field.first_chunk_mut::<2>()
    {
        *field = delta.apply(u16::from_ne_bytes(*field)).to_ne_bytes();
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

/// Replaces one endpoint of a UDP or TCP packet, or one address of an ICMP query, whose identifier
/// is the other endpoint's; the TTL stays. `packet` and `header_len` as in [`forward`].
#[cold]
pub(crate) fn endpoint(packet: &mut [u8], header_len: usize, end: PacketEnd, new: Endpoint) {
    let Some((header, transport)) = packet.split_at_mut_checked(header_len) else { return };
    let Ok((ip, _)) = Ipv4::mut_from_prefix(header) else { return };
    let field = match end {
        PacketEnd::Source => &mut ip.source,
        PacketEnd::Destination => &mut ip.destination,
    };
    let address = swap32(field, new.address);
    ip.checksum = address.apply(ip.checksum.get()).into();
    match ip.protocol {
        ipv4::PROTOCOL_UDP => transport_endpoint(transport, Protocol::Udp, end, new.port, address),
        ipv4::PROTOCOL_TCP => transport_endpoint(transport, Protocol::Tcp, end, new.port, address),
        _ => {}
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

/// Replaces the codepoint and leaves the ECN bits (RFC 2474 section 3, RFC 3168 section 5).
pub(crate) fn codepoint(packet: &mut [u8], dscp: u8) {
    if let Ok((ip, _)) = Ipv4::ref_from_prefix(packet) {
        let tos = dscp << 2 | ip.tos & 0b11;
        traffic_class(packet, tos);
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

#[cfg(test)]
mod tests {
    use weir_wire::build;

    use super::*;

    /// Addresses, ports and checksums of extreme and of usual values.
    const WORDS: [u16; 7] = [1, 0x7f, 0xff, 0x1234, 0xff00, 0xfffe, 0xffff];

    #[test]
    fn a_codepoint_replaces_another_and_leaves_ecn() {
        let mut packet = build::ipv4(1, 2).udp(3, 4, [0; 8]);
        traffic_class(&mut packet, 0b1010_1011);
        let before = packet.clone();
        codepoint(&mut packet, 46);
        assert_eq!((packet[1], packet.len()), (46 << 2 | 0b11, before.len()));
        traffic_class(&mut packet, 0b1010_1011);
        assert_eq!(packet, before, "the checksum follows");
    }

    #[test]
    fn edit_by_words_equals_edit_by_fields() {
        for (n, (old, new)) in WORDS.iter().flat_map(|&old| WORDS.map(|new| (old, new))).enumerate()
        {
            let address = |word: u16| 0x0a00_0000 | u32::from(word) << 4;
            let (from, to) = (address(old), address(new).rotate_left(8));
            let packets = [
                (Protocol::Udp, build::ipv4(from, to).udp(old, !new | 1, [n as u8; 18])),
                (Protocol::Tcp, build::ipv4(from, to).tcp(build::tcp(old, !new | 1).ack())),
            ];
            for (protocol, mut packet) in packets {
                if protocol == Protocol::Udp {
                    // No checksum, the one of the packet, and any.
                    let checksum = &mut packet[Ipv4::LEN + Udp::LEN - 2..Ipv4::LEN + Udp::LEN];
                    match n % 3 {
                        0 => checksum.fill(0),
                        1 => checksum.copy_from_slice(&new.to_be_bytes()),
                        _ => {}
                    }
                }
                for end in [PacketEnd::Source, PacketEnd::Destination] {
                    let (mut one, mut other) = (packet.clone(), packet.clone());
                    let new = Endpoint::new(address(new), new);
                    forward_fast_path(&mut one, protocol, end, new);
                    forward(&mut other, Ipv4::LEN, protocol, end, new);
                    assert_eq!(one, other, "{protocol} {end:?} {new}");
                    assert_ne!(one, packet);
                }
            }
        }
    }
}
