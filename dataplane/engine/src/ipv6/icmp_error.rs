//! ICMPv6 errors about packets of known flows (RFC 4890 sections 4.3.1 and 4.4.1, RFC 6092 REC-10).
//!
//! An error never begins, refreshes or ends a flow: the flow that it quotes is only looked up.
//! Errors about no known flow go to the worker that may know it, or are dropped.

use weir_nat::{Delivery6, Endpoint6, FlowKey6, Home, Protocol, ShardIndex};
use weir_wire::frame::{Frame, Pool};
use weir_wire::icmp6::{self, Icmp6, Icmp6Quote, QuotedSession};
use weir_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use weir_wire::ipv6;

use crate::DropReason;
use crate::engine::{Context, Engine};
use crate::ipv6::packet::{Packet6State, Way6};

impl<F: Frame> Engine<F> {
    /// Forwards an error of a home about a packet that came in.
    pub(crate) fn icmp6_error_up<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        home: &Home,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Some(delivery) = self.quoted_flow6(frame.data(), packet, Way6::Up)? else {
            return match self.elsewhere6_up(packet, home) {
                Ok(Some(to)) => self.redirect6(frame, packet, Some(home), to, cx),
                _ => Err(Self::UNMATCHED),
            };
        };
        if self.nat.identity(&delivery.home) != self.nat.identity(home) {
            return Err(DropReason::ClaimConflict);
        }
        self.leave6(frame, packet, delivery.class, cx);
        Ok(())
    }

    /// Delivers an error about a packet of a home.
    pub(crate) fn icmp6_error_down<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &Packet6State,
        shard: ShardIndex,
        cx: &mut Context<'_, P>,
    ) -> Result<(), DropReason> {
        let Some(delivery) = self.quoted_flow6(frame.data(), packet, Way6::Down)? else {
            return match self.elsewhere6_down(frame.data(), packet, shard) {
                Ok(Some(to)) => self.redirect6(frame, packet, None, to, cx),
                _ => Err(Self::UNMATCHED),
            };
        };
        self.check_size6(frame.data(), &delivery, cx)?;
        self.arrive6(frame, packet, &delivery, cx);
        Ok(())
    }

    /// Returns the home of the flow that an error quotes, if the flow is known here. The error must
    /// be addressed to the sender of the quoted packet.
    fn quoted_flow6(
        &self,
        bytes: &[u8],
        packet: &Packet6State,
        way: Way6,
    ) -> Result<Option<Delivery6>, DropReason> {
        let (ip, _) = ipv6::parse(bytes).map_err(|_| DropReason::Ip6Malformed)?;
        let message = bytes.get(usize::from(packet.transport_at)..).unwrap_or_default();
        let (source, destination) = (ip.source.get(), ip.destination.get());
        if !icmp6::checksum_ok(source, destination, message) {
            return Err(DropReason::IcmpChecksum);
        }
        let quote = message.get(Icmp6::LEN..).and_then(icmp6::quote);
        let quote = quote.filter(|quote| quote.source == destination);
        // The quoted packet went the other way.
        let key = quote.and_then(|quote| quoted_key(&quote, way)).ok_or(Self::UNMATCHED)?;
        Ok(self.nat.peek_flow6(&key))
    }

    const UNMATCHED: DropReason = DropReason::IcmpErrorUnmatched;
}

/// Returns the key of the quoted packet, for an error that goes this way.
fn quoted_key(quote: &Icmp6Quote, way: Way6) -> Option<FlowKey6> {
    let (protocol, source, destination) = match (quote.upper.protocol, quote.session) {
        (PROTOCOL_TCP, QuotedSession::Ports { source, destination }) => {
            (Protocol::Tcp, source, destination)
        }
        (PROTOCOL_UDP, QuotedSession::Ports { source, destination }) => {
            (Protocol::Udp, source, destination)
        }
        (_, QuotedSession::Echo { is_request, identifier }) => {
            let quoted_way = if way == Way6::Up { Way6::Down } else { Way6::Up };
            let (inside, remote) = Packet6State::echo_ports(is_request, identifier, quoted_way);
            return Some(key_of(quote, Protocol::Icmp, inside, remote, way));
        }
        _ => return None,
    };
    let (inside, remote) = match way {
        Way6::Up => (destination, source),
        Way6::Down => (source, destination),
    };
    Some(key_of(quote, protocol, inside, remote, way))
}

fn key_of(quote: &Icmp6Quote, protocol: Protocol, inside: u16, remote: u16, way: Way6) -> FlowKey6 {
    let (from, to) = match way {
        Way6::Up => (quote.destination, quote.source),
        Way6::Down => (quote.source, quote.destination),
    };
    FlowKey6::new(Endpoint6::new(from, inside), Endpoint6::new(to, remote), protocol, false)
}
