//! Hot. From the internet side: to a public address, or to the worker itself?

use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4;

use crate::downstream::Downstream;
use crate::engine::{Context, Engine};
use crate::ethernet_input::Network;
use crate::flow_key::{FlowKey, Toward};
use crate::ip_input::{ip_header, is_martian};
use crate::local::check_ping;
use crate::{DropReason, Side};

enum Step {
    Arp,
    Ping(Mac),
    Translate { key: FlowKey, header_len: usize },
}

impl<F: Frame> Engine<F> {
    pub(crate) fn receive_internet<P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) {
        let mut burst = std::mem::take(&mut self.downstream);
        for mut frame in frames.drain(..) {
            match self.internet_input(&mut frame) {
                Ok(Step::Translate { key, header_len }) => {
                    let hash = self.nat.inbound_hash(key.destination, key.protocol);
                    self.nat.prefetch_inbound(hash);
                    burst.push(Downstream { frame, key, header_len, hash });
                }
                Ok(Step::Arp) => self.arp_input(Side::Internet, frame, cx),
                Ok(Step::Ping(from)) => self.answer_ping(Side::Internet, frame, from, cx),
                Err(reason) => self.discard(reason),
            }
        }
        for packet in &burst {
            self.nat.prefetch_inbound_record(packet.hash);
        }
        for packet in burst.drain(..) {
            self.translate_down(packet, cx);
        }
        self.downstream = burst;
    }

    #[inline]
    fn internet_input(&self, frame: &mut F) -> Result<Step, DropReason> {
        let link = self.link(Side::Internet);
        let (network, from) = link.input(frame)?;
        if network == Network::Arp {
            return Ok(Step::Arp);
        }
        let (header_len, total_length) = ip_header(frame.data())
            .map_err(|error| error.reason(DropReason::IpMalformed, DropReason::IpChecksum))?;
        frame.truncate(total_length);
        let packet = frame.data();
        let (ip, _, _) = ipv4::parse(packet).map_err(|_| DropReason::IpMalformed)?;
        if ip.destination.get() == link.address {
            return check_ping(ip, &packet[header_len..]).map(|()| Step::Ping(from));
        }
        if is_martian(ip) {
            return Err(DropReason::Martian);
        }
        if !self.nat.is_public(ip.destination.get()) {
            return Err(DropReason::NotLocal);
        }
        let key = FlowKey::read(packet, header_len, Toward::Home)?;
        Ok(Step::Translate { key, header_len })
    }
}
