//! Strips the outer headers of a captured frame: Ethernet and VLAN, then outer IPv4 and GRE.

use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_VLAN};
use weir_wire::{gre, ipv4};

/// Returns the IPv4 packet of a home inside the frame; for a frame without a tunnel, its IPv4
/// packet. `None` for anything else (ARP, GRE keepalives, malformed packets).
pub(super) fn inner(frame: &[u8]) -> Option<&[u8]> {
    let packet = ip_packet(frame)?;
    let (header, header_len, total_len) = ipv4::parse(packet).ok()?;
    let packet = &packet[..total_len];
    if header.protocol != ipv4::PROTOCOL_GRE || header.is_fragment() {
        return Some(packet);
    }
    let payload = &packet[header_len..];
    let tunnel = gre::parse(payload).ok()?;
    let inner = &payload[tunnel.len..];
    (tunnel.protocol == gre::PROTOCOL_IPV4 && ipv4::parse(inner).is_ok()).then_some(inner)
}

/// Returns the IPv4 packet behind the Ethernet header and at most one VLAN tag.
fn ip_packet(frame: &[u8]) -> Option<&[u8]> {
    let mut ethertype_at = 12;
    if ethertype(frame, ethertype_at)? == ETHERTYPE_VLAN {
        ethertype_at += 4;
    }
    (ethertype(frame, ethertype_at)? == ETHERTYPE_IPV4).then(|| &frame[ethertype_at + 2..])
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
