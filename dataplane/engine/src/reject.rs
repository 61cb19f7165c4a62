//! The answers to packets that a rule rejects: a TCP reset, or an ICMP error, type 3 code 13 (RFC
//! 1812 section 5.2.7.1).
//!
//! A reset comes from the endpoint that the segment was sent to, so that the sender's connection
//! fails at once. Resets share the limits of ICMP errors, and no reset answers a reset.

use weir_nat::{Home, Protocol};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::tcp::{self, Tcp};

use crate::downstream::Downstream;
use crate::engine::{Context, Engine};
use crate::ip_error::{AnswerParties, IcmpErrorCause};
use crate::upstream::Upstream;
use crate::{DropReason, Side};

impl<F: Frame> Engine<F> {
    /// Answers a packet of a home. The home is a subscriber: no rule refuses others.
    pub(crate) fn reject_up<P: Pool<Frame = F>>(
        &mut self,
        packet: &Upstream,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> DropReason {
        let home = &packet.home;
        if packet.key.protocol != Protocol::Tcp {
            self.send_icmp_error_to_home(IcmpErrorCause::Prohibited, home, original, cx);
            return DropReason::RuleReject;
        }
        let sender = self.party_of(home);
        let parties = AnswerParties { to: Side::Access, sender, addressed: None };
        if let Some(reset) = self.reset(&parties, original, cx) {
            self.encapsulate(reset, home, 0, cx);
        }
        DropReason::RuleReject
    }

    /// Answers a packet from the internet, or from another home, to a public endpoint that a home
    /// holds.
    pub(crate) fn reject_down<P: Pool<Frame = F>>(
        &mut self,
        packet: &Downstream,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> DropReason {
        let key = &packet.key;
        let home: Option<Home> = self.nat.holder(packet.hash, key.destination, key.protocol);
        if key.protocol != Protocol::Tcp {
            let cause = IcmpErrorCause::Prohibited;
            self.send_icmp_error_to_internet(cause, original, home.as_ref(), cx);
            return DropReason::RuleReject;
        }
        let parties = self.parties_of(original, home.as_ref());
        if let Some(reset) = parties.and_then(|parties| self.reset(&parties, original, cx)) {
            self.send_answer(reset, cx);
        }
        DropReason::RuleReject
    }

    /// Returns the reset that answers a segment, if one is due and within the limits.
    fn reset<P: Pool<Frame = F>>(
        &mut self,
        parties: &AnswerParties,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> Option<F> {
        let answer = Reset::to(original)?;
        if !self.errors.admit_reset(parties, cx.now.ms) {
            self.counters.count_reset_limited(parties.to);
            return None;
        }
        let reset = answer.build(cx.pool)?;
        self.counters.count_reset(parties.to);
        Some(reset)
    }
}

/// A segment that resets a connection: its IP header and its TCP header.
#[derive(Clone, Copy, Debug)]
struct Reset {
    ip: Ipv4,
    tcp: Tcp,
}

impl Reset {
    /// `packet` starts at the IP header.
    fn to(packet: &[u8]) -> Option<Self> {
        let (ip, header_len, total_len) = ipv4::parse(packet).ok()?;
        let tcp = reset_of(packet.get(header_len..total_len)?)?;
        let (from, to) = (ip.destination.get(), ip.source.get());
        let mut ip = Ipv4::new(from, to, ipv4::PROTOCOL_TCP, Tcp::LEN as u16);
        ip.set_fragment(true, false, 0);
        ip.set_checksum();
        Some(Self { ip, tcp })
    }

    fn build<P: Pool>(&self, pool: &mut P) -> Option<P::Frame> {
        let mut frame = pool.alloc()?;
        if !frame.extend(Ipv4::LEN + Tcp::LEN) {
            return None;
        }
        let (header, segment) = frame.data_mut().split_at_mut(Ipv4::LEN);
        let (from, to) = (self.ip.source.get(), self.ip.destination.get());
        self.ip.emit(header);
        self.tcp.emit(segment);
        let checksum = tcp::checksum(from, to, segment);
        Tcp { checksum: checksum.into(), ..self.tcp }.emit(segment);
        Some(frame)
    }
}

/// Returns the header of the reset that answers a segment, without its checksum; none answers a
/// reset. `segment` is all of it.
///
/// RFC 9293 section 3.10.7.1: "If the ACK bit is off, sequence number zero is used,
/// <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>. If the ACK bit is on, <SEQ=SEG.ACK><CTL=RST>."
pub(crate) fn reset_of(segment: &[u8]) -> Option<Tcp> {
    let header = tcp::parse(segment).ok()?;
    if header.flags & tcp::RST != 0 {
        return None;
    }
    let octets = (segment.len() - header.header_len()) as u32;
    let flags = [tcp::SYN, tcp::FIN].map(|flag| u32::from(header.has(flag)));
    let end = header.sequence.get().wrapping_add(octets + flags[0] + flags[1]);
    let (sequence, acknowledgment, flags) = match header.has(tcp::ACK) {
        true => (header.acknowledgment.get(), 0, tcp::RST),
        false => (0, end, tcp::RST | tcp::ACK),
    };
    Some(Tcp {
        source_port: header.destination_port,
        destination_port: header.source_port,
        sequence: sequence.into(),
        acknowledgment: acknowledgment.into(),
        offset_reserved: ((Tcp::LEN / 4) as u8) << 4,
        flags,
        window: 0.into(),
        checksum: 0.into(),
        urgent: 0.into(),
    })
}
