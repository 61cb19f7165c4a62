//! Hot. Homes with tunnels of GRE over IPv6 (RFC 7676), both ways.
//!
//! ```text
//!   frame --> outer IPv6 to a served endpoint --> GRE --> IPv6 inside: as behind GRE over IPv4
//!                        |                            \-> IPv4 inside: settled, or slow path
//!                        +-- source without a handle: its packet waits for its turn, and gets one
//! ```
//!
//! The home is named by the handle of its outer address ([`weir_nat::is_outer_handle`]), so all
//! steps behind this one are those of other tunnels. A packet of a home that is not known gets the
//! handle when it is served, not when it is read: another packet of its burst may have brought it.
//! What begins no flow leaves no handle behind ([`Nat::release_outers`](weir_nat::Nat)).
//!
//! Fragments of tunnel packets are put together first (`outer_fragment.rs`).

use weir_nat::{Home, OutboundKey, PacketKey, ShardIndex};
use weir_wire::ethernet::ETHERTYPE_IPV6;
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre::Gre;
use weir_wire::ipv4;
use weir_wire::ipv6::{self, Ipv6};
use weir_wire::{gre, icmp6};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::endpoints6::{Octets6, octets};
use crate::engine::{Context, Engine};
use crate::ethernet_input::sender;
use crate::fast_path::{FastUpstream, Headers, NO_OPTIONS};
use crate::fast_path_output::edit;
use crate::ip_input::Packet;
use crate::ipv6::{Packet6State, PacketStep6, Way6, set_traffic_class, transit_input6};
use crate::link_header::UNTAGGED;
use crate::party::Party;
use crate::rewrite::{self, PacketEnd};
use crate::slow_path::Way;
use crate::upstream::{Upstream, UpstreamStep};
use crate::{AccessMode, DropReason, Side, ecn};

/// No key, no checksum, no sequence number; IPv4 (RFC 2784), as it lies in memory.
const GRE_IPV4: u32 = u32::from_ne_bytes([0, 0, 8, 0]);

/// The states of a frame from a home, of which a tunnel packet uses those of its inner packet.
pub(crate) struct TunnelPacket<'a> {
    pub(crate) ipv6: &'a mut Packet6State,
    pub(crate) fast: &'a mut FastUpstream,
    pub(crate) slow: &'a mut Upstream,
}

/// State of an IPv4 packet in a tunnel over IPv6 while its burst is processed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner4State {
    pub(crate) fast: FastUpstream,
    pub(crate) slow: Upstream,
}

impl Inner4State {
    pub(crate) fn empty() -> Self {
        Self { fast: FastUpstream::empty(), slow: Upstream::EMPTY }
    }
}

/// A tunnel packet to a served endpoint, without its headers.
struct Decapsulated {
    home: Home,
    /// Offset of the inner packet in the frame, and its length.
    offset: usize,
    len: usize,
    outer_class: u8,
}

/// The headers of a tunnel packet without extension headers, key and options, by words as they lie
/// in memory.
#[derive(Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
struct OuterWords {
    version_class_flow: [u8; 4],
    payload_length: u16,
    next_header: u8,
    hop_limit: u8,
    source: Octets6,
    destination: Octets6,
    gre: u32,
}

const OUTER_LEN: usize = size_of::<OuterWords>();
const _: () = assert!(OUTER_LEN == Ipv6::LEN + Gre::LEN);

/// More fragments, and the offset of a fragment, as they lie in memory.
const FRAGMENTED: u16 = 0x3fff_u16.to_be();

