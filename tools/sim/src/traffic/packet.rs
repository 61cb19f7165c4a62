//! Packets of the homes' flows: built, and read where they arrive.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_nat::Protocol;
use weir_wire::{build, gre, icmp, icmp6, ipv4, ipv6, tcp, udp};

use crate::site;

/// The content of every packet: its flow, and its number in the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) flow: u32,
    pub(super) number: u32,
}

impl Mark {
    /// Mark of an unsolicited packet.
    pub(super) const PROBE: Self = Self { flow: u32::MAX, number: 0 };
    /// Mark of a home's packet that the rules refuse.
    pub(super) const FORBIDDEN: Self = Self { flow: u32::MAX - 1, number: 0 };
    /// Mark of a packet that a home sends with the address of another one.
    pub(super) const FORGED: Self = Self { flow: u32::MAX - 2, number: 0 };

    fn bytes(self) -> [u8; 8] {
        (u64::from(self.flow) << 32 | u64::from(self.number)).to_be_bytes()
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let word = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
        Some(Self { flow: (word >> 32) as u32, number: word as u32 })
    }
}

/// A packet as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) protocol: Protocol,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) flags: u8,
    pub(super) mark: Mark,
}

/// Builds a packet between endpoints of one family. `flags` are those of a TCP segment, or the type
/// of an ICMP query as in IPv4, whose identifier is the source port of a request and the
/// destination port of a reply; the other port is 0.
pub(super) fn build(
    protocol: Protocol,
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    mark: Mark,
) -> Vec<u8> {
    let ports = (from.port(), to.port());
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            build4(protocol, build::ipv4(from, to), ports, flags, mark)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            build6(protocol, build::ipv6(from, to), ports, flags, mark)
        }
        _ => panic!("{from} and {to} are of one family"),
    }
}

fn build4(
    protocol: Protocol,
    ip: build::Ipv4Builder,
    (from, to): (u16, u16),
    flags: u8,
    mark: Mark,
) -> Vec<u8> {
    match protocol {
        Protocol::Udp => ip.udp(from, to, mark.bytes()),
        Protocol::Tcp => ip.tcp(build::tcp(from, to).flags(flags).payload(mark.bytes())),
        Protocol::Icmp => {
            let identifier = if flags == icmp::ECHO_REQUEST { from } else { to };
            let [a, b] = identifier.to_be_bytes();
            ip.icmp(flags, 0, [a, b, 0, 0], mark.bytes())
        }
    }
}

fn build6(
    protocol: Protocol,
    ip: build::Ipv6Builder,
    (from, to): (u16, u16),
    flags: u8,
    mark: Mark,
) -> Vec<u8> {
    match protocol {
        Protocol::Udp => ip.udp(from, to, mark.bytes()),
        Protocol::Tcp => ip.tcp(build::tcp(from, to).flags(flags).payload(mark.bytes())),
        Protocol::Icmp if flags == icmp::ECHO_REQUEST => {
            ip.icmp6_echo_request(from, 0, mark.bytes())
        }
        Protocol::Icmp => ip.icmp6_echo_reply(to, 0, mark.bytes()),
    }
}

/// Puts a packet into the tunnel between two addresses.
pub(super) fn encapsulate(from: Ipv4Addr, to: Ipv4Addr, inner: &[u8]) -> Vec<u8> {
    let protocol = if ipv6::parse(inner).is_ok() { gre::PROTOCOL_IPV6 } else { gre::PROTOCOL_IPV4 };
    build::ipv4(from, to).gre(build::gre().protocol(protocol), inner)
}

/// The network header of a packet, as far as both families have it.
struct Network<'a> {
    protocol: Protocol,
    from: IpAddr,
    to: IpAddr,
    rest: &'a [u8],
}

impl<'a> Network<'a> {
    fn read(packet: &'a [u8]) -> Option<Self> {
        if let Ok((ip, header_len, total)) = ipv4::parse(packet) {
            let [from, to] = [ip.source, ip.destination].map(|it| Ipv4Addr::from_bits(it.get()));
            let protocol = Protocol::from_number(ip.protocol)?;
            let (from, to, rest) = (from.into(), to.into(), &packet[header_len..total]);
            return Some(Self { protocol, from, to, rest });
        }
        let (ip, total) = ipv6::parse(packet).ok()?;
        let [from, to] = [ip.source, ip.destination].map(|it| Ipv6Addr::from_bits(it.get()));
        let protocol = match ip.next_header {
            ipv6::PROTOCOL_ICMPV6 => Protocol::Icmp,
            other => Protocol::from_number(other).filter(|it| *it != Protocol::Icmp)?,
        };
        let rest = &packet[ipv6::Ipv6::LEN..total];
        Some(Self { protocol, from: from.into(), to: to.into(), rest })
    }

