//! The answers to IPv6 packets that a rule rejects: a TCP reset (RFC 9293 section 3.10.7.1), or an
//! ICMPv6 error, type 1 code 1. The limits are those of IPv4 (`reject.rs`).

use weir_nat::{Home, Protocol};
use weir_wire::checksum;
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::PROTOCOL_TCP;
use weir_wire::ipv6::{self, Ipv6};
use weir_wire::tcp::Tcp;

use crate::engine::{Context, Engine};
use crate::ip_error::AnswerParties;
use crate::ipv6::error::Icmp6ErrorCause;
use crate::ipv6::packet::Packet6State;
use crate::reject::reset_of;
use crate::{DropReason, Side};

impl<F: Frame> Engine<F> {
    /// Answers a packet of a home. The home is a subscriber: no rule refuses others.
    pub(crate) fn reject6_up<P: Pool<Frame = F>>(
        &mut self,
        packet: &Packet6State,
        home: &Home,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> DropReason {
        if packet.protocol != Protocol::Tcp {
            self.send_icmp6_error_to_home(Icmp6ErrorCause::Prohibited, home, original, cx);
            return DropReason::RuleReject;
        }
        let sender = self.party_of(home);
        let parties = AnswerParties { to: Side::Access, sender, addressed: None };
        if let Some(reset) = self.reset6(&parties, packet, original, cx) {
            self.deliver6(reset, home, 0, cx);
        }
        DropReason::RuleReject
    }

    /// Answers a packet from the internet.
    pub(crate) fn reject6_down<P: Pool<Frame = F>>(
        &mut self,
        packet: &Packet6State,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> DropReason {
        if packet.protocol != Protocol::Tcp {
            self.send_icmp6_error_to_internet(Icmp6ErrorCause::Prohibited, original, None, cx);
            return DropReason::RuleReject;
        }
        let parties = self.parties_of6(original, None);
        let reset = parties.and_then(|parties| self.reset6(&parties, packet, original, cx));
        if let Some(reset) = reset {
            self.send6(Side::Internet, reset, 0, cx);
        }
        DropReason::RuleReject
    }

    /// Returns the reset that answers a segment, if one is due and within the limits.
    fn reset6<P: Pool<Frame = F>>(
        &mut self,
        parties: &AnswerParties,
        packet: &Packet6State,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> Option<F> {
        let (ip, len) = ipv6::parse(original).ok()?;
        let reset = reset_of(original.get(usize::from(packet.transport_at)..len)?)?;
        if !self.errors.admit_reset(parties, cx.now.ms) {
            self.counters.count_reset_limited(parties.to);
            return None;
        }
        let frame = build(&reset, ip.destination.get(), ip.source.get(), cx.pool)?;
        self.counters.count_reset(parties.to);
        Some(frame)
    }
}

fn build<P: Pool>(reset: &Tcp, from: u128, to: u128, pool: &mut P) -> Option<P::Frame> {
    let mut frame = pool.alloc()?;
    if !frame.extend(Ipv6::LEN + Tcp::LEN) {
        return None;
    }
    let (header, segment) = frame.data_mut().split_at_mut(Ipv6::LEN);
    Ipv6::new(from, to, PROTOCOL_TCP, Tcp::LEN as u16).emit(header);
    reset.emit(segment);
    let sum = checksum::pseudo_header6(from, to, PROTOCOL_TCP, Tcp::LEN as u32)
        + checksum::partial(segment);
    Tcp { checksum: checksum::finish(sum).into(), ..*reset }.emit(segment);
    Some(frame)
}
