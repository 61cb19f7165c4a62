//! Hot. Packets into tunnels of GRE over IPv6: of settled flows, of others, and back into the
//! tunnel of a home for another worker.

use weir_nat::{Home, InboundKey, Nat, Tick};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::ipv6::Ipv6;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::endpoints6::Octets6;
use crate::engine::{Context, Engine};
use crate::fast_path::{FastPacket, IpWords};
use crate::fast_path_output::{discard, edit, emit, flow};
use crate::ipv6::{FastKey6, decrement_hop_limit, traffic_class};
use crate::packet_direction::SettledRun;
use crate::rewrite::PacketEnd;
use crate::shards::OUTER_TTL;
use crate::tunnel6::GRE6;
use crate::{AccessMode, DropReason, Side, ecn};

/// The IPv6 header of a tunnel packet, by words as they lie in memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
struct OuterHeader6 {
    /// Version, traffic class, flow label, payload length, next header, hop limit.
    first: u64,
    source: Octets6,
    destination: Octets6,
}

const _: () = assert!(size_of::<OuterHeader6>() == Ipv6::LEN);

impl OuterHeader6 {
    /// Returns the header of a tunnel packet with so many bytes behind it. `class` is the traffic
    /// class of the packet inside. The upper bits of its `flow` are the flow label, by which
    /// routers share out the flows of a tunnel (RFC 6438).
    #[inline(always)]
    fn new(
        class: u8,
        flow: u32,
        payload_len: u16,
        (source, destination): (Octets6, Octets6),
    ) -> Self {
        /// RFC 8200 section 3: version, traffic class, flow label.
        const LABEL_BITS: u32 = 20;
        const LAST: u64 = (ipv4::PROTOCOL_GRE as u64) << 8 | OUTER_TTL as u64;
        let label = flow >> (u32::BITS - LABEL_BITS);
        let first = 6 << 28 | u32::from(ecn::encapsulate(class)) << LABEL_BITS | label;
        let first = u64::from(first) << 32 | u64::from(payload_len) << 16 | LAST;
        Self { first: first.to_be(), source, destination }
    }
}

/// As [`OuterHeader6`], with the GRE header of a home that sends no key.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
struct TunnelHeader6 {
    outer: OuterHeader6,
    gre: u32,
}

const _: () = assert!(size_of::<TunnelHeader6>() == GRE6);

impl<F: Frame> Engine<F> {
    /// Sends packets from the internet, which begin at `pull` of their frames, to homes with
    /// tunnels over IPv6, until one is not of a settled session, its home has another tunnel, it
    /// does not fit, or its shard is not served. Returns how many it sent.
    #[inline(never)]
    pub(crate) fn send_settled_over_ipv6<const LINK: usize>(
        &mut self,
        pull: usize,
        run: SettledRun<'_, '_, F, InboundKey>,
    ) -> usize {
        let settled = |nat: &mut Nat, packet: &FastPacket<InboundKey>, now| {
            let FastPacket { key, look_up, .. } = packet;
            let settled = nat.inbound_settled_over_ipv6(look_up.candidate, key, now)?;
            Some((settled.to.home, (settled.to.inside, settled.deltas)))
        };
        self.send_into_tunnels6::<LINK, _, _>(
            pull,
            gre::PROTOCOL_IPV4,
            run,
            settled,
            |bytes, (inside, deltas)| {
                edit(bytes, PacketEnd::Destination, inside, deltas);
                IpWords::ref_from_prefix(bytes).map_or(0, |(ip, _)| ip.version_tos[1])
            },
        )
    }

    /// As [`send_settled_over_ipv6`](Self::send_settled_over_ipv6), packets of IPv6.
    #[inline(never)]
    pub(crate) fn send_settled6_over_ipv6<const LINK: usize>(
        &mut self,
        pull: usize,
        run: SettledRun<'_, '_, F, FastKey6>,
    ) -> usize {
        let settled = |nat: &mut Nat, packet: &FastPacket<FastKey6>, now| {
            let FastPacket { key, look_up, .. } = packet;
            let home = nat.inbound6_settled::<true>(look_up.candidate, &key.flow, now)?;
            (home.gre_key.is_none() && home.is_over_ipv6()).then_some((home, ()))
        };
        self.send_into_tunnels6::<LINK, _, _>(
            pull,
            gre::PROTOCOL_IPV6,
            run,
            settled,
            |bytes, ()| {
                decrement_hop_limit(bytes);
                traffic_class(bytes)
            },
        )
    }

