//! Hot. Homes with tunnels of GRE over IPv6 (RFC 7676): input from them.
//!
//! ```text
//!   frame --> outer IPv6 to a served endpoint --> GRE --> inside: as behind GRE over IPv4
//!                        |
//!                        +-- source without a handle: its packet waits for its turn, and gets one
//! ```
//!
//! The home is named by the handle of its outer address ([`weir_nat::is_outer_handle`]), so all
//! steps behind this one are those of other tunnels. A packet of a home that is not known gets the
//! handle when it is served, not when it is read: another packet of its burst may have brought it.
//! What begins no flow leaves no handle behind ([`Nat::release_outers`](weir_nat::Nat)).
//!
//! Fragments of tunnel packets are put together first (`outer_fragment.rs`).

use weir_nat::{Home, LookUp, OutboundKey, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre::Gre;
use weir_wire::ipv4;
use weir_wire::ipv6::{self, Ipv6};
use weir_wire::{gre, icmp6};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::endpoints6::{Octets6, octets};
use crate::engine::{Context, Engine};
use crate::ip_input::Packet;
use crate::ipv6::{Packet6State, PacketStep6, Way6, set_traffic_class, transit_input6};
use crate::party::Party;
use crate::slow_path::Way;
use crate::upstream::{Upstream, UpstreamStep};
use crate::{AccessMode, DropReason, Side, ecn};

/// The headers of a tunnel packet without extension headers, key and options, by words as they lie
/// in memory.
#[derive(Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C, packed)]
pub(crate) struct TunnelWords6 {
    version_class_flow: [u8; 4],
    payload_length: u16,
    next_header: u8,
    hop_limit: u8,
    source: Octets6,
    destination: Octets6,
    gre: u32,
}

/// Length of the tunnel header over IPv6 of a home that sends no key.
pub(crate) const GRE6: usize = size_of::<TunnelWords6>();
const _: () = assert!(GRE6 == Ipv6::LEN + Gre::LEN);

/// What a packet to a tunnel endpoint is.
pub(crate) enum ToEndpoint6 {
    Tunnel(Tunnel6),
    /// An echo request to the endpoint itself, of this length.
    Ping(usize),
    /// A part of a packet, of this length.
    Fragment(usize),
}

/// A GRE packet to a served endpoint.
pub(crate) struct Tunnel6 {
    pub(crate) shard: ShardIndex,
    pub(crate) source: [u64; 2],
    /// Key and EtherType of the GRE header.
    pub(crate) key: Option<u32>,
    pub(crate) protocol: u16,
    /// Offset of the inner packet, and its length, in bytes.
    offset: usize,
    len: usize,
    class: u8,
    /// Destination and source: the ends of an answer.
    answer: [u128; 2],
}

impl Tunnel6 {
    /// Returns the inner packet of the tunnel packet.
    #[inline(always)]
    pub(crate) fn inner<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet.get(self.offset..self.offset + self.len).unwrap_or_default()
    }
}

impl<F: Frame> Engine<F> {
    /// Returns the home of a fast-path packet in this tunnel, whose inner packet has `len` bytes
    /// and this ECN field; `None` if the slow path has to read the packet.
    #[inline(always)]
    pub(crate) fn home_of_tunnel6(&self, tunnel: &[u8], len: usize, inner_ecn: u8) -> Option<Home> {
        let outer = TunnelWords6::ref_from_bytes(tunnel).ok()?;
        let destination = outer.destination;
        let likely = self.shards.of_likely_endpoint6(destination);
        let shard = likely.or_else(|| self.unlikely_endpoint6(destination))?;
        // RFC 6040: with either of these the inner header stays as it is.
        let ecn = outer.version_class_flow[1] >> 4 & 3;
        let has_length = usize::from(u16::from_be(outer.payload_length)) == Gre::LEN + len;
        if !has_length || (ecn != 0 && ecn != inner_ecn) || !self.duties.serves(shard) {
            return None;
        }
        let source = outer.source;
        let handle = self.nat.find_outer(source.map(u64::from_be))?;
        Some(Home { shard, outer: handle, gre_key: None })
    }

    #[cold]
    #[inline(never)]
    fn unlikely_endpoint6(&self, address: Octets6) -> Option<ShardIndex> {
        self.shards.of_endpoint6(address)
    }

    /// Prefetches what [`home_of_tunnel6`](Self::home_of_tunnel6) reads of the home of a tunnel
    /// packet.
    #[inline(always)]
    pub(crate) fn begin_home_of_tunnel6(&self, packet: &[u8]) {
        if let Ok((outer, _)) = TunnelWords6::ref_from_prefix(packet) {
            let source = outer.source;
            self.nat.begin_find_outer(source.map(u64::from_be));
        }
    }

