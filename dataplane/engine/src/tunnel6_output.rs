//! Hot. Packets into tunnels of GRE over IPv6: of settled sessions, of others, and back into the
//! tunnel of a home for another worker.

use weir_nat::{Home, InboundKey};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::ipv6::Ipv6;

use crate::endpoints6::Octets6;
use crate::engine::{Context, Engine};
use crate::fast_path::FastDownstream;
use crate::fast_path_output::edit;
use crate::rewrite::PacketEnd;
use crate::shards::OUTER_TTL;
use crate::{AccessMode, DropReason, Side, ecn};

impl<F: Frame> Engine<F> {
    /// Sends a packet of a settled session, which begins at `offset` of its frame, to a home with a
    /// tunnel over IPv6. Returns the frame if the packet is another one.
    #[inline(never)]
    pub(crate) fn send_settled_over_ipv6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &FastDownstream,
        offset: usize,
        cx: &mut Context<'_, P>,
    ) -> Option<F> {
        let (candidate, key): (_, &InboundKey) = (packet.look_up.candidate, &packet.key);
        let Some(settled) = self.nat.inbound_settled_over_ipv6(candidate, key, cx.now.tick())
        else {
            return Some(frame);
        };
        let (home, inside) = (settled.to.home, settled.to.inside);
        let fits = usize::from(packet.len) <= self.tunnel_mtu(&home);
        if !fits || !self.duties.note_served_traffic(home.shard) {
            return Some(frame);
        }
        frame.keep(offset, usize::from(packet.len));
        edit(frame.data_mut(), PacketEnd::Destination, inside, settled.deltas);
        let flow = (packet.look_up.hash.0 >> 32) as u32;
        self.encapsulate_over_ipv6(frame, &home, (flow, gre::PROTOCOL_IPV4), cx);
        None
    }

    /// Prepends the header of a tunnel over IPv6: from the shard's endpoint to the home, with the
    /// home's own key. The packet's flow gives the flow label, by which routers share out the
    /// flows of a tunnel (RFC 6438).
    #[inline(always)]
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
/// room in front of the inner packet. The upper bits of `flow` are the flow label.
#[inline(always)]
fn write_tunnel_header(
    packet: &mut [u8],
    (from, to): (Octets6, Octets6),
    key: Option<u32>,
    (flow, protocol): (u32, u16),
) {
    let payload_len = (packet.len() - Ipv6::LEN) as u16;
    let tunnel_len = Ipv6::LEN + gre::header_len(key);
    let Some((tunnel, inner)) = packet.split_at_mut_checked(tunnel_len) else { return };
    let class = match (protocol, inner) {
        (gre::PROTOCOL_IPV4, [_, tos, ..]) => *tos,
        (_, [first, second, ..]) => *first << 4 | *second >> 4,
        _ => 0,
    };
    let class = u32::from(ecn::encapsulate(class));
    /// RFC 8200 section 3: version, traffic class, flow label.
    const LABEL_BITS: u32 = 20;
    let first = 6 << 28 | class << LABEL_BITS | flow >> (u32::BITS - LABEL_BITS);
    let Some((outer, gre)) = tunnel.split_first_chunk_mut::<{ Ipv6::LEN }>() else { return };
    outer[..4].copy_from_slice(&first.to_be_bytes());
    outer[4..6].copy_from_slice(&payload_len.to_be_bytes());
    (outer[6], outer[7]) = (ipv4::PROTOCOL_GRE, OUTER_TTL);
    outer[8..24].copy_from_slice(zerocopy::IntoBytes::as_bytes(&from));
    outer[24..].copy_from_slice(zerocopy::IntoBytes::as_bytes(&to));
    gre::emit(gre, protocol, key);
}
