//! Packets to the worker itself: pings of its addresses and of the tunnel endpoints (RFC 792).

use weir_wire::checksum::Delta;
use weir_wire::ethernet::Mac;
use weir_wire::frame::{Frame, Pool};
use weir_wire::icmp;
use weir_wire::ipv4::{self, Ipv4};
use zerocopy::FromBytes;

use crate::engine::{Context, Engine};
use crate::ip_input::is_martian;
use crate::{DropReason, Side};

const REPLY_TTL: u8 = 64;

/// Checks that a packet to one of the worker's addresses is a ping that can be answered.
pub(crate) fn check_ping(ip: &Ipv4, transport: &[u8]) -> Result<(), DropReason> {
    let is_request = ip.protocol == ipv4::PROTOCOL_ICMP
        && !ip.is_fragment()
        && icmp::parse(transport).is_ok_and(|header| header.kind == icmp::ECHO_REQUEST);
    if !is_request {
        return Err(DropReason::LocalProtocol);
    }
    // RFC 1122 section 3.2.1.3: a packet from an impossible source is not answered; the answer
    // would go there.
    if is_martian(ip) {
        return Err(DropReason::Martian);
    }
    if !icmp::checksum_ok(transport) {
        return Err(DropReason::IcmpChecksum);
    }
    Ok(())
}

impl<F: Frame> Engine<F> {
    /// Turns a checked ping into its answer and sends it back to the station from which it came.
    pub(crate) fn answer_ping<P: Pool<Frame = F>>(
        &mut self,
        side: Side,
        mut frame: F,
        from: Mac,
        cx: &mut Context<'_, P>,
    ) {
        // The answer goes to a station's MAC, which must be unicast: a group address would multiply
        // it.
        if !from.is_unicast() {
            return self.discard(DropReason::Martian);
        }
        turn_around(frame.data_mut());
        if !self.link(side).header_to(from).push(&mut frame) {
            return self.discard(DropReason::NoBuffer);
        }
        self.emit(side, frame, cx);
    }
}

fn turn_around(packet: &mut [u8]) {
    let Ok((ip, header_len, _)) = ipv4::parse_mut(packet) else { return };
    (ip.source, ip.destination) = (ip.destination, ip.source);
    let change = Delta::new().replace16(u16::from(ip.ttl) << 8, u16::from(REPLY_TTL) << 8);
    ip.ttl = REPLY_TTL;
    ip.checksum = change.apply(ip.checksum.get()).into();
    let message = &mut packet[header_len..];
    if let Ok((header, _)) = icmp::Icmp::mut_from_prefix(message) {
        let change = Delta::new()
            .replace16(u16::from(icmp::ECHO_REQUEST) << 8, u16::from(icmp::ECHO_REPLY) << 8);
        header.kind = icmp::ECHO_REPLY;
        icmp::apply_delta(message, change);
    }
}
