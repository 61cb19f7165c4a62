//! What the way through the worker has changed in a packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use weir_engine::FrameCopy;
use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use weir_wire::ipv4::{PROTOCOL_GRE, PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP};
use weir_wire::ipv6::PROTOCOL_ICMPV6;
use weir_wire::{ethernet, gre, icmp, icmp6, ipv4, ipv6, ports, tcp, udp};

/// A field of a packet, by name.
type NamedField = (&'static str, String);

/// Returns the fields of a packet that differ between the frame that came and one that left, as
/// words; `None` if one of them has no IP packet, or they are packets of different protocols.
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
    let is_ip = matches!(link.ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6);
    let mut packet = frame.get(link.len..).filter(|_| is_ip)?;
    let mut tunnel = "none";
    while let Some(inner) = inner(packet) {
        tunnel = if ipv6::is_version_6(packet) { "GRE over IPv6" } else { "GRE" };
        packet = inner;
    }
    let mut fields = vec![("tunnel", tunnel.to_owned())];
    fields.extend(match ipv6::is_version_6(packet) {
        true => fields6(packet)?,
        false => fields4(packet)?,
    });
    Some(fields)
}

/// As [`fields`], of an IPv4 packet. A copy may have lost the end of a long packet.
fn fields4(packet: &[u8]) -> Option<Vec<NamedField>> {
    let (ip, header_len, _) = ipv4::parse_quoted(packet).ok()?;
    let mut fields = vec![
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

/// As [`fields4`], of an IPv6 packet.
fn fields6(packet: &[u8]) -> Option<Vec<NamedField>> {
    let (ip, total_length) = ipv6::parse_quoted(packet).ok()?;
    let upper = ipv6::walk(packet, total_length).ok()?;
    let mut fields = vec![
        ("source", Ipv6Addr::from(ip.source.get()).to_string()),
        ("destination", Ipv6Addr::from(ip.destination.get()).to_string()),
        ("dscp", ip.dscp().to_string()),
        ("ecn", ip.ecn().to_string()),
        ("flow label", format!("{:05x}", ip.flow_label())),
        ("bytes", total_length.to_string()),
        ("hop limit", ip.hop_limit.to_string()),
    ];
    if let Some(fragment) = upper.fragment {
        let more = if fragment.more_fragments { "+" } else { "" };
        let text = format!("{}@{}{more}", fragment.identification, fragment.offset);
        fields.push(("fragment", text));
    }
    if upper.has_header() {
        fields.extend(transport(upper.protocol, packet.get(upper.offset..)?)?);
    }
    Some(fields)
}

/// Returns the packet in a GRE tunnel, over either family.
fn inner(packet: &[u8]) -> Option<&[u8]> {
    let (protocol, offset) = match ipv6::is_version_6(packet) {
        true => {
            let (_, total_length) = ipv6::parse_quoted(packet).ok()?;
            let upper = ipv6::walk(packet, total_length).ok().filter(|it| it.has_header())?;
            (upper.protocol, upper.offset)
        }
        false => {
            let (ip, header_len, _) = ipv4::parse_quoted(packet).ok()?;
            (ip.protocol, header_len)
        }
    };
    let payload = packet.get(offset..).filter(|_| protocol == PROTOCOL_GRE)?;
    let is_ip =
        |it: &gre::GreHeader| matches!(it.protocol, gre::PROTOCOL_IPV4 | gre::PROTOCOL_IPV6);
    let header = gre::parse(payload).ok().filter(is_ip)?;
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
        PROTOCOL_ICMPV6 => {
            let header = icmp6::parse(segment).ok()?;
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
        let ethertype = if ipv6::is_version_6(packet) { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        FrameCopy::new(&build::ethernet_of(ethertype, build::mac(1), build::mac(2), packet))
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
    fn fields_of_ipv6_packets_and_tunnels_of_both_families_are_compared() {
        let packet = |hop_limit| build::ipv6("2001:db8:1::7", "2001:db8:9::1").hop_limit(hop_limit);
        let syn = |mss| build::tcp(5000, 443).syn().mss(mss);
        let (before, after) = (packet(64).tcp(syn(1460)), packet(63).tcp(syn(1400)));
        let over4 = build::ipv4("10.200.0.1", "10.100.0.1")
            .gre(build::gre().protocol(gre::PROTOCOL_IPV6), &before);
        let told = words(&over4, &after).unwrap();
        let parts = "tunnel GRE -> none, hop limit 64 -> 63, mss 1460 -> 1400, tcp checksum ";
        assert!(told.starts_with(parts), "{told}");
        let over6 = |inner: &[u8], protocol| {
            build::ipv6("2001:db8:e::1", "2001:db8:64::1")
                .gre(build::gre().protocol(protocol), inner)
        };
        let told = words(&after, &over6(&before, gre::PROTOCOL_IPV6)).unwrap();
        assert!(
            told.starts_with("tunnel none -> GRE over IPv6, hop limit 63 -> 64, mss"),
            "{told}"
        );
        let udp = build::ipv4("192.0.2.1", "192.0.2.2").udp(1, 2, b"x");
        let told = words(&over6(&udp, gre::PROTOCOL_IPV4), &udp).unwrap();
        assert_eq!(told, "tunnel GRE over IPv6 -> none");
        assert_eq!(words(&before, &udp), None, "another family");
        let echo = |identifier| packet(64).icmp6_echo_request(identifier, 1, b"x");
        let told = words(&echo(7), &echo(8)).unwrap();
        assert!(told.starts_with("identifier 7 -> 8, icmp checksum "), "{told}");
    }

    #[test]
    fn fragments_of_ipv6_are_compared_as_far_as_they_have_headers() {
        let packet = || build::ipv6("2001:db8:1::7", "2001:db8:9::1");
        let pieces = build::fragments6(packet().udp(1, 2, [7; 200]), 160, 9);
        let of_others = build::fragments6(packet().hop_limit(9).udp(1, 2, [7; 200]), 160, 5);
        let told = words(&pieces[1], &of_others[1]).unwrap();
        let offset = told.split_once("fragment 9@").unwrap().1;
        assert!(told.starts_with("hop limit 64 -> 9, fragment 9@"), "{told}");
        assert!(offset.contains(" -> 5@") && !told.contains("checksum"), "{told}");
        assert_eq!(words(&pieces[0], &pieces[1]), None, "a later fragment has no ports");
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
