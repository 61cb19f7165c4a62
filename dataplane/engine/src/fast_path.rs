//! Hot. Reads fast-path packets, which nearly all packets are, by whole words at fixed offsets: no
//! IP option, no GRE key, no fragment, UDP or TCP, every check of a header passed. What is read is
//! the packet's [`OutboundKey`] or [`InboundKey`], which a look-up compares with the record.
//!
//! Nothing is written until a packet has its mapping. Any other packet is read by the slow path,
//! which finds the same values in a fast-path packet (the tests compare the two) and the right drop
//! reason in any other.
//!
//! The fast path is compiled for each length of the link header (`LINK`: untagged, tagged) and of
//! the tunnel header (`TUNNEL`: GRE over IPv4 or IPv6 without a key, none).

use std::mem::offset_of;

use weir_nat::{Endpoint, Home, InboundKey, LookUp, OutboundKey, PacketKey, Protocol, ShardIndex};
use weir_wire::checksum;
use weir_wire::frame::Frame;
use weir_wire::gre::Gre;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::tcp::{ACK, FIN, RST, SYN};
use weir_wire::udp::Udp;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Side;
use crate::downstream::{Downstream, DownstreamStep};
use crate::engine::Engine;
use crate::ethernet_input::Network;
use crate::flow_key::{FlowKey, PacketKind};
use crate::frame_pattern::{PLAIN_WORDS, WORDS};
use crate::ip_input::is_martian_pair;
use crate::tunnel6::GRE6;
use crate::upstream::{Upstream, UpstreamStep};

/// Length of the tunnel header over IPv4 of a home that sends no key, and of none. Over IPv6:
/// [`GRE6`].
pub(crate) const GRE: usize = Ipv4::LEN + Gre::LEN;
pub(crate) const PLAIN: usize = 0;

/// An IP header without options, by words as they lie in memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
pub(crate) struct IpWords {
    /// Version, header length, traffic class.
    pub(crate) version_tos: [u8; 2],
    pub(crate) total_length: u16,
    pub(crate) identification: u16,
    pub(crate) fragment: u16,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) checksum: u16,
    pub(crate) source: u32,
    pub(crate) destination: u32,
}

/// An IP header without options and the first 8 bytes of the transport header, read as UDP's, by
/// words as they lie in memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
pub(crate) struct Headers {
    pub(crate) ip: IpWords,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) udp_length: u16,
    pub(crate) udp_checksum: u16,
}

/// The tunnel header of a home that sends no key, by words as they lie in memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
pub(crate) struct TunnelWords {
    pub(crate) ip: IpWords,
    gre: u32,
}

const _: () = assert!(size_of::<TunnelWords>() == GRE && size_of::<IpWords>() == Ipv4::LEN);

/// Offset of the checksum in a TCP segment behind an IP header without options.
pub(crate) const TCP_CHECKSUM: usize = 36;
/// Version 4, a header of five words.
pub(crate) const NO_OPTIONS: u8 = 0x45;
/// State of a fast-path packet while its burst is processed, with the key of its side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastPacket<K> {
    pub(crate) key: K,
    /// A frame that the slow path has read has its look-up here, too.
    pub(crate) look_up: LookUp,
    /// Length of the packet without tunnel, bytes.
    pub(crate) len: u16,
}

/// From a home.
pub(crate) type FastUpstream = FastPacket<OutboundKey>;
/// From the internet.
pub(crate) type FastDownstream = FastPacket<InboundKey>;

impl<K: PacketKey> FastPacket<K> {
    pub(crate) fn empty() -> Self {
        Self { key: K::default(), look_up: LookUp::EMPTY, len: 0 }
    }
}

impl<K> AsMut<LookUp> for FastPacket<K> {
    #[inline(always)]
    fn as_mut(&mut self) -> &mut LookUp {
        &mut self.look_up
    }
}

/// Returns the flags of a fast-path packet that is a TCP segment.
#[inline(always)]
pub(crate) fn tcp_flags(bytes: &[u8]) -> u8 {
    /// Offset of the flags in a TCP segment behind an IP header without options.
    const TCP_FLAGS: usize = Ipv4::LEN + 13;
    bytes.get(TCP_FLAGS).copied().unwrap_or(0)
}

/// Returns the key of a fast-path packet for the slow path.
fn flow_key(bytes: &[u8], source: Endpoint, destination: Endpoint) -> FlowKey {
    let is_tcp = bytes.get(offset_of!(IpWords, protocol)) == Some(&ipv4::PROTOCOL_TCP);
    let protocol = if is_tcp { Protocol::Tcp } else { Protocol::Udp };
    let tcp_flags = if is_tcp { tcp_flags(bytes) } else { 0 };
    FlowKey { kind: PacketKind::Session, protocol, source, destination, tcp_flags }
}

