//! The description of IPv6 and ICMPv6.

use super::{DescriptionLine, enter, write_endpoints, write_malformed, write_transport};
use crate::icmp6::{self, Icmp6};
use crate::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::{self, Ipv6, PROTOCOL_ICMPV6, PROTOCOL_NONE, UpperLayer};
use crate::ndp::{self, NdpKind, NdpMessage, NeighborAdvertisement, NeighborSolicitation};
use crate::ports;
use core::fmt::{self, Write};
use core::net::Ipv6Addr;

pub(super) fn write_ipv6_packet(line: &mut DescriptionLine, bytes: &[u8]) -> fmt::Result {
    match ipv6::parse(bytes) {
        Ok((header, total_length)) => write_ipv6(line, header, bytes, total_length),
        Err(why) => write_malformed(line, "ipv6", why, bytes),
    }
}

/// Describes a packet quoted in an ICMPv6 error, which may be truncated.
fn write_quoted(line: &mut DescriptionLine, bytes: &[u8]) -> fmt::Result {
    match ipv6::parse_quoted(bytes) {
        Ok((header, total_length)) => write_ipv6(line, header, bytes, total_length),
        Err(why) => write_malformed(line, "ipv6", why, bytes),
    }
}

/// `total_length` = bytes of the packet according to the header; `bytes` may be shorter.
fn write_ipv6(
    line: &mut DescriptionLine,
    header: &Ipv6,
    bytes: &[u8],
    total_length: usize,
) -> fmt::Result {
    if !enter(line)? {
        return Ok(());
    }
    let walked = ipv6::walk(bytes, total_length);
    let present = &bytes[..bytes.len().min(total_length)];
    let payload = match &walked {
        Ok(upper) => present.get(upper.offset..).unwrap_or_default(),
        Err(_) => &[],
    };
    let has_ports = walked.as_ref().is_ok_and(|upper| {
        matches!(upper.protocol, PROTOCOL_TCP | PROTOCOL_UDP) && upper.has_header()
    });
    let ports = ports::parse(payload).ok().filter(|_| has_ports);
    let [source, destination] =
        [header.source, header.destination].map(|address| Ipv6Addr::from(address.get()).into());
    write_endpoints(line, source, destination, ports)?;
    write!(line, " hlim {} ", header.hop_limit)?;
    match walked {
        Ok(upper) => write_upper(line, header, &upper, payload, total_length - upper.offset),
        Err(why) => write_malformed(line, "ipv6", why, present),
    }
}

fn write_upper(
    line: &mut DescriptionLine,
    header: &Ipv6,
    upper: &UpperLayer,
    payload: &[u8],
    whole_len: usize,
) -> fmt::Result {
    if upper.has_authentication {
        line.write_str("ah ")?;
    }
    if let Some(fragment) = upper.fragment {
        let more = if fragment.more_fragments { "+" } else { "" };
        write!(line, "fragment {}@{}{more} ", fragment.identification, fragment.offset)?;
    }
    match upper.protocol {
        protocol if !upper.has_header() => write!(line, "protocol {protocol}, {whole_len} bytes"),
        PROTOCOL_ICMPV6 => write_icmp6(line, header, payload, whole_len),
        PROTOCOL_NONE => line.write_str("no next header"),
        protocol => write_transport(line, protocol, payload, whole_len),
    }
}