impl<F: Frame> Engine<F> {
    /// Reads a tunnel packet with an inner IPv4 packet of the fast path, by whole words at fixed
    /// offsets. Returns false, and changes nothing that is used, for any other packet, of which
    /// [`tunnel6_input`](Self::tunnel6_input) finds the step.
    #[inline(always)]
    pub(crate) fn read_fast_tunnel6(&self, frame: &mut F, packet: &mut TunnelPacket<'_>) -> bool {
        let link = self.link(Side::Access);
        let data = frame.data();
        let is_fast_frame = data.len() >= UNTAGGED + OUTER_LEN
            && data[..6] == link.mac.0
            && data[12..UNTAGGED] == ETHERTYPE_IPV6.to_be_bytes()
            && !link.is_tagged()
            && frame.is_contiguous();
        if !is_fast_frame || self.mode != AccessMode::Gre {
            return false;
        }
        let Ok((outer, _)) = OuterWords::ref_from_prefix(&data[UNTAGGED..]) else { return false };
        let end = UNTAGGED + Ipv6::LEN + usize::from(u16::from_be(outer.payload_length));
        let [first, second, ..] = outer.version_class_flow;
        let is_plain = first >> 4 == 6
            && outer.next_header == ipv4::PROTOCOL_GRE
            && outer.gre == GRE_IPV4
            && end >= UNTAGGED + OUTER_LEN;
        let Some(inner) = data.get(UNTAGGED + OUTER_LEN..end).filter(|_| is_plain) else {
            return false;
        };
        let (source, destination) = (outer.source, outer.destination);
        let Some(shard) = self.shards.of_endpoint6(destination) else { return false };
        let Some(handle) = self.nat.find_outer(source.map(u64::from_be)) else { return false };
        let home = Home { shard, outer: handle, gre_key: None };
        let outer_class = first << 4 | second >> 4;
        let decapsulated = Decapsulated { home, offset: 0, len: 0, outer_class };
        if !self.duties.serves(shard) || !self.read_inner4_fast(inner, &decapsulated, packet.fast) {
            return false;
        }
        frame.keep(UNTAGGED + OUTER_LEN, usize::from(packet.fast.len));
        packet.fast.look_up.hash = packet.fast.key.hash(&self.nat);
        self.nat.begin_look_up::<OutboundKey>(packet.fast.look_up.hash);
        packet.ipv6.home = home;
        packet.ipv6.step = PacketStep6::FastIpv4 { outer_class };
        true
    }

    /// Decides on the step of a frame with an IPv6 packet, which begins at `offset`, if it is to a
    /// tunnel endpoint: `Ok(None)` if it is not. Cuts the frame to the inner packet and prefetches
    /// the index line of one of IPv4.
    #[inline(never)]
    pub(crate) fn tunnel6_input(
        &self,
        frame: &mut F,
        offset: usize,
        packet: &mut TunnelPacket<'_>,
    ) -> Result<Option<PacketStep6>, DropReason> {
        let bytes = frame.data().get(offset..).unwrap_or_default();
        let Ok((outer, len)) = ipv6::parse(bytes) else { return Ok(None) };
        let endpoint = octets(outer.destination.to_bytes());
        let Some(shard) = self.shards.of_endpoint6(endpoint) else { return Ok(None) };
        if !self.duties.serves(shard) {
            return Err(DropReason::NotServing);
        }
        let gre_at = match outer.next_header {
            ipv4::PROTOCOL_GRE => Ipv6::LEN,
            _ => match walk_to_gre(bytes, len)? {
                Behind::Gre(gre_at) => gre_at,
                Behind::Ping => {
                    packet.ipv6.from = sender(frame);
                    frame.keep(offset, len);
                    return Ok(Some(PacketStep6::ToEndpoint));
                }
                Behind::Fragment => {
                    frame.keep(offset, len);
                    return Ok(Some(PacketStep6::OuterFragment));
                }
            },
        };
        let header = gre::parse(bytes.get(gre_at..len).unwrap_or_default())
            .map_err(|_| DropReason::GreMalformed)?;
        let Some(handle) = self.nat.find_outer(outer_address(outer)) else {
            return Ok(Some(PacketStep6::UnknownHome));
        };
        let tunnel_len = gre_at + header.len;
        let inner = Decapsulated {
            home: Home { shard, outer: handle, gre_key: header.key },
            offset: offset + tunnel_len,
            len: len.saturating_sub(tunnel_len),
            outer_class: outer.traffic_class(),
        };
        let ends = (outer.destination, outer.source);
        packet.ipv6.home = inner.home;
        match header.protocol {
            gre::PROTOCOL_IPV4 => Ok(Some(self.inner4_input(frame, &inner, packet))),
            gre::PROTOCOL_IPV6 => {
                frame.keep(inner.offset, inner.len);
                let (ip, len) = ipv6::parse(frame.data()).map_err(|_| DropReason::Ip6Malformed)?;
                if ip.next_header == ipv4::PROTOCOL_GRE
                    && (ip.source, ip.destination) == ends
                    && is_keepalive(frame.data())
                {
                    return Ok(Some(PacketStep6::KeepaliveBack));
                }
                // A congestion mark made inside the tunnel is carried over (RFC 6040).
                let class = ip.traffic_class();
                let new_class =
                    ecn::decapsulate(inner.outer_class, class).ok_or(DropReason::EcnCongestion)?;
                frame.truncate(len);
                if new_class != class {
                    set_traffic_class(frame.data_mut(), new_class);
                }
                transit_input6(frame.data(), Way6::Up, packet.ipv6).map(Some)
            }
            _ => Err(DropReason::GreProtocol),
        }
    }

