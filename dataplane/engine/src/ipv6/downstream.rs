//! Hot. IPv6 packets from the internet to homes.

use weir_nat::{Delivery6, Refusal, ShardIndex};
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
    /// Carries out the step of an IPv6 packet from the internet side.
    #[inline(always)]
    pub(crate) fn serve_internet6<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        match packet.step {
            PacketStep6::Forward => self.forward6_down(frame, packet, cx),
            _ => self.serve_other6(Side::Internet, frame, packet, cx),
        }
    }

    #[inline(always)]
    pub(crate) fn forward6_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        let (candidate, key, now) = (packet.look_up.candidate, &packet.key, cx.now.tick());
        let has_room = frame.data().len() <= self.tunnel_mtu_least;
        if has_room && packet.kind == PacketKind::Session {
            let settled = match self.mode {
                AccessMode::Gre => self.nat.inbound6_settled::<true>(candidate, key, now),
                AccessMode::Plain => self.nat.inbound6_settled::<false>(candidate, key, now),
            };
            if let Some(home) = settled.filter(|home| self.fits_tunnel6(frame.data(), home)) {
                if !self.duties.note_served_traffic(home.shard) {
                    return self.discard(DropReason::NotServing);
                }
                decrement_hop_limit(frame.data_mut());
                let flow = (packet.look_up.hash.0 >> 32) as u32;
                return self.deliver6(frame, &home, flow, cx);
            }
        }
        self.slow_path6_down(frame, packet, cx);
    }

    #[inline(never)]
    pub(crate) fn slow_path6_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        let done = self.served_shard6(frame.data()).and_then(|shard| {
            self.commit_first(cx, |engine, cx| match packet.kind {
                PacketKind::Session | PacketKind::FirstFragment => {
                    engine.session6_down(frame, packet, shard, cx)
                }
                PacketKind::LaterFragment => engine.later_fragment6_down(frame, packet, shard, cx),
                PacketKind::IcmpError | PacketKind::IcmpReply => {
                    engine.icmp6_error_down(frame, packet, shard, cx)
                }
            })
        });
        if let Err(reason) = done {
            self.discard(reason);
        }
    }

    /// Returns the shard of a packet's destination, which is served here.
    fn served_shard6(&self, bytes: &[u8]) -> Result<ShardIndex, DropReason> {
        let (ip, _) = ipv6::parse(bytes).map_err(|_| DropReason::Ip6Malformed)?;
        let shard = self.nat.shard_of_inside6(ip.destination.get()).ok_or(DropReason::NotLocal)?;
        match self.duties.serves(shard) {
            true => Ok(shard),
            false => Err(DropReason::NotServing),
        }
    }

    fn session6_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        shard: ShardIndex,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let (hash, flow, now) = (packet.look_up.hash, packet.flow_packet(), cx.now.tick());
        let delivery = match self.nat.inbound6_known(hash, &flow, now) {
            Some(delivery) => delivery,
            None => {
                if let Some(to) = self.elsewhere6_down(frame.data(), packet, shard)? {
                    return self.redirect6(frame, packet, None, to, cx);
                }
                if packet.is_echo_reply(Way6::Down) {
                    return Err(DropReason::IcmpUnsolicited);
                }
                match self.nat.open_inbound6(hash, shard, &flow, now) {
                    Ok(delivery) => delivery,
                    Err(Refusal::RuleReject) => {
                        return Err(self.reject6_down(packet, frame.data(), cx));
                    }
                    Err(refusal) => return Err(refusal.into()),
                }
            }
        };
        if packet.step != PacketStep6::Stray {
            self.duties.note_traffic(shard);
        }
        if !self.may_take_slow_path(&delivery.home, Way::Down) {
            return Err(DropReason::SlowPathLimit);
        }
        self.check_size6(frame.data(), &delivery, cx)?;
        match packet.kind {
            PacketKind::FirstFragment => self.first_fragment6_down(frame, packet, &delivery, cx),
            _ => self.arrive6(frame, packet, &delivery, cx),
        }
        Ok(())
    }

    /// Sends a packet from the internet to its home.
    pub(crate) fn arrive6<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &Packet6State,
        delivery: &Delivery6,
        cx: &mut Context<'_, P>,
    ) {
        self.edit6(&mut frame, packet, delivery.class, (Side::Internet, &delivery.home));
        self.deliver6(frame, &delivery.home, (packet.look_up.hash.0 >> 32) as u32, cx);
    }

    /// Checks that a packet fits in the tunnel of its home; else tells its sender (RFC 4443 section
    /// 3.2).
    pub(crate) fn check_size6<P: Pool<Frame = F>>(
        &mut self,
        bytes: &[u8],
        delivery: &Delivery6,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let mtu = self.tunnel_mtu6(&delivery.home);
        if bytes.len() <= mtu {
            return Ok(());
        }
        let cause = Icmp6ErrorCause::PacketTooBig { mtu: mtu as u32 };
        self.send_icmp6_error_to_internet(cause, bytes, Some(&delivery.home), cx);
        Err(DropReason::DontFragment)
    }

    /// Drops a packet whose hop limit ends here. Its sender gets an error only if the packet would
    /// have reached a home, so that no error shows what is behind the firewall.
    pub(crate) fn expired_down6<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        if let Err(reason) = self.served_shard6(frame.data()) {
            return self.discard(reason);
        }
        if let Some(delivery) = self.nat.peek_flow6(&packet.key) {
            let cause = Icmp6ErrorCause::TimeExceeded;
            self.send_icmp6_error_to_internet(cause, frame.data(), Some(&delivery.home), cx);
        }
        self.discard(DropReason::TtlExceeded);
    }
}