fn write_icmp6(
    line: &mut DescriptionLine,
    ip: &Ipv6,
    payload: &[u8],
    whole_len: usize,
) -> fmt::Result {
    let header = match icmp6::parse(payload) {
        Ok(header) => header,
        Err(why) => return write_malformed(line, "icmp6", why, payload),
    };
    line.write_str("icmp6 ")?;
    let echo = format_args!("id {} seq {}", header.identifier(), header.sequence());
    match (header.kind, header.code) {
        (icmp6::ECHO_REQUEST, _) => write!(line, "echo request {echo}"),
        (icmp6::ECHO_REPLY, _) => write!(line, "echo reply {echo}"),
        (icmp6::DESTINATION_UNREACHABLE, code) => write!(line, "unreachable code {code}"),
        (icmp6::PACKET_TOO_BIG, _) => write!(line, "packet too big, mtu {}", header.mtu()),
        (icmp6::TIME_EXCEEDED, code) => write!(line, "time exceeded code {code}"),
        (icmp6::PARAMETER_PROBLEM, code) => {
            write!(line, "parameter problem code {code} at {}", header.pointer())
        }
        (kind, code) => match ndp::kind(kind) {
            // The checksum of a truncated quote cannot be right.
            Some(kind) if payload.len() < whole_len => line.write_str(name(kind)),
            Some(kind) => write_ndp(line, ip, kind, payload),
            None => write!(line, "type {kind} code {code}"),
        },
    }?;
    if icmp6::quotes_a_packet(header.kind) {
        line.write_str(" | ")?;
        write_quoted(line, &payload[Icmp6::LEN..])?;
    }
    Ok(())
}

const fn name(kind: NdpKind) -> &'static str {
    match kind {
        NdpKind::RouterSolicitation => "router solicitation",
        NdpKind::RouterAdvertisement => "router advertisement",
        NdpKind::NeighborSolicitation => "neighbor solicitation",
        NdpKind::NeighborAdvertisement => "neighbor advertisement",
        NdpKind::Redirect => "redirect",
    }
}

fn write_ndp(line: &mut DescriptionLine, ip: &Ipv6, kind: NdpKind, message: &[u8]) -> fmt::Result {
    match ndp::parse(ip, message) {
        Ok(NdpMessage::Solicitation(NeighborSolicitation { target, source_mac, .. })) => {
            write!(line, "who has {}", Ipv6Addr::from(target))?;
            source_mac.map_or(Ok(()), |mac| write!(line, ", tell {mac}"))
        }
        Ok(NdpMessage::Advertisement(NeighborAdvertisement { target, target_mac, .. })) => {
            write!(line, "{} is here", Ipv6Addr::from(target))?;
            target_mac.map_or(Ok(()), |mac| write!(line, ", at {mac}"))
        }
        Ok(NdpMessage::Other(kind)) => line.write_str(name(kind)),
        Err(why) => write_malformed(line, name(kind), why, message),
    }
}

#[cfg(test)]
mod tests {
    use crate::build::{self, ipv6};
    use crate::describe::{describe, describe_packet};
    use crate::ndp::NdpPacket;
    use crate::{gre, icmp6};

    fn packet() -> build::Ipv6Builder {
        ipv6("2001:db8::1", "2001:db8:1::2")
    }

    #[test]
    fn transport_is_described_with_bracketed_addresses_through_tunnels() {
        let query = packet().udp(40_000, 53, b"query");
        let line = "[2001:db8::1]:40000 > [2001:db8:1::2]:53 hlim 64 udp 5";
        assert_eq!(describe_packet(&query), line);
        let frame = build::ethernet6(build::mac(1), build::mac(2), &query);
        let link = "02:00:00:00:00:02 > 02:00:00:00:00:01";
        assert_eq!(describe(&frame), format!("{link} {line}"));
        let header = build::gre().protocol(gre::PROTOCOL_IPV6);
        let tunnelled = build::ipv4("10.0.0.1", "10.0.0.2").gre(header, &query);
        let outer = "10.0.0.1 > 10.0.0.2 ttl 64";
        assert_eq!(describe_packet(&tunnelled), format!("{outer} gre | {line}"));
        let outer = "2001:db8::1 > 2001:db8:1::2 hlim 64";
        let tunnelled = packet().gre(header, &query);
        assert_eq!(describe_packet(&tunnelled), format!("{outer} gre | {line}"));
        assert_eq!(describe_packet(&packet().ipv6(&query)), format!("{outer} ipv6 | {line}"));
        let inner = build::ipv4("10.0.0.1", "10.0.0.2").icmp_echo_request(1, 2, b"");
        let dslite = format!("{outer} ipip | {}", describe_packet(&inner));
        assert_eq!(describe_packet(&packet().ipip(inner)), dslite);
    }