    /// Reads an inner IPv4 packet, to which the frame is cut: for the fast path, or for the slow
    /// path.
    #[inline(always)]
    fn inner4_input(
        &self,
        frame: &mut F,
        inner: &Decapsulated,
        packet: &mut TunnelPacket<'_>,
    ) -> PacketStep6 {
        frame.keep(inner.offset, inner.len);
        if self.read_inner4_fast(frame.data(), inner, packet.fast) {
            packet.fast.look_up.hash = packet.fast.key.hash(&self.nat);
            self.nat.begin_look_up::<OutboundKey>(packet.fast.look_up.hash);
            return PacketStep6::FastIpv4 { outer_class: inner.outer_class };
        }
        self.read_inner4_slow(frame, (&inner.home, inner.outer_class), packet.slow);
        packet.fast.look_up.hash = packet.slow.hash;
        if packet.slow.step == UpstreamStep::Translate {
            self.nat.begin_look_up::<OutboundKey>(packet.slow.hash);
        }
        PacketStep6::Ipv4
    }

    /// Fills in `packet` and returns true for an inner packet of the fast path: no IP option, no
    /// GRE key, no fragment, UDP or TCP, no congestion mark to carry over.
    #[inline(always)]
    fn read_inner4_fast(
        &self,
        bytes: &[u8],
        inner: &Decapsulated,
        packet: &mut FastUpstream,
    ) -> bool {
        let Ok((headers, _)) = Headers::ref_from_prefix(bytes) else { return false };
        let (ip, mtu) = (&headers.ip, self.link(Side::Internet).mtu);
        let (ecn, inner_ecn) = (inner.outer_class & 3, ip.version_tos[1] & 3);
        let is_plain = ip.version_tos[0] == NO_OPTIONS
            && ip.fragment & FRAGMENTED == 0
            && inner.home.gre_key.is_none()
            && (ecn == 0 || ecn == inner_ecn);
        if !is_plain {
            return false;
        }
        let Some((key, len)) = headers.outbound_key(bytes, &inner.home, mtu) else { return false };
        (packet.key, packet.len) = (key, len as u16);
        true
    }

    /// Reads an inner packet, to which the frame was cut, for the slow path, which finds the drop
    /// reason too.
    #[inline(never)]
    fn read_inner4_slow(
        &self,
        frame: &mut F,
        (home, outer_class): (&Home, u8),
        packet: &mut Upstream,
    ) {
        packet.step = self
            .inner4_step(frame.data(), (home, outer_class), packet)
            .unwrap_or_else(UpstreamStep::Discard);
        if let UpstreamStep::Discard(_) = packet.step {
            return;
        }
        frame.truncate(packet.len);
        if packet.step == UpstreamStep::Translate && packet.is_remarked {
            rewrite::traffic_class(frame.data_mut(), packet.tos);
        }
    }