impl FastUpstream {
    /// Fills in what the slow path reads of the packet `bytes`, which began at `offset` of its
    /// frame.
    pub(crate) fn fill(&self, bytes: &[u8], offset: usize, packet: &mut Upstream) {
        packet.hash = self.look_up.hash;
        packet.home = self.key.home();
        packet.key = flow_key(bytes, self.key.inside(), self.key.remote());
        packet.header_len = Ipv4::LEN;
        packet.candidate = self.look_up.found();
        (packet.offset, packet.len) = (offset, usize::from(self.len));
        packet.is_remarked = false;
        packet.fits_fast_path = true;
        packet.step = UpstreamStep::Translate;
    }
}

impl FastDownstream {
    /// As [`FastUpstream::fill`].
    pub(crate) fn fill(&self, bytes: &[u8], offset: usize, packet: &mut Downstream) {
        packet.hash = self.look_up.hash;
        packet.key = flow_key(bytes, self.key.remote(), self.key.public());
        packet.header_len = Ipv4::LEN;
        packet.candidate = self.look_up.found();
        (packet.offset, packet.len) = (offset, usize::from(self.len));
        packet.fits_fast_path = true;
        packet.step = DownstreamStep::Translate;
    }
}

/// The transport header of a fast-path packet.
struct FastTransport {
    protocol: Protocol,
    /// A packet that changes nothing in a settled session.
    is_ordinary: bool,
}

impl<F: Frame> Engine<F> {
    /// Fills in `packet` and returns true for a fast-path packet from a home.
    #[inline(always)]
    pub(crate) fn read_fast_up<const LINK: usize, const TUNNEL: usize>(
        &self,
        frame: &F,
        packet: &mut FastUpstream,
    ) -> bool {
        let data = frame.data();
        // One test here spares one in front of each header.
        if data.len() < LINK + TUNNEL + size_of::<Headers>() {
            return false;
        }
        let pattern = match TUNNEL {
            GRE6 => &self.patterns.over_ipv6[0],
            _ => &self.patterns.ipv4[Side::Access as usize],
        };
        let fits = match TUNNEL {
            PLAIN => words(data).is_some_and(|words| pattern.fits::<PLAIN_WORDS>(&words)),
            _ => words(data).is_some_and(|words| pattern.fits::<WORDS>(&words)),
        };
        if !fits || !frame.is_contiguous() {
            return false;
        }
        let (tunnel, inner) = data[LINK..].split_at(TUNNEL);
        let Ok((headers, _)) = Headers::ref_from_prefix(inner) else { return false };
        let len = headers.ip.len();
        let home = match TUNNEL {
            GRE => {
                let Ok(outer) = TunnelWords::ref_from_bytes(tunnel) else { return false };
                let outer = &outer.ip;
                let shard = match self.shards.of_served_endpoint(outer.destination) {
                    Some(shard) => shard,
                    None => match self.served_shard_elsewhere(outer.destination) {
                        Some(shard) => shard,
                        None => return false,
                    },
                };
                // RFC 6040: with either of these the inner header stays as it is.
                let (ecn, inner_ecn) = (outer.version_tos[1] & 3, headers.ip.version_tos[1] & 3);
                if outer.len() != GRE + len || (ecn != 0 && ecn != inner_ecn) || !outer.is_right() {
                    return false;
                }
                Home { shard, outer: u32::from_be(outer.source), gre_key: None }
            }
            GRE6 => {
                /// More fragments, and the offset of a fragment: the pattern ends before them.
                const FRAGMENTED: u16 = 0x3fff_u16.to_be();
                let ecn = headers.ip.version_tos[1] & 3;
                let Some(home) = self.home_of_tunnel6(tunnel, len, ecn) else { return false };
                if headers.ip.fragment & FRAGMENTED != 0 {
                    return false;
                }
                home
            }
            _ => {
                let source = u32::from_be(headers.ip.source);
                let Some(shard) = self.shards.of_source(source) else { return false };
                if !self.duties.serves(shard) {
                    return false;
                }
                Home { shard, outer: source, gre_key: None }
            }
        };
        let ip = &headers.ip;
        let mtu = self.link(Side::Internet).mtu;
        let is_forwardable =
            len <= inner.len() && is_length(len, mtu) && ip.ttl > 1 && ip.is_right();
        if !is_forwardable {
            return false;
        }
        let Some(transport) = transport(headers, len, inner) else { return false };
        let inside = Endpoint::new(u32::from_be(ip.source), u16::from_be(headers.source_port));
        let remote =
            Endpoint::new(u32::from_be(ip.destination), u16::from_be(headers.destination_port));
        let FastTransport { protocol, is_ordinary } = transport;
        packet.key = OutboundKey::new(&home, protocol as u8, inside, remote, is_ordinary);
        packet.len = len as u16;
        true
    }

    /// Returns the shard of a tunnel endpoint, the address as it lies in memory, that
    /// [`Shards::of_served_endpoint`](crate::shards::Shards::of_served_endpoint) missed, if the
    /// shard is served.
    #[cold]
    #[inline(never)]
    pub(crate) fn served_shard_elsewhere(&self, address: u32) -> Option<ShardIndex> {
        self.shards.of_endpoint(u32::from_be(address)).filter(|&shard| self.duties.serves(shard))
    }

