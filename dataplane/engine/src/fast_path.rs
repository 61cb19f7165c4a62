//! Hot. Recognises fast-path packets, which nearly all packets are, in one pass over headers at
//! fixed offsets: no IP option, no GRE key, no fragment, UDP or TCP, every check passed. Any other
//! packet is read by the slow path, which finds the same values in a fast-path packet (the test
//! below compares the two) and the right drop reason in any other.

use weir_nat::{Home, Protocol};
use weir_wire::frame::Frame;
use weir_wire::gre::{self, Gre};
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::udp::Udp;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::downstream::Downstream;
use crate::engine::Engine;
use crate::flow_key::{FlowKey, PacketKind};
use crate::ip_input::is_martian;
use crate::link_header::{TAGGED, UNTAGGED};
use crate::upstream::Upstream;
use crate::{AccessMode, Side};

/// An IP header without options and the first 8 bytes of the transport header, read as UDP's.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Headers {
    ip: Ipv4,
    udp: Udp,
}

/// The tunnel header of a home that sends no key, and the inner headers.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TunnelHeaders {
    outer: Ipv4,
    gre: Gre,
    inner: Headers,
}

const TUNNEL_LEN: usize = Ipv4::LEN + Gre::LEN;
/// Version 4, a header of five words.
const NO_OPTIONS: u8 = 0x45;

impl<F: Frame> Engine<F> {
    /// Fills in `packet` and returns true for a fast-path packet from a home.
    #[inline(always)]
    pub(crate) fn fast_path_up(&self, frame: &F, packet: &mut Upstream) -> bool {
        match self.link(Side::Access).is_tagged() {
            false => self.fast_path_up_behind::<UNTAGGED>(frame, packet),
            true => self.fast_path_up_behind::<TAGGED>(frame, packet),
        }
    }

    #[inline(always)]
    fn fast_path_up_behind<const LINK: usize>(&self, frame: &F, packet: &mut Upstream) -> bool {
        let Some(bytes) = self.link(Side::Access).common::<LINK, F>(frame) else { return false };
        match self.mode {
            AccessMode::Gre => {
                let Ok((headers, _)) = TunnelHeaders::ref_from_prefix(bytes) else { return false };
                let TunnelHeaders { outer, gre, inner } = headers;
                let Some(shard) = self.shards.of_endpoint(outer.destination.get()) else {
                    return false;
                };
                let inner_len = usize::from(inner.ip.total_length.get());
                let is_fast = outer.protocol == ipv4::PROTOCOL_GRE
                    && is_fast_path_header(outer, bytes.len())
                    && usize::from(outer.total_length.get()) == TUNNEL_LEN + inner_len
                    && gre.flags_version.get() == 0
                    && gre.protocol.get() == gre::PROTOCOL_IPV4
                    // RFC 6040: with either of these the inner header stays as it is.
                    && (outer.ecn() == 0 || outer.ecn() == inner.ip.ecn())
                    && is_forwardable(&inner.ip, bytes.len() - TUNNEL_LEN)
                    && self.duties.serves(shard);
                if !is_fast || !read_fast_path_key(&mut packet.key, inner, &bytes[TUNNEL_LEN..]) {
                    return false;
                }
                packet.home = Home { shard, outer: outer.source.get(), gre_key: None };
                (packet.offset, packet.len) = (LINK + TUNNEL_LEN, inner_len);
            }
            AccessMode::Plain => {
                let Ok((headers, _)) = Headers::ref_from_prefix(bytes) else { return false };
                let source = headers.ip.source.get();
                let Some(shard) = self.shards.of_source(source) else { return false };
                let is_fast = headers.ip.destination.get() != self.link(Side::Access).address
                    && is_forwardable(&headers.ip, bytes.len())
                    && self.duties.serves(shard);
                if !is_fast || !read_fast_path_key(&mut packet.key, headers, bytes) {
                    return false;
                }
                packet.home = Home { shard, outer: source, gre_key: None };
                (packet.offset, packet.len) = (LINK, usize::from(headers.ip.total_length.get()));
            }
        }
        packet.is_remarked = false;
        packet.fits_fast_path = packet.len <= self.link(Side::Internet).mtu;
        packet.header_len = Ipv4::LEN;
        packet.hash = self.nat.outbound_hash(&packet.home, packet.key.source, packet.key.protocol);
        true
    }