    /// `settled` returns the home of a packet of a settled flow, and its changes; `change` makes
    /// these and returns the traffic class.
    #[inline(always)]
    fn send_into_tunnels6<const LINK: usize, K, T>(
        &mut self,
        pull: usize,
        protocol: u16,
        run: SettledRun<'_, '_, F, K>,
        settled: impl Fn(&mut Nat, &FastPacket<K>, Tick) -> Option<(Home, T)>,
        change: impl Fn(&mut [u8], T) -> u8,
    ) -> usize {
        let SettledRun { packets, frames, out, now } = run;
        let Self { nat, duties, links, counters, shards, .. } = self;
        let link = &links[Side::Access as usize];
        // The slow path counts a packet without a gateway.
        let Some(own) = &link.ipv6 else { return 0 };
        let gateways = own.gateways.live();
        let [first, others @ ..] = gateways else { return 0 };
        let mtu = link.mtu.saturating_sub(GRE6);
        let mut left = packets.iter();
        while let Some(packet) = left.as_slice().first() {
            let Some((home, changes)) = settled(nat, packet, now) else { break };
            let ends = (shards.endpoint6_of(home.shard), nat.outer_ipv6(home.outer));
            let (Some(endpoint), Some(outer)) = ends else { break };
            let len = usize::from(packet.len);
            if len > mtu || !duties.note_served_traffic(home.shard) {
                break;
            }
            let Some(mut frame) = frames.next() else { break };
            left.next();
            let flow = flow(packet.look_up.hash);
            let header = match others.is_empty() {
                true => first,
                false => &gateways[flow as usize % gateways.len()],
            };
            let Some(bytes) = header.replace::<LINK, F>(&mut frame, pull, GRE6, len) else {
                discard(counters, frame);
                continue;
            };
            if let Some((front, inner)) = bytes.split_at_mut_checked(GRE6)
                && let Ok(front) = TunnelHeader6::mut_from_bytes(front)
            {
                let class = change(inner, changes);
                let payload_len = packet.len + (GRE6 - Ipv6::LEN) as u16;
                let ends = (endpoint, outer.map(u64::to_be));
                *front = TunnelHeader6 {
                    outer: OuterHeader6::new(class, flow, payload_len, ends),
                    // No key, no checksum, no sequence number (RFC 2784).
                    gre: u32::from(protocol).to_be(),
                };
            }
            emit(counters, &mut out.access, frame);
        }
        packets.len() - left.len()
    }

    /// Prepends the header of a tunnel over IPv6: from the shard's endpoint to the home, with the
    /// home's own key.
    #[inline(never)]
    pub(crate) fn encapsulate_over_ipv6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        home: &Home,
        (flow, protocol): (u32, u16),
        cx: &mut Context<'_, P>,
    ) {
        let own = self.link(Side::Access).ipv6.as_ref();
        let Some(header) = own.and_then(|own| own.gateways.choose(flow)) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        let ends = (self.shards.endpoint6_of(home.shard), self.nat.outer_ipv6(home.outer));
        let (Some(endpoint), Some(outer)) = ends else {
            return self.discard(DropReason::NotServing);
        };
        let tunnel_len = Ipv6::LEN + gre::header_len(home.gre_key);
        let Some(packet) = header.push_before(&mut frame, tunnel_len) else {
            return self.discard(DropReason::NoBuffer);
        };
        let outer = outer.map(u64::to_be);
        write_tunnel_header(packet, (endpoint, outer), home.gre_key, (flow, protocol));
        self.emit(Side::Access, frame, cx);
    }

    /// Writes, into the room in front of a packet of this home, the header of the tunnel in which
    /// it came.
    pub(crate) fn restore_tunnel6(
        &self,
        packet: &mut [u8],
        home: &Home,
        protocol: u16,
    ) -> Result<(), DropReason> {
        let ends = (self.nat.outer_ipv6(home.outer), self.shards.endpoint6_of(home.shard));
        let (Some(outer), Some(endpoint)) = ends else { return Err(DropReason::NotServing) };
        let outer = outer.map(u64::to_be);
        write_tunnel_header(packet, (outer, endpoint), home.gre_key, (0, protocol));
        Ok(())
    }

    /// Returns the length of a tunnel's headers, bytes.
    #[inline]
    pub(crate) fn tunnel_len(&self, home: &Home) -> usize {
        let outer = if home.is_over_ipv6() { Ipv6::LEN } else { Ipv4::LEN };
        match self.mode {
            AccessMode::Gre => outer + gre::header_len(home.gre_key),
            AccessMode::Plain => 0,
        }
    }
}

/// Writes the header of a tunnel over IPv6, between these addresses as they lie in memory, into the
/// room in front of the inner packet.
fn write_tunnel_header(
    packet: &mut [u8],
    ends: (Octets6, Octets6),
    key: Option<u32>,
    (flow, protocol): (u32, u16),
) {
    let payload_len = (packet.len() - Ipv6::LEN) as u16;
    let tunnel_len = Ipv6::LEN + gre::header_len(key);
    let Some((tunnel, inner)) = packet.split_at_mut_checked(tunnel_len) else { return };
    let class = match (protocol, &*inner) {
        (gre::PROTOCOL_IPV4, [_, tos, ..]) => *tos,
        _ => traffic_class(inner),
    };
    let Ok((outer, gre)) = OuterHeader6::mut_from_prefix(tunnel) else { return };
    *outer = OuterHeader6::new(class, flow, payload_len, ends);
    gre::emit(gre, protocol, key);
}
