//! Hot. Sends the packets of settled IPv6 flows: nothing of them changes but the hop limit.

use weir_nat::{Nat, ShardIndex, Tick};
use weir_wire::frame::Frame;
use weir_wire::gre;
use zerocopy::FromBytes;

use crate::Side;
use crate::engine::Engine;
use crate::fast_path::{GRE, PLAIN};
use crate::fast_path_output::{TunnelHeader, discard, emit, flow};
use crate::ipv6::fast_path::{FastKey6, FastPacket6};
use crate::ipv6::output::decrement_hop_limit;
use crate::packet_direction::SettledRun;

impl<F: Frame> Engine<F> {
    /// Sends packets of homes, which begin at `pull` of their frames, to the internet, until one is
    /// not of a settled flow, or its shard is not served. Returns how many it sent.
    #[inline(never)]
    pub(crate) fn send_settled6_up<const LINK: usize, const TUNNEL: usize>(
        &mut self,
        pull: usize,
        run: SettledRun<'_, '_, F, FastKey6>,
    ) -> usize {
        self.send_settled6_as_they_are::<LINK>(Side::Internet, pull, run, |nat, packet, now| {
            let FastPacket6 { key, look_up, .. } = packet;
            let (candidate, home) = (look_up.candidate, key.home());
            match TUNNEL {
                PLAIN => nat.outbound6_settled::<false>(candidate, &key.flow, &home, now),
                _ => nat.outbound6_settled::<true>(candidate, &key.flow, &home, now),
            }
        })
    }

    /// As [`send_settled6_up`](Self::send_settled6_up), packets from the internet to homes without
    /// a tunnel.
    #[inline(never)]
    pub(crate) fn send_settled6_down<const LINK: usize>(
        &mut self,
        pull: usize,
        run: SettledRun<'_, '_, F, FastKey6>,
    ) -> usize {
        self.send_settled6_as_they_are::<LINK>(Side::Access, pull, run, |nat, packet, now| {
            let FastPacket6 { key, look_up, .. } = packet;
            let home = nat.inbound6_settled::<false>(look_up.candidate, &key.flow, now)?;
            Some(home.shard)
        })
    }

    /// Sends packets to a side, without a tunnel. `settled` returns the shard of a packet of a
    /// settled flow.
    #[inline(always)]
    fn send_settled6_as_they_are<const LINK: usize>(
        &mut self,
        to: Side,
        pull: usize,
        run: SettledRun<'_, '_, F, FastKey6>,
        settled: impl Fn(&mut Nat, &FastPacket6, Tick) -> Option<ShardIndex>,
    ) -> usize {
        let SettledRun { packets, frames, out, now } = run;
        let Self { nat, duties, links, counters, .. } = self;
        // The slow path counts a packet without a gateway.
        let Some(own) = &links[to as usize].ipv6 else { return 0 };
        let gateways = own.gateways.live();
        let [first, others @ ..] = gateways else { return 0 };
        let out = match to {
            Side::Access => &mut out.access,
            Side::Internet => &mut out.internet,
        };
        let mut left = packets.iter();
        while let Some(packet) = left.as_slice().first() {
            let Some(shard) = settled(nat, packet, now) else { break };
            if !duties.note_served_traffic(shard) {
                break;
            }
            let Some(mut frame) = frames.next() else { break };
            left.next();
            let header = match others.is_empty() {
                true => first,
                false => &gateways[flow(packet.look_up.hash) as usize % gateways.len()],
            };
            let len = usize::from(packet.len);
            let Some(bytes) = header.replace::<LINK, F>(&mut frame, pull, 0, len) else {
                discard(counters, frame);
                continue;
            };
            decrement_hop_limit(bytes);
            emit(counters, out, frame);
        }
        packets.len() - left.len()
    }

    /// As [`send_settled6_down`](Self::send_settled6_down), to homes in tunnels of GRE over IPv4,
    /// until one is not of a settled flow, its shard is not served, or its home sends a GRE key.
    #[inline(never)]
    pub(crate) fn send_settled6_into_tunnels<const LINK: usize>(
        &mut self,
        pull: usize,
        run: SettledRun<'_, '_, F, FastKey6>,
    ) -> usize {
        let SettledRun { packets, frames, out, now } = run;
        let Self { nat, duties, links, counters, shards, outer_identification, .. } = self;
        let gateways = links[Side::Access as usize].gateways.live();
        let [first, others @ ..] = gateways else { return 0 };
        let mut identification = *outer_identification;
        let mut left = packets.iter();
        while let Some(FastPacket6 { key, look_up, len }) = left.as_slice().first() {
            let settled = nat.inbound6_settled::<true>(look_up.candidate, &key.flow, now);
            let Some(home) = settled else { break };
            if home.gre_key.is_some() || home.is_over_ipv6() {
                break;
            }
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
            let Some(bytes) = header.replace::<LINK, F>(&mut frame, pull, GRE, len_in_frame) else {
                discard(counters, frame);
                continue;
            };
            if let Some((front, inner)) = bytes.split_at_mut_checked(GRE)
                && let Ok((front, _)) = TunnelHeader::mut_from_prefix(front)
            {
                decrement_hop_limit(inner);
                let class = traffic_class(inner);
                let endpoint = shards.endpoint(home.shard);
                // Routers on the way may fragment it: see `write_tunnel_header6`.
                *front = TunnelHeader::new(
                    (class, 0),
                    gre::PROTOCOL_IPV6,
                    *len,
                    (endpoint, home.outer),
                    identification,
                );
            }
            emit(counters, &mut out.access, frame);
        }
        *outer_identification = identification;
        packets.len() - left.len()
    }
}

/// Returns the traffic class of a packet.
#[inline(always)]
pub(crate) fn traffic_class(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] => first << 4 | second >> 4,
        _ => 0,
    }
}
