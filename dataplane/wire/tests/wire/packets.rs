//! Generated packets, and ways to damage them.

use bolero::TypeGenerator;
use bolero::generator::*;
use weir_wire::build::{self, GreBuilder, Ipv4Builder};
use weir_wire::icmp;

/// Content of an IPv4 packet.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) enum Content {
    Udp { ports: (u16, u16), has_checksum: bool, payload: Vec<u8> },
    Tcp { ports: (u16, u16), flags: u8, sequence: u32, mss: Option<u16>, payload: Vec<u8> },
    Query { is_reply: bool, identifier: u16, sequence: u16, payload: Vec<u8> },
    Timestamp { identifier: u16, times: [u8; 12] },
    Error { kind: u8, mtu: u16, ports: (u16, u16), len: u8 },
    Other { protocol: u8, payload: Vec<u8> },
}

/// A tunnel header around the packet.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) struct Tunnel {
    pub(crate) addresses: (u32, u32),
    pub(crate) key: Option<u32>,
    pub(crate) sequence: Option<u32>,
    pub(crate) has_checksum: bool,
}

/// An IPv4 packet in a frame.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) struct Packet {
    pub(crate) addresses: (u32, u32),
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) identification: u16,
    pub(crate) dont_fragment: bool,
    #[generator(produce::<Vec<u8>>().with().len(0..=40usize))]
    pub(crate) options: Vec<u8>,
    pub(crate) content: Content,
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) vlan: Option<u16>,
}

impl Packet {
    /// Returns the IPv4 packet, in its tunnel if it has one.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let header = build::ipv4(self.addresses.0, self.addresses.1)
            .tos(self.tos)
            .ttl(self.ttl)
            .identification(self.identification)
            .df(self.dont_fragment)
            .options(&self.options);
        let packet = self.content.packet(header);
        match &self.tunnel {
            Some(tunnel) => tunnel.around(packet),
            None => packet,
        }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let frame = build::ethernet(build::mac(1), build::mac(2), self.packet());
        match self.vlan {
            Some(id) => build::vlan(id, frame),
            None => frame,
        }
    }
}

impl Content {
    fn packet(&self, header: Ipv4Builder) -> Vec<u8> {
        match self {
            Content::Udp { ports, has_checksum: true, payload } => {
                header.udp(ports.0, ports.1, payload)
            }
            Content::Udp { ports, payload, .. } => {
                header.udp_without_checksum(ports.0, ports.1, payload)
            }
            Content::Tcp { ports, flags, sequence, mss, payload } => {
                let segment =
                    build::tcp(ports.0, ports.1).flags(*flags).sequence(*sequence).payload(payload);
                header.tcp(mss.iter().fold(segment, |segment, &mss| segment.mss(mss)))
            }
            Content::Query { is_reply: true, identifier, sequence, payload } => {
                header.icmp_echo_reply(*identifier, *sequence, payload)
            }
            Content::Query { identifier, sequence, payload, .. } => {
                header.icmp_echo_request(*identifier, *sequence, payload)
            }
            Content::Timestamp { identifier, times } => {
                let [high, low] = identifier.to_be_bytes();
                header.icmp(icmp::TIMESTAMP_REQUEST, 0, [high, low, 0, 1], times)
            }
            Content::Error { kind, mtu, ports, len } => {
                let quoted = build::ipv4(1, 2).udp(ports.0, ports.1, vec![0; usize::from(*len)]);
                let kinds =
                    [icmp::DESTINATION_UNREACHABLE, icmp::TIME_EXCEEDED, icmp::PARAMETER_PROBLEM];
                let [high, low] = mtu.to_be_bytes();
                header.icmp_error(
                    kinds[usize::from(kind % 3)],
                    kind % 16,
                    [0, 0, high, low],
                    quoted,
                )
            }
            Content::Other { protocol, payload } => header.payload(*protocol, payload),
        }
    }
}

impl Tunnel {
    fn around(&self, packet: Vec<u8>) -> Vec<u8> {
        build::ipv4(self.addresses.0, self.addresses.1).gre(self.header(), packet)
    }

    /// Returns the GRE header, for an IPv4 packet.
    pub(crate) fn header(&self) -> GreBuilder {
        let header = build::gre().maybe_key(self.key);
        let header =
            self.sequence.iter().fold(header, |header, &sequence| header.sequence(sequence));
        if self.has_checksum { header.checksum() } else { header }
    }
}

/// Bytes overwritten near the front, where the headers are, and a truncation.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) struct Damage {
    #[generator(produce::<Vec<(u8, u8)>>().with().len(0..6usize))]
    overwritten: Vec<(u8, u8)>,
    cut: Option<u8>,
}

impl Damage {
    pub(crate) fn apply(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for &(at, value) in &self.overwritten {
            let at = usize::from(at) % bytes.len().clamp(1, 90);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Some(len) = self.cut {
            bytes.truncate(usize::from(len) % (bytes.len() + 1));
        }
        bytes
    }
}
