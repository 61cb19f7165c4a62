//! Packets of the homes' flows: built, and read where they arrive.

use std::net::{Ipv4Addr, SocketAddrV4};

use weir_nat::{Endpoint, Protocol};
use weir_wire::{build, gre, icmp, ipv4, tcp, udp};

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
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
    pub(super) flags: u8,
    pub(super) mark: Mark,
}

pub(super) fn show(endpoint: Endpoint) -> SocketAddrV4 {
    SocketAddrV4::new(endpoint.address.into(), endpoint.port)
}

/// Builds a packet. `flags` are those of a TCP segment, or the type of an ICMP query, whose
/// identifier is the source port of a request and the destination port of a reply; the other port
/// is 0.
pub(super) fn build(
    protocol: Protocol,
    from: Endpoint,
    to: Endpoint,
    flags: u8,
    mark: Mark,
) -> Vec<u8> {
    let ip = build::ipv4(from.address, to.address);
    match protocol {
        Protocol::Udp => ip.udp(from.port, to.port, mark.bytes()),
        Protocol::Tcp => ip.tcp(build::tcp(from.port, to.port).flags(flags).payload(mark.bytes())),
        Protocol::Icmp => {
            let identifier = if flags == icmp::ECHO_REQUEST { from.port } else { to.port };
            let [a, b] = identifier.to_be_bytes();
            ip.icmp(flags, 0, [a, b, 0, 0], mark.bytes())
        }
    }
}

/// Whether a packet is an ICMP error, or a TCP reset from the forbidden address.
pub(super) fn is_refusal(packet: &[u8]) -> bool {
    let Ok((ip, header_len, total)) = ipv4::parse(packet) else { return false };
    match ip.protocol {
        ipv4::PROTOCOL_ICMP => true,
        ipv4::PROTOCOL_TCP if ip.source.get() == site::FORBIDDEN.to_bits() => {
            let header = tcp::parse(&packet[header_len..total]);
            header.is_ok_and(|header| header.flags & tcp::RST != 0)
        }
        _ => false,
    }
}

/// Parses a packet; `None` for an ICMP error, an unknown packet, or one without a mark.
pub(super) fn read(packet: &[u8]) -> Option<Seen> {
    let (ip, header_len, total) = ipv4::parse(packet).ok()?;
    let rest = &packet[header_len..total];
    let protocol = Protocol::from_number(ip.protocol)?;
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
            let header = icmp::parse(rest).ok()?;
            let ports = match header.kind {
                icmp::ECHO_REQUEST => (header.identifier(), 0),
                icmp::ECHO_REPLY => (0, header.identifier()),
                _ => return None,
            };
            (ports, header.kind, &rest[icmp::Icmp::LEN..])
        }
    };
    let mark = Mark::of(payload)?;
    let from = Endpoint::new(ip.source.get(), ports.0);
    let to = Endpoint::new(ip.destination.get(), ports.1);
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
        for (protocol, flags, ports) in kinds {
            let from = Endpoint::new(0x0a00_0001, ports.0);
            let to = Endpoint::new(0x0a00_0002, ports.1);
            let packet = build(protocol, from, to, flags, mark);
            assert_eq!(read(&packet), Some(Seen { protocol, from, to, flags, mark }));
            let tunnel = build::ipv4("10.9.0.1", "10.9.0.2").gre(build::gre(), &packet);
            let (source, destination, inner) = decapsulate(&tunnel).unwrap();
            assert_eq!((source.octets()[3], destination.octets()[3]), (1, 2));
            assert_eq!(inner, packet);
        }
    }
}
