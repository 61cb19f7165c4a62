//! Hot. Edits and sends a packet of a settled session: one pass over its headers, by words as they
//! lie in memory.

use weir_nat::{ChecksumDeltas, Delivery, Endpoint, Hash, InboundKey, OutboundKey};
use weir_wire::checksum::{self, FoldedDelta};
use weir_wire::frame::Frame;
use weir_wire::{gre, ipv4};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::engine::Engine;
use crate::fast_path::{FastPacket, GRE, Headers, IpWords, NO_OPTIONS, TCP_CHECKSUM};
use crate::packet_direction::SettledRun;
use crate::rewrite::PacketEnd;
use crate::shards::OUTER_TTL;
use crate::tunnel6::GRE6;
use crate::{DropReason, EngineCounters, Side, ecn};

/// Don't fragment (RFC 791).
const DONT_FRAGMENT: u16 = 0x4000_u16.to_be();

impl<F: Frame> Engine<F> {
    /// Sends packets of homes, which begin at `pull` of their frames, from their public endpoints
    /// to the internet, until one is not of a settled session. Returns how many it sent.
    #[inline(never)]
    pub(crate) fn send_settled_up<const LINK: usize, const TUNNEL: usize>(
        &mut self,
        pull: usize,
        run: SettledRun<'_, '_, F, OutboundKey>,
    ) -> usize {
        let SettledRun { packets, frames, out, now } = run;
        let Self { nat, duties, links, counters, .. } = self;
        let gateways = links[Side::Internet as usize].gateways.live();
        // The slow path counts a packet without a gateway.
        let [first, others @ ..] = gateways else { return 0 };
        let mut left = packets.iter();
        while let Some(FastPacket { key, look_up, len }) = left.as_slice().first() {
            let settled = match TUNNEL {
                GRE6 => nat.outbound_settled_over_ipv6(look_up.candidate, key, now),
                _ => nat.outbound_settled(look_up.candidate, key, now),
            };
            let Some(settled) = settled else { break };
            let Some(mut frame) = frames.next() else { break };
            left.next();
            duties.note_traffic(key.shard());
            let header = match others.is_empty() {
                true => first,
                false => &gateways[flow(look_up.hash) as usize % gateways.len()],
            };
            let len_in_frame = usize::from(*len);
            let Some(bytes) = header.replace::<LINK, F>(&mut frame, pull, 0, len_in_frame) else {
                discard(counters, frame);
                continue;
            };
            edit(bytes, PacketEnd::Source, settled.to, settled.deltas);
            emit(counters, &mut out.internet, frame);
        }
        packets.len() - left.len()
    }

    /// Sends packets from the internet, which begin at `pull` of their frames, to the inside
    /// endpoints of homes that send no GRE key, until one is not of a settled session, or its shard
    /// is not served. Returns how many it sent.
    #[inline(never)]
    pub(crate) fn send_settled_down<const LINK: usize, const TUNNEL: usize>(
        &mut self,
        pull: usize,
        run: SettledRun<'_, '_, F, InboundKey>,
    ) -> usize {
        let SettledRun { packets, frames, out, now } = run;
        let Self { nat, duties, links, counters, shards, outer_identification, .. } = self;
        let gateways = links[Side::Access as usize].gateways.live();
        let [first, others @ ..] = gateways else { return 0 };
        let mut identification = *outer_identification;
        let mut left = packets.iter();
        while let Some(FastPacket { key, look_up, len }) = left.as_slice().first() {
            let Some(settled) = nat.inbound_settled(look_up.candidate, key, now) else { break };
            let Delivery { home, inside } = &settled.to;
            if !duties.note_served_traffic(home.shard) {
                break;
            }
            let Some(mut frame) = frames.next() else { break };
            left.next();
            identification = identification.wrapping_add(1);
            let header = match others.is_empty() {
                true => first,
                false => &gateways[flow(look_up.hash) as usize % gateways.len()],
            };
            let len_in_frame = usize::from(*len);
            let Some(bytes) = header.replace::<LINK, F>(&mut frame, pull, TUNNEL, len_in_frame)
            else {
                discard(counters, frame);
                continue;
            };
            if let Some((front, inner)) = bytes.split_at_mut_checked(TUNNEL) {
                edit(inner, PacketEnd::Destination, *inside, settled.deltas);
                if TUNNEL == GRE
                    && let Ok((inner, _)) = IpWords::ref_from_prefix(inner)
                    && let Ok((front, _)) = TunnelHeader::mut_from_prefix(front)
                {
                    let endpoint = shards.endpoint(home.shard);
                    let (tos, dont_fragment) =
                        (inner.version_tos[1], inner.fragment & DONT_FRAGMENT);
                    *front = TunnelHeader::new(
                        (tos, dont_fragment),
                        gre::PROTOCOL_IPV4,
                        *len,
                        (endpoint, home.outer),
                        identification,
                    );
                }
            }
            emit(counters, &mut out.access, frame);
        }
        *outer_identification = identification;
        packets.len() - left.len()
    }
}