    fn inner4_step(
        &self,
        bytes: &[u8],
        (home, outer_class): (&Home, u8),
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        if home.gre_key.is_none() && self.slow_path.is_over(&Party::Home(*home), Way::Up) {
            return Err(DropReason::SlowPathLimit);
        }
        let inner = Packet::read(bytes)
            .map_err(|error| error.reason(DropReason::InnerMalformed, DropReason::InnerChecksum))?;
        (packet.offset, packet.len, packet.home) = (0, inner.bytes.len(), *home);
        let tos = ecn::decapsulate(outer_class, inner.ip.tos).ok_or(DropReason::EcnCongestion)?;
        packet.tos = tos;
        packet.is_remarked = tos != inner.ip.tos;
        self.inner_input(&inner, packet)
    }

    /// Carries out the step of a tunnel packet whose inner packet is of IPv4, or that has none.
    #[inline(always)]
    pub(crate) fn serve_tunnel6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        (state, fast, slow): (&Packet6State, &FastUpstream, &mut Upstream),
        cx: &mut Context<'_, P>,
    ) {
        match state.step {
            PacketStep6::FastIpv4 { outer_class } => {
                let (candidate, now) = (fast.look_up.candidate, cx.now.tick());
                let settled = self.nat.outbound_settled_over_ipv6(candidate, &fast.key, now);
                if let Some(settled) = settled {
                    self.duties.note_traffic(state.home.shard);
                    frame.truncate(usize::from(fast.len));
                    edit(frame.data_mut(), PacketEnd::Source, settled.to, settled.deltas);
                    let flow = (fast.look_up.hash.0 >> 32) as u32;
                    return self.send(Side::Internet, frame, flow, cx);
                }
                self.read_inner4_slow(&mut frame, (&state.home, outer_class), slow);
                slow.candidate = fast.look_up.found();
                self.serve_access(frame, slow, cx);
            }
            PacketStep6::Ipv4 => {
                slow.candidate = fast.look_up.found();
                self.serve_access(frame, slow, cx);
            }
            _ => self.serve_other_tunnel6(frame, (state, slow), cx),
        }
    }

    #[inline(never)]
    fn serve_other_tunnel6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        (state, slow): (&Packet6State, &mut Upstream),
        cx: &mut Context<'_, P>,
    ) {
        match state.step {
            PacketStep6::ToEndpoint => self.answer_endpoint_ping6(frame, state.from, cx),
            PacketStep6::KeepaliveBack => self.send6(Side::Access, frame, 0, cx),
            PacketStep6::OuterFragment => self.hold_outer_fragment6(frame, cx),
            _ => {
                let Some(source) = self.outer_source(&frame) else {
                    return self.discard(DropReason::Ip6Malformed);
                };
                if self.nat.intern_outer(source).is_none() {
                    return self.discard(DropReason::NotSubscriber);
                }
                // The home has its handle now, so the packet has another step.
                let (mut ipv6, mut fast) = (*state, FastUpstream::empty());
                let packet = TunnelPacket { ipv6: &mut ipv6, fast: &mut fast, slow };
                self.read_access6(&mut frame, packet);
                self.nat.look_up::<OutboundKey, _>(std::slice::from_mut(&mut fast));
                self.serve_access6(frame, (&ipv6, &fast, slow), cx);
            }
        }
    }

    fn outer_source(&self, frame: &F) -> Option<[u64; 2]> {
        let (_, offset) = self.link(Side::Access).input(frame).ok()?;
        let (outer, _) = ipv6::parse(frame.data().get(offset..)?).ok()?;
        Some(outer_address(outer))
    }

    /// Whether a packet is to an IPv6 tunnel endpoint.
    pub(crate) fn is_to_endpoint6(&self, packet: &[u8]) -> bool {
        let endpoint = ipv6::parse(packet).map(|(outer, _)| octets(outer.destination.to_bytes()));
        endpoint.is_ok_and(|endpoint| self.shards.of_endpoint6(endpoint).is_some())
    }

    /// Processes a packet to an IPv6 tunnel endpoint that another worker redirected here, after it
    /// was opened.
    pub(crate) fn receive_redirected_over_ipv6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        cx: &mut Context<'_, P>,
    ) {
        // No packet that was read before is in work: strays that begin no flow leave no handle.
        self.nat.release_outers();
        // The home has its handle before the packet is read, which may be its first one here.
        let source = ipv6::parse(frame.data()).map(|(outer, _)| outer_address(outer));
        if source.is_ok_and(|source| self.nat.intern_outer(source).is_none()) {
            return self.discard(DropReason::NotSubscriber);
        }
        let (mut ipv6, mut fast) = (Packet6State::EMPTY, FastUpstream::empty());
        let mut slow = Upstream::EMPTY;
        let mut packet = TunnelPacket { ipv6: &mut ipv6, fast: &mut fast, slow: &mut slow };
        match self.tunnel6_input(&mut frame, 0, &mut packet) {
            Err(reason) => return self.discard(reason),
            Ok(Some(step @ (PacketStep6::Forward | PacketStep6::TimeExceeded))) => {
                ipv6.step = step;
                return self.serve_stray6(Side::Access, frame, ipv6, cx);
            }
            Ok(Some(PacketStep6::FastIpv4 { outer_class })) => {
                self.read_inner4_slow(&mut frame, (&ipv6.home, outer_class), &mut slow);
            }
            Ok(Some(PacketStep6::Ipv4)) => {}
            // Packets that need no flow are answered by the worker that receives them.
            Ok(_) => return self.discard(DropReason::NotLocal),
        }
        if slow.step == UpstreamStep::Translate {
            slow.step = UpstreamStep::Stray;
        }
        self.serve_access(frame, &slow, cx);
        self.open_mappings(cx);
    }

    /// True if an outer IPv4 source could be taken for the handle of another home.
    #[inline]
    pub(crate) fn is_reserved_outer(&self, shard: ShardIndex, outer: u32) -> bool {
        self.has_tunnel6(&Home { shard, outer, gre_key: None })
    }

    /// Whether packets to this home go in a tunnel over IPv6.
    #[inline(always)]
    pub(crate) fn has_tunnel6(&self, home: &Home) -> bool {
        self.mode == AccessMode::Gre && home.is_over_ipv6()
    }
}

