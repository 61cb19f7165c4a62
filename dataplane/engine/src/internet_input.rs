//! Hot. Input of the internet side: checks that the packet is for a public address and finds the
//! key of its mapping.

use weir_nat::{Hash, InboundKey, LookUp};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;

use crate::burst::Burst;
use crate::downstream::{Downstream, DownstreamStep};
use crate::engine::{Context, Engine};
use crate::ethernet_input::{Network, sender};
use crate::fast_path::{FastDownstream, GRE};
use crate::flow_key::Toward;
use crate::ip_input::{Packet, is_martian};
use crate::ipv6::{FastKey6, FastPacket6, NewFlows6, Packet6State};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::local::check_ping;
use crate::packet_direction::{PacketDirection, SettledRun};
use crate::{DropReason, Side};

/// Bytes by which the headers of a packet grow in front of the received ones when it enters a
/// tunnel.
const TUNNEL_ROOM: usize = 64;

/// Packets from the internet.
#[derive(Debug)]
pub(crate) struct Down;

impl PacketDirection for Down {
    type Key = InboundKey;
    type Slow = Downstream;

    const SIDE: Side = Side::Internet;
    const EMPTY: Downstream = Downstream::EMPTY;
    const ROOM: usize = TUNNEL_ROOM;

    fn burst_mut<F: Frame>(engine: &mut Engine<F>) -> &mut Burst<Self> {
        &mut engine.down
    }

    #[inline(always)]
    fn read_fast<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &Engine<F>,
        frame: &F,
        packet: &mut FastDownstream,
    ) -> bool {
        engine.read_fast_down::<LINK>(frame, packet)
    }

    fn is_unusual<F: Frame>(engine: &Engine<F>, packet: &FastDownstream) -> bool {
        engine.is_unusual_down(packet)
    }

    #[inline(always)]
    fn is_usual_over_ipv6<F: Frame>(_: &Engine<F>, _: &F, _: &FastDownstream) -> bool {
        false
    }

    #[inline(always)]
    fn send_settled<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &mut Engine<F>,
        run: SettledRun<'_, '_, F, InboundKey>,
    ) -> usize {
        match engine.link(Side::Access).is_tagged() {
            false => engine.send_in_turn(
                run,
                |engine, run| engine.send_settled_down::<UNTAGGED, TUNNEL>(LINK, run),
                |engine, run| engine.send_settled_over_ipv6::<UNTAGGED>(LINK, run),
            ),
            true => engine.send_in_turn(
                run,
                |engine, run| engine.send_settled_down::<TAGGED, TUNNEL>(LINK, run),
                |engine, run| engine.send_settled_over_ipv6::<TAGGED>(LINK, run),
            ),
        }
    }

    /// A packet from the internet is limited where it is known to whom it belongs.
    #[inline(always)]
    fn may_take_slow_path<F: Frame>(_: &mut Engine<F>, _: &InboundKey) -> bool {
        true
    }

    fn fill(packet: &FastDownstream, bytes: &[u8], offset: usize, slow: &mut Downstream) {
        packet.fill(bytes, offset, slow);
    }

    fn read_slow<F: Frame>(engine: &Engine<F>, frame: &mut F, slow: &mut Downstream) -> Hash {
        engine.read_slow_path_internet(frame, slow);
        slow.hash
    }

    #[inline(always)]
    fn read_fast6<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &Engine<F>,
        frame: &F,
        packet: &mut FastPacket6,
    ) -> bool {
        engine.read_fast6_down::<LINK>(frame, packet)
    }

    #[inline(always)]
    fn send_settled6<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &mut Engine<F>,
        run: SettledRun<'_, '_, F, FastKey6>,
    ) -> usize {
        match (TUNNEL, engine.link(Side::Access).is_tagged()) {
            (GRE, false) => engine.send_in_turn(
                run,
                |engine, run| engine.send_settled6_into_tunnels::<UNTAGGED>(LINK, run),
                |engine, run| engine.send_settled6_over_ipv6::<UNTAGGED>(LINK, run),
            ),
            (GRE, true) => engine.send_in_turn(
                run,
                |engine, run| engine.send_settled6_into_tunnels::<TAGGED>(LINK, run),
                |engine, run| engine.send_settled6_over_ipv6::<TAGGED>(LINK, run),
            ),
            (_, false) => engine.send_settled6_down::<UNTAGGED>(LINK, run),
            (_, true) => engine.send_settled6_down::<TAGGED>(LINK, run),
        }
    }

    fn read_slow6<F: Frame>(engine: &Engine<F>, frame: &mut F, packet: &mut Packet6State) {
        engine.read_internet6(frame, packet);
    }

    fn serve6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        engine.serve_internet6(frame, packet, cx);
    }

    #[inline(always)]
    fn wait6<F: Frame>(
        _: &mut Engine<F>,
        frame: F,
        _: (usize, &Packet6State),
        _: &mut NewFlows6<F>,
    ) -> Option<F> {
        Some(frame)
    }

    #[inline(always)]
    fn serve_unsettled6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    ) {
        // The flow may be settled: one of a home that sends a GRE key, or has a tunnel over IPv6,
        // is sent here.
        engine.forward6_down(frame, packet, cx);
    }

    fn set_look_up(slow: &mut Downstream, look_up: &LookUp) {
        slow.candidate = look_up.found();
    }

    fn serve<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Downstream,
        cx: &mut Context<'_, P>,
    ) {
        engine.serve_internet(frame, slow, cx);
    }

    #[inline(always)]
    fn translate<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Downstream,
        cx: &mut Context<'_, P>,
    ) {
        engine.translate_down(frame, slow, cx);
    }

    fn wait<F: Frame>(_: &mut Engine<F>, frame: F, _: &FastDownstream, _: usize) -> Option<F> {
        Some(frame)
    }

    #[inline(always)]
    fn translate_other<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Downstream,
        cx: &mut Context<'_, P>,
    ) {
        engine.slow_path_down(frame, slow, cx);
    }

    fn finish<F: Frame, P: Pool<Frame = F>>(_: &mut Engine<F>, _: &mut Context<'_, P>) {}
}

