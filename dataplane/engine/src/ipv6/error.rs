//! ICMPv6 errors that the worker itself sends (RFC 4443), within the limits of ICMP errors.

use weir_nat::Home;
use weir_wire::frame::{Frame, Pool};
use weir_wire::icmp6::{self, Icmp6};
use weir_wire::ipv6::{self, Ipv6};

use crate::engine::{Context, Engine};
use crate::ip_error::AnswerParties;
use crate::party::{LimitedParty, Party};
use crate::{AccessMode, Side};

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Icmp6ErrorCause {
    /// Type 3 code 0.
    TimeExceeded,
    /// Type 2, with the MTU of the next link.
    PacketTooBig { mtu: u32 },
    /// Type 1 code 1: no room for a flow, or a rule rejects it.
    Prohibited,
    /// Type 1 code 5: the source address is not the home's.
    SourcePolicy,
}

impl Icmp6ErrorCause {
    fn header(self) -> Icmp6 {
        let (kind, code) = match self {
            Self::TimeExceeded => (icmp6::TIME_EXCEEDED, icmp6::CODE_HOP_LIMIT_EXCEEDED),
            Self::PacketTooBig { .. } => (icmp6::PACKET_TOO_BIG, 0),
            Self::Prohibited => {
                (icmp6::DESTINATION_UNREACHABLE, icmp6::CODE_ADMINISTRATIVELY_PROHIBITED)
            }
            Self::SourcePolicy => (icmp6::DESTINATION_UNREACHABLE, icmp6::CODE_SOURCE_POLICY),
        };
        let mut header = Icmp6::new(kind, code, [0; 4]);
        if let Self::PacketTooBig { mtu } = self {
            header.set_mtu(mtu);
        }
        header
    }

    /// Whether the error is for path MTU discovery, which has a rate of its own.
    fn is_about_size(self) -> bool {
        matches!(self, Self::PacketTooBig { .. })
    }
}

impl<F: Frame> Engine<F> {
    /// Sends an error to a home about its packet. The source is the worker's address: that of the
    /// access side where homes have no tunnel, else that of the internet side.
    pub(crate) fn send_icmp6_error_to_home<P: Pool<Frame = F>>(
        &mut self,
        cause: Icmp6ErrorCause,
        home: &Home,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) {
        // A spoofed outer source must neither direct errors at strangers nor use up the homes'
        // share of them.
        if !self.nat.is_subscriber(home) {
            return;
        }
        let sender = self.party_of(home);
        let parties = AnswerParties { to: Side::Access, sender, addressed: None };
        let own_side = match self.mode {
            AccessMode::Gre => Side::Internet,
            AccessMode::Plain => Side::Access,
        };
        if let Some(error) = self.icmp6_error(cause, &parties, own_side, original, cx) {
            self.deliver6(error, home, 0, cx);
        }
    }

    /// Sends an error to a sender on the internet about its packet to `home`, if that is known.
    pub(crate) fn send_icmp6_error_to_internet<P: Pool<Frame = F>>(
        &mut self,
        cause: Icmp6ErrorCause,
        original: &[u8],
        home: Option<&Home>,
        cx: &mut Context<'_, P>,
    ) {
        let Some(parties) = self.parties_of6(original, home) else { return };
        if let Some(error) = self.icmp6_error(cause, &parties, Side::Internet, original, cx) {
            self.send6(Side::Internet, error, 0, cx);
        }
    }

    /// Returns the parties that are charged for the answer to a packet from the internet.
    pub(crate) fn parties_of6(
        &mut self,
        original: &[u8],
        home: Option<&Home>,
    ) -> Option<AnswerParties> {
        let (ip, _) = ipv6::parse(original).ok()?;
        let party = Party::remote6(ip.source.get());
        let sender = LimitedParty { party, group: 0 };
        let addressed = home.map(|home| self.party_of(home));
        Some(AnswerParties { to: Side::Internet, sender, addressed })
    }

    /// Makes an error about `original`; `None` if none may be sent about it, a limit is reached, or
    /// there is no buffer.
    fn icmp6_error<P: Pool<Frame = F>>(
        &mut self,
        cause: Icmp6ErrorCause,
        parties: &AnswerParties,
        own_side: Side,
        original: &[u8],
        cx: &mut Context<'_, P>,
    ) -> Option<F> {
        let from = self.link(own_side).ipv6.as_ref()?.address;
        let (ip, _) = ipv6::parse(original).ok()?;
        if !self.errors.is_on(parties.to) || !may_send_icmp6_error(original) {
            return None;
        }
        if !self.errors.admit(parties, cause.is_about_size(), cx.now.ms) {
            self.counters.count_icmp_error_limited(parties.to);
            return None;
        }
        let error = build(cause, from, ip.source.get(), original, cx.pool)?;
        self.counters.count_icmp_error(parties.to);
        Some(error)
    }
}

/// RFC 4443 section 2.4(c): an error quotes as much of the packet as fits in the least MTU.
fn build<P: Pool>(
    cause: Icmp6ErrorCause,
    from: u128,
    to: u128,
    original: &[u8],
    pool: &mut P,
) -> Option<P::Frame> {
    const HEADERS: usize = Ipv6::LEN + Icmp6::LEN;
    let quote = &original[..original.len().min(ipv6::MTU_MIN - HEADERS)];
    let mut frame = pool.alloc()?;
    if !frame.extend(HEADERS + quote.len()) {
        return None;
    }
    let payload_len = (Icmp6::LEN + quote.len()) as u16;
    let bytes = frame.data_mut();
    Ipv6::new(from, to, ipv6::PROTOCOL_ICMPV6, payload_len).emit(bytes);
    let message = &mut bytes[Ipv6::LEN..];
    cause.header().emit(message);
    message[Icmp6::LEN..].copy_from_slice(quote);
    icmp6::set_checksum(from, to, message);
    Some(frame)
}

/// RFC 4443 section 2.4(e): no error is sent about an error or a redirect, nor about a packet whose
/// kind is not known. Packets of multicast addresses and without a source come no further than the
/// checks for martians.
fn may_send_icmp6_error(original: &[u8]) -> bool {
    let Ok(upper) = ipv6::walk(original, original.len()) else { return false };
    if !upper.has_header() {
        // A later fragment could be one of an error.
        return upper.protocol != ipv6::PROTOCOL_ICMPV6;
    }
    if upper.protocol != ipv6::PROTOCOL_ICMPV6 {
        return true;
    }
    let message = original.get(upper.offset..).and_then(|message| icmp6::parse(message).ok());
    message.is_some_and(|it| !icmp6::is_error(it.kind) && it.kind != icmp6::REDIRECT)
}
