//! Generated IPv6 packets with extension headers.

use crate::packets::Tunnel;
use bolero::TypeGenerator;
use bolero::generator::*;
use weir_wire::build::{self, Ipv6Builder};
use weir_wire::gre;

/// An extension header, right or wrong.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) enum Extension {
    HopByHop(#[generator(produce::<Vec<u8>>().with().len(0..30usize))] Vec<u8>),
    Destination(#[generator(produce::<Vec<u8>>().with().len(0..120usize))] Vec<u8>),
    Routing {
        kind: u8,
        segments_left: u8,
        #[generator(produce::<Vec<u8>>().with().len(0..60usize))]
        data: Vec<u8>,
    },
    Fragment {
        identification: u32,
        offset: u16,
        more: bool,
    },
    Atomic(u32),
    Authentication(u8),
}

impl Extension {
    fn add(&self, builder: Ipv6Builder) -> Ipv6Builder {
        match self {
            Extension::HopByHop(options) => builder.hop_by_hop(&plausible(options)),
            Extension::Destination(options) => builder.destination_options(options),
            Extension::Routing { kind, segments_left, data } => {
                builder.routing(kind % 8, segments_left % 4, data)
            }
            Extension::Fragment { identification, offset, more } => {
                // Every second one is a first fragment.
                let offset = if offset & 1 == 0 { 0 } else { offset & !7 };
                builder.fragment(*identification, offset, *more)
            }
            Extension::Atomic(identification) => builder.fragment(*identification, 0, false),
            Extension::Authentication(words) => builder.authentication(usize::from(words % 12) * 4),
        }
    }
}

/// Returns options of which most lists are valid: random ones seldom are.
fn plausible(bytes: &[u8]) -> Vec<u8> {
    let options = bytes.iter().flat_map(|&byte| match byte {
        0..=15 => vec![0],
        16..=239 => vec![byte & 0x3f | 1, byte % 3, 7, 7][..2 + usize::from(byte % 3)].to_vec(),
        _ => vec![byte],
    });
    options.collect()
}

/// What the extension headers of a packet lead to.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) enum Upper {
    Udp { ports: (u16, u16), payload: Vec<u8> },
    Tcp { ports: (u16, u16), flags: u8, mss: Option<u16>, payload: Vec<u8> },
    Echo { is_reply: bool, identifier: u16, sequence: u16, payload: Vec<u8> },
    Error { kind: u8, code: u8, mtu: u32, quoted: Box<(Upper, u8)> },
    Ipv4 { ports: (u16, u16), payload: Vec<u8> },
    Other { protocol: u8, payload: Vec<u8> },
}

impl Upper {
    /// True if the content is not that of its protocol, or may be; or quotes such a packet.
    pub(crate) fn is_random(&self) -> bool {
        match self {
            Upper::Other { .. } => true,
            Upper::Error { quoted, .. } => quoted.0.is_random(),
            _ => false,
        }
    }

    fn packet(&self, header: Ipv6Builder) -> Vec<u8> {
        match self {
            Upper::Udp { ports, payload } => header.udp(ports.0, ports.1, payload),
            Upper::Tcp { ports, flags, mss, payload } => {
                let segment = build::tcp(ports.0, ports.1).flags(*flags).payload(payload);
                header.tcp(mss.iter().fold(segment, |segment, &mss| segment.mss(mss)))
            }
            Upper::Echo { is_reply: true, identifier, sequence, payload } => {
                header.icmp6_echo_reply(*identifier, *sequence, payload)
            }
            Upper::Echo { identifier, sequence, payload, .. } => {
                header.icmp6_echo_request(*identifier, *sequence, payload)
            }
            Upper::Error { kind, code, mtu, quoted } => {
                let (upper, cut) = &**quoted;
                let quoted = upper.packet(build::ipv6(3, 4));
                // The quote of an error has its IPv6 header at least.
                let len = quoted.len().min(40 + usize::from(*cut));
                header.icmp6_error(1 + kind % 4, *code, mtu.to_be_bytes(), &quoted[..len])
            }
            Upper::Ipv4 { ports, payload } => {
                header.ipip(build::ipv4(1, 2).udp(ports.0, ports.1, payload))
            }
            Upper::Other { protocol, payload } => header.payload(*protocol, payload),
        }
    }
}

/// An IPv6 packet in a frame.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) struct Packet6 {
    pub(crate) addresses: (u128, u128),
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    #[generator(produce::<Vec<Extension>>().with().len(0..11usize))]
    pub(crate) extensions: Vec<Extension>,
    pub(crate) upper: Upper,
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) is_outer_ipv6: bool,
}

impl Packet6 {
    /// Returns the IPv6 packet without its tunnel.
    pub(crate) fn inner(&self) -> Vec<u8> {
        let header = build::ipv6(self.addresses.0, self.addresses.1)
            .traffic_class(self.traffic_class)
            .flow_label(self.flow_label)
            .hop_limit(self.hop_limit);
        let header = self.extensions.iter().fold(header, |header, next| next.add(header));
        self.upper.packet(header)
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let (to, from) = (build::mac(1), build::mac(2));
        let inner = self.inner();
        let Some(tunnel) = &self.tunnel else { return build::ethernet6(to, from, inner) };
        let header = tunnel.header().protocol(gre::PROTOCOL_IPV6);
        let (source, destination) = tunnel.addresses;
        if self.is_outer_ipv6 {
            let outer = build::ipv6(u128::from(source), u128::from(destination));
            return build::ethernet6(to, from, outer.gre(header, inner));
        }
        build::ethernet(to, from, build::ipv4(source, destination).gre(header, inner))
    }
}