    /// Fills in `packet` and returns true for a fast-path packet from the internet. Whether its
    /// destination is a public address is left to the look-up: every mapping has a public address.
    #[inline(always)]
    pub(crate) fn read_fast_down<const LINK: usize>(
        &self,
        frame: &F,
        packet: &mut FastDownstream,
    ) -> bool {
        let data = frame.data();
        if data.len() < LINK + size_of::<Headers>() {
            return false;
        }
        let pattern = &self.patterns.ipv4[Side::Internet as usize];
        let fits = words(data).is_some_and(|words| pattern.fits::<PLAIN_WORDS>(&words));
        if !fits || !frame.is_contiguous() {
            return false;
        }
        let bytes = &data[LINK..];
        let Ok((headers, _)) = Headers::ref_from_prefix(bytes) else { return false };
        let ip = &headers.ip;
        let len = ip.len();
        let is_forwardable = len <= bytes.len()
            && is_length(len, self.tunnel_mtu_least)
            && ip.ttl > 1
            && ip.is_right();
        if !is_forwardable {
            return false;
        }
        let Some(transport) = transport(headers, len, bytes) else { return false };
        let remote = Endpoint::new(u32::from_be(ip.source), u16::from_be(headers.source_port));
        let public =
            Endpoint::new(u32::from_be(ip.destination), u16::from_be(headers.destination_port));
        let FastTransport { protocol, is_ordinary } = transport;
        packet.key = InboundKey::new(protocol as u8, public, remote, is_ordinary);
        packet.len = len as u16;
        true
    }

    /// See [`PacketDirection::is_unusual`](crate::packet_direction::PacketDirection::is_unusual).
    pub(crate) fn is_unusual_up(&self, packet: &FastUpstream) -> bool {
        let (inside, remote) = (packet.key.inside(), packet.key.remote());
        // An outer source that could be a handle; without a tunnel it is the inside address.
        let is_handle = packet.key.home().is_over_ipv6();
        is_unusual(inside, remote)
            || is_handle | (remote.address == self.link(Side::Access).address)
    }

    /// See [`PacketDirection::is_usual_over_ipv6`](crate::packet_direction::PacketDirection).
    #[cold]
    #[inline(never)]
    pub(crate) fn is_usual_over_ipv6(&self, frame: &F, packet: &FastUpstream) -> bool {
        let (inside, remote) = (packet.key.inside(), packet.key.remote());
        let network = self.link(Side::Access).input(frame);
        network.is_ok_and(|(network, _)| network == Network::Ipv6)
            && !is_unusual(inside, remote)
            && remote.address != self.link(Side::Access).address
    }

    /// As [`is_unusual_up`](Self::is_unusual_up).
    pub(crate) fn is_unusual_down(&self, packet: &FastDownstream) -> bool {
        let (remote, public) = (packet.key.remote(), packet.key.public());
        is_unusual(remote, public) || public.address == self.link(Side::Internet).address
    }
}

fn is_unusual(source: Endpoint, destination: Endpoint) -> bool {
    source.port == 0
        || destination.port == 0
        || is_martian_pair(source.address, destination.address)
}

impl IpWords {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        usize::from(u16::from_be(self.total_length))
    }

    /// Whether the checksum is right.
    #[inline(always)]
    pub(crate) fn is_right(&self) -> bool {
        checksum::is_right(zerocopy::transmute!(*self))
    }
}

/// Whether a packet of `len` bytes has room for the headers that are read, and is no longer than
/// `mtu`.
#[inline(always)]
fn is_length(len: usize, mtu: usize) -> bool {
    len.wrapping_sub(size_of::<Headers>()) <= mtu.saturating_sub(size_of::<Headers>())
}

/// Returns the first words of a frame.
#[inline(always)]
pub(crate) fn words<const N: usize>(frame: &[u8]) -> Option<[u64; N]> {
    <[u64; N]>::read_from_prefix(frame).ok().map(|(words, _)| words)
}

/// Reads the transport header of a packet of `len` bytes, not below 28, whose IP header passed the
/// checks; `None` if the slow path has to read the packet.
#[inline(always)]
fn transport(headers: &Headers, len: usize, packet: &[u8]) -> Option<FastTransport> {
    match headers.ip.protocol {
        ipv4::PROTOCOL_UDP => {
            let length = usize::from(u16::from_be(headers.udp_length));
            (length >= Udp::LEN && Ipv4::LEN + length <= len)
                .then_some(FastTransport { protocol: Protocol::Udp, is_ordinary: true })
        }
        ipv4::PROTOCOL_TCP => {
            const FIXED: usize = Ipv4::LEN + 14;
            let &[.., offset, tcp_flags] = packet.first_chunk::<FIXED>()?;
            let header_len = usize::from(offset >> 4) * 4;
            (header_len >= 20 && Ipv4::LEN + header_len <= len).then_some(FastTransport {
                protocol: Protocol::Tcp,
                is_ordinary: tcp_flags & (SYN | FIN | RST | ACK) == ACK,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "fast_path_tests.rs"]
mod tests;
