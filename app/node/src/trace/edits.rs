//! What the way through the worker has changed in a packet.

use std::net::Ipv4Addr;

use weir_engine::FrameCopy;
use weir_wire::ethernet::ETHERTYPE_IPV4;
use weir_wire::ipv4::{PROTOCOL_GRE, PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use weir_wire::{ethernet, gre, icmp, ipv4, ports, tcp, udp};

/// A field of a packet, by name.
type NamedField = (&'static str, String);

/// Returns the fields of a packet that differ between the frame that came and one that left, as
/// words; `None` if one of them has no IPv4 packet, or they are packets of different protocols.
pub(super) fn edits(before: &FrameCopy, after: &FrameCopy) -> Option<String> {
    let [before, after] = [fields(before.bytes())?, fields(after.bytes())?];
    let is_one_kind = before.iter().map(|(name, _)| name).eq(after.iter().map(|(name, _)| name));
    if !is_one_kind {
        return None;
    }
    let changed = before.iter().zip(&after).filter(|(old, new)| old != new);
    let words: Vec<String> =
        changed.map(|((name, old), (_, new))| format!("{name} {old} -> {new}")).collect();
    Some(if words.is_empty() { "none".to_owned() } else { words.join(", ") })
}

/// Returns the fields of the innermost packet of a frame, and how it is wrapped.
fn fields(frame: &[u8]) -> Option<Vec<NamedField>> {
    let link = ethernet::parse_link(frame).ok()?;
    let mut packet = frame.get(link.len..).filter(|_| link.ethertype == ETHERTYPE_IPV4)?;
    let mut tunnels = 0;
    while let Some(inner) = inner(packet) {
        packet = inner;
        tunnels += 1;
    }
    // A copy may have lost the end of a long packet.
    let (ip, header_len, _) = ipv4::parse_quoted(packet).ok()?;
    let mut fields = vec![
        ("tunnel", if tunnels == 0 { "none" } else { "GRE" }.to_owned()),
        ("source", Ipv4Addr::from(ip.source.get()).to_string()),
        ("destination", Ipv4Addr::from(ip.destination.get()).to_string()),
        ("dscp", ip.dscp().to_string()),
        ("ecn", ip.ecn().to_string()),
        ("bytes", ip.total_length.get().to_string()),
        ("identification", ip.identification.get().to_string()),
        ("fragment", format!("{:04x}", ip.flags_fragment.get())),
        ("ttl", ip.ttl.to_string()),
        ("header checksum", hexadecimal(ip.checksum.get())),
    ];
    if ip.fragment_offset() == 0 {
        fields.extend(transport(ip.protocol, packet.get(header_len..)?)?);
    }
    Some(fields)
}

/// Returns the packet in a GRE tunnel.
fn inner(packet: &[u8]) -> Option<&[u8]> {
    let (ip, header_len, _) = ipv4::parse_quoted(packet).ok()?;
    let payload = packet.get(header_len..).filter(|_| ip.protocol == PROTOCOL_GRE)?;
    let header = gre::parse(payload).ok().filter(|header| header.protocol == gre::PROTOCOL_IPV4)?;
    payload.get(header.len..)
}

fn transport(protocol: u8, segment: &[u8]) -> Option<Vec<NamedField>> {
    let ports = || -> Option<[NamedField; 2]> {
        let ports = ports::parse(segment).ok()?;
        let [source, destination] = [ports.source, ports.destination].map(|it| it.to_string());
        Some([("source port", source), ("destination port", destination)])
    };
    let mut fields = Vec::new();
    match protocol {
        PROTOCOL_TCP => {
            fields.extend(ports()?);
            let mss = tcp::mss(segment).map_or_else(|| "none".to_owned(), |mss| mss.to_string());
            fields.push(("mss", mss));
            fields.push(("tcp checksum", hexadecimal(tcp::parse(segment).ok()?.checksum.get())));
        }
        PROTOCOL_UDP => {
            fields.extend(ports()?);
            let checksum = udp::parse_header(segment).ok()?.checksum.get();
            fields.push(("udp checksum", hexadecimal(checksum)));
        }
        PROTOCOL_ICMP => {
            let header = icmp::parse(segment).ok()?;
            fields.push(("type", format!("{}/{}", header.kind, header.code)));
            fields.push(("identifier", header.identifier().to_string()));
            fields.push(("icmp checksum", hexadecimal(header.checksum.get())));
        }
        _ => {}
    }
    Some(fields)
}

fn hexadecimal(checksum: u16) -> String {
    format!("{checksum:04x}")
}

#[cfg(test)]
mod tests {
    use weir_wire::build;

    use super::*;

    fn frame(packet: &[u8]) -> FrameCopy {
        FrameCopy::new(&build::ethernet(build::mac(1), build::mac(2), packet))
    }

    fn words(before: &[u8], after: &[u8]) -> Option<String> {
        edits(&frame(before), &frame(after))
    }

    #[test]
    fn fields_that_differ_are_named_with_both_values() {
        let syn = |port| build::tcp(port, 443).syn();
        let before = build::ipv4("192.168.1.10", "198.51.100.1").ttl(64).tcp(syn(5000).mss(1460));
        let after = build::ipv4("203.0.113.1", "198.51.100.1").ttl(63).tcp(syn(1024).mss(1400));
        let tunnelled = build::ipv4("10.200.0.1", "10.100.0.1").gre(build::gre(), &before);
        let told = words(&tunnelled, &after).unwrap();
        let parts = [
            "tunnel GRE -> none, source 192.168.1.10 -> 203.0.113.1, ttl 64 -> 63, header checksum ",
            ", source port 5000 -> 1024, mss 1460 -> 1400, tcp checksum ",
        ];
        assert!(told.starts_with(parts[0]) && told.contains(parts[1]), "{told}");
        assert_eq!(words(&before, &before).unwrap(), "none");
    }

    #[test]
    fn packets_of_other_protocols_and_bytes_that_are_none_are_not_compared() {
        let udp = build::ipv4("192.0.2.1", "192.0.2.2").udp(1, 2, b"x");
        let echo = build::ipv4("192.0.2.1", "192.0.2.2").icmp_echo_request(7, 1, b"x");
        assert_eq!(words(&udp, &echo), None);
        assert_eq!(words(&udp, &[]), None);
        assert_eq!(words(&udp, &udp[..10]), None);
        let later = build::ipv4("192.0.2.1", "192.0.2.2").fragment(80, false).payload(17, b"x");
        assert_eq!(words(&udp, &later), None, "a later fragment has no ports");
        let cut = words(&udp[..udp.len() - 1], &udp);
        assert_eq!(cut.unwrap(), "none", "the end of a long packet is not kept");
    }
}
