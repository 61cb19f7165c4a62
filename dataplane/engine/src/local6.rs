//! IPv6 packets to the worker itself: pings of its addresses (RFC 4443 section 4), and neighbor
//! discovery.

use weir_wire::checksum::Delta;
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
use weir_wire::icmp6::{self, ECHO_REPLY, ECHO_REQUEST};
use weir_wire::ipv6::{self, Ipv6, PROTOCOL_ICMPV6};
use weir_wire::ndp;

use crate::engine::{Context, Engine};
use crate::side6::Side6;
use crate::{DropReason, Side};

/// A ping to the worker.
struct Ping {
    /// Header of the answer.
    answer: Ipv6,
    /// Offset of the ICMPv6 message, bytes.
    message_at: usize,
    /// Length of the request, bytes.
    len: usize,
}

impl<F: Frame> Engine<F> {
    /// Handles an IPv6 packet that should be to the worker itself or to a group of it; `from`: its
    /// link-layer sender.
    pub(crate) fn local6_input<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        frame: F,
        from: Mac,
        cx: &mut Context<'_, P>,
    ) {
        match message_kind(frame.data()) {
            Some(kind) if ndp::kind(kind).is_some() => self.ndp_input(side, frame, from, cx),
            Some(ECHO_REQUEST) => self.answer_ping6(side, frame, from, cx),
            _ => self.discard(DropReason::LocalProtocol),
        }
    }

    /// Turns an echo request to one of the side's addresses into its answer, from the address that
    /// was asked, and sends it to the station from which the request came. The frame ends with the
    /// packet.
    pub(crate) fn answer_ping6<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        frame: F,
        from: Mac,
        cx: &mut Context<'_, P>,
    ) {
        let Some(own) = &self.link(side).ipv6 else { return self.discard(DropReason::EtherType) };
        if let Err(reason) = check_own(own, frame.data()) {
            return self.discard(reason);
        }
        self.answer_echo6(side, frame, from, cx);
    }

    /// As [`answer_ping6`](Self::answer_ping6), of an echo request to a tunnel endpoint that is
    /// served.
    pub(crate) fn answer_endpoint_ping6<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        from: Mac,
        cx: &mut Context<'_, P>,
    ) {
        self.answer_echo6(Side::Access, frame, from, cx);
    }

    fn answer_echo6<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        mut frame: F,
        from: Mac,
        cx: &mut Context<'_, P>,
    ) {
        let link = self.link(side);
        let Some(own) = &link.ipv6 else { return self.discard(DropReason::EtherType) };
        let ping = match Ping::read(own, frame.data(), from) {
            Ok(ping) => ping,
            Err(reason) => return self.discard(reason),
        };
        frame.keep(ping.message_at - Ipv6::LEN, ping.len + Ipv6::LEN);
        let (header, message) = frame.data_mut().split_at_mut(Ipv6::LEN);
        ping.answer.emit(header);
        turn_around(message);
        if !link.header6_to(from).push(&mut frame) {
            return self.discard(DropReason::NoBuffer);
        }
        self.emit(side, frame, cx);
    }
}

/// Checks that a packet is to an address that the side uses.
fn check_own(own: &Side6, packet: &[u8]) -> Result<(), DropReason> {
    let (ip, _) = ipv6::parse(packet).map_err(|_| DropReason::LocalProtocol)?;
    let destination = ip.destination.get();
    match (own.is_own(destination), own.is_assigned(destination)) {
        (false, _) => Err(DropReason::NotLocal),
        (true, false) => Err(DropReason::AddressUnusable),
        (true, true) => Ok(()),
    }
}

impl Ping {
    /// Reads an echo request to this worker and checks that it can be answered.
    fn read(own: &Side6, packet: &[u8], from: Mac) -> Result<Self, DropReason> {
        let (ip, total_len) = ipv6::parse(packet).map_err(|_| DropReason::LocalProtocol)?;
        let (source, destination) = (ip.source.get(), ip.destination.get());
        // RFC 4443 section 2.4 (e): never to a group, nor to an address that is no station's. The
        // MAC must be unicast too: a group address would multiply the answer.
        if !ipv6::is_unicast(source) || own.is_own(source) || !from.is_unicast() {
            return Err(DropReason::Martian);
        }
        let upper = ipv6::walk(packet, total_len).map_err(|_| DropReason::LocalProtocol)?;
        let message = packet.get(upper.offset..total_len).unwrap_or_default();
        let is_request = upper.protocol == PROTOCOL_ICMPV6
            && upper.fragment.is_none()
            && upper.segments_left_at.is_none()
            && icmp6::parse(message).is_ok_and(|header| header.kind == ECHO_REQUEST);
        if !is_request {
            return Err(DropReason::LocalProtocol);
        }
        if !icmp6::checksum_ok(source, destination, message) {
            return Err(DropReason::IcmpChecksum);
        }
        let len = message.len();
        // Extension headers of the request are not repeated.
        let mut answer = Ipv6::new(destination, source, PROTOCOL_ICMPV6, len as u16);
        answer.set_traffic_class(ip.traffic_class());
        Ok(Self { answer, message_at: upper.offset, len })
    }
}

/// Makes a reply of an echo request. The addresses trade places, which their sum does not show.
fn turn_around(message: &mut [u8]) {
    if let Ok(header) = icmp6::parse_mut(message) {
        header.kind = ECHO_REPLY;
        let change =
            Delta::new().replace16(u16::from(ECHO_REQUEST) << 8, u16::from(ECHO_REPLY) << 8);
        icmp6::apply_delta(message, change);
    }
}

/// Returns the type of the ICMPv6 message that a whole packet carries.
fn message_kind(packet: &[u8]) -> Option<u8> {
    let (_, len) = ipv6::parse(packet).ok()?;
    let upper = ipv6::walk(packet, len).ok()?;
    let message = packet.get(upper.offset..len).filter(|_| upper.has_header())?;
    let header = icmp6::parse(message).ok().filter(|_| upper.protocol == PROTOCOL_ICMPV6)?;
    Some(header.kind)
}