    /// Reads an IPv6 packet from the access side, if it is to a tunnel endpoint: `Ok(None)` if it
    /// is not.
    pub(crate) fn endpoint6_input(&self, packet: &[u8]) -> Result<Option<ToEndpoint6>, DropReason> {
        let Ok((outer, len)) = ipv6::parse(packet) else { return Ok(None) };
        let endpoint = octets(outer.destination.to_bytes());
        let Some(shard) = self.shards.of_endpoint6(endpoint) else { return Ok(None) };
        if !self.duties.serves(shard) {
            return Err(DropReason::NotServing);
        }
        let gre_at = match outer.next_header {
            ipv4::PROTOCOL_GRE => Ipv6::LEN,
            _ => match walk_to_gre(packet, len)? {
                Behind::Gre(gre_at) => gre_at,
                Behind::Ping => return Ok(Some(ToEndpoint6::Ping(len))),
                Behind::Fragment => return Ok(Some(ToEndpoint6::Fragment(len))),
            },
        };
        let header = gre::parse(packet.get(gre_at..len).unwrap_or_default())
            .map_err(|_| DropReason::GreMalformed)?;
        let offset = gre_at + header.len;
        Ok(Some(ToEndpoint6::Tunnel(Tunnel6 {
            shard,
            source: outer_address(outer),
            key: header.key,
            protocol: header.protocol,
            offset,
            len: len.saturating_sub(offset),
            class: outer.traffic_class(),
            answer: [outer.destination.get(), outer.source.get()],
        })))
    }

    /// Decides on the step of a packet to a tunnel endpoint, which begins at `offset` of its frame
    /// and has no IPv4 packet inside. Cuts the frame to what the step concerns.
    pub(crate) fn endpoint6_step<G: Frame>(
        &self,
        frame: &mut G,
        offset: usize,
        to: &ToEndpoint6,
        packet: &mut Packet6State,
    ) -> Result<PacketStep6, DropReason> {
        match to {
            ToEndpoint6::Tunnel(tunnel) => self.inner6_input(frame, offset, tunnel, packet),
            ToEndpoint6::Ping(len) => {
                frame.keep(offset, *len);
                Ok(PacketStep6::ToEndpoint)
            }
            ToEndpoint6::Fragment(len) => {
                frame.keep(offset, *len);
                Ok(PacketStep6::OuterFragment)
            }
        }
    }

    /// Returns the home of a tunnel packet, if it is known.
    fn home_in(&self, tunnel: &Tunnel6) -> Option<Home> {
        let outer = self.nat.find_outer(tunnel.source)?;
        Some(Home { shard: tunnel.shard, outer, gre_key: tunnel.key })
    }

    /// Reads a tunnel packet over IPv6 with an IPv4 packet inside.
    pub(crate) fn inner4_input(
        &self,
        bytes: &[u8],
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        let Some(ToEndpoint6::Tunnel(tunnel)) = self.endpoint6_input(bytes)? else {
            return Err(DropReason::NotLocal);
        };
        let Some(home) = self.home_in(&tunnel) else { return Ok(UpstreamStep::UnknownHome) };
        if home.gre_key.is_none() && self.slow_path.is_over(&Party::Home(home), Way::Up) {
            return Err(DropReason::SlowPathLimit);
        }
        let inner = Packet::read(tunnel.inner(bytes))
            .map_err(|error| error.reason(DropReason::InnerMalformed, DropReason::InnerChecksum))?;
        packet.offset += tunnel.offset;
        packet.len = inner.bytes.len();
        packet.home = home;
        // A congestion mark made inside the tunnel is carried over to the inner packet (RFC 6040).
        let tos = ecn::decapsulate(tunnel.class, inner.ip.tos).ok_or(DropReason::EcnCongestion)?;
        packet.tos = tos;
        packet.is_remarked = tos != inner.ip.tos;
        self.inner_input(&inner, packet)
    }

