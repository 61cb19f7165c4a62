//! Hot. Translation of a packet from the internet (or from another home) on its way to a home.

use weir_nat::{Delivery, Hash, Home, Inbound, RecordId, Refusal, ShardIndex, Translated};
use weir_wire::checksum::Delta;
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
use weir_wire::gre;
use weir_wire::ipv4::Ipv4;
use zerocopy::FromBytes;

use crate::engine::{Context, Engine};
use crate::flow_key::{FlowKey, PacketKind, Toward};
use crate::ip_error::{AnswerParties, DueIcmpError, IcmpErrorCause};
use crate::ip_fragment::fragment;
use crate::ip_input::Packet;
use crate::party::{LimitedParty, Party};
use crate::rewrite::{self, PacketEnd};
use crate::slow_path::Way;
use crate::upstream::destination;
use crate::{AccessMode, DropReason, Side, ecn};

/// Next step of a frame from the internet side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DownstreamStep {
    Translate,
    /// Translate a packet that another worker redirected here.
    Stray,
    /// Translate a packet that comes from a home served here, or from this worker itself.
    Hairpin,
    Arp,
    /// Answer a ping of the worker.
    Pong,
    Discard(DropReason),
}

/// State of a frame from the internet side while its burst is processed; filled in as
/// [`Upstream`](crate::upstream::Upstream) is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Downstream {
    pub(crate) hash: Hash,
    pub(crate) key: FlowKey,
    pub(crate) header_len: usize,
    /// The record that the index returned: probably the packet's mapping.
    pub(crate) candidate: Option<RecordId>,
    /// Offset of the part of the frame that the step concerns.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Whether the fast path may take the packet: TCP or UDP without IP options, no fragment, TTL
    /// above 1, and it fits any tunnel.
    pub(crate) fits_fast_path: bool,
    pub(crate) step: DownstreamStep,
    /// Link-layer sender of a ping.
    pub(crate) from: Mac,
}

impl Downstream {
    pub(crate) const EMPTY: Self = Self {
        hash: Hash(0),
        key: FlowKey::EMPTY,
        header_len: 0,
        candidate: None,
        offset: 0,
        len: 0,
        fits_fast_path: false,
        step: DownstreamStep::Discard(DropReason::FrameTruncated),
        from: Mac::ZERO,
    };

    #[inline]
    pub(crate) fn inbound(&self) -> Inbound {
        Inbound {
            public: self.key.destination,
            remote: self.key.source,
            protocol: self.key.protocol,
            tcp_flags: self.key.tcp_flags,
        }
    }
}

