//! Hot. IPv6 packets from homes.

use weir_nat::{FlowClass, Home, LikelySubscriber, Refusal};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv6;

use crate::engine::{Context, Engine};
use crate::flow_key::PacketKind;
use crate::ipv6::error::Icmp6ErrorCause;
use crate::ipv6::output::decrement_hop_limit;
use crate::ipv6::packet::{Packet6State, PacketStep6, Way6};
use crate::slow_path::Way;
use crate::{AccessMode, DropReason, Side};

impl<F: Frame> Engine<F> {
    /// Carries out the step of an IPv6 packet from the access side.
    #[inline(always)]
    pub(crate) fn serve_access6<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        match packet.step {
            PacketStep6::Forward => self.forward6_up(frame, packet, cx),
            step if step.is_to_endpoint() => self.serve_to_endpoint6(frame, packet, cx),
            _ => self.serve_other6(Side::Access, frame, packet, cx),
        }
    }

    /// Carries out any step but the forwarding of a packet.
    #[inline(never)]
    pub(crate) fn serve_other6<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        match packet.step {
            // Such packets are few, and none takes the fast path, which asks nothing.
            PacketStep6::Stray => match side {
                Side::Access => self.slow_path6_up(frame, packet, cx),
                Side::Internet => self.slow_path6_down(frame, packet, cx),
            },
            PacketStep6::Local => self.local6_input(side, frame, packet.from, cx),
            PacketStep6::Discard(reason) => self.discard(reason),
            // Frames of other steps do not come here.
            _ => match side {
                Side::Access => self.expired_up6(frame, packet, cx),
                Side::Internet => self.expired_down6(frame, packet, cx),
            },
        }
    }

    #[inline(always)]
    fn forward6_up<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        let (candidate, key, now) = (packet.look_up.candidate, &packet.key, cx.now.tick());
        let has_room = frame.data().len() <= self.link(Side::Internet).mtu;
        if has_room && packet.kind == PacketKind::Session {
            let settled = match self.mode {
                AccessMode::Gre => {
                    self.nat.outbound6_settled::<true>(candidate, key, &packet.home, now)
                }
                AccessMode::Plain => {
                    self.nat.outbound6_settled::<false>(candidate, key, &packet.home, now)
                }
            };
            if let Some(shard) = settled {
                if !self.duties.note_served_traffic(shard) {
                    return self.discard(DropReason::NotServing);
                }
                decrement_hop_limit(frame.data_mut());
                let flow = (packet.look_up.hash.0 >> 32) as u32;
                return self.send6(Side::Internet, frame, flow, cx);
            }
        }
        self.slow_path6_up(frame, packet, cx);
    }

    #[inline(never)]
    pub(crate) fn slow_path6_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        let done = self.home6(frame.data(), packet).and_then(|home| {
            if !self.may_take_slow_path(&home, Way::Up) {
                return Err(DropReason::SlowPathLimit);
            }
            self.commit_first(cx, |engine, cx| engine.admitted6_up(frame, packet, &home, cx))
        });
        if let Err(reason) = done {
            self.discard(reason);
        }
    }

    /// Returns the home of a packet.
    pub(crate) fn home6(&self, bytes: &[u8], packet: &Packet6State) -> Result<Home, DropReason> {
        if self.mode == AccessMode::Gre {
            return Ok(packet.home);
        }
        let (ip, _) = ipv6::parse(bytes).map_err(|_| DropReason::Ip6Malformed)?;
        let source = ip.source.get();
        let shard = self.nat.shard_of_inside6(source).ok_or(DropReason::NotSubscriber)?;
        match self.duties.serves(shard) {
            true => Ok(self.nat.home_of_inside6(shard, source)),
            false => Err(DropReason::NotServing),
        }
    }

    pub(crate) fn admitted6_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        home: &Home,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        if packet.step != PacketStep6::Stray {
            self.note_home_traffic(home);
        }
        let mtu = self.link(Side::Internet).mtu;
        // RFC 8200 section 5: a router does not fragment.
        if frame.data().len() > mtu {
            let cause = Icmp6ErrorCause::PacketTooBig { mtu: mtu as u32 };
            self.send_icmp6_error_to_home(cause, home, frame.data(), cx);
            return Err(DropReason::DontFragment);
        }
        match packet.kind {
            PacketKind::Session | PacketKind::FirstFragment => {
                self.session6_up(frame, packet, home, cx)
            }
            PacketKind::LaterFragment => self.later_fragment6_up(frame, packet, home, cx),
            PacketKind::IcmpError | PacketKind::IcmpReply => {
                self.icmp6_error_up(frame, packet, home, cx)
            }
        }
    }

    fn session6_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        home: &Home,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let (hash, flow, now) = (packet.look_up.hash, packet.flow_packet(), cx.now.tick());
        let class = match self.nat.outbound6_known(hash, home, &flow, now) {
            Ok(Some(class)) => Ok(class),
            Ok(None) => {
                if let Some(to) = self.elsewhere6_up(packet, home)? {
                    return self.redirect6(frame, packet, Some(home), to, cx);
                }
                if packet.is_echo_reply(Way6::Up) {
                    return Err(DropReason::IcmpUnsolicited);
                }
                self.nat.open_outbound6(hash, (home, LikelySubscriber::NONE), &flow, now)
            }
            Err(refusal) => Err(refusal),
        };
        self.opened6_up(frame, packet, home, class, cx)
    }

    /// Sends a packet whose flow has this class, or is refused.
    #[inline(always)]
    pub(crate) fn opened6_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        home: &Home,
        class: Result<FlowClass, Refusal>,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let class = match class {
            Ok(class) => class,
            // A rule lets the packet pass without a flow.
            Err(Refusal::RuleBypass) => FlowClass::NONE,
            Err(refusal) => return Err(self.refuse6(refusal, packet, home, frame.data(), cx)),
        };
        match packet.kind {
            PacketKind::FirstFragment => self.first_fragment6_up(frame, packet, home, class, cx),
            _ => self.leave6(frame, packet, class, cx),
        }
        Ok(())
    }

    /// Sends a packet of a home to the internet.
    pub(crate) fn leave6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Packet6State,
        class: FlowClass,
        cx: &mut Context<'_, P>,
    ) {
        self.edit6(&mut frame, packet, class, (Side::Access, &packet.home));
        self.send6(Side::Internet, frame, (packet.look_up.hash.0 >> 32) as u32, cx);
    }

    /// Tells a home why its packet begins no flow, where that is not for its sender to guess: for
    /// lack of room, by a rule, or since the source address is not the home's (RFC 4443 section
    /// 3.1, code 5).
    fn refuse6<P: Pool<Frame = F>>(
        &mut self,
        refusal: Refusal,
        packet: &Packet6State,
        home: &Home,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> DropReason {
        let cause = match refusal {
            Refusal::RuleReject => return self.reject6_up(packet, home, original, cx),
            Refusal::TableFull | Refusal::FlowsPerSubscriber | Refusal::NewFlows => {
                self.nat.note_refused(refusal, home, packet.protocol);
                Icmp6ErrorCause::Prohibited
            }
            Refusal::AddressConflict | Refusal::InsideNotPublic => Icmp6ErrorCause::SourcePolicy,
            other => return other.into(),
        };
        self.send_icmp6_error_to_home(cause, home, original, cx);
        match refusal {
            Refusal::AddressConflict => DropReason::ClaimConflict,
            Refusal::InsideNotPublic => DropReason::NotDelegated,
            other => other.into(),
        }
    }

    /// RFC 4443 section 3.3: a packet whose hop limit ends here.
    fn expired_up6<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        match self.home6(frame.data(), packet) {
            Ok(home) => {
                let cause = Icmp6ErrorCause::TimeExceeded;
                self.send_icmp6_error_to_home(cause, &home, frame.data(), cx);
                self.discard(DropReason::TtlExceeded);
            }
            Err(reason) => self.discard(reason),
        }
    }
}
