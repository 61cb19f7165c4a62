//! The two packets of the generated traffic, as bytes. Hot: one of them is written and one read per packet.
//!
//! ```text
//!   Plain   60 B   Ethernet 14 | IPv4 20 | UDP 8 | mark 18                              internet side: 64 bytes with the FCS
//!   Tunnel  84 B   Ethernet 14 | IPv4 20 | GRE 4 | IPv4 20 | UDP 8 | mark 18            access side
//! ```
//!
//! The mark is the UDP payload: which flow, which lap of the flood, which direction. A device under test cannot know it and must
//! not change it, so it says what a packet is even where all its addresses are wrong.

use weir_wire::checksum;
use weir_wire::ethernet::{ETHERTYPE_IPV4, Ethernet, Mac};
use weir_wire::gre::{Gre, PROTOCOL_IPV4};
use weir_wire::ipv4::{Ipv4, PROTOCOL_GRE, PROTOCOL_UDP};
use weir_wire::udp::Udp;
use weir_wire::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::scenario::Endpoint;

const TTL: u8 = 64;
const ETHERNET_LEN: usize = size_of::<Ethernet>();
const IPV4_LEN: usize = size_of::<Ipv4>();
const UDP_LEN: usize = size_of::<Datagram>();

/// Direction of a packet, as its mark carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Upstream,
    Downstream,
}

impl Direction {
    const fn magic(self) -> u32 {
        match self {
            Direction::Upstream => u32::from_be_bytes(*b"wrUP"),
            Direction::Downstream => u32::from_be_bytes(*b"wrDN"),
        }
    }
}

/// The UDP payload, 18 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Mark {
    magic: U32,
    flow: U32,
    lap: U32,
    padding: [u8; 6],
}

/// A UDP datagram: what the UDP checksum covers, but for the pseudo header. 26 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Datagram {
    udp: Udp,
    mark: Mark,
}

/// A packet of the internet side.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Plain {
    ethernet: Ethernet,
    ip: Ipv4,
    datagram: Datagram,
}

/// A packet of the access side.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Tunnel {
    ethernet: Ethernet,
    outer: Ipv4,
    gre: Gre,
    ip: Ipv4,
    datagram: Datagram,
}

const _: () =
    assert!(size_of::<Mark>() == 18 && size_of::<Plain>() == 60 && size_of::<Tunnel>() == 84);

/// What differs from flow to flow in the inner IPv4 and UDP headers, checksums included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    pub source: Endpoint,
    pub destination: Endpoint,
    ip_checksum: u16,
    /// For lap 0.
    udp_checksum: u16,
}

/// What differs from flow to flow in the outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    pub source: u32,
    pub destination: u32,
    checksum: u16,
}

impl Inner {
    /// Computes the checksums of a flow once; each packet then only adds its lap.
    pub fn new(source: Endpoint, destination: Endpoint, flow: u32, direction: Direction) -> Self {
        let ip = ipv4(source.address, destination.address, PROTOCOL_UDP, UDP_LEN);
        let datagram = Datagram { udp: udp(source, destination), mark: mark(flow, 0, direction) };
        let sum = checksum::pseudo_header(
            source.address,
            destination.address,
            PROTOCOL_UDP,
            UDP_LEN as u16,
        ) + checksum::partial(datagram.as_bytes());
        Inner {
            source,
            destination,
            ip_checksum: ip.checksum.get(),
            udp_checksum: checksum::finish(sum),
        }
    }

    /// The UDP checksum with `lap` in the mark. RFC 768: a sum of zero is sent as all ones.
    #[inline]
    fn udp_checksum(&self, lap: u32) -> u16 {
        let checksum = checksum::Delta::new().replace32(0, lap).apply(self.udp_checksum);
        if checksum == 0 { 0xffff } else { checksum }
    }

