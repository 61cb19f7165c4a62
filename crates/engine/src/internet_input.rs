//! Hot. From the internet side: is it for a public address, and which mapping does it ask for?

use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};

use crate::downstream::Downstream;
use crate::engine::{Context, Engine, PREFETCH_AHEAD};
use crate::ethernet_input::Network;
use crate::flow_key::{FlowKey, Toward};
use crate::ip_input::{Packet, is_martian};
use crate::local::check_ping;
use crate::{DropReason, Side};

/// What is to be done with a frame from the internet side.
#[derive(Debug)]
pub(crate) enum InternetStep {
    Translate(Downstream),
    Arp,
    Ping(Mac),
    Discard(DropReason),
}

/// Headers of a packet that goes into a tunnel grow by so much, in front of what was received.
const TUNNEL_ROOM: usize = 64;

impl<F: Frame> Engine<F> {
    pub(crate) fn receive_internet<P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) {
        let mut steps = std::mem::take(&mut self.internet_steps);
        frames.iter().take(PREFETCH_AHEAD).for_each(|frame| frame.prefetch(TUNNEL_ROOM));
        for at in 0..frames.len() {
            if let Some(ahead) = frames.get(at + PREFETCH_AHEAD) {
                ahead.prefetch(TUNNEL_ROOM);
            }
            steps.push(self.internet_step(&mut frames[at]));
        }
        for step in &mut steps {
            if let InternetStep::Translate(packet) = step {
                packet.candidate = self.nat.prefetch_inbound_record(packet.hash);
            }
        }
        for (frame, step) in frames.drain(..).zip(&steps) {
            match step {
                InternetStep::Translate(packet) => self.translate_down(frame, packet, cx),
                InternetStep::Arp => self.arp_input(Side::Internet, frame, cx),
                InternetStep::Ping(from) => self.answer_ping(Side::Internet, frame, *from, cx),
                InternetStep::Discard(reason) => self.discard(*reason),
            }
        }
        steps.clear();
        self.internet_steps = steps;
    }

    /// Finds out what a frame wants, cuts it to its packet, and asks for its index line.
    #[inline]
    fn internet_step(&self, frame: &mut F) -> InternetStep {
        let (step, offset, len) = match self.internet_input(frame) {
            Ok(found) => found,
            Err(reason) => return InternetStep::Discard(reason),
        };
        frame.pull(offset);
        frame.truncate(len);
        if let InternetStep::Translate(packet) = &step {
            self.nat.prefetch_inbound(packet.hash);
        }
        step
    }

    /// The step; and where its part of the frame begins, and how long it is.
    #[inline]
    fn internet_input(&self, frame: &F) -> Result<(InternetStep, usize, usize), DropReason> {
        let link = self.link(Side::Internet);
        let (network, from, offset) = link.input(frame)?;
        let bytes = &frame.data()[offset..];
        if network == Network::Arp {
            return Ok((InternetStep::Arp, offset, bytes.len()));
        }
        let packet = Packet::read(bytes)
            .map_err(|error| error.reason(DropReason::IpMalformed, DropReason::IpChecksum))?;
        if packet.ip.destination.get() == link.address {
            check_ping(packet.ip, packet.payload())?;
            return Ok((InternetStep::Ping(from), offset, packet.bytes.len()));
        }
        if is_martian(packet.ip) {
            return Err(DropReason::Martian);
        }
        if !self.nat.is_public(packet.ip.destination.get()) {
            return Err(DropReason::NotLocal);
        }
        let key = FlowKey::read(&packet, Toward::Home)?;
        let step = InternetStep::Translate(self.downstream(key, packet.header_len));
        Ok((step, offset, packet.bytes.len()))
    }

    /// A packet of this key to the holder of its destination.
    #[inline]
    pub(crate) fn downstream(&self, key: FlowKey, header_len: usize) -> Downstream {
        let hash = self.nat.inbound_hash(key.destination, key.protocol);
        Downstream { hash, key, header_len, candidate: None }
    }
}
