//! Valid outer layers for a hostile inner one: random bytes alone seldom pass even an ethertype.

use weir_wire::build;
use weir_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use weir_wire::gre;
use weir_wire::ipv4::{PROTOCOL_GRE, PROTOCOL_ICMP, PROTOCOL_IPIP, PROTOCOL_TCP, PROTOCOL_UDP};
use weir_wire::ipv6::{PROTOCOL_DESTINATION_OPTIONS, PROTOCOL_ICMPV6, PROTOCOL_IPV6};

/// Longest payload in bytes: more do not fit in an IPv4 packet inside an IPv4 packet.
const PAYLOAD_MAX: usize = 60_000;

/// Returns `bytes` as an ARP packet, as an IPv4 and an IPv6 packet, as the payload of each protocol
/// that is parsed, and as tunnelled and quoted packets: frames that are valid down to that layer.
pub(crate) fn frames_around(bytes: &[u8]) -> Vec<Vec<u8>> {
    let bytes = &bytes[..bytes.len().min(PAYLOAD_MAX)];
    let ip = || build::ipv4("192.0.2.1", "198.51.100.1");
    let transports = [PROTOCOL_GRE, PROTOCOL_ICMP, PROTOCOL_IPIP, PROTOCOL_TCP, PROTOCOL_UDP];
    let mut packets: Vec<Vec<u8>> =
        transports.iter().map(|&protocol| ip().payload(protocol, bytes)).collect();
    packets.push(ip().gre(build::gre().key(7), bytes));
    packets.push(ip().icmp(weir_wire::icmp::TIME_EXCEEDED, 0, [0; 4], bytes));
    packets.push(bytes.to_vec());
    let frame = |ethertype, packet: &[u8]| {
        build::ethernet_of(ethertype, build::mac(1), build::mac(2), packet)
    };
    let mut frames: Vec<Vec<u8>> =
        packets.iter().map(|packet| frame(ETHERTYPE_IPV4, packet)).collect();
    frames.push(frame(ETHERTYPE_ARP, bytes));
    let tagged = build::vlan(7, &frames[0]);
    frames.push(tagged);
    frames.extend(packets6_around(bytes).iter().map(|packet| frame(ETHERTYPE_IPV6, packet)));
    frames
}

/// Returns `bytes` as an IPv6 packet and as the payload of one.
fn packets6_around(bytes: &[u8]) -> Vec<Vec<u8>> {
    let ip = || build::ipv6("2001:db8::1", "2001:db8:1::2");
    let protocols = [
        PROTOCOL_DESTINATION_OPTIONS,
        PROTOCOL_GRE,
        PROTOCOL_ICMPV6,
        PROTOCOL_IPIP,
        PROTOCOL_IPV6,
        PROTOCOL_TCP,
        PROTOCOL_UDP,
    ];
    let mut packets: Vec<Vec<u8>> =
        protocols.iter().map(|&protocol| ip().payload(protocol, bytes)).collect();
    packets.push(ip().gre(build::gre().protocol(gre::PROTOCOL_IPV6), bytes));
    packets.push(ip().fragment(7, 0, false).payload(PROTOCOL_ICMPV6, bytes));
    packets.push(ip().time_exceeded(bytes));
    let neighbor = [weir_wire::icmp6::NEIGHBOR_SOLICITATION, 136];
    packets.extend(neighbor.map(|kind| ip().hop_limit(255).icmp6(kind, 0, [0; 4], bytes)));
    packets.push(bytes.to_vec());
    packets
}