    #[inline]
    fn write(&self, ip: &mut Ipv4, datagram: &mut Datagram, flow: u32, lap: u32) {
        let Datagram { udp, mark } = datagram;
        ip.source = U32::new(self.source.address);
        ip.destination = U32::new(self.destination.address);
        ip.checksum = U16::new(self.ip_checksum);
        udp.source_port = U16::new(self.source.port);
        udp.destination_port = U16::new(self.destination.port);
        udp.checksum = U16::new(self.udp_checksum(lap));
        mark.flow = U32::new(flow);
        mark.lap = U32::new(lap);
    }
}

impl Outer {
    pub fn new(source: u32, destination: u32) -> Self {
        let ip = ipv4(source, destination, PROTOCOL_GRE, size_of::<Gre>() + IPV4_LEN + UDP_LEN);
        Outer { source, destination, checksum: ip.checksum.get() }
    }
}

impl Plain {
    /// The packet of no flow yet, from `source` to `destination` on the link.
    pub fn template(source: Mac, destination: Mac, direction: Direction) -> Self {
        let nobody = Endpoint { address: 0, port: 0 };
        Plain {
            ethernet: Ethernet { destination, source, ethertype: U16::new(ETHERTYPE_IPV4) },
            ip: ipv4(0, 0, PROTOCOL_UDP, UDP_LEN),
            datagram: Datagram { udp: udp(nobody, nobody), mark: mark(0, 0, direction) },
        }
    }

    /// Writes the packet of a flow into the first 60 bytes of `bytes`.
    #[inline]
    pub fn write(&self, bytes: &mut [u8], inner: &Inner, flow: u32, lap: u32) {
        if let Ok((packet, _)) = Plain::mut_from_prefix(bytes) {
            *packet = *self;
            inner.write(&mut packet.ip, &mut packet.datagram, flow, lap);
        }
    }
}

impl Tunnel {
    /// The packet of no flow yet, from `source` to `destination` on the link.
    pub fn template(source: Mac, destination: Mac, direction: Direction) -> Self {
        let plain = Plain::template(source, destination, direction);
        Tunnel {
            ethernet: plain.ethernet,
            outer: ipv4(0, 0, PROTOCOL_GRE, size_of::<Gre>() + IPV4_LEN + UDP_LEN),
            gre: Gre { flags_version: U16::new(0), protocol: U16::new(PROTOCOL_IPV4) },
            ip: plain.ip,
            datagram: plain.datagram,
        }
    }

    /// Writes the packet of a flow into the first 84 bytes of `bytes`.
    #[inline]
    pub fn write(&self, bytes: &mut [u8], outer: &Outer, inner: &Inner, flow: u32, lap: u32) {
        if let Ok((packet, _)) = Tunnel::mut_from_prefix(bytes) {
            *packet = *self;
            packet.outer.source = U32::new(outer.source);
            packet.outer.destination = U32::new(outer.destination);
            packet.outer.checksum = U16::new(outer.checksum);
            inner.write(&mut packet.ip, &mut packet.datagram, flow, lap);
        }
    }
}

/// What a received packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Outer source and destination, when it came through a tunnel.
    pub outer: Option<(u32, u32)>,
    pub source: Endpoint,
    pub destination: Endpoint,
    pub flow: u32,
    pub lap: u32,
    pub checksums_right: bool,
}

/// Reads a packet of the internet side; `None` when it is not one of the generator's in that direction and of that shape.
#[inline]
pub fn read_plain(frame: &[u8], direction: Direction) -> Option<Seen> {
    let packet = Plain::ref_from_bytes(frame).ok()?;
    if !is_ours(&packet.ethernet, &packet.ip, &packet.datagram.mark, direction) {
        return None;
    }
    Some(seen(None, &packet.ip, &packet.datagram, checksums_right(&packet.ip, &packet.datagram)))
}

