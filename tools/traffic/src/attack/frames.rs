//! Frames that belong to no home: ARP claims, replication datagrams, garbage. A fixed head,
//! followed by random bytes.

use std::net::Ipv4Addr;

use weir_wire::arp::Arp;
use weir_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4, Mac};
use weir_wire::{checksum, ipv4, udp};

use super::{AttackHome, Link, Side};
use crate::permutation;
use crate::scenario::Access;

const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
/// The default of `[cluster] replication_port`.
const REPLICATION_PORT: u16 = 7473;
/// Approximate bytes of a HELLO with its tag.
const HELLO_LEN: usize = 164;
/// Random bytes after an IPv4 header: the smallest frame of RFC 2544, with room for any inner
/// header.
const GARBAGE_LEN: usize = 46;
/// Ports on which a worker, or the BIRD beside it, might listen: BGP, BFD (RFC 5881, RFC 5883),
/// replication, metrics, the controller's port.
const PORTS: [u16; 6] = [179, 3784, 4784, REPLICATION_PORT, 9105, 2379];
const PROTOCOL_OSPF: u8 = 89;

/// One frame.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    side: Side,
    bytes: Vec<u8>,
    /// Length of the fixed head; the bytes after it are random.
    fixed_len: usize,
    /// Whether it is a UDP datagram that needs a correct checksum.
    is_summed: bool,
}

