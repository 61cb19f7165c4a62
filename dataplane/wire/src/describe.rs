//! One line per packet, like tcpdump: for `weir trace` and for test failures. Allocates.
//!
//! ```
//! use weir_wire::{build, describe::describe_packet};
//! let query = build::ipv4("192.168.1.10", "198.51.100.53").udp(40_000, 53, b"query");
//! let tunnelled = build::ipv4("10.200.0.7", "10.100.0.1").gre(build::gre().key(7), query);
//! assert_eq!(
//!     describe_packet(&tunnelled),
//!     "10.200.0.7 > 10.100.0.1 ttl 64 gre key 7 | \
//!      192.168.1.10:40000 > 198.51.100.53:53 ttl 64 udp 5"
//! );
//! ```

use crate::ethernet::{
    self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, Ethernet, Vlan,
};
use crate::ipv4::{Ipv4, PROTOCOL_GRE, PROTOCOL_ICMP, PROTOCOL_IPIP, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::PROTOCOL_IPV6;
use crate::ports::TransportPorts;
use crate::{arp, gre, icmp, ipv4, ports, tcp, udp};
use core::fmt::{self, Display, Write};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use ipv6::write_ipv6_packet;

mod ipv6;

/// Describes an Ethernet frame, through tags, tunnels and quotes; bytes that cannot be parsed are
/// reported in the text, never by a panic.
pub fn describe(frame: &[u8]) -> String {
    into_line(|line| write_frame(line, frame))
}

/// Describes an IPv6 packet, or an IPv4 packet if the version is not 6, in the same way.
pub fn describe_packet(packet: &[u8]) -> String {
    into_line(|line| match packet.first() {
        Some(first) if first >> 4 == 6 => write_ipv6_packet(line, packet),
        _ => write_packet(line, packet),
    })
}

/// Largest number of nested packets that are described; deeper ones are only mentioned. Bounds the
/// recursion for hostile frames.
const DEPTH_MAX: u32 = 8;

struct DescriptionLine {
    text: String,
    depth: u32,
}

impl Write for DescriptionLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.write_str(text)
    }
}

fn into_line(write: impl FnOnce(&mut DescriptionLine) -> fmt::Result) -> String {
    let mut line = DescriptionLine { text: String::new(), depth: 0 };
    write(&mut line).expect("writing to a String does not fail");
    line.text
}

fn write_malformed(
    line: &mut DescriptionLine,
    layer: &str,
    why: impl Display,
    bytes: &[u8],
) -> fmt::Result {
    write!(line, "[{layer} {why}, {} bytes]", bytes.len())
}

fn write_frame(line: &mut DescriptionLine, frame: &[u8]) -> fmt::Result {
    let header = match ethernet::parse(frame) {
        Ok(header) => header,
        Err(why) => return write_malformed(line, "ethernet", why, frame),
    };
    write!(line, "{} > {} ", header.source, header.destination)?;
    let mut payload = &frame[Ethernet::LEN..];
    let mut ethertype = header.ethertype.get();
    while ethertype == ETHERTYPE_VLAN {
        match ethernet::parse_vlan(payload) {
            Ok(tag) => write!(line, "vlan {} ", tag.id())?,
            Err(why) => return write_malformed(line, "vlan", why, payload),
        }
        ethertype = u16::from_be_bytes([payload[2], payload[3]]);
        payload = &payload[Vlan::LEN..];
    }
    match ethertype {
        ETHERTYPE_IPV4 => write_packet(line, payload),
        ETHERTYPE_ARP => write_arp(line, payload),
        ETHERTYPE_IPV6 => write_ipv6_packet(line, payload),
        other => write!(line, "ethertype {other:#06x}, {} bytes", payload.len()),
    }
}

fn write_arp(line: &mut DescriptionLine, bytes: &[u8]) -> fmt::Result {
    let arp = match arp::parse(bytes) {
        Ok(arp) => arp,
        Err(why) => return write_malformed(line, "arp", why, bytes),
    };
    let sender = Ipv4Addr::from(arp.sender_ip.get());
    let target = Ipv4Addr::from(arp.target_ip.get());
    match arp.operation.get() {
        _ if !arp.is_valid_ipv4_ethernet() => {
            write!(line, "arp of another kind, {} bytes", bytes.len())
        }
        arp::REQUEST => write!(line, "arp who has {target}, tell {sender}"),
        arp::REPLY => write!(line, "arp {sender} is at {}", arp.sender_mac),
        other => write!(line, "arp operation {other}"),
    }
}

fn write_packet(line: &mut DescriptionLine, bytes: &[u8]) -> fmt::Result {
    match ipv4::parse(bytes) {
        Ok((header, header_len, total_length)) => {
            write_ipv4(line, header, &bytes[header_len..total_length], total_length - header_len)
        }
        Err(why) => write_malformed(line, "ipv4", why, bytes),
    }
}