    /// Fills in `packet` and returns true for a fast-path packet from the internet. Whether its
    /// destination is a public address is left to the look-up: every mapping has a public address.
    #[inline(always)]
    pub(crate) fn fast_path_down(&self, frame: &F, packet: &mut Downstream) -> bool {
        match self.link(Side::Internet).is_tagged() {
            false => self.fast_path_down_behind::<UNTAGGED>(frame, packet),
            true => self.fast_path_down_behind::<TAGGED>(frame, packet),
        }
    }

    #[inline(always)]
    fn fast_path_down_behind<const LINK: usize>(&self, frame: &F, packet: &mut Downstream) -> bool {
        let link = self.link(Side::Internet);
        let Some(bytes) = link.common::<LINK, F>(frame) else { return false };
        let Ok((headers, _)) = Headers::ref_from_prefix(bytes) else { return false };
        let is_fast = headers.ip.destination.get() != link.address
            && is_forwardable(&headers.ip, bytes.len());
        if !is_fast || !read_fast_path_key(&mut packet.key, headers, bytes) {
            return false;
        }
        (packet.offset, packet.len) = (LINK, usize::from(headers.ip.total_length.get()));
        packet.fits_fast_path = packet.len <= self.tunnel_mtu_least;
        packet.header_len = Ipv4::LEN;
        packet.hash = self.nat.inbound_hash(packet.key.destination, packet.key.protocol);
        true
    }
}

/// True for a valid header without options, of a whole packet that fits in `room` bytes.
#[inline(always)]
fn is_fast_path_header(ip: &Ipv4, room: usize) -> bool {
    ip.version_ihl == NO_OPTIONS
        && !ip.is_fragment()
        && usize::from(ip.total_length.get()) <= room
        && ip.is_checksum_right()
}

/// True if [`is_fast_path_header`] holds and the packet may take another hop.
#[inline(always)]
fn is_forwardable(ip: &Ipv4, room: usize) -> bool {
    is_fast_path_header(ip, room) && ip.ttl > 1 && !is_martian(ip)
}

/// Reads the transport header of a packet whose IP header passed the checks; false if the slow path
/// has to read the packet.
#[inline(always)]
fn read_fast_path_key(key: &mut FlowKey, headers: &Headers, packet: &[u8]) -> bool {
    let Headers { ip, udp } = headers;
    let Some(payload_len) = usize::from(ip.total_length.get()).checked_sub(Ipv4::LEN) else {
        return false;
    };
    let (source, destination) = (udp.source_port.get(), udp.destination_port.get());
    if source == 0 || destination == 0 {
        return false;
    }
    match ip.protocol {
        ipv4::PROTOCOL_UDP => {
            let length = usize::from(udp.length.get());
            if length < Udp::LEN || length > payload_len {
                return false;
            }
            key.protocol = Protocol::Udp;
            key.tcp_flags = 0;
        }
        ipv4::PROTOCOL_TCP => {
            const FIXED: usize = Ipv4::LEN + 14;
            let Some(&[.., offset, flags]) = packet.first_chunk::<FIXED>() else { return false };
            let header_len = usize::from(offset >> 4) * 4;
            if header_len < 20 || header_len > payload_len {
                return false;
            }
            key.protocol = Protocol::Tcp;
            key.tcp_flags = flags;
        }
        _ => return false,
    }
    key.kind = PacketKind::Session;
    key.source.address = ip.source.get();
    key.source.port = source;
    key.destination.address = ip.destination.get();
    key.destination.port = destination;
    true
}

#[cfg(test)]
#[path = "fast_path_tests.rs"]
mod tests;
