//! Hot. From the internet side: is it for a public address, and which mapping does it ask for?

use weir_wire::frame::{Frame, Pool};

use crate::downstream::{Downstream, Step};
use crate::engine::{Context, Engine, PREFETCH_AHEAD};
use crate::ethernet_input::{Network, sender};
use crate::flow_key::Toward;
use crate::ip_input::{Packet, is_martian};
use crate::local::check_ping;
use crate::{DropReason, Side};

/// Headers of a packet that goes into a tunnel grow by so much, in front of what was received.
const TUNNEL_ROOM: usize = 64;

impl<F: Frame> Engine<F> {
    pub(crate) fn receive_internet<P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) {
        let mut burst = std::mem::take(&mut self.downstream);
        frames.iter().take(PREFETCH_AHEAD).for_each(|frame| frame.prefetch(TUNNEL_ROOM));
        for (packet, at) in burst.iter_mut().zip(0..frames.len()) {
            if let Some(ahead) = frames.get(at + PREFETCH_AHEAD) {
                ahead.prefetch(TUNNEL_ROOM);
            }
            self.internet_step(&mut frames[at], packet);
        }
        for packet in burst.iter_mut().take(frames.len()) {
            if packet.step == Step::Translate {
                packet.candidate = self.nat.prefetch_inbound_record(packet.hash);
            }
        }
        for packet in burst.iter_mut().take(frames.len()) {
            if packet.step == Step::Translate && packet.candidate.is_none() {
                packet.candidate = self.nat.prefetch_inbound_elsewhere(packet.hash);
            }
        }
        for (frame, packet) in frames.drain(..).zip(&*burst) {
            match packet.step {
                Step::Translate => self.translate_down(frame, packet, cx),
                Step::Arp => self.arp_input(Side::Internet, frame, cx),
                Step::Pong => self.answer_ping(Side::Internet, frame, packet.from, cx),
                Step::Discard(reason) => self.discard(reason),
            }
        }
        self.downstream = burst;
    }

    /// Finds out what a frame wants, cuts it to its packet, and asks for its index line.
    #[inline(always)]
    fn internet_step(&self, frame: &mut F, packet: &mut Downstream) {
        packet.step = match self.common_down(frame, packet) {
            true => Step::Translate,
            false => self.internet_input(frame, packet).unwrap_or_else(Step::Discard),
        };
        if let Step::Discard(_) = packet.step {
            return;
        }
        frame.keep(packet.offset, packet.len);
        if packet.step == Step::Translate {
            self.nat.prefetch_inbound(packet.hash);
        }
    }

    /// Any frame. Fills in `packet` as far as the step needs it.
    #[inline(never)]
    pub(crate) fn internet_input(
        &self,
        frame: &F,
        packet: &mut Downstream,
    ) -> Result<Step, DropReason> {
        let link = self.link(Side::Internet);
        let (network, offset) = link.input(frame)?;
        let bytes = frame.data().get(offset..).unwrap_or_default();
        (packet.offset, packet.len) = (offset, bytes.len());
        if network == Network::Arp {
            return Ok(Step::Arp);
        }
        let whole = Packet::read(bytes)
            .map_err(|error| error.reason(DropReason::IpMalformed, DropReason::IpChecksum))?;
        packet.len = whole.bytes.len();
        let destination = whole.ip.destination.get();
        if destination == link.address {
            check_ping(whole.ip, whole.payload())?;
            packet.from = sender(frame);
            return Ok(Step::Pong);
        }
        if is_martian(whole.ip) {
            return Err(DropReason::Martian);
        }
        if !self.nat.is_public(destination) {
            return Err(DropReason::NotLocal);
        }
        self.public_input(&whole, packet)?;
        Ok(Step::Translate)
    }

    /// A packet to the holder of its destination.
    pub(crate) fn public_input(
        &self,
        whole: &Packet<'_>,
        packet: &mut Downstream,
    ) -> Result<(), DropReason> {
        packet.header_len = whole.header_len;
        packet.key.read(whole, Toward::Home)?;
        let key = &packet.key;
        packet.hash = self.nat.inbound_hash(key.destination, key.protocol);
        Ok(())
    }
}