/// Describes a packet quoted in an ICMP error, which may be truncated.
fn write_quoted(line: &mut DescriptionLine, bytes: &[u8]) -> fmt::Result {
    match ipv4::parse_quoted(bytes) {
        Ok((header, header_len, total_length)) => {
            let payload = &bytes[header_len..total_length.min(bytes.len())];
            write_ipv4(line, header, payload, total_length - header_len)
        }
        Err(why) => write_malformed(line, "ipv4", why, bytes),
    }
}

/// `whole_len` = bytes of the payload according to the header; `payload` may be shorter.
fn write_ipv4(
    line: &mut DescriptionLine,
    header: &Ipv4,
    payload: &[u8],
    whole_len: usize,
) -> fmt::Result {
    if !enter(line)? {
        return Ok(());
    }
    let has_ports =
        matches!(header.protocol, PROTOCOL_TCP | PROTOCOL_UDP) && header.fragment_offset() == 0;
    let ports = ports::parse(payload).ok().filter(|_| has_ports);
    let [source, destination] =
        [header.source, header.destination].map(|address| Ipv4Addr::from(address.get()).into());
    write_endpoints(line, source, destination, ports)?;
    write!(line, " ttl {} ", header.ttl)?;
    if header.dont_fragment() {
        line.write_str("df ")?;
    }
    if header.is_fragment() {
        let more = if header.more_fragments() { "+" } else { "" };
        write!(line, "fragment {}@{}{more} ", header.identification, header.fragment_offset())?;
    }
    if header.fragment_offset() > 0 {
        return write!(line, "protocol {}, {whole_len} bytes", header.protocol);
    }
    match header.protocol {
        PROTOCOL_ICMP => write_icmp(line, payload),
        protocol => write_transport(line, protocol, payload, whole_len),
    }
}

/// Counts a nested packet; `false` and only a mention if it is too deep.
fn enter(line: &mut DescriptionLine) -> Result<bool, fmt::Error> {
    line.depth += 1;
    if line.depth > DEPTH_MAX {
        line.write_str("...")?;
    }
    Ok(line.depth <= DEPTH_MAX)
}

/// Writes addresses, with ports if there are any.
fn write_endpoints(
    line: &mut DescriptionLine,
    source: IpAddr,
    destination: IpAddr,
    ports: Option<&TransportPorts>,
) -> fmt::Result {
    match ports {
        Some(ports) => {
            let source = SocketAddr::new(source, ports.source.get());
            let destination = SocketAddr::new(destination, ports.destination.get());
            write!(line, "{source} > {destination}")
        }
        None => write!(line, "{source} > {destination}"),
    }
}

/// Describes what both families of IP can have as their payload.
fn write_transport(
    line: &mut DescriptionLine,
    protocol: u8,
    payload: &[u8],
    whole_len: usize,
) -> fmt::Result {
    match protocol {
        PROTOCOL_UDP => write_udp(line, payload),
        PROTOCOL_TCP => write_tcp(line, payload, whole_len),
        PROTOCOL_GRE => write_gre(line, payload),
        PROTOCOL_IPIP => {
            line.write_str("ipip | ")?;
            write_packet(line, payload)
        }
        PROTOCOL_IPV6 => {
            line.write_str("ipv6 | ")?;
            write_ipv6_packet(line, payload)
        }
        other => write!(line, "protocol {other}, {whole_len} bytes"),
    }
}

fn write_udp(line: &mut DescriptionLine, payload: &[u8]) -> fmt::Result {
    match udp::parse_header(payload) {
        Ok(header) => {
            write!(line, "udp {}", header.length.get().saturating_sub(udp::Udp::LEN as u16))
        }
        Err(why) => write_malformed(line, "udp", why, payload),
    }
}

fn write_tcp(line: &mut DescriptionLine, payload: &[u8], whole_len: usize) -> fmt::Result {
    let header = match tcp::parse(payload) {
        Ok(header) => header,
        Err(why) => return write_malformed(line, "tcp", why, payload),
    };
    line.write_str("tcp ")?;
    let flags = [
        (tcp::SYN, 'S'),
        (tcp::FIN, 'F'),
        (tcp::RST, 'R'),
        (tcp::PSH, 'P'),
        (tcp::ACK, '.'),
        (tcp::URG, 'U'),
    ];
    line.text.extend(flags.iter().filter(|(flag, _)| header.has(*flag)).map(|(_, letter)| letter));
    write!(line, " seq {} ack {}", header.sequence, header.acknowledgment)?;
    if let Some(mss) = tcp::mss(payload) {
        write!(line, " mss {mss}")?;
    }
    write!(line, " len {}", whole_len.saturating_sub(header.header_len()))
}

