//! Strips the outer headers of a captured frame: Ethernet and VLAN, then outer IPv4 or IPv6, and
//! GRE.

use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN};
use weir_wire::{gre, ipv4, ipv6};

/// Returns the IPv4 packet of a home inside the frame; for a frame without a tunnel, its IPv4
/// packet. `None` for anything else (ARP, GRE keepalives, malformed packets).
pub(super) fn inner(frame: &[u8]) -> Option<&[u8]> {
    let (ethertype, packet) = network(frame)?;
    if ethertype == ETHERTYPE_IPV6 {
        let (header, total_len) = ipv6::parse(packet).ok()?;
        let is_tunnel = header.next_header == ipv4::PROTOCOL_GRE;
        return tunnelled(packet[..total_len].get(ipv6::Ipv6::LEN..).filter(|_| is_tunnel)?);
    }
    let (header, header_len, total_len) = ipv4::parse(packet).ok()?;
    let packet = &packet[..total_len];
    if header.protocol != ipv4::PROTOCOL_GRE || header.is_fragment() {
        return Some(packet);
    }
    tunnelled(&packet[header_len..])
}

/// Returns the IPv4 packet in a GRE packet.
fn tunnelled(payload: &[u8]) -> Option<&[u8]> {
    let tunnel = gre::parse(payload).ok()?;
    let inner = &payload[tunnel.len..];
    (tunnel.protocol == gre::PROTOCOL_IPV4 && ipv4::parse(inner).is_ok()).then_some(inner)
}

/// Returns the IP packet behind the Ethernet header and at most one VLAN tag, and its ethertype.
fn network(frame: &[u8]) -> Option<(u16, &[u8])> {
    let mut ethertype_at = 12;
    if ethertype(frame, ethertype_at)? == ETHERTYPE_VLAN {
        ethertype_at += 4;
    }
    let kind = ethertype(frame, ethertype_at)?;
    matches!(kind, ETHERTYPE_IPV4 | ETHERTYPE_IPV6).then(|| (kind, &frame[ethertype_at + 2..]))
}

fn ethertype(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(payload);
        packet
    }

    fn ethernet(tag: &[u8], ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(tag);
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame
    }

    #[test]
    fn tunnels_tags_and_padding_come_off() {
        let home = ip(17, &[0, 1, 0, 2, 0, 8, 0, 0]);
        let tunnel = ip(47, &[&[0, 0, 8, 0][..], &home].concat());
        let mut frame = ethernet(&[], 0x0800, &tunnel);
        frame.extend([0; 6]);
        assert_eq!(inner(&frame), Some(&home[..]));
        assert_eq!(inner(&ethernet(&[0x81, 0, 0, 5], 0x0800, &tunnel)), Some(&home[..]));
        let keyed = ip(47, &[&[0x20, 0, 8, 0, 0, 0, 0, 9][..], &home].concat());
        assert_eq!(inner(&ethernet(&[], 0x0800, &keyed)), Some(&home[..]));
        assert_eq!(inner(&ethernet(&[], 0x0800, &home)), Some(&home[..]));
        let header = weir_wire::build::gre();
        let over_ipv6 = weir_wire::build::ipv6("2001:db8::1", "2001:db8::2").gre(header, &home);
        assert_eq!(inner(&ethernet(&[], 0x86dd, &over_ipv6)), Some(&home[..]));
        assert_eq!(inner(&ethernet(&[], 0x86dd, &over_ipv6[..50])), None, "cut");
    }

    #[test]
    fn frames_without_an_ip_packet_are_left_out() {
        assert_eq!(inner(&ethernet(&[], 0x0806, &[0; 28])), None);
        assert_eq!(inner(&ethernet(&[], 0x0800, &[0x45, 0])), None);
        let keepalive = ip(47, &[0, 0, 0, 0]);
        assert_eq!(inner(&ethernet(&[], 0x0800, &keepalive)), None);
        assert_eq!(inner(&[]), None);
        assert_eq!(inner(&[0; 13]), None);
    }
}
