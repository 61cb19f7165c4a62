//! Hot. Input of the internet side: checks that the packet is for a public address and finds the
//! key of its mapping.

use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;

use crate::downstream::{Downstream, DownstreamStep};
use crate::engine::{Context, Engine, PREFETCH_AHEAD};
use crate::ethernet_input::{Network, sender};
use crate::flow_key::Toward;
use crate::ip_input::{Packet, is_martian};
use crate::local::check_ping;
use crate::{DropReason, Side};

/// Bytes by which the headers of a packet grow in front of the received ones when it enters a
/// tunnel.
const TUNNEL_ROOM: usize = 64;

impl<F: Frame> Engine<F> {
    pub(crate) fn receive_internet<P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) {
        // The first mapping of a home with a key may have been made since the last burst.
        if self.nat.has_keyed_homes() {
            self.tunnel_mtu_least = self.tunnel_mtu_keyed;
        }
        let mut slots = std::mem::take(&mut self.downstream);
        let burst = &mut slots[..frames.len()];
        self.read_internet(frames, burst);
        // Frames without a record in the primary bucket, one bit each.
        let mut elsewhere = 0_u64;
        for (at, packet) in burst.iter_mut().enumerate() {
            if packet.step == DownstreamStep::Translate {
                packet.candidate = self.nat.prefetch_inbound_record(packet.hash);
                if packet.candidate.is_none() {
                    elsewhere |= 1 << at;
                }
            }
        }
        while elsewhere != 0 {
            let packet = &mut burst[elsewhere.trailing_zeros() as usize];
            elsewhere &= elsewhere - 1;
            packet.candidate = self.nat.prefetch_inbound_elsewhere(packet.hash);
        }
        for (frame, packet) in frames.drain(..).zip(&*burst) {
            if packet.step == DownstreamStep::Translate {
                self.translate_down(frame, packet, cx);
            } else {
                self.serve_internet(frame, packet, cx);
            }
        }
        self.downstream = slots;
    }

    /// Decides on the step of each frame.
    #[inline(always)]
    fn read_internet(&self, frames: &mut [F], burst: &mut [Downstream]) {
        frames.iter().take(PREFETCH_AHEAD).for_each(|frame| frame.prefetch(TUNNEL_ROOM));
        for (at, packet) in burst.iter_mut().enumerate() {
            if let Some(ahead) = frames.get(at + PREFETCH_AHEAD) {
                ahead.prefetch(TUNNEL_ROOM);
            }
            let frame = &mut frames[at];
            if self.fast_path_down(frame, packet) {
                packet.step = DownstreamStep::Translate;
                frame.keep(packet.offset, packet.len);
                self.nat.prefetch_inbound(packet.hash);
            } else {
                self.read_slow_path_internet(frame, packet);
            }
        }
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
