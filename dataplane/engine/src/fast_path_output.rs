//! Hot. Edits and sends a packet of a settled session: one pass over its headers, by words as they
//! lie in memory.

use weir_nat::{Delivery, Endpoint, Home, Protocol};
use weir_wire::checksum::{self, Delta};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;
use zerocopy::FromBytes;

use crate::engine::{Context, Engine};
use crate::fast_path::{
    FastDownstream, FastUpstream, GRE, GRE_IPV4, Headers, IpWords, NO_OPTIONS, TunnelWords,
};
use crate::rewrite::{self, PacketEnd};
use crate::shards::OUTER_TTL;
use crate::{DropReason, Side, ecn};

/// Offset of the checksum in a TCP segment behind an IP header without options.
const TCP_CHECKSUM: usize = 36;
/// Don't fragment (RFC 791).
const DONT_FRAGMENT: u16 = 0x4000_u16.to_be();

impl<F: Frame> Engine<F> {
    /// Sends a packet of a home from its public endpoint to the internet.
    #[inline(always)]
    pub(crate) fn send_settled_up<const LINK: usize, const TUNNEL: usize, P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &FastUpstream,
        public: Endpoint,
        cx: &mut Context<'_, P>,
    ) {
        self.duties.note_traffic(packet.key.shard());
        if self.nat.is_public(packet.key.remote().address) {
            return self.hairpin_settled::<LINK, TUNNEL, P>(frame, packet, public, cx);
        }
        let Some(header) = self.link(Side::Internet).gateways.choose(flow(packet.hash.0)) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        let Some(bytes) = header.replace(&mut frame, LINK + TUNNEL, 0, usize::from(packet.len))
        else {
            return self.discard(DropReason::NoBuffer);
        };
        edit(bytes, packet.protocol, PacketEnd::Source, public);
        self.emit(Side::Internet, frame, cx);
    }

    #[cold]
    #[inline(never)]
    fn hairpin_settled<const LINK: usize, const TUNNEL: usize, P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &FastUpstream,
        public: Endpoint,
        cx: &mut Context<'_, P>,
    ) {
        frame.keep(LINK + TUNNEL, usize::from(packet.len));
        rewrite::forward_fast_path(frame.data_mut(), packet.protocol, PacketEnd::Source, public);
        self.hairpin(frame, cx);
    }

    /// Sends a packet from the internet to the inside endpoint of a home that sends no GRE key.
    #[inline(always)]
    pub(crate) fn send_settled_down<const LINK: usize, const TUNNEL: usize, P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &FastDownstream,
        delivery: &Delivery,
        cx: &mut Context<'_, P>,
    ) {
        if !self.duties.serves(delivery.home.shard) {
            return self.discard(DropReason::NotServing);
        }
        self.duties.note_traffic(delivery.home.shard);
        self.outer_identification = self.outer_identification.wrapping_add(1);
        let Some(header) = self.link(Side::Access).gateways.choose(flow(packet.hash.0)) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        let Some(bytes) = header.replace(&mut frame, LINK, TUNNEL, usize::from(packet.len)) else {
            return self.discard(DropReason::NoBuffer);
        };
        let Some((front, inner)) = bytes.split_at_mut_checked(TUNNEL) else { return };
        edit(inner, packet.protocol, PacketEnd::Destination, delivery.inside);
        if TUNNEL == GRE {
            let Ok((inner, _)) = IpWords::ref_from_prefix(inner) else { return };
            let Ok((front, _)) = TunnelWords::mut_from_prefix(front) else { return };
            *front = self.tunnel_words(inner, packet.len, &delivery.home);
        }
        self.emit(Side::Access, frame, cx);
    }

    /// Returns the tunnel header (RFC 2784) of a packet of `len` bytes: from the shard's endpoint
    /// to the home.
    #[inline(always)]
    fn tunnel_words(&self, inner: &IpWords, len: u16, home: &Home) -> TunnelWords {
        let mut words = IpWords {
            version_tos: [NO_OPTIONS, ecn::encapsulate(inner.version_tos[1])],
            total_length: (len + GRE as u16).to_be(),
            identification: self.outer_identification.to_be(),
            fragment: inner.fragment & DONT_FRAGMENT,
            ttl: OUTER_TTL,
            protocol: ipv4::PROTOCOL_GRE,
            checksum: 0,
            source: self.shards.endpoint(home.shard).to_be(),
            destination: home.outer.to_be(),
        };
        words.checksum = checksum::of_words(zerocopy::transmute!(words));
        TunnelWords { outer: words, gre: GRE_IPV4 }
    }
}

/// The bits of a packet's hash that choose its gateway.
#[inline(always)]
fn flow(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Gives one end of a packet a new address and port, and decrements the TTL.
#[inline(always)]
fn edit(bytes: &mut [u8], protocol: Protocol, end: PacketEnd, new: Endpoint) {
    let Some((headers, rest)) = bytes.split_first_chunk_mut::<{ size_of::<Headers>() }>() else {
        return;
    };
    let Ok(headers) = Headers::mut_from_bytes(headers) else { return };
    let (address, port) = (new.address.to_be(), new.port.to_be());
    let (old_address, old_port) = match end {
        PacketEnd::Source => (headers.ip.source, headers.source_port),
        PacketEnd::Destination => (headers.ip.destination, headers.destination_port),
    };
    match end {
        PacketEnd::Source => (headers.ip.source, headers.source_port) = (address, port),
        PacketEnd::Destination => {
            (headers.ip.destination, headers.destination_port) = (address, port)
        }
    }
    let delta = Delta::new().replace32(old_address, address);
    headers.ip.ttl = headers.ip.ttl.wrapping_sub(1);
    headers.ip.checksum = delta.decrement_first().apply(headers.ip.checksum);
    let delta = delta.replace16(old_port, port);
    if protocol == Protocol::Udp {
        // RFC 768: 0 means no checksum, and a sum of 0 is sent as all ones, which are their own
        // swap.
        if headers.udp_checksum != 0 {
            let sum = delta.apply(headers.udp_checksum);
            headers.udp_checksum = if sum == 0 { 0xffff } else { sum };
        }
    } else if let Some(field) = rest.get_mut(TCP_CHECKSUM - size_of::<Headers>()..)
        && let Some(field) = field.first_chunk_mut::<2>()
    {
        *field = delta.apply(u16::from_ne_bytes(*field)).to_ne_bytes();
    }
}
