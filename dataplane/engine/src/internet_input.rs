//! Hot. Input of the internet side: checks that the packet is for a public address and finds the
//! key of its mapping.

use weir_nat::RecordId;
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;

use crate::downstream::{Downstream, DownstreamStep};
use crate::engine::{Context, Engine, PREFETCH_AHEAD};
use crate::ethernet_input::{Network, sender};
use crate::fast_path::{FastDownstream, GRE, PLAIN, ones};
use crate::flow_key::Toward;
use crate::ip_input::{Packet, is_martian};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::local::check_ping;
use crate::{AccessMode, DropReason, Side};

/// Bytes by which the headers of a packet grow in front of the received ones when it enters a
/// tunnel.
const TUNNEL_ROOM: usize = 64;

impl<F: Frame> Engine<F> {
    /// Processes a burst; returns the bytes of its frames.
    pub(crate) fn receive_internet<P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) -> u64 {
        // The first mapping of a home with a key may have been made since the last burst.
        if self.nat.has_keyed_homes() {
            self.tunnel_mtu_least = self.tunnel_mtu_keyed;
        }
        match (self.mode, self.link(Side::Internet).is_tagged()) {
            (AccessMode::Gre, false) => self.burst_down::<UNTAGGED, GRE, P>(frames, cx),
            (AccessMode::Gre, true) => self.burst_down::<TAGGED, GRE, P>(frames, cx),
            (AccessMode::Plain, false) => self.burst_down::<UNTAGGED, PLAIN, P>(frames, cx),
            (AccessMode::Plain, true) => self.burst_down::<TAGGED, PLAIN, P>(frames, cx),
        }
    }

    #[inline(never)]
    fn burst_down<const LINK: usize, const TUNNEL: usize, P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) -> u64 {
        let mut fast = std::mem::take(&mut self.fast_downstream);
        let mut slow = std::mem::take(&mut self.downstream);
        let burst = &mut fast[..frames.len()];
        let (bytes, slow_frames) = self.read_internet::<LINK>(frames, burst);
        for at in ones(slow_frames) {
            self.read_slow_path_internet(&mut frames[at], &mut slow[at]);
            burst[at].hash = slow[at].hash;
        }
        // Frames without a record in the primary bucket, one bit each.
        let mut elsewhere = 0_u64;
        for (at, packet) in burst.iter_mut().enumerate() {
            match self.nat.prefetch_inbound_record(packet.hash) {
                Some(candidate) => packet.candidate = candidate,
                None => elsewhere |= 1 << at,
            }
        }
        for at in ones(elsewhere) {
            let candidate = self.nat.prefetch_inbound_elsewhere(burst[at].hash);
            burst[at].candidate = candidate.unwrap_or(RecordId::NONE);
        }
        let now = cx.now.tick();
        let mut frames = frames.drain(..);
        for (at, packet) in burst.iter().enumerate() {
            let Some(frame) = frames.next() else { break };
            if slow_frames & 1 << at != 0 {
                slow[at].candidate = packet.known_candidate();
                self.serve_internet(frame, &slow[at], cx);
                continue;
            }
            match self.nat.inbound_settled(packet.candidate, &packet.key, now) {
                Some(delivery) => {
                    self.send_settled_down::<LINK, TUNNEL, P>(frame, packet, &delivery, cx);
                }
                None => self.unsettled_down(frame, packet, LINK, &mut slow[at], cx),
            }
        }
        self.downstream = slow;
        self.fast_downstream = fast;
        bytes
    }

    /// Reads the fast-path packets of a burst. Returns the bytes of all frames, and the frames that
    /// are left to the slow path, one bit each.
    #[inline(always)]
    fn read_internet<const LINK: usize>(
        &self,
        frames: &[F],
        burst: &mut [FastDownstream],
    ) -> (u64, u64) {
        let (mut bytes, mut slow) = (0, 0);
        frames.iter().take(PREFETCH_AHEAD).for_each(|frame| frame.prefetch(TUNNEL_ROOM));
        for ((at, packet), frame) in burst.iter_mut().enumerate().zip(frames) {
            if let Some(ahead) = frames.get(at + PREFETCH_AHEAD) {
                ahead.prefetch(TUNNEL_ROOM);
            }
            bytes += frame.data().len() as u64;
            if self.read_fast_down::<LINK>(frame, packet) {
                self.nat.prefetch_inbound(packet.hash);
            } else {
                slow |= 1 << at;
            }
        }
        (bytes, slow)
    }

    /// Translates a fast-path packet, which begins at `offset` of its frame, whose session is not
    /// known to be settled.
    #[inline(always)]
    fn unsettled_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        fast: &FastDownstream,
        offset: usize,
        packet: &mut Downstream,
        cx: &mut Context<'_, P>,
    ) {
        match self.nat.is_first_inbound(fast.candidate, &fast.key) {
            false => self.other_down(frame, fast, offset, packet, cx),
            true => self.first_down(frame, fast, offset, packet, cx),
        }
    }

    /// The packet has no mapping, or it is of another session of it.
    #[inline(never)]
    fn other_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        fast: &FastDownstream,
        offset: usize,
        packet: &mut Downstream,
        cx: &mut Context<'_, P>,
    ) {
        if self.is_unusual_down(fast) {
            return self.read_again_down(frame, fast, packet, cx);
        }
        fast.fill(offset, packet);
        frame.keep(packet.offset, packet.len);
        self.slow_path_down(frame, packet, cx);
    }

    /// The packet may change the session.
    #[inline(never)]
    fn first_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        fast: &FastDownstream,
        offset: usize,
        packet: &mut Downstream,
        cx: &mut Context<'_, P>,
    ) {
        if self.is_unusual_down(fast) {
            return self.read_again_down(frame, fast, packet, cx);
        }
        fast.fill(offset, packet);
        frame.keep(packet.offset, packet.len);
        self.translate_down(frame, packet, cx);
    }

    #[cold]
    #[inline(never)]
    fn read_again_down<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        fast: &FastDownstream,
        packet: &mut Downstream,
        cx: &mut Context<'_, P>,
    ) {
        self.read_slow_path_internet(&mut frame, packet);
        packet.candidate = fast.known_candidate();
        self.serve_internet(frame, packet, cx);
    }

    /// The slow path of `read_internet`: decides on the step of a frame, cuts the frame to its
    /// packet, and prefetches its index line.
    #[inline(never)]
    fn read_slow_path_internet(&self, frame: &mut F, packet: &mut Downstream) {
        packet.step = self.internet_input(frame, packet).unwrap_or_else(DownstreamStep::Discard);
        if let DownstreamStep::Discard(_) = packet.step {
            return;
        }
        frame.keep(packet.offset, packet.len);
        if packet.step == DownstreamStep::Translate {
            self.nat.prefetch_inbound(packet.hash);
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
        if !self.nat.is_public(destination) {
            return Err(DropReason::NotLocal);
        }
        // An ICMP query of a home on another worker comes from this side. Other requests from here
        // do not pass.
        let is_query = whole.ip.protocol == ipv4::PROTOCOL_ICMP;
        let is_neighbor = is_query && self.is_public_of_any(whole.ip.source.get());
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