/// Reads a packet of the access side; `None` as in [`read_plain`].
#[inline]
pub fn read_tunnel(frame: &[u8], direction: Direction) -> Option<Seen> {
    let packet = Tunnel::ref_from_bytes(frame).ok()?;
    let gre_plain =
        packet.gre.flags_version.get() == 0 && packet.gre.protocol.get() == PROTOCOL_IPV4;
    if !gre_plain || !is_ours(&packet.ethernet, &packet.ip, &packet.datagram.mark, direction) {
        return None;
    }
    let outer = &packet.outer;
    let outer_right = is_whole(outer, PROTOCOL_GRE, frame.len() - ETHERNET_LEN)
        && checksum::sum(outer.as_bytes()) == 0;
    let checksums_right = outer_right && checksums_right(&packet.ip, &packet.datagram);
    let addresses = (outer.source.get(), outer.destination.get());
    Some(seen(Some(addresses), &packet.ip, &packet.datagram, checksums_right))
}

#[inline]
fn seen(outer: Option<(u32, u32)>, ip: &Ipv4, datagram: &Datagram, checksums_right: bool) -> Seen {
    let Datagram { udp, mark } = datagram;
    Seen {
        outer,
        source: Endpoint { address: ip.source.get(), port: udp.source_port.get() },
        destination: Endpoint { address: ip.destination.get(), port: udp.destination_port.get() },
        flow: mark.flow.get(),
        lap: mark.lap.get(),
        checksums_right,
    }
}

#[inline]
fn is_ours(ethernet: &Ethernet, ip: &Ipv4, mark: &Mark, direction: Direction) -> bool {
    ethernet.ethertype.get() == ETHERTYPE_IPV4
        && mark.magic.get() == direction.magic()
        && is_whole(ip, PROTOCOL_UDP, IPV4_LEN + UDP_LEN)
}

/// An IPv4 header without options, not a fragment, of the right protocol and length.
#[inline]
fn is_whole(ip: &Ipv4, protocol: u8, len: usize) -> bool {
    const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
    ip.version_ihl == 0x45
        && ip.protocol == protocol
        && usize::from(ip.total_length.get()) == len
        && ip.flags_fragment.get() & MORE_FRAGMENTS_AND_OFFSET == 0
}

/// The header checksum and the UDP checksum, both from scratch; a UDP checksum of zero (none) is wrong, the generator sends one.
#[inline]
fn checksums_right(ip: &Ipv4, datagram: &Datagram) -> bool {
    let pseudo = checksum::pseudo_header(
        ip.source.get(),
        ip.destination.get(),
        PROTOCOL_UDP,
        UDP_LEN as u16,
    );
    datagram.udp.checksum.get() != 0
        && usize::from(datagram.udp.length.get()) == UDP_LEN
        && checksum::sum(ip.as_bytes()) == 0
        && checksum::finish(pseudo + checksum::partial(datagram.as_bytes())) == 0
}

fn ipv4(source: u32, destination: u32, protocol: u8, payload_len: usize) -> Ipv4 {
    let mut ip = Ipv4 {
        version_ihl: 0x45,
        tos: 0,
        total_length: U16::new((IPV4_LEN + payload_len) as u16),
        identification: U16::new(0),
        flags_fragment: U16::new(0x4000),
        ttl: TTL,
        protocol,
        checksum: U16::new(0),
        source: U32::new(source),
        destination: U32::new(destination),
    };
    ip.checksum = U16::new(checksum::sum(ip.as_bytes()));
    ip
}

fn udp(source: Endpoint, destination: Endpoint) -> Udp {
    Udp {
        source_port: U16::new(source.port),
        destination_port: U16::new(destination.port),
        length: U16::new(UDP_LEN as u16),
        checksum: U16::new(0),
    }
}

fn mark(flow: u32, lap: u32, direction: Direction) -> Mark {
    Mark {
        magic: U32::new(direction.magic()),
        flow: U32::new(flow),
        lap: U32::new(lap),
        padding: [0; 6],
    }
}

#[cfg(test)]
mod tests;