/// What is behind the extension headers of a packet to an endpoint.
enum Behind {
    /// A GRE header, at this offset.
    Gre(usize),
    /// An echo request to the endpoint itself.
    Ping,
    /// A part of a packet.
    Fragment,
}

#[cold]
fn walk_to_gre(packet: &[u8], len: usize) -> Result<Behind, DropReason> {
    let upper = ipv6::walk(packet, len).map_err(|fault| match fault.is_malformed() {
        true => DropReason::Ip6Malformed,
        false => DropReason::Ip6Extension,
    })?;
    // RFC 6946: an atomic fragment is a whole packet.
    if upper.fragment.is_some_and(|fragment| !fragment.is_atomic()) {
        return Ok(Behind::Fragment);
    }
    if upper.segments_left_at.is_some() {
        return Err(DropReason::Ip6Extension);
    }
    match upper.protocol {
        ipv4::PROTOCOL_GRE => Ok(Behind::Gre(upper.offset)),
        ipv6::PROTOCOL_ICMPV6 => {
            let message = packet.get(upper.offset..len).and_then(|it| icmp6::parse(it).ok());
            let kind = message.ok_or(DropReason::TransportMalformed)?.kind;
            match kind {
                icmp6::ECHO_REQUEST => Ok(Behind::Ping),
                _ => Err(DropReason::TunnelIcmp),
            }
        }
        _ => Err(DropReason::OuterProtocol),
    }
}

/// True for the packet of a GRE keepalive, which is the answer, ready made by the home.
#[cold]
fn is_keepalive(packet: &[u8]) -> bool {
    let gre = packet.get(Ipv6::LEN..).and_then(|payload| gre::parse(payload).ok());
    gre.is_some_and(|header| header.protocol == gre::PROTOCOL_KEEPALIVE)
}

/// Returns the source of an outer header, its halves in host order.
#[inline(always)]
pub(crate) fn outer_address(outer: &Ipv6) -> [u64; 2] {
    octets(outer.source.to_bytes()).map(u64::from_be)
}
