//! Hot. Input of the access side: decapsulates the packet (in GRE mode), finds its home and decides
//! on the next step.

use weir_nat::{Hash, Home, LookUp, OutboundKey, RecordId, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4;

use crate::burst::Burst;
use crate::engine::{Context, Engine};
use crate::ethernet_input::{Network, sender};
use crate::fast_path::FastUpstream;
use crate::flow_key::Toward;
use crate::ip_error::IcmpErrorCause;
use crate::ip_input::{Packet, is_martian};
use crate::ipv6::{FastKey6, FastPacket6, NewFlows6, Packet6State};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::local::check_ping;
use crate::packet_direction::{PacketDirection, SettledRun};
use crate::party::Party;
use crate::slow_path::Way;
use crate::upstream::{Upstream, UpstreamStep};
use crate::{AccessMode, DropReason, Side, ecn, rewrite};

/// Packets from homes.
#[derive(Debug)]
pub(crate) struct Up;

impl PacketDirection for Up {
    type Key = OutboundKey;
    type Slow = Upstream;

    const SIDE: Side = Side::Access;
    const EMPTY: Upstream = Upstream::EMPTY;
    const ROOM: usize = 0;

    fn burst_mut<F: Frame>(engine: &mut Engine<F>) -> &mut Burst<Self> {
        &mut engine.up
    }

    #[inline(always)]
    fn read_fast<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &Engine<F>,
        frame: &F,
        packet: &mut FastUpstream,
    ) -> bool {
        engine.read_fast_up::<LINK, TUNNEL>(frame, packet)
    }

    fn is_unusual<F: Frame>(engine: &Engine<F>, packet: &FastUpstream) -> bool {
        engine.is_unusual_up(packet)
    }

    fn is_usual_over_ipv6<F: Frame>(engine: &Engine<F>, frame: &F, packet: &FastUpstream) -> bool {
        engine.is_usual_over_ipv6(frame, packet)
    }

    #[inline(always)]
    fn send_settled<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &mut Engine<F>,
        run: SettledRun<'_, '_, F, OutboundKey>,
    ) -> usize {
        match engine.link(Side::Internet).is_tagged() {
            false => engine.send_settled_up::<UNTAGGED, TUNNEL>(LINK + TUNNEL, run),
            true => engine.send_settled_up::<TAGGED, TUNNEL>(LINK + TUNNEL, run),
        }
    }

    fn may_take_slow_path<F: Frame>(engine: &mut Engine<F>, key: &OutboundKey) -> bool {
        engine.may_home_take_slow_path(key)
    }

    fn fill(packet: &FastUpstream, bytes: &[u8], offset: usize, slow: &mut Upstream) {
        packet.fill(bytes, offset, slow);
    }

    fn read_slow<F: Frame>(engine: &Engine<F>, frame: &mut F, slow: &mut Upstream) -> Hash {
        engine.read_slow_path_access(frame, slow);
        slow.hash
    }

    #[inline(always)]
    fn read_fast6<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &Engine<F>,
        frame: &F,
        packet: &mut FastPacket6,
    ) -> bool {
        engine.read_fast6_up::<LINK, TUNNEL>(frame, packet)
    }

    #[inline(always)]
    fn send_settled6<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &mut Engine<F>,
        run: SettledRun<'_, '_, F, FastKey6>,
    ) -> usize {
        match engine.link(Side::Internet).is_tagged() {
            false => engine.send_settled6_up::<UNTAGGED, TUNNEL>(LINK + TUNNEL, run),
            true => engine.send_settled6_up::<TAGGED, TUNNEL>(LINK + TUNNEL, run),
        }
    }

    fn read_slow6<F: Frame>(engine: &Engine<F>, frame: &mut F, packet: &mut Packet6State) {
        engine.read_access6(frame, packet);
    }

    fn serve6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        engine.serve_access6(frame, packet, cx);
    }

    #[inline(always)]
    fn wait6<F: Frame>(
        engine: &mut Engine<F>,
        frame: F,
        packet: (usize, &Packet6State),
        waiting: &mut NewFlows6<F>,
    ) -> Option<F> {
        engine.wait6(frame, packet, waiting)
    }

    #[inline(always)]
    fn serve_unsettled6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        engine.slow_path6_up(frame, packet, cx);
    }

    fn set_look_up(slow: &mut Upstream, look_up: &LookUp) {
        slow.candidate = look_up.found();
    }

    fn serve<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Upstream,
        cx: &mut Context<'_, P>,
    ) {
        engine.serve_access(frame, slow, cx);
    }

    #[inline(always)]
    fn translate<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Upstream,
        cx: &mut Context<'_, P>,
    ) {
        engine.translate_up(frame, slow, cx);
    }

    #[inline(always)]
    fn wait<F: Frame>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &FastUpstream,
        offset: usize,
    ) -> Option<F> {
        // No record was found: a new flow, for which no copy of the packet's state is made.
        let is_new = packet.look_up.candidate == RecordId::NONE;
        let may_wait = is_new && !engine.nat.has_redirected();
        if !may_wait || !engine.duties.creates(packet.key.shard()) {
            return Some(frame);
        }
        if let Err(reason) = engine.wait_fast(frame, packet, offset) {
            engine.discard(reason);
        }
        None
    }

    #[inline(always)]
    fn translate_other<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Upstream,
        cx: &mut Context<'_, P>,
    ) {
        engine.slow_path_admitted_up(frame, slow, cx);
    }

    fn finish<F: Frame, P: Pool<Frame = F>>(engine: &mut Engine<F>, cx: &mut Context<'_, P>) {
        engine.open_mappings(cx);
    }
}

