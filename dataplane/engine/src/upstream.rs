//! Hot. Translation of a home's packet on its way to the internet.

use weir_nat::{Endpoint, Hash, Home, Outbound, RecordId, Refusal, ShardIndex, Translated};
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::tcp;
use zerocopy::FromBytes;

use crate::downstream::{self, Downstream};
use crate::engine::{Context, Engine};
use crate::flow_key::{FlowKey, PacketKind, Toward};
use crate::identification::Fragmented;
use crate::ip_error::IcmpErrorCause;
use crate::ip_fragment::fragment;
use crate::ip_input::Packet;
use crate::rewrite::{self, PacketEnd};
use crate::slow_path::Way;
use crate::{DropReason, Side};

/// Next step of a frame from the access side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamStep {
    Translate,
    Arp,
    /// Answer a ping of the worker or of a tunnel endpoint.
    Pong,
    /// Send back a GRE keepalive: its inner packet is the answer, ready made by the home.
    KeepaliveBack,
    TimeExceeded,
    /// Hold a fragment of a tunnel packet.
    OuterFragment,
    /// Translate, as [`Translate`](Self::Translate), a packet that another worker redirected here.
    Stray,
    /// Translate a packet from the internet that another worker redirected here.
    StrayDown,
    /// It is a tunnel packet over IPv6 of a home that is not known.
    UnknownHome,
    /// Queue a datagram of replication.
    Datagram,
    Discard(DropReason),
}

/// State of a frame from the access side while its burst is processed. It is written field by field
/// in place: a copy right after would wait for the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upstream {
    pub(crate) hash: Hash,
    pub(crate) home: Home,
    pub(crate) key: FlowKey,
    pub(crate) header_len: usize,
    /// The record that the index returned: probably the packet's mapping.
    pub(crate) candidate: Option<RecordId>,
    /// Offset of the part of the frame that the step concerns.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// The traffic class octet with which the packet leaves the tunnel.
    pub(crate) tos: u8,
    pub(crate) is_remarked: bool,
    /// Whether the fast path may take the packet: TCP or UDP without IP options, no fragment, and
    /// it fits the link ahead.
    pub(crate) fits_fast_path: bool,
    pub(crate) step: UpstreamStep,
    /// Link-layer sender of a packet to the worker itself.
    pub(crate) from: Mac,
}

impl Upstream {
    pub(crate) const EMPTY: Self = Self {
        hash: Hash(0),
        home: Home { shard: ShardIndex(0), outer: 0, gre_key: None },
        key: FlowKey::EMPTY,
        header_len: 0,
        candidate: None,
        offset: 0,
        len: 0,
        tos: 0,
        is_remarked: false,
        fits_fast_path: false,
        step: UpstreamStep::Discard(DropReason::FrameTruncated),
        from: Mac::ZERO,
    };

    #[inline]
    pub(crate) fn outbound(&self) -> Outbound {
        Outbound {
            home: self.home,
            inside: self.key.source,
            remote: self.key.destination,
            protocol: self.key.protocol,
            tcp_flags: self.key.tcp_flags,
        }
    }
}