impl Fixed {
    pub(super) fn side(&self) -> Side {
        self.side
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn write(&self, mut random: u64, bytes: &mut [u8]) {
        if bytes.len() != self.bytes.len() {
            return;
        }
        bytes.copy_from_slice(&self.bytes);
        for chunk in bytes[self.fixed_len..].chunks_mut(8) {
            let drawn = permutation::next(&mut random).to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
        if self.is_summed {
            let address = |at: usize| {
                u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            };
            let (source, destination) = (address(ETHERNET_LEN + 12), address(ETHERNET_LEN + 16));
            let sum = udp::checksum(source, destination, &bytes[ETHERNET_LEN + IPV4_LEN..]);
            bytes[ETHERNET_LEN + IPV4_LEN + 6..][..2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Returns a station that is not the gateway: its MAC and its address.
fn station(link: &Link) -> (Mac, u32) {
    (Mac([2, 0, 0, 0, 0xbd, 0x77]), (link.device_address & !0xff) | 0x77)
}

/// Returns frames that claim the gateway's address for the station's MAC: an unsolicited answer,
/// and an announcement.
pub(super) fn arp(access: &Link, internet: &Link) -> Vec<Fixed> {
    let claims = |side: Side, link: &Link| {
        let (mac, _) = station(link);
        let address = link.gateway_address;
        let answer = Arp::reply(mac, address, link.device_mac, link.device_address);
        [(link.device_mac, answer), (Mac::BROADCAST, Arp::gratuitous(mac, address))].map(
            |(to, message)| {
                let mut bytes = ethernet(to, mac, ETHERTYPE_ARP, Arp::LEN);
                message.emit(&mut bytes[ETHERNET_LEN..]);
                Fixed { side, fixed_len: bytes.len(), bytes, is_summed: false }
            },
        )
    };
    let ([a, b], [c, d]) = (claims(Side::Access, access), claims(Side::Internet, internet));
    // The sides alternate.
    vec![a, c, b, d]
}

/// Returns HELLOs from stations of the access link to the worker's address there, where replication
/// is received by default.
pub(super) fn hello(access: &Link) -> Vec<Fixed> {
    // Magic, version, kind HELLO (cluster/stream, `datagram`); session, sender and the following
    // bytes are random.
    const HEAD: [u8; 4] = [0x77, 0x52, 2, 1];
    let (mac, address) = station(access);
    let stations = (0..16).map(|station| {
        let source = address ^ station;
        let mut bytes = datagram(
            access.device_mac,
            mac,
            (source, REPLICATION_PORT),
            (access.device_address, REPLICATION_PORT),
            HELLO_LEN,
        );
        let fixed_len = ETHERNET_LEN + IPV4_LEN + UDP_LEN + HEAD.len();
        bytes[fixed_len - HEAD.len()..fixed_len].copy_from_slice(&HEAD);
        Fixed { side: Side::Access, bytes, fixed_len, is_summed: true }
    });
    stations.collect()
}

/// Returns frames of random bytes after headers that are valid as far as a parser or a listener.
pub(super) fn garbage(
    access_mode: Access,
    home: &AttackHome,
    access: &Link,
    internet: &Link,
) -> Vec<Fixed> {
    let links = [(Side::Access, access), (Side::Internet, internet)];
    let mut frames = Vec::new();
    let mut packet = |side, link: &Link, source, destination, protocol| {
        let mac = link.gateway_mac;
        let bytes = packet(link.device_mac, mac, source, destination, protocol, GARBAGE_LEN);
        frames.push(Fixed { side, bytes, fixed_len: ETHERNET_LEN + IPV4_LEN, is_summed: false });
    };
    let remote = crate::scenario::REMOTES;
    if access_mode != Access::Plain {
        for protocol in [ipv4::PROTOCOL_GRE, ipv4::PROTOCOL_ICMP, ipv4::PROTOCOL_UDP] {
            packet(Side::Access, access, home.home, home.tunnel, protocol);
        }
    }
    for (side, link) in links {
        let source = if side == Side::Access { home.home } else { remote };
        for protocol in [
            ipv4::PROTOCOL_ICMP,
            ipv4::PROTOCOL_TCP,
            ipv4::PROTOCOL_UDP,
            ipv4::PROTOCOL_GRE,
            ipv4::PROTOCOL_IPIP,
            PROTOCOL_OSPF,
        ] {
            packet(side, link, source, link.device_address, protocol);
        }
    }
    for protocol in [ipv4::PROTOCOL_TCP, ipv4::PROTOCOL_UDP, ipv4::PROTOCOL_ICMP, PROTOCOL_OSPF] {
        packet(Side::Internet, internet, remote, home.public, protocol);
    }
    for (side, link) in links {
        let source = (link.gateway_address, 40_000);
        for port in PORTS {
            let to = (link.device_address, port);
            let bytes = datagram(link.device_mac, link.gateway_mac, source, to, GARBAGE_LEN);
            let fixed_len = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
            frames.push(Fixed { side, bytes, fixed_len, is_summed: true });
        }
        // An experimental EtherType, ARP, and IPv4, followed by random bytes.
        for ethertype in [0x88b5, ETHERTYPE_ARP, ETHERTYPE_IPV4] {
            let bytes = ethernet(link.device_mac, link.gateway_mac, ethertype, GARBAGE_LEN);
            frames.push(Fixed { side, bytes, fixed_len: ETHERNET_LEN, is_summed: false });
        }
    }
    frames
}

fn ethernet(to: Mac, from: Mac, ethertype: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; ETHERNET_LEN + len];
    bytes[..6].copy_from_slice(&to.0);
    bytes[6..12].copy_from_slice(&from.0);
    bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
    bytes
}

fn packet(to: Mac, from: Mac, source: u32, destination: u32, protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes = ethernet(to, from, ETHERTYPE_IPV4, IPV4_LEN + len);
    let header = &mut bytes[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((IPV4_LEN + len) as u16).to_be_bytes());
    (header[8], header[9]) = (64, protocol);
    header[12..16].copy_from_slice(&Ipv4Addr::from_bits(source).octets());
    header[16..].copy_from_slice(&Ipv4Addr::from_bits(destination).octets());
    let sum = checksum::sum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn datagram(
    to: Mac,
    from: Mac,
    source: (u32, u16),
    destination: (u32, u16),
    len: usize,
) -> Vec<u8> {
    let protocol = ipv4::PROTOCOL_UDP;
    let mut bytes = packet(to, from, source.0, destination.0, protocol, UDP_LEN + len);
    udp::Udp::new(source.1, destination.1, len as u16).emit(&mut bytes[ETHERNET_LEN + IPV4_LEN..]);
    bytes
}
