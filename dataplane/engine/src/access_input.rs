//! Hot. Input of the access side: decapsulates the packet (in GRE mode), finds its home and decides
//! on the next step.

use weir_nat::{Home, RecordId, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4;

use crate::engine::{Context, Engine, PREFETCH_AHEAD};
use crate::ethernet_input::{Network, sender};
use crate::fast_path::{FastUpstream, GRE, PLAIN, ones};
use crate::flow_key::Toward;
use crate::ip_error::IcmpErrorCause;
use crate::ip_input::{Packet, is_martian};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::local::check_ping;
use crate::party::Party;
use crate::slow_path::Way;
use crate::upstream::{Upstream, UpstreamStep};
use crate::{AccessMode, DropReason, Side, ecn, rewrite};

impl<F: Frame> Engine<F> {
    /// Processes a burst; returns the bytes of its frames.
    pub(crate) fn receive_access<P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) -> u64 {
        match (self.mode, self.link(Side::Access).is_tagged()) {
            (AccessMode::Gre, false) => self.burst_up::<UNTAGGED, GRE, P>(frames, cx),
            (AccessMode::Gre, true) => self.burst_up::<TAGGED, GRE, P>(frames, cx),
            (AccessMode::Plain, false) => self.burst_up::<UNTAGGED, PLAIN, P>(frames, cx),
            (AccessMode::Plain, true) => self.burst_up::<TAGGED, PLAIN, P>(frames, cx),
        }
    }

    #[inline(never)]
    fn burst_up<const LINK: usize, const TUNNEL: usize, P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) -> u64 {
        let mut fast = std::mem::take(&mut self.fast_upstream);
        let mut slow = std::mem::take(&mut self.upstream);
        let burst = &mut fast[..frames.len()];
        let (bytes, slow_frames) = self.read_access::<LINK, TUNNEL>(frames, burst);
        for at in ones(slow_frames) {
            self.read_slow_path_access(&mut frames[at], &mut slow[at]);
            burst[at].hash = slow[at].hash;
        }
        // Frames without a record in the primary bucket, one bit each.
        let mut elsewhere = 0_u64;
        for (at, packet) in burst.iter_mut().enumerate() {
            match self.nat.prefetch_outbound_record(packet.hash) {
                Some(candidate) => packet.candidate = candidate,
                None => elsewhere |= 1 << at,
            }
        }
        for at in ones(elsewhere) {
            let candidate = self.nat.prefetch_outbound_elsewhere(burst[at].hash);
            burst[at].candidate = candidate.unwrap_or(RecordId::NONE);
        }
        let now = cx.now.tick();
        let mut frames = frames.drain(..);
        for (at, packet) in burst.iter().enumerate() {
            let Some(frame) = frames.next() else { break };
            if slow_frames & 1 << at != 0 {
                slow[at].candidate = packet.known_candidate();
                self.serve_access(frame, &slow[at], cx);
                continue;
            }
            match self.nat.outbound_settled(packet.candidate, &packet.key, now) {
                Some(public) => {
                    self.send_settled_up::<LINK, TUNNEL, P>(frame, packet, public, cx);
                }
                None => self.unsettled_up(frame, packet, LINK + TUNNEL, &mut slow[at], cx),
            }
        }
        drop(frames);
        self.open_mappings(cx);
        self.upstream = slow;
        self.fast_upstream = fast;
        bytes
    }

    /// Reads the fast-path packets of a burst. Returns the bytes of all frames, and the frames that
    /// are left to the slow path, one bit each.
    #[inline(always)]
    fn read_access<const LINK: usize, const TUNNEL: usize>(
        &self,
        frames: &[F],
        burst: &mut [FastUpstream],
    ) -> (u64, u64) {
        let (mut bytes, mut slow) = (0, 0);
        frames.iter().take(PREFETCH_AHEAD).for_each(|frame| frame.prefetch(0));
        for ((at, packet), frame) in burst.iter_mut().enumerate().zip(frames) {
            if let Some(ahead) = frames.get(at + PREFETCH_AHEAD) {
                ahead.prefetch(0);
            }
            bytes += frame.data().len() as u64;
            if self.read_fast_up::<LINK, TUNNEL>(frame, packet) {
                self.nat.prefetch_outbound(packet.hash);
            } else {
                slow |= 1 << at;
            }
        }
        (bytes, slow)
    }

    /// Translates a fast-path packet, which begins at `offset` of its frame, whose session is not
    /// known to be settled.
    #[inline(always)]
    fn unsettled_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        fast: &FastUpstream,
        offset: usize,
        packet: &mut Upstream,
        cx: &mut Context<'_, P>,
    ) {
        match self.nat.is_first_outbound(fast.candidate, &fast.key) {
            false => self.other_up(frame, fast, offset, packet, cx),
            true => self.first_up(frame, fast, offset, packet, cx),
        }
    }

    /// The packet has no mapping yet, or it is of another session of it.
    #[inline(never)]
    fn other_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        fast: &FastUpstream,
        offset: usize,
        packet: &mut Upstream,
        cx: &mut Context<'_, P>,
    ) {
        if !self.may_take_slow_path(&fast.key.home(), Way::Up) {
            return self.discard(DropReason::SlowPathLimit);
        }
        if self.is_unusual_up(fast) {
            return self.read_again_up(frame, fast, packet, cx);
        }
        // No record was found: a new flow, for which no copy of the packet's state is made.
        if fast.candidate == RecordId::NONE && self.duties.creates(fast.key.shard()) {
            if let Err(reason) = self.wait_fast(frame, fast, offset) {
                self.discard(reason);
            }
            return;
        }
        fast.fill(offset, packet);
        frame.keep(packet.offset, packet.len);
        self.slow_path_admitted_up(frame, packet, cx);
    }

    /// The packet may change the session.
    #[inline(never)]
    fn first_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        fast: &FastUpstream,
        offset: usize,
        packet: &mut Upstream,
        cx: &mut Context<'_, P>,
    ) {
        if self.is_unusual_up(fast) {
            return self.read_again_up(frame, fast, packet, cx);
        }
        fast.fill(offset, packet);
        frame.keep(packet.offset, packet.len);
        self.translate_up(frame, packet, cx);
    }

    #[cold]
    #[inline(never)]
    fn read_again_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        fast: &FastUpstream,
        packet: &mut Upstream,
        cx: &mut Context<'_, P>,
    ) {
        self.read_slow_path_access(&mut frame, packet);
        packet.candidate = fast.known_candidate();
        self.serve_access(frame, packet, cx);
    }

    /// The slow path of `read_access`: decides on the step of a frame, cuts the frame to the part
    /// that the step concerns, and prefetches its index line.
    #[inline(never)]
    fn read_slow_path_access(&self, frame: &mut F, packet: &mut Upstream) {
        packet.step = self.access_input(frame, packet).unwrap_or_else(UpstreamStep::Discard);
        if let UpstreamStep::Discard(_) = packet.step {
            return;
        }
        frame.keep(packet.offset, packet.len);
        if packet.step == UpstreamStep::Translate {
            self.nat.prefetch_outbound(packet.hash);
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
        if network == Network::Arp {
            return Ok(UpstreamStep::Arp);
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
            return Err(DropReason::OuterFragment);
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
    fn inner_input(
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