    /// Returns the identifier of an ICMP query, and its type as in IPv4.
    fn query(&self) -> Option<(u16, u8)> {
        let header = icmp::parse(self.rest).ok()?;
        let kind = match (self.from, header.kind) {
            (IpAddr::V4(_), kind) => kind,
            (IpAddr::V6(_), icmp6::ECHO_REQUEST) => icmp::ECHO_REQUEST,
            (IpAddr::V6(_), icmp6::ECHO_REPLY) => icmp::ECHO_REPLY,
            (IpAddr::V6(_), _) => return None,
        };
        Some((header.identifier(), kind))
    }
}

/// Whether a packet is an ICMP error, or a TCP reset from a forbidden address.
pub(super) fn is_refusal(packet: &[u8]) -> bool {
    let Some(Network { protocol, from, rest, .. }) = Network::read(packet) else { return false };
    match protocol {
        Protocol::Icmp => true,
        Protocol::Tcp
            if [site::FORBIDDEN.into(), IpAddr::from(site::FORBIDDEN6)].contains(&from) =>
        {
            tcp::parse(rest).is_ok_and(|header| header.flags & tcp::RST != 0)
        }
        _ => false,
    }
}

/// Parses a packet; `None` for an ICMP error, an unknown packet, or one without a mark.
pub(super) fn read(packet: &[u8]) -> Option<Seen> {
    let network = Network::read(packet)?;
    let Network { protocol, from, to, rest } = network;
    let (ports, flags, payload) = match protocol {
        Protocol::Udp => {
            let header = udp::parse(rest).ok()?;
            ((header.source_port.get(), header.destination_port.get()), 0, &rest[8..])
        }
        Protocol::Tcp => {
            let header = tcp::parse(rest).ok()?;
            let ports = (header.source_port.get(), header.destination_port.get());
            (ports, header.flags, &rest[header.header_len()..])
        }
        Protocol::Icmp => {
            let (identifier, kind) = network.query()?;
            let ports = match kind {
                icmp::ECHO_REQUEST => (identifier, 0),
                icmp::ECHO_REPLY => (0, identifier),
                _ => return None,
            };
            (ports, kind, &rest[icmp::Icmp::LEN..])
        }
    };
    let mark = Mark::of(payload)?;
    let (from, to) = (SocketAddr::new(from, ports.0), SocketAddr::new(to, ports.1));
    Some(Seen { protocol, from, to, flags, mark })
}

/// Returns both ends of a tunnel, and the packet in it.
pub(super) fn decapsulate(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, &[u8])> {
    let (ip, header_len, total) = ipv4::parse(packet).ok()?;
    if ip.protocol != ipv4::PROTOCOL_GRE {
        return None;
    }
    let header = gre::parse(&packet[header_len..total]).ok()?;
    let inner = &packet[header_len + header.len..total];
    Some((ip.source.get().into(), ip.destination.get().into(), inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_packet_is_parsed_to_the_same() {
        let mark = Mark { flow: 7, number: 9 };
        let kinds = [
            (Protocol::Udp, 0, (5, 6)),
            (Protocol::Tcp, tcp::SYN, (5, 6)),
            (Protocol::Icmp, icmp::ECHO_REQUEST, (5, 0)),
            (Protocol::Icmp, icmp::ECHO_REPLY, (0, 6)),
        ];
        let families = [["10.0.0.1", "10.0.0.2"], ["2001:db8::1", "2001:db8::2"]];
        for ((protocol, flags, ports), addresses) in
            kinds.iter().flat_map(|kind| families.map(|family| (*kind, family)))
        {
            let [from, to] = addresses.map(|text| text.parse().unwrap());
            let (from, to) = (SocketAddr::new(from, ports.0), SocketAddr::new(to, ports.1));
            let packet = build(protocol, from, to, flags, mark);
            weir_wire::verify::packet(&packet).unwrap();
            assert_eq!(read(&packet), Some(Seen { protocol, from, to, flags, mark }));
            let ends = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];
            let tunnel = encapsulate(ends[0], ends[1], &packet);
            weir_wire::verify::packet(&tunnel).unwrap();
            assert_eq!(decapsulate(&tunnel), Some((ends[0], ends[1], &packet[..])));
        }
    }
}