impl<F: Frame> Engine<F> {
    #[inline(always)]
    pub(crate) fn translate_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) {
        if let Some(candidate) = packet.candidate.filter(|_| packet.fits_fast_path) {
            let (outbound, now) = (packet.outbound(), cx.now.tick());
            if let Some(translated) = self.nat.outbound_established(candidate, &outbound, now) {
                self.duties.note_traffic(packet.home.shard);
                return self.send_fast_path_up(frame, packet, translated, cx);
            }
        }
        self.slow_path_up(frame, packet, cx);
    }

    #[inline(always)]
    pub(crate) fn send_fast_path_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Upstream,
        Translated { to: public, class, remote }: Translated<Endpoint>,
        cx: &mut Context<'_, P>,
    ) {
        let Upstream { hash, key, .. } = packet;
        self.edit_syn(&mut frame, Ipv4::LEN, key.tcp_flags, (Side::Access, packet.home.outer));
        rewrite::forward_fast_path(frame.data_mut(), key.protocol, PacketEnd::Source, public);
        self.mark(frame.data_mut(), class);
        let mut destination = key.destination;
        if let Some(remote) = remote {
            rewrite::endpoint(frame.data_mut(), Ipv4::LEN, PacketEnd::Destination, remote);
            destination = remote;
        }
        if self.nat.is_public(destination.address) {
            return self.hairpin(frame, cx);
        }
        self.send(Side::Internet, frame, (hash.0 >> 32) as u32, cx);
    }

    /// The slow path: any packet that is not a fast-path packet of an established session.
    #[inline(never)]
    pub(crate) fn slow_path_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) {
        if !self.may_take_slow_path(&packet.home, Way::Up) {
            return self.discard(DropReason::SlowPathLimit);
        }
        self.slow_path_admitted_up(frame, packet, cx);
    }

    /// As [`slow_path_up`](Self::slow_path_up), for a packet that is within its home's limit.
    #[inline(always)]
    pub(crate) fn slow_path_admitted_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) {
        let is_unknown = packet.candidate.is_none() && !self.nat.has_redirected();
        let is_new = packet.fits_fast_path && is_unknown;
        let done = match is_new && self.duties.creates(packet.home.shard) {
            true => self.wait(frame, packet),
            false => self.slow_path_further_up(frame, packet, cx),
        };
        if let Err(reason) = done {
            self.discard(reason);
        }
    }

    #[inline(never)]
    fn slow_path_further_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        self.note_upstream(packet);
        self.commit_first(cx, |engine, cx| match packet.key.kind {
            PacketKind::Session | PacketKind::FirstFragment => engine.session_up(frame, packet, cx),
            PacketKind::LaterFragment => engine.later_fragment_up(frame, packet, cx),
            PacketKind::IcmpError => engine.icmp_error_up(frame, packet, cx),
            PacketKind::IcmpReply => engine.icmp_reply_up(frame, packet, cx),
        })
    }

    fn session_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let mtu = self.link(Side::Internet).mtu;
        if frame.data().len() > mtu && dont_fragment(frame.data()) {
            let cause = IcmpErrorCause::FragmentationNeeded { mtu: mtu as u16 };
            self.send_icmp_error_to_home(cause, &packet.home, frame.data(), cx);
            return Err(DropReason::DontFragment);
        }
        // The look-up has reported already that there is no mapping, and none was made since.
        let known = match packet.candidate {
            None if !self.nat.has_redirected() => Ok(None),
            _ => self.nat.outbound_known(packet.hash, &packet.outbound(), cx.now.tick()),
        };
        // Another worker may know the connection.
        let elsewhere = match known {
            Err(Refusal::TcpNotSyn) => self.redirect_up_to(packet),
            _ => None,
        };
        if let Some(to) = elsewhere {
            return self.redirect_session_up(frame, packet, to, cx);
        }
        match known {
            Ok(Some(translated)) => self.translated_up(frame, packet, translated, cx),
            Ok(None) if self.duties.creates(packet.home.shard) => self.wait(frame, packet),
            Ok(None) => self.miss_elsewhere_up(frame, packet, cx),
            Err(Refusal::RuleBypass) => self.bypass_up(frame, packet, cx),
            Err(refusal) => Err(self.refuse(refusal, packet, frame.data(), cx)),
        }
    }

    /// Notes a packet of a configured home, if the shard's routes led it here.
    #[inline(never)]
    pub(crate) fn note_upstream(&mut self, packet: &Upstream) {
        if packet.step == UpstreamStep::Translate {
            self.note_home_traffic(&packet.home);
        }
    }

    /// Notes a packet that the shard's routes led here, if its home is a configured one.
    #[inline(never)]
    pub(crate) fn note_home_traffic(&mut self, home: &Home) {
        if self.nat.is_subscriber(home) {
            self.duties.note_traffic(home.shard);
        }
    }

    /// Sends a packet whose public endpoint is known; it may be a first fragment.
    pub(crate) fn translated_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Upstream,
        translated: Translated<Endpoint>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Upstream { home, hash, key, header_len, .. } = packet;
        self.edit_syn(&mut frame, *header_len, key.tcp_flags, (Side::Access, home.outer));
        let (bytes, public) = (frame.data_mut(), translated.to);
        rewrite::forward(bytes, *header_len, key.protocol, PacketEnd::Source, public);
        self.mark(bytes, translated.class);
        let mut destination = key.destination;
        if let Some(remote) = translated.remote {
            rewrite::endpoint(bytes, *header_len, PacketEnd::Destination, remote);
            destination = remote;
        }
        match key.kind {
            PacketKind::FirstFragment => self.first_fragment_up(frame, home, key, translated, cx),
            _ => self.forward_up(frame, destination.address, *hash, cx),
        }
        Ok(())
    }

    /// RFC 5508 REQ-8, RFC 6888 REQ-11: sends an ICMP error to a home that gets no session for lack
    /// of resources. A rule may have the flow rejected, too.
    pub(crate) fn refuse<P: Pool<Frame = F>>(
        &mut self,
        refusal: Refusal,
        packet: &Upstream,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> DropReason {
        if refusal == Refusal::RuleReject {
            return self.reject_up(packet, original, cx);
        }
        let is_want_of_room = matches!(
            refusal,
            Refusal::PortsExhausted
                | Refusal::TableFull
                | Refusal::FlowsPerSubscriber
                | Refusal::SessionsPerSubscriber
                | Refusal::NewFlows
        );
        if is_want_of_room {
            self.nat.note_refused(refusal, &packet.home, packet.outbound().protocol);
            self.send_icmp_error_to_home(IcmpErrorCause::Prohibited, &packet.home, original, cx);
        }
        refusal.into()
    }

    /// Translates a home's reply to an ICMP query of another home, or of its own (RFC 5508 REQ-7a).
    /// It creates and refreshes nothing: the mapping belongs to the home's own queries.
    fn icmp_reply_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Upstream,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Upstream { home, key, header_len, .. } = packet;
        if self.nat.has_bypass() && self.nat.bypasses_outbound(&packet.outbound()) {
            return self.bypass_up(frame, packet, cx);
        }
        if !self.is_public_of_any(key.destination.address) {
            return Err(DropReason::IcmpUnsolicited);
        }
        let known = self.nat.peek_outbound(home, key.source, key.destination, key.protocol);
        let Some(Translated { to: public, .. }) = known else {
            return self.redirect_unknown_up(frame, packet, DropReason::IcmpUnsolicited, cx);
        };
        rewrite::forward(frame.data_mut(), *header_len, key.protocol, PacketEnd::Source, public);
        self.forward_up(frame, key.destination.address, packet.hash, cx);
        Ok(())
    }

    /// Sends a translated packet to the internet, in fragments if necessary. If its destination is
    /// one of this worker's own public addresses, the packet turns around (hairpinning, RFC 4787
    /// REQ-9).
    pub(crate) fn forward_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        destination: u32,
        flow: Hash,
        cx: &mut Context<'_, P>,
    ) {
        if self.nat.is_public(destination) {
            return self.hairpin(frame, cx);
        }
        self.leave(frame, flow, cx);
    }

    /// Sends a packet to the internet, in fragments if necessary.
    fn leave<P: Pool<Frame = F>>(&mut self, frame: F, flow: Hash, cx: &mut Context<'_, P>) {
        if frame.data().len() > self.link(Side::Internet).mtu {
            return self.send_in_pieces_up(frame, flow, cx);
        }
        self.send(Side::Internet, frame, (flow.0 >> 32) as u32, cx);
    }

    #[cold]
    fn send_in_pieces_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        flow: Hash,
        cx: &mut Context<'_, P>,
    ) {
        let Ok((ip, header_len, _)) = ipv4::parse(frame.data()) else {
            return self.discard(DropReason::InnerMalformed);
        };
        // DF of a session's packet was checked before it made state. Here it is a later fragment or
        // an ICMP error, about which no error may be sent (RFC 1812 section 4.3.2.7).
        if ip.dont_fragment() {
            return self.discard(DropReason::DontFragment);
        }
        // A fragment has its new identification already; a packet that is fragmented here needs one
        // too.
        if !ip.is_fragment() {
            let datagram = Fragmented {
                public: ip.source.get(),
                destination: ip.destination.get(),
                identification: ip.identification.get(),
                protocol: ip.protocol,
            };
            let identification = self.identifications.replace(datagram);
            rewrite::identification(frame.data_mut(), identification);
        }
        let mtu = self.link(Side::Internet).mtu;
        let Context { pool, out, now } = cx;
        let now = *now;
        let cut = fragment(frame.data(), header_len, mtu, *pool, |pool, piece| {
            let cx = &mut Context { pool, out, now };
            self.send(Side::Internet, piece, (flow.0 >> 32) as u32, cx);
        });
        if let Err(reason) = cut {
            self.discard(reason);
        }
    }

    /// Turns a packet around to the home that holds its public destination address.
    #[cold]
    pub(crate) fn hairpin<P: Pool<Frame = F>>(&mut self, frame: F, cx: &mut Context<'_, P>) {
        let shard = self.nat.shard_of_public(destination(frame.data()));
        if shard.is_some_and(|shard| !self.duties.serves(shard)) {
            // The routes lead to the worker that serves it.
            return self.leave(frame, Hash(0), cx);
        }
        self.translate_down_alone(frame, downstream::DownstreamStep::Hairpin, cx);
    }

    /// Translates a packet to a public address that did not come in a burst from the internet.
    pub(crate) fn translate_down_alone<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        step: downstream::DownstreamStep,
        cx: &mut Context<'_, P>,
    ) {
        let mut packet = Downstream { step, ..Downstream::EMPTY };
        let read = Packet::read(frame.data())
            .map_err(|error| error.reason(DropReason::InnerMalformed, DropReason::InnerChecksum))
            .and_then(|ip| self.public_input(&ip, Toward::Neighbor, &mut packet));
        match read {
            Ok(()) => self.translate_down(frame, &packet, cx),
            Err(reason) => self.discard(reason),
        }
    }

    /// Prepends the header of the next hop and sends the frame.
    #[inline(always)]
    pub(crate) fn send<P: Pool<Frame = F>>(
        &self,
        side: Side,
        mut frame: F,
        flow: u32,
        cx: &mut Context<'_, P>,
    ) {
        let Some(header) = self.link(side).gateways.choose(flow) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        if !header.push(&mut frame) {
            return self.discard(DropReason::NoBuffer);
        }
        self.emit(side, frame, cx);
    }

    /// Limits the MSS of a SYN segment to what both sides carry. The checksum of some SYNs is
    /// verified first, as received.
    #[inline(always)]
    pub(crate) fn edit_syn(
        &self,
        frame: &mut F,
        header_len: usize,
        tcp_flags: u8,
        (from, outer): (Side, u32),
    ) {
        if tcp_flags & tcp::SYN != 0 {
            self.edit_segment(frame, header_len, (from, outer));
        }
    }

    /// Verifies the checksum of a TCP segment that is all in this packet, and counts a wrong one.
    #[cold]
    #[inline(never)]
    fn look_at_checksum(&self, packet: &[u8], header_len: usize, from: Side) {
        let Ok((ip, _)) = Ipv4::ref_from_prefix(packet) else { return };
        let segment = packet.get(header_len..usize::from(ip.total_length.get()));
        let segment = segment.filter(|_| !ip.is_fragment());
        let (source, destination) = (ip.source.get(), ip.destination.get());
        if segment.is_some_and(|segment| !tcp::checksum_ok(source, destination, segment)) {
            self.counters.count_wrong_checksum(from);
        }
    }

    #[inline(never)]
    fn edit_segment(&self, frame: &mut F, header_len: usize, (from, outer): (Side, u32)) {
        if self.counters.count_syn(from) {
            self.look_at_checksum(frame.data(), header_len, from);
        }
        if let Some(max) = self.mss_max_of(outer) {
            tcp::clamp_mss(&mut frame.data_mut()[header_len..], max);
        }
    }
}

#[inline]
fn dont_fragment(packet: &[u8]) -> bool {
    Ipv4::ref_from_prefix(packet).is_ok_and(|(ip, _)| ip.dont_fragment())
}

pub(crate) fn destination(packet: &[u8]) -> u32 {
    Ipv4::ref_from_prefix(packet).map_or(0, |(ip, _)| ip.destination.get())
}