    /// As [`inner4_input`](Self::inner4_input), with an IPv6 packet inside. The tunnel packet
    /// begins at `offset` of its frame, which is cut to the inner packet.
    fn inner6_input<G: Frame>(
        &self,
        frame: &mut G,
        offset: usize,
        tunnel: &Tunnel6,
        packet: &mut Packet6State,
    ) -> Result<PacketStep6, DropReason> {
        if tunnel.protocol != gre::PROTOCOL_IPV6 {
            return Err(DropReason::GreProtocol);
        }
        let Some(home) = self.home_in(tunnel) else { return Ok(PacketStep6::UnknownHome) };
        packet.home = home;
        frame.keep(offset + tunnel.offset, tunnel.len);
        let (ip, len) = ipv6::parse(frame.data()).map_err(|_| DropReason::Ip6Malformed)?;
        if ip.next_header == ipv4::PROTOCOL_GRE
            && [ip.source.get(), ip.destination.get()] == tunnel.answer
            && is_keepalive(frame.data())
        {
            return Ok(PacketStep6::KeepaliveBack);
        }
        let class = ip.traffic_class();
        let new_class = ecn::decapsulate(tunnel.class, class).ok_or(DropReason::EcnCongestion)?;
        frame.truncate(len);
        if new_class != class {
            set_traffic_class(frame.data_mut(), new_class);
        }
        transit_input6(frame.data(), Way6::Up, packet)
    }

    /// Processes a tunnel packet, with an IPv4 packet inside, of a home that was not known when its
    /// burst was read.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve_unknown_home<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        cx: &mut Context<'_, P>,
    ) {
        if let Err(reason) = self.intern_home(&frame) {
            return self.discard(reason);
        }
        let mut packet = Upstream::EMPTY;
        self.read_slow_path_access(&mut frame, &mut packet);
        let mut look_up = [LookUp { hash: packet.hash, ..LookUp::EMPTY }];
        self.nat.look_up::<OutboundKey, _>(&mut look_up);
        packet.candidate = look_up[0].found();
        self.serve_access(frame, &packet, cx);
    }

    /// As [`serve_unknown_home`](Self::serve_unknown_home), with an IPv6 packet inside.
    fn serve_unknown_home6<P: Pool<Frame = F>>(&mut self, mut frame: F, cx: &mut Context<'_, P>) {
        if let Err(reason) = self.intern_home(&frame) {
            return self.discard(reason);
        }
        let mut packet = Packet6State::EMPTY;
        self.read_access6(&mut frame, &mut packet);
        self.nat.look_up::<weir_nat::FlowKey6, _>(std::slice::from_mut(&mut packet));
        self.serve_access6(frame, &packet, cx);
    }

    /// Gives the home of a tunnel packet a handle, by which the packet is read again.
    pub(crate) fn intern_home(&mut self, frame: &F) -> Result<(), DropReason> {
        let (_, offset) = self.link(Side::Access).input(frame)?;
        self.intern_source(frame.data().get(offset..).unwrap_or_default())
    }

    /// Gives the source of a tunnel packet a handle, if it is a home's address.
    pub(crate) fn intern_source(&mut self, packet: &[u8]) -> Result<(), DropReason> {
        let (outer, _) = ipv6::parse(packet).map_err(|_| DropReason::Ip6Malformed)?;
        let handle = self.nat.intern_outer(outer_address(outer));
        handle.map(|_| ()).ok_or(DropReason::NotSubscriber)
    }

    /// Carries out a step that only a packet to a tunnel endpoint has.
    #[inline(never)]
    pub(crate) fn serve_to_endpoint6<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        match packet.step {
            PacketStep6::ToEndpoint => self.answer_endpoint_ping6(frame, packet.from, cx),
            PacketStep6::KeepaliveBack => self.send6(Side::Access, frame, 0, cx),
            PacketStep6::OuterFragment => self.hold_outer_fragment6(frame, cx),
            _ => self.serve_unknown_home6(frame, cx),
        }
    }

    /// Whether a packet is to an IPv6 tunnel endpoint.
    pub(crate) fn is_to_endpoint6(&self, packet: &[u8]) -> bool {
        let endpoint = ipv6::parse(packet).map(|(outer, _)| octets(outer.destination.to_bytes()));
        endpoint.is_ok_and(|endpoint| self.shards.of_endpoint6(endpoint).is_some())
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

/// Returns the EtherType of what is in a GRE packet over IPv6. Nothing else is checked.
#[inline(always)]
pub(crate) fn protocol_over_ipv6(packet: &[u8]) -> Option<u16> {
    let headers = packet.first_chunk::<GRE6>()?;
    if headers[6] != ipv4::PROTOCOL_GRE {
        return protocol_behind_extensions(packet);
    }
    Some(u16::from_be_bytes([headers[GRE6 - 2], headers[GRE6 - 1]]))
}

#[cold]
#[inline(never)]
fn protocol_behind_extensions(packet: &[u8]) -> Option<u16> {
    let (_, len) = ipv6::parse(packet).ok()?;
    match walk_to_gre(packet, len).ok()? {
        Behind::Gre(at) => packet.get(at + 2..)?.first_chunk().copied().map(u16::from_be_bytes),
        Behind::Ping | Behind::Fragment => None,
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