impl<F: Frame> Engine<F> {
    #[inline(always)]
    pub(crate) fn translate_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        cx: &mut Context<'_, P>,
    ) {
        if let Some(candidate) = packet.candidate.filter(|_| packet.fits_fast_path) {
            let (inbound, now) = (packet.inbound(), cx.now.tick());
            if let Some(translated) = self.nat.inbound_established(candidate, &inbound, now) {
                let home = &translated.to.home;
                if !self.duties.serves(home.shard) {
                    return self.discard(DropReason::NotServing);
                }
                if self.fits_tunnel6(frame.data(), home) {
                    self.duties.note_traffic(home.shard);
                    return self.send_fast_path_down(frame, packet, &translated, cx);
                }
            }
        }
        self.slow_path_down(frame, packet, cx);
    }

    #[inline(always)]
    fn send_fast_path_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Downstream,
        Translated { to: delivery, class, remote }: &Translated<Delivery>,
        cx: &mut Context<'_, P>,
    ) {
        let Downstream { hash, key, .. } = packet;
        let from = (Side::Internet, delivery.home.outer);
        self.edit_syn(&mut frame, Ipv4::LEN, key.tcp_flags, from);
        let (bytes, inside) = (frame.data_mut(), delivery.inside);
        rewrite::forward_fast_path(bytes, key.protocol, PacketEnd::Destination, inside);
        self.mark(bytes, *class);
        if let Some(asked) = *remote {
            rewrite::endpoint(bytes, Ipv4::LEN, PacketEnd::Source, asked);
        }
        self.encapsulate(frame, &delivery.home, (hash.0 >> 32) as u32, cx);
    }

    /// The slow path: any packet that is not a fast-path packet of an established session.
    #[inline(never)]
    pub(crate) fn slow_path_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        cx: &mut Context<'_, P>,
    ) {
        let Some(shard) = self.nat.shard_of_public(packet.key.destination.address) else {
            return self.no_public_address(frame, packet, cx);
        };
        if !self.duties.serves(shard) {
            return self.discard(DropReason::NotServing);
        }
        if packet.step == DownstreamStep::Translate && self.is_ours_alone(packet.key.source.address)
        {
            return self.discard(DropReason::OwnSource);
        }
        let done = self.commit_first(cx, |engine, cx| match packet.key.kind {
            PacketKind::Session | PacketKind::FirstFragment => {
                engine.session_down(frame, packet, shard, cx)
            }
            PacketKind::LaterFragment => engine.later_fragment_down(frame, packet, shard, cx),
            PacketKind::IcmpError => engine.icmp_error_down(frame, packet, shard, cx),
            // `FlowKey::read` returns this kind only for packets from homes.
            PacketKind::IcmpReply => Err(DropReason::IcmpUnsolicited),
        });
        if let Err(reason) = done {
            self.discard(reason);
        }
    }

    /// Whether packets with this source address turn around here, so that none may come from the
    /// internet: true for a public address of a shard that no other worker serves. In a cluster any
    /// member of the shard may have translated such a packet, and sent it out because it does not
    /// serve the destination's shard.
    fn is_ours_alone(&self, source: u32) -> bool {
        !self.peers.is_clustered() && self.nat.is_public(source)
    }

    fn session_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        shard: ShardIndex,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let (inbound, now) = (packet.inbound(), cx.now.tick());
        let mut delivered = self.nat.inbound(packet.hash, &inbound, now);
        let is_unknown = delivered == Err(Refusal::NoMapping);
        if is_unknown && self.nat.has_static() && self.duties.creates(shard) {
            delivered = self.nat.inbound_static(&inbound, now);
        }
        let translated = match delivered {
            Ok(translated) => translated,
            Err(Refusal::RuleReject) => return Err(self.reject_down(packet, frame.data(), cx)),
            Err(refusal) if self.duties.creates(shard) => return Err(refusal.into()),
            Err(refusal) => return self.miss_elsewhere_down(frame, packet, shard, refusal, cx),
        };
        self.note_downstream(packet, shard);
        if !self.may_take_slow_path(&translated.to.home, Way::Down) {
            return Err(DropReason::SlowPathLimit);
        }
        self.translated_down(frame, packet, translated, cx)
    }

    /// Delivers a packet whose home is known; it may be a first fragment.
    pub(crate) fn translated_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Downstream,
        translated: Translated<Delivery>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let home = &translated.to.home;
        self.check_hop(frame.data(), home, cx)?;
        self.edit_down(&mut frame, packet, &translated);
        match packet.key.kind {
            PacketKind::Session => self.deliver(frame, home, packet.hash, cx),
            _ => self.first_fragment_down(frame, &packet.key, translated, cx),
        }
        Ok(())
    }

    /// Notes a packet with a mapping, if the shard's routes led it here.
    pub(crate) fn note_downstream(&mut self, packet: &Downstream, shard: ShardIndex) {
        if packet.step == DownstreamStep::Translate {
            self.duties.note_traffic(shard);
        }
    }

    fn edit_down(&self, frame: &mut F, packet: &Downstream, translated: &Translated<Delivery>) {
        let Downstream { key, header_len, .. } = packet;
        let from = (Side::Internet, translated.to.home.outer);
        self.edit_syn(frame, *header_len, key.tcp_flags, from);
        let (bytes, inside) = (frame.data_mut(), translated.to.inside);
        rewrite::forward(bytes, *header_len, key.protocol, PacketEnd::Destination, inside);
        self.mark(bytes, translated.class);
        if let Some(asked) = translated.remote {
            rewrite::endpoint(bytes, *header_len, PacketEnd::Source, asked);
        }
    }

    /// Checks that a packet may take one more hop into the tunnel; otherwise sends an ICMP error to
    /// its sender, if one is due.
    pub(crate) fn check_hop<P: Pool<Frame = F>>(
        &mut self,
        packet: &[u8],
        home: &Home,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let (ip, _) = Ipv4::ref_from_prefix(packet).map_err(|_| DropReason::IpMalformed)?;
        if ip.ttl > 1 && packet.len() <= self.tunnel_mtu(home) {
            return Ok(());
        }
        self.check_last_hop(ip, packet, home, cx)
    }

    #[cold]
    fn check_last_hop<P: Pool<Frame = F>>(
        &mut self,
        ip: &Ipv4,
        packet: &[u8],
        home: &Home,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        if ip.ttl <= 1 {
            self.send_icmp_error_to_internet(IcmpErrorCause::TimeExceeded, packet, Some(home), cx);
            return Err(DropReason::TtlExceeded);
        }
        let mtu = self.tunnel_mtu(home);
        if ip.dont_fragment() {
            let cause = IcmpErrorCause::FragmentationNeeded { mtu: mtu as u16 };
            self.send_icmp_error_to_internet(cause, packet, Some(home), cx);
            return Err(DropReason::DontFragment);
        }
        Ok(())
    }

    /// Returns the largest inner packet that fits in one tunnel packet of this home, in bytes.
    #[inline]
    pub(crate) fn tunnel_mtu(&self, home: &Home) -> usize {
        self.link(Side::Access).mtu.saturating_sub(self.tunnel_len(home))
    }

    /// Sends a translated packet to its home, in fragments if it exceeds the tunnel MTU.
    pub(crate) fn deliver<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        home: &Home,
        flow: Hash,
        cx: &mut Context<'_, P>,
    ) {
        if frame.data().len() > self.tunnel_mtu(home) {
            return self.deliver_in_pieces(frame, home, flow, cx);
        }
        self.encapsulate(frame, home, (flow.0 >> 32) as u32, cx);
    }

    #[cold]
    fn deliver_in_pieces<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        home: &Home,
        flow: Hash,
        cx: &mut Context<'_, P>,
    ) {
        let header_len = usize::from(frame.data()[0] & 15) * 4;
        let mtu = self.tunnel_mtu(home);
        let Context { pool, out, now } = cx;
        let now = *now;
        let cut = fragment(frame.data(), header_len, mtu, *pool, |pool, piece| {
            let cx = &mut Context { pool, out, now };
            self.encapsulate(piece, home, (flow.0 >> 32) as u32, cx);
        });
        if let Err(reason) = cut {
            self.discard(reason);
        }
    }

    /// Prepends the tunnel header (RFC 2784): from the shard's endpoint to the home, with the
    /// home's own key.
    #[inline(always)]
    pub(crate) fn encapsulate<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        home: &Home,
        flow: u32,
        cx: &mut Context<'_, P>,
    ) {
        if self.has_tunnel6(home) {
            return self.encapsulate_over_ipv6(frame, home, (flow, gre::PROTOCOL_IPV4), cx);
        }
        self.outer_identification = self.outer_identification.wrapping_add(1);
        let Some(header) = self.link(Side::Access).gateways.choose(flow) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        let tunnel_len = match self.mode {
            AccessMode::Gre => Ipv4::LEN + gre::header_len(home.gre_key),
            AccessMode::Plain => 0,
        };
        let Some(packet) = header.push_before(&mut frame, tunnel_len) else {
            return self.discard(DropReason::NoBuffer);
        };
        if self.mode == AccessMode::Gre {
            self.write_tunnel_header(packet, tunnel_len, home);
        }
        self.emit(Side::Access, frame, cx);
    }

    /// Writes the tunnel header into the first `tunnel_len` bytes of `packet`; the inner packet
    /// follows them.
    #[inline(always)]
    fn write_tunnel_header(&self, packet: &mut [u8], tunnel_len: usize, home: &Home) {
        let len = packet.len() as u16;
        let Some((tunnel, inner)) = packet.split_at_mut_checked(tunnel_len) else { return };
        let Ok((inner, _)) = Ipv4::ref_from_prefix(inner) else { return };
        let (tos, dont_fragment) = (inner.tos, inner.dont_fragment());
        self.fill_tunnel_header(tunnel, len, home, (tos, dont_fragment), gre::PROTOCOL_IPV4);
    }

    /// Fills the tunnel header, which is all of `tunnel`, of an outer packet of `len` bytes. The
    /// inner packet has this type of service, or traffic class, and protocol in GRE.
    #[inline(always)]
    pub(crate) fn fill_tunnel_header(
        &self,
        tunnel: &mut [u8],
        len: u16,
        home: &Home,
        (inner_tos, dont_fragment): (u8, bool),
        protocol: u16,
    ) {
        let Ok((outer, gre)) = Ipv4::mut_from_prefix(tunnel) else { return };
        let template = self.shards.tunnel_header(home.shard);
        *outer = *template;
        outer.tos = ecn::encapsulate(inner_tos);
        outer.total_length = len.into();
        outer.identification = self.outer_identification.into();
        outer.set_fragment(dont_fragment, false, 0);
        outer.destination = home.outer.into();
        // The template's checksum was computed with its own total length and zeros in the other
        // fields.
        let delta = Delta::new()
            .replace16(0, u16::from(outer.tos))
            .replace16(template.total_length.get(), len)
            .replace16(0, self.outer_identification)
            .replace16(0, outer.flags_fragment.get())
            .replace32(0, home.outer);
        outer.checksum = delta.apply(template.checksum.get()).into();
        gre::emit(gre, protocol, home.gre_key);
    }

    /// Sends an ICMP error to a home about its packet; the source is the tunnel endpoint, or in
    /// plain mode the worker's access address.
    pub(crate) fn send_icmp_error_to_home<P: Pool<Frame = F>>(
        &mut self,
        cause: IcmpErrorCause,
        home: &Home,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) {
        let from = match self.mode {
            AccessMode::Gre => self.shards.endpoint(home.shard),
            AccessMode::Plain => self.link(Side::Access).address,
        };
        // A spoofed outer source must neither direct errors at strangers nor use up the homes'
        // share of them.
        if !self.nat.is_subscriber(home) {
            return;
        }
        let sender = self.party_of(home);
        let parties = AnswerParties { to: Side::Access, sender, addressed: None };
        let notice = DueIcmpError { cause, parties, from, mtu: self.tunnel_mtu(home) };
        let Self { errors, counters, .. } = self;
        let error = errors.send_icmp_error(&notice, original, cx.now.ms, counters, cx.pool);
        if let Some(error) = error {
            self.encapsulate(error, home, 0, cx);
        }
    }

    /// Sends an ICMP error to a sender on the internet, or to another home whose packet was
    /// hairpinned, about its packet to `home` (if the home is known).
    pub(crate) fn send_icmp_error_to_internet<P: Pool<Frame = F>>(
        &mut self,
        cause: IcmpErrorCause,
        original: &[u8],
        home: Option<&Home>,
        cx: &mut Context<'_, P>,
    ) {
        let Some(parties) = self.parties_of(original, home) else { return };
        let (from, mtu) = (self.link(Side::Internet).address, self.link(Side::Internet).mtu);
        let notice = DueIcmpError { cause, parties, from, mtu };
        let Self { errors, counters, .. } = self;
        let error = errors.send_icmp_error(&notice, original, cx.now.ms, counters, cx.pool);
        if let Some(error) = error {
            self.send_answer(error, cx);
        }
    }

    /// Sends the answer to a packet from the internet or from another home.
    pub(crate) fn send_answer<P: Pool<Frame = F>>(&mut self, answer: F, cx: &mut Context<'_, P>) {
        match self.nat.is_public(destination(answer.data())) {
            // RFC 5508 REQ-7a: errors hairpin too. No answer is sent to this one, so it turns
            // around once.
            true => self.hairpin(answer, cx),
            false => self.send(Side::Internet, answer, 0, cx),
        }
    }

    /// Returns the parties that are charged for the answer to a packet to a public address.
    /// `None`: no answer may be sent.
    pub(crate) fn parties_of(
        &mut self,
        packet: &[u8],
        home: Option<&Home>,
    ) -> Option<AnswerParties> {
        let addressed = home.map(|home| self.party_of(home));
        let sender = self.sender(packet)?;
        let to = match sender.party {
            Party::Home(_) => Side::Access,
            Party::Remote(_) | Party::Remote6(_) => Side::Internet,
        };
        Some(AnswerParties { to, sender, addressed })
    }

    /// Returns the sender of a packet to a public address: a remote, or the home behind one of this
    /// worker's public addresses, which homes share. `None`: no error may be sent about the packet.
    fn sender(&mut self, packet: &[u8]) -> Option<LimitedParty> {
        let packet = Packet::read(packet).ok()?;
        let source = packet.ip.source.get();
        if !self.nat.is_public(source) {
            return Some(LimitedParty::remote(source));
        }
        let mut key = FlowKey::EMPTY;
        key.read(&packet, Toward::Home).ok()?;
        let known = self.nat.peek_inbound(key.source, key.destination, key.protocol);
        Some(match known {
            Some(translated) => self.party_of(&translated.to.home),
            None => LimitedParty::remote(source),
        })
    }
}