fn write_icmp(line: &mut DescriptionLine, payload: &[u8]) -> fmt::Result {
    let header = match icmp::parse(payload) {
        Ok(header) => header,
        Err(why) => return write_malformed(line, "icmp", why, payload),
    };
    let query = format_args!("id {} seq {}", header.identifier(), header.sequence());
    match (header.kind, header.code) {
        (icmp::ECHO_REQUEST, _) => write!(line, "icmp echo request {query}"),
        (icmp::ECHO_REPLY, _) => write!(line, "icmp echo reply {query}"),
        (icmp::TIMESTAMP_REQUEST, _) => write!(line, "icmp timestamp request {query}"),
        (icmp::TIMESTAMP_REPLY, _) => write!(line, "icmp timestamp reply {query}"),
        (icmp::DESTINATION_UNREACHABLE, icmp::CODE_FRAGMENTATION_NEEDED) => {
            write!(line, "icmp fragmentation needed, mtu {}", header.next_hop_mtu())
        }
        (icmp::DESTINATION_UNREACHABLE, code) => write!(line, "icmp unreachable code {code}"),
        (icmp::TIME_EXCEEDED, code) => write!(line, "icmp time exceeded code {code}"),
        (kind, code) => write!(line, "icmp type {kind} code {code}"),
    }?;
    if icmp::is_error(header.kind) {
        line.write_str(" | ")?;
        write_quoted(line, &payload[icmp::Icmp::LEN..])?;
    }
    Ok(())
}

fn write_gre(line: &mut DescriptionLine, payload: &[u8]) -> fmt::Result {
    let header = match gre::parse(payload) {
        Ok(header) => header,
        Err(why) => return write_malformed(line, "gre", why, payload),
    };
    line.write_str("gre")?;
    if let Some(key) = header.key {
        write!(line, " key {key}")?;
    }
    if let Some(sequence) = header.sequence {
        write!(line, " seq {sequence}")?;
    }
    if header.has_checksum {
        line.write_str(" checksum")?;
    }
    let inner = &payload[header.len..];
    match header.protocol {
        gre::PROTOCOL_KEEPALIVE => write!(line, " keepalive, {} bytes", inner.len()),
        gre::PROTOCOL_IPV4 => {
            line.write_str(" | ")?;
            write_packet(line, inner)
        }
        gre::PROTOCOL_IPV6 => {
            line.write_str(" | ")?;
            write_ipv6_packet(line, inner)
        }
        other => write!(line, " protocol {other:#06x}, {} bytes", inner.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arp::Arp;
    use crate::build;

    #[test]
    fn frames_are_described_by_kind() {
        let (gateway, worker) = (build::mac(1), build::mac(2));
        let syn = build::ipv4("10.0.0.1", "10.0.0.2")
            .df(true)
            .tcp(build::tcp(4, 5).syn().sequence(9).mss(1460));
        assert_eq!(
            describe(&build::vlan(7, build::ethernet(gateway, worker, syn))),
            "02:00:00:00:00:02 > 02:00:00:00:00:01 vlan 7 10.0.0.1:4 > 10.0.0.2:5 ttl 64 df tcp S seq 9 ack 0 mss 1460 len 0"
        );
        assert_eq!(
            describe(&build::arp(Arp::request(worker, 0x0a00_0001, 0x0a00_0002))),
            "02:00:00:00:00:02 > ff:ff:ff:ff:ff:ff arp who has 10.0.0.2, tell 10.0.0.1"
        );
        assert_eq!(describe(&[1, 2]), "[ethernet truncated, 2 bytes]");
    }

    #[test]
    fn shows_the_quoted_packet_of_an_error() {
        let lost = build::ipv4("10.0.0.1", "10.0.0.2").ttl(1).udp(4, 5, [0; 1000]);
        assert_eq!(
            describe_packet(&build::ipv4("10.9.9.9", "10.0.0.1").icmp_error(
                3,
                4,
                [0, 0, 5, 196],
                &lost
            )),
            "10.9.9.9 > 10.0.0.1 ttl 64 icmp fragmentation needed, mtu 1476 | 10.0.0.1:4 > 10.0.0.2:5 ttl 1 udp 1000"
        );
    }

    #[test]
    fn fragment_is_described_with_its_offset() {
        let whole = build::ipv4("10.0.0.1", "10.0.0.2").identification(3).udp(4, 5, [0; 1000]);
        let lines: Vec<String> =
            build::fragments(whole, 620).iter().map(|part| describe_packet(part)).collect();
        assert_eq!(
            lines,
            [
                "10.0.0.1:4 > 10.0.0.2:5 ttl 64 fragment 3@0+ udp 1000",
                "10.0.0.1 > 10.0.0.2 ttl 64 fragment 3@600 protocol 17, 408 bytes",
            ]
        );
    }

    #[test]
    fn description_stops_at_the_depth_limit_of_nested_tunnels() {
        let inner = build::ipv4("10.0.0.1", "10.0.0.2").udp(4, 5, b"x");
        let nested = (0..1000)
            .fold(inner, |packet, _| build::ipv4("10.0.0.1", "10.0.0.2").gre(build::gre(), packet));
        let line = describe_packet(&nested);
        assert!(line.ends_with("gre | ..."), "{line}");
    }
}
