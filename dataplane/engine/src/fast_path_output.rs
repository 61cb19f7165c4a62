//! Hot. Edits and sends a packet of a settled session: one pass over its headers, by words as they
//! lie in memory.

use weir_nat::{Endpoint, Hash, Home, InboundKey, OutboundKey};
use weir_wire::checksum::{self, Delta};
use weir_wire::frame::Frame;
use weir_wire::ipv4;
use zerocopy::FromBytes;

use crate::burst::Run;
use crate::engine::Engine;
use crate::fast_path::{FastPacket, GRE, GRE_IPV4, Headers, IpWords, NO_OPTIONS, TunnelWords};
use crate::rewrite::PacketEnd;
use crate::shards::OUTER_TTL;
use crate::{DropReason, EngineCounters, Side, ecn};

/// Offset of the checksum in a TCP segment behind an IP header without options.
const TCP_CHECKSUM: usize = 36;
/// Don't fragment (RFC 791).
const DONT_FRAGMENT: u16 = 0x4000_u16.to_be();

impl<F: Frame> Engine<F> {
    /// Sends packets of homes, which begin at `pull` of their frames, from their public endpoints to
    /// the internet, until one is not of a settled session. Returns how many it sent.
    #[inline(never)]
    pub(crate) fn send_settled_up(
        &mut self,
        pull: usize,
        run: Run<'_, '_, F, OutboundKey>,
    ) -> usize {
        let Run { packets, frames, out, now } = run;
        let Self { nat, duties, links, counters, .. } = self;
        let gateways = &links[Side::Internet as usize].gateways;
        for (at, packet) in packets.iter().enumerate() {
            let FastPacket { key, look_up, len } = packet;
            let Some(public) = nat.outbound_settled(look_up.candidate, key, now) else { return at };
            let Some(mut frame) = frames.next() else { return at };
            duties.note_traffic(key.shard());
            let bytes = gateways
                .choose(flow(look_up.hash))
                .map(|header| header.replace(&mut frame, pull, 0, usize::from(*len)));
            let Some(Some(bytes)) = bytes else {
                discard(counters, bytes.is_some(), frame);
                continue;
            };
            edit(bytes, PacketEnd::Source, public);
            emit(counters, &mut out.internet, frame);
        }
        packets.len()
    }

    /// Sends packets from the internet, which begin at `pull` of their frames, to the inside
    /// endpoints of homes that send no GRE key, until one is not of a settled session, or its shard
    /// is not served. Returns how many it sent.
    #[inline(never)]
    pub(crate) fn send_settled_down<const TUNNEL: usize>(
        &mut self,
        pull: usize,
        run: Run<'_, '_, F, InboundKey>,
    ) -> usize {
        let Run { packets, frames, out, now } = run;
        let Self { nat, duties, links, counters, shards, outer_identification, .. } = self;
        let gateways = &links[Side::Access as usize].gateways;
        for (at, packet) in packets.iter().enumerate() {
            let FastPacket { key, look_up, len } = packet;
            let Some(delivery) = nat.inbound_settled(look_up.candidate, key, now) else {
                return at;
            };
            let home = &delivery.home;
            if !duties.note_served_traffic(home.shard) {
                return at;
            }
            let Some(mut frame) = frames.next() else { return at };
            *outer_identification = outer_identification.wrapping_add(1);
            let bytes = gateways
                .choose(flow(look_up.hash))
                .map(|header| header.replace(&mut frame, pull, TUNNEL, usize::from(*len)));
            let Some(Some(bytes)) = bytes else {
                discard(counters, bytes.is_some(), frame);
                continue;
            };
            if let Some((front, inner)) = bytes.split_at_mut_checked(TUNNEL) {
                edit(inner, PacketEnd::Destination, delivery.inside);
                if TUNNEL == GRE
                    && let Ok((inner, _)) = IpWords::ref_from_prefix(inner)
                    && let Ok((front, _)) = TunnelWords::mut_from_prefix(front)
                {
                    let endpoint = shards.endpoint(home.shard);
                    *front = tunnel_words(inner, *len, endpoint, home, *outer_identification);
                }
            }
            emit(counters, &mut out.access, frame);
        }
        packets.len()
    }
}

/// Drops a packet for which there is no gateway or no headroom.
#[cold]
#[inline(never)]
fn discard<F>(counters: &EngineCounters, has_gateway: bool, frame: F) {
    let reason = if has_gateway { DropReason::NoBuffer } else { DropReason::GatewayUnresolved };
    counters.count_drops(reason, 1);
    drop(frame);
}

/// Sends a finished frame.
#[inline(always)]
fn emit<F>(counters: &EngineCounters, out: &mut Vec<F>, frame: F) {
    match out.len() < out.capacity() {
        true => out.push(frame),
        false => discard(counters, true, frame),
    }
}

/// Returns the tunnel header (RFC 2784) of a packet of `len` bytes: from the shard's endpoint to the
/// home.
#[inline(always)]
fn tunnel_words(
    inner: &IpWords,
    len: u16,
    endpoint: u32,
    home: &Home,
    identification: u16,
) -> TunnelWords {
    let mut words = IpWords {
        version_tos: [NO_OPTIONS, ecn::encapsulate(inner.version_tos[1])],
        total_length: (len + GRE as u16).to_be(),
        identification: identification.to_be(),
        fragment: inner.fragment & DONT_FRAGMENT,
        ttl: OUTER_TTL,
        protocol: ipv4::PROTOCOL_GRE,
        checksum: 0,
        source: endpoint.to_be(),
        destination: home.outer.to_be(),
    };
    words.checksum = checksum::of_words(zerocopy::transmute!(words));
    TunnelWords { outer: words, gre: GRE_IPV4 }
}

/// The bits of a packet's hash that choose its gateway.
#[inline(always)]
fn flow(hash: Hash) -> u32 {
    (hash.0 >> 32) as u32
}

/// Gives one end of a packet a new address and port, and decrements the TTL.
#[inline(always)]
fn edit(bytes: &mut [u8], end: PacketEnd, new: Endpoint) {
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
    if headers.ip.protocol == ipv4::PROTOCOL_UDP {
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