/// Drops a packet for which there is no headroom or no room in the output.
#[cold]
#[inline(never)]
pub(crate) fn discard<F>(counters: &EngineCounters, frame: F) {
    counters.count_drops(DropReason::NoBuffer, 1);
    drop(frame);
}

/// Sends a finished frame.
#[inline(always)]
pub(crate) fn emit<F>(counters: &EngineCounters, out: &mut Vec<F>, frame: F) {
    match out.len() < out.capacity() {
        true => out.push(frame),
        false => discard(counters, frame),
    }
}

/// A tunnel header (RFC 2784) without options and without a key, by words as they lie in memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
pub(crate) struct TunnelHeader {
    /// Version and length, traffic class, total length, identification, fragmentation.
    first: u64,
    /// TTL, protocol, checksum, source.
    second: u64,
    /// Destination, header of GRE.
    third: u64,
}

const _: () = assert!(size_of::<TunnelHeader>() == GRE);

impl TunnelHeader {
    /// Returns the tunnel header of a packet of `len` bytes, from the shard's endpoint to the home.
    /// `tos` is the packet's traffic class, `protocol` its EtherType. "Don't fragment" is set or
    /// not, as it lies in memory.
    #[inline(always)]
    pub(crate) fn new(
        (tos, dont_fragment): (u8, u16),
        protocol: u16,
        len: u16,
        (endpoint, home): (u32, u32),
        identification: u16,
    ) -> Self {
        const TTL_PROTOCOL: u64 = u16::from_ne_bytes([OUTER_TTL, ipv4::PROTOCOL_GRE]) as u64;
        let first = u64::from(NO_OPTIONS)
            | u64::from(ecn::encapsulate(tos)) << 8
            | u64::from((len + GRE as u16).to_be()) << 16
            | u64::from(identification.to_be()) << 32
            | u64::from(dont_fragment) << 48;
        let second = TTL_PROTOCOL | u64::from(endpoint.to_be()) << 32;
        let home = u64::from(home.to_be());
        let checksum = checksum::of_words([first, second, home]);
        Self {
            first,
            second: second | u64::from(checksum) << 16,
            // No key, no checksum, no sequence number (RFC 2784).
            third: home | u64::from(protocol.to_be()) << 48,
        }
    }
}

/// The bits of a packet's hash that choose its gateway.
#[inline(always)]
pub(crate) fn flow(hash: Hash) -> u32 {
    (hash.0 >> 32) as u32
}

/// Gives one end of a packet a new address and port, and decrements the TTL.
#[inline(always)]
pub(crate) fn edit(bytes: &mut [u8], end: PacketEnd, new: Endpoint, deltas: ChecksumDeltas) {
    let Some((headers, rest)) = bytes.split_first_chunk_mut::<{ size_of::<Headers>() }>() else {
        return;
    };
    let Ok(headers) = Headers::mut_from_bytes(headers) else { return };
    let (address, port) = (new.address.to_be(), new.port.to_be());
    match end {
        PacketEnd::Source => (headers.ip.source, headers.source_port) = (address, port),
        PacketEnd::Destination => {
            (headers.ip.destination, headers.destination_port) = (address, port)
        }
    }
    headers.ip.ttl = headers.ip.ttl.wrapping_sub(1);
    headers.ip.checksum = FoldedDelta(deltas.address).apply_with_hop(headers.ip.checksum);
    let delta = FoldedDelta(deltas.endpoint);
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