impl<F: Frame> Engine<F> {
    /// Sends the packets of a run as far as they are of settled flows: those of homes without
    /// tunnels over IPv6 with the first function, those of others with the second one.
    #[inline(always)]
    fn send_in_turn<K>(
        &mut self,
        mut run: SettledRun<'_, '_, F, K>,
        send: impl Fn(&mut Self, SettledRun<'_, '_, F, K>) -> usize,
        send_over_ipv6: impl Fn(&mut Self, SettledRun<'_, '_, F, K>) -> usize,
    ) -> usize {
        let mut sent = send(self, run.behind(0));
        while sent < run.packets.len() && self.nat.has_outer_ipv6() {
            let others = send_over_ipv6(self, run.behind(sent));
            if others == 0 {
                break;
            }
            sent += others;
            sent += send(self, run.behind(sent));
        }
        sent
    }

    /// See [`PacketDirection::read_slow`].
    #[inline(never)]
    fn read_slow_path_internet(&self, frame: &mut F, packet: &mut Downstream) {
        packet.step = self.internet_input(frame, packet).unwrap_or_else(DownstreamStep::Discard);
        if let DownstreamStep::Discard(_) = packet.step {
            return;
        }
        frame.keep(packet.offset, packet.len);
        if packet.step == DownstreamStep::Translate {
            self.nat.begin_look_up::<InboundKey>(packet.hash);
        }
    }

    /// Carries out any step other than a translation.
    #[inline(never)]
    fn serve_internet<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Downstream,
        cx: &mut Context<'_, P>,
    ) {
        match packet.step {
            // Frames of this link never have the other two steps.
            DownstreamStep::Translate | DownstreamStep::Stray | DownstreamStep::Hairpin => {
                self.translate_down(frame, packet, cx)
            }
            DownstreamStep::Arp => self.arp_input(Side::Internet, frame, cx),
            DownstreamStep::Pong => self.answer_ping(Side::Internet, frame, packet.from, cx),
            DownstreamStep::Discard(reason) => self.discard(reason),
        }
    }

    /// Decides on the step of any frame. Fills in `packet` as far as the step needs it.
    #[inline(never)]
    pub(crate) fn internet_input(
        &self,
        frame: &F,
        packet: &mut Downstream,
    ) -> Result<DownstreamStep, DropReason> {
        let link = self.link(Side::Internet);
        let (network, offset) = link.input(frame)?;
        let bytes = frame.data().get(offset..).unwrap_or_default();
        (packet.offset, packet.len) = (offset, bytes.len());
        if network == Network::Arp {
            return Ok(DownstreamStep::Arp);
        }
        let whole = Packet::read(bytes)
            .map_err(|error| error.reason(DropReason::IpMalformed, DropReason::IpChecksum))?;
        packet.len = whole.bytes.len();
        let destination = whole.ip.destination.get();
        if destination == link.address {
            check_ping(whole.ip, whole.payload())?;
            packet.from = sender(frame);
            return Ok(DownstreamStep::Pong);
        }
        if is_martian(whole.ip) {
            return Err(DropReason::Martian);
        }
        let is_bypassed = !self.nat.is_public(destination);
        if is_bypassed && self.bypassed_home(destination).is_none() {
            return Err(DropReason::NotLocal);
        }
        // An ICMP query of a home on another worker comes from this side, and a rule may let one
        // pass as it is. Other requests from here do not pass.
        let is_query = whole.ip.protocol == ipv4::PROTOCOL_ICMP;
        let is_neighbor = is_query && (is_bypassed || self.is_public_of_any(whole.ip.source.get()));
        let toward = if is_neighbor { Toward::Neighbor } else { Toward::Home };
        self.public_input(&whole, toward, packet)?;
        Ok(DownstreamStep::Translate)
    }

    /// Reads a packet to the holder of its destination address.
    pub(crate) fn public_input(
        &self,
        whole: &Packet<'_>,
        toward: Toward,
        packet: &mut Downstream,
    ) -> Result<(), DropReason> {
        self.check_options(whole)?;
        packet.header_len = whole.header_len;
        packet.key.read(whole, toward)?;
        let key = &packet.key;
        packet.hash = self.nat.inbound_hash(key.destination, key.protocol);
        packet.fits_fast_path = key.is_plain(packet.header_len)
            && whole.ip.ttl > 1
            && whole.bytes.len() <= self.tunnel_mtu_least;
        Ok(())
    }
}