impl<F: Frame> Engine<F> {
    /// See [`PacketDirection::read_slow`].
    #[inline(never)]
    pub(crate) fn read_slow_path_access(&self, frame: &mut F, packet: &mut Upstream) {
        packet.step = self.access_input(frame, packet).unwrap_or_else(UpstreamStep::Discard);
        if let UpstreamStep::Discard(_) | UpstreamStep::UnknownHome = packet.step {
            return;
        }
        frame.keep(packet.offset, packet.len);
        if packet.step == UpstreamStep::Translate {
            self.nat.begin_look_up::<OutboundKey>(packet.hash);
        }
        let is_of_home = matches!(packet.step, UpstreamStep::Translate | UpstreamStep::Stray);
        if is_of_home && packet.is_remarked {
            rewrite::traffic_class(frame.data_mut(), packet.tos);
        }
    }

    /// Carries out any step other than a translation.
    #[inline(never)]
    pub(crate) fn serve_access<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) {
        match packet.step {
            UpstreamStep::Translate => self.translate_up(frame, packet, cx),
            UpstreamStep::Stray => self.stray_up(frame, packet, cx),
            UpstreamStep::StrayDown => self.stray_down(frame, cx),
            UpstreamStep::Datagram => self.keep_datagram(frame, packet),
            UpstreamStep::Arp => self.arp_input(Side::Access, frame, cx),
            UpstreamStep::Pong => self.answer_ping(Side::Access, frame, packet.from, cx),
            UpstreamStep::KeepaliveBack => self.send(Side::Access, frame, 0, cx),
            UpstreamStep::TimeExceeded => {
                let (cause, home) = (IcmpErrorCause::TimeExceeded, packet.home);
                self.send_icmp_error_to_home(cause, &home, frame.data(), cx);
                self.discard(DropReason::TtlExceeded);
            }
            UpstreamStep::UnknownHome => self.serve_unknown_home(frame, cx),
            UpstreamStep::OuterFragment => self.hold_outer_fragment(frame, &packet.home, cx),
            UpstreamStep::Discard(reason) => self.discard(reason),
        }
    }

    /// Decides on the step of any frame. Fills in `packet` as far as the step needs it.
    #[inline(never)]
    pub(crate) fn access_input(
        &self,
        frame: &F,
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        let (network, offset) = self.link(Side::Access).input(frame)?;
        let bytes = frame.data().get(offset..).unwrap_or_default();
        (packet.offset, packet.len) = (offset, bytes.len());
        match network {
            Network::Ipv4 => {}
            Network::Arp => return Ok(UpstreamStep::Arp),
            // Other packets of IPv6 do not come here.
            Network::Ipv6 => return self.inner4_input(bytes, packet),
        }
        let whole = Packet::read(bytes)
            .map_err(|error| error.reason(DropReason::IpMalformed, DropReason::IpChecksum))?;
        packet.len = whole.bytes.len();
        match self.mode {
            AccessMode::Gre => self.gre_input(frame, &whole, packet),
            AccessMode::Plain => self.plain_input(frame, &whole, packet),
        }
    }

    /// Reads an IPv4 packet that should be a tunnel packet: outer destination = endpoint, outer
    /// source = home.
    fn gre_input(
        &self,
        frame: &F,
        outer: &Packet<'_>,
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        let Some(shard) = self.shards.of_endpoint(outer.ip.destination.get()) else {
            return self.local_input(frame, outer, packet);
        };
        if !self.duties.serves(shard) {
            return Err(DropReason::NotServing);
        }
        if outer.ip.protocol != ipv4::PROTOCOL_GRE {
            return endpoint_input(frame, outer, packet);
        }
        self.tunnel_input(outer, shard, packet)
    }

    /// Reads a GRE packet to the tunnel endpoint of a shard.
    pub(crate) fn tunnel_input(
        &self,
        outer: &Packet<'_>,
        shard: ShardIndex,
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        let (source, endpoint) = (outer.ip.source.get(), outer.ip.destination.get());
        if outer.ip.is_fragment() {
            packet.home = Home { shard, outer: source, gre_key: None };
            return Ok(UpstreamStep::OuterFragment);
        }
        if self.is_reserved_outer(shard, source) {
            return Err(DropReason::Martian);
        }
        let header = gre::parse(outer.payload()).map_err(|_| DropReason::GreMalformed)?;
        if header.protocol != gre::PROTOCOL_IPV4 {
            return Err(DropReason::GreProtocol);
        }
        let tunnel_len = outer.header_len + header.len;
        // A packet without a key that gets here would take the slow path. A packet with a key may
        // still take the fast path, and only here it is known whether there is a key.
        let home = Home { shard, outer: source, gre_key: header.key };
        if header.key.is_none() && self.slow_path.is_over(&Party::Home(home), Way::Up) {
            return Err(DropReason::SlowPathLimit);
        }
        let inner = Packet::read(outer.bytes.get(tunnel_len..).unwrap_or_default())
            .map_err(|error| error.reason(DropReason::InnerMalformed, DropReason::InnerChecksum))?;
        packet.offset += tunnel_len;
        packet.len = inner.bytes.len();
        packet.home = home;
        if is_keepalive(&inner, endpoint, source) {
            return match self.nat.is_subscriber(&packet.home) {
                true => Ok(UpstreamStep::KeepaliveBack),
                false => Err(DropReason::NotSubscriber),
            };
        }
        // A congestion mark made inside the tunnel is carried over to the inner packet (RFC 6040).
        let tos = ecn::decapsulate(outer.ip.tos, inner.ip.tos).ok_or(DropReason::EcnCongestion)?;
        packet.tos = tos;
        packet.is_remarked = tos != inner.ip.tos;
        self.inner_input(&inner, packet)
    }

    /// Reads a home's own IPv4 packet: its source address determines the shard.
    fn plain_input(
        &self,
        frame: &F,
        whole: &Packet<'_>,
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        if whole.ip.destination.get() == self.link(Side::Access).address {
            return self.local_input(frame, whole, packet);
        }
        self.home_input(whole, packet)
    }

    /// Reads a packet to the internet whose source is a home's address.
    pub(crate) fn home_input(
        &self,
        whole: &Packet<'_>,
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        let source = whole.ip.source.get();
        let shard = self.shards.of_source(source).ok_or(DropReason::NotSubscriber)?;
        if !self.duties.serves(shard) {
            return Err(DropReason::NotServing);
        }
        packet.home = Home { shard, outer: source, gre_key: None };
        if self.slow_path.is_over(&Party::Home(packet.home), Way::Up) {
            return Err(DropReason::SlowPathLimit);
        }
        packet.is_remarked = false;
        self.inner_input(whole, packet)
    }

    /// Reads the home's own packet on its way to the internet.
    pub(crate) fn inner_input(
        &self,
        inner: &Packet<'_>,
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        if is_martian(inner.ip) {
            return Err(DropReason::Martian);
        }
        self.check_options(inner)?;
        if inner.ip.ttl <= 1 {
            return Ok(UpstreamStep::TimeExceeded);
        }
        packet.header_len = inner.header_len;
        packet.key.read(inner, Toward::Internet)?;
        let key = &packet.key;
        packet.hash = self.nat.outbound_hash(&packet.home, key.source, key.protocol);
        packet.fits_fast_path =
            key.is_plain(packet.header_len) && packet.len <= self.link(Side::Internet).mtu;
        Ok(UpstreamStep::Translate)
    }

    /// Reads a packet that is addressed to the worker's access address, or to no address served
    /// here.
    fn local_input(
        &self,
        frame: &F,
        whole: &Packet<'_>,
        packet: &mut Upstream,
    ) -> Result<UpstreamStep, DropReason> {
        if whole.ip.destination.get() != self.link(Side::Access).address {
            return Err(DropReason::NotLocal);
        }
        if let Some(step) = self.peer_input(whole, packet)? {
            return Ok(step);
        }
        check_ping(whole.ip, whole.payload())?;
        packet.from = sender(frame);
        Ok(UpstreamStep::Pong)
    }
}

/// Reads a packet to a tunnel endpoint that is not GRE.
fn endpoint_input<F: Frame>(
    frame: &F,
    whole: &Packet<'_>,
    packet: &mut Upstream,
) -> Result<UpstreamStep, DropReason> {
    if whole.ip.protocol != ipv4::PROTOCOL_ICMP {
        return Err(DropReason::OuterProtocol);
    }
    match check_ping(whole.ip, whole.payload()) {
        Ok(()) => {
            packet.from = sender(frame);
            Ok(UpstreamStep::Pong)
        }
        Err(DropReason::LocalProtocol) => Err(DropReason::TunnelIcmp),
        Err(reason) => Err(reason),
    }
}

/// True for a GRE keepalive: a tunnel packet that carries a GRE packet from the endpoint back to
/// the home.
#[inline]
fn is_keepalive(inner: &Packet<'_>, endpoint: u32, home: u32) -> bool {
    inner.ip.protocol == ipv4::PROTOCOL_GRE
        && inner.ip.source.get() == endpoint
        && inner.ip.destination.get() == home
        && gre::parse(inner.payload())
            .is_ok_and(|header| header.protocol == gre::PROTOCOL_KEEPALIVE)
}