    #[test]
    fn extension_headers_are_described_by_what_they_change() {
        let syn = || build::tcp(4, 5).syn().mss(1440);
        let first = packet().authentication(12).fragment(7, 0, true).tcp(syn());
        let line = "[2001:db8::1]:4 > [2001:db8:1::2]:5 hlim 64 ah fragment 7@0+ \
                    tcp S seq 0 ack 0 mss 1440 len 0";
        assert_eq!(describe_packet(&first), line);
        let later = packet().fragment(7, 1232, false).payload(6, [0; 9]);
        let line = "2001:db8::1 > 2001:db8:1::2 hlim 64 fragment 7@1232 protocol 6, 9 bytes";
        assert_eq!(describe_packet(&later), line);
        let refused = packet().routing(0, 1, &[0; 20]).tcp(syn());
        let line = "2001:db8::1 > 2001:db8:1::2 hlim 64 [ipv6 routing header of type 0, 88 bytes]";
        assert_eq!(describe_packet(&refused), line);
        assert_eq!(
            describe_packet(&packet().payload(59, [])),
            "2001:db8::1 > 2001:db8:1::2 hlim 64 no next header"
        );
        assert_eq!(describe_packet(&refused[..39]), "[ipv6 truncated, 39 bytes]");
    }

    #[test]
    fn errors_are_described_with_their_quote() {
        let big = packet().udp(4, 5, vec![0; 2000]);
        let error = ipv6("2001:db8::9", "2001:db8::1").packet_too_big(1400, &big);
        let line = "2001:db8::9 > 2001:db8::1 hlim 64 icmp6 packet too big, mtu 1400 | \
                    [2001:db8::1]:4 > [2001:db8:1::2]:5 hlim 64 udp 2000";
        assert_eq!(describe_packet(&error), line);
        let named = |kind, code| {
            let error = packet().icmp6_error(kind, code, [0, 0, 0, 6], []);
            describe_packet(&error).split(" icmp6 ").nth(1).map(str::to_owned).unwrap()
        };
        let quote = "| [ipv6 truncated, 0 bytes]";
        assert_eq!(named(icmp6::DESTINATION_UNREACHABLE, 4), format!("unreachable code 4 {quote}"));
        assert_eq!(named(icmp6::TIME_EXCEEDED, 0), format!("time exceeded code 0 {quote}"));
        let line = format!("parameter problem code 1 at 6 {quote}");
        assert_eq!(named(icmp6::PARAMETER_PROBLEM, 1), line);
        assert_eq!(named(143, 0), "type 143 code 0");
        let echo = describe_packet(&packet().icmp6_echo_reply(7, 8, b"x"));
        assert!(echo.ends_with("icmp6 echo reply id 7 seq 8"), "{echo}");
    }

    #[test]
    fn neighbor_discovery_is_described_by_its_target() {
        let target = 0x2001_0db8_0000_0000_0000_0000_0000_0005;
        let question = NdpPacket::solicitation(0xfe80 << 112 | 1, build::mac(1), target);
        let line = "fe80::1 > ff02::1:ff00:5 hlim 255 icmp6 who has 2001:db8::5, tell \
                    02:00:00:00:00:01";
        assert_eq!(describe_packet(question.as_bytes()), line);
        let answer = NdpPacket::unsolicited(target, build::mac(2), true);
        let line = "2001:db8::5 > ff02::1 hlim 255 icmp6 2001:db8::5 is here, at \
                    02:00:00:00:00:02";
        assert_eq!(describe_packet(answer.as_bytes()), line);
        let far = packet().icmp6(icmp6::NEIGHBOR_SOLICITATION, 0, [0; 4], [0; 16]);
        let line = "[neighbor solicitation hop limit is not 255, 24 bytes]";
        assert!(describe_packet(&far).ends_with(line));
        let router = packet().hop_limit(255).icmp6(icmp6::ROUTER_ADVERTISEMENT, 0, [0; 4], [0; 8]);
        assert!(describe_packet(&router).ends_with("icmp6 router advertisement"));
        let quoted = packet().time_exceeded(&question.as_bytes()[..60]);
        assert!(describe_packet(&quoted).ends_with("hlim 255 icmp6 neighbor solicitation"));
    }
}
