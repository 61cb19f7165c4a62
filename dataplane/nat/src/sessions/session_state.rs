//! Hot. What a session has seen so far, as bits; its phase, and with it its timer, follows from
//! them.
//!
//! One u16 per session. The TCP bits are in `tcp_state.rs`; UDP and ICMP only know which sides have
//! spoken. One more bit, SETTLED, follows from the others: it spares the fast path the look at
//! them. The class of the session (`class_timeouts.rs`) stands in two more bits, and one says that
//! a rule has given the flow another destination (`destination.rs`).

use weir_rules::FlowClass;
use zerocopy::{Immutable, IntoBytes};

use crate::endpoint::Protocol;
use crate::sessions::tcp_state;

/// The side that sent the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentBy {
    Inside,
    Remote,
}

/// The bits. The low nine belong to TCP, the two `SEEN` bits to UDP and ICMP. Two states are equal
/// if all bits but [`SETTLED`](Self::SETTLED) are.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes)]
#[repr(transparent)]
pub(crate) struct SessionState(u16);

impl PartialEq for SessionState {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for SessionState {}

impl SessionState {
    pub(crate) const NONE: Self = Self(0);
    /// The bits that are kept in copies.
    pub(crate) const KNOWN: u16 = 0x0fff | Self::CLASS | Self::REDIRECTED;
    /// The inside has sent on this session.
    pub(crate) const SEEN_INSIDE: u16 = 1 << 9;
    /// The remote has sent on this session.
    pub(crate) const SEEN_REMOTE: u16 = 1 << 10;
    const SEEN_BOTH: u16 = Self::SEEN_INSIDE | Self::SEEN_REMOTE;
    /// The remote opened it, so it counts against `inbound_sessions_max` of its mapping.
    pub(crate) const OPENED_BY_REMOTE: u16 = 1 << 11;
    const CLASS_SHIFT: u32 = 13;
    const CLASS: u16 = 0b11 << Self::CLASS_SHIFT;
    /// A packet of either side changes nothing, unless it is a TCP segment with SYN, FIN or RST, or
    /// without ACK, and it is not [`SPECIAL`](Self::SPECIAL): UDP of which both sides have spoken,
    /// and TCP that is established. Set at the first packet after which that is so; a copy of
    /// another worker's session has it only then, too, whatever the other worker sent.
    pub(crate) const SETTLED: u16 = 1 << 12;
    /// A rule has given the flow another destination, see `destination.rs`. No record has it and
    /// SETTLED.
    pub(crate) const REDIRECTED: u16 = 1 << 15;
    /// The bits of sessions that are never settled.
    const SPECIAL: u16 = Self::CLASS | Self::REDIRECTED;
    /// The bits that no packet changes: kept when a connection is opened again.
    pub(crate) const LASTING: u16 = Self::OPENED_BY_REMOTE | Self::SPECIAL;

    /// Returns a state that came from another worker, without the bits that mean nothing here.
    pub(crate) const fn known(bits: u16) -> Self {
        Self(bits & Self::KNOWN)
    }

    /// Returns the bits that other workers know, too.
    #[inline]
    pub(crate) const fn bits(self) -> u16 {
        self.0 & Self::KNOWN
    }

    /// Returns the bits as they lie in the record.
    #[inline]
    pub(crate) const fn word(self) -> u16 {
        self.0
    }

    /// Returns these bits, and SETTLED if of those in `mask` exactly those in `settled` are set,
    /// and none in [`SPECIAL`](Self::SPECIAL).
    #[inline]
    const fn settle(bits: u16, mask: u16, settled: u16) -> Self {
        Self(
            bits & Self::KNOWN
                | if bits & (mask | Self::SPECIAL) == settled { Self::SETTLED } else { 0 },
        )
    }

    /// Returns the state of a TCP connection with these bits.
    #[inline]
    pub(crate) const fn of_tcp(bits: u16) -> Self {
        Self::settle(bits, tcp_state::OPEN_OR_ENDED, tcp_state::OPEN)
    }

    #[inline]
    const fn of_datagrams(bits: u16) -> Self {
        Self::settle(bits, Self::SEEN_BOTH, Self::SEEN_BOTH)
    }

    pub(crate) const fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }

    pub(crate) const fn has_any(self, bits: u16) -> bool {
        self.0 & bits != 0
    }

    pub(crate) const fn with_lasting_of(self, other: Self) -> Self {
        Self(self.0 & !Self::LASTING | other.0 & Self::LASTING)
    }

    /// Returns the class of the session.
    #[inline(always)]
    pub(crate) const fn class(self) -> FlowClass {
        match FlowClass::new(((self.0 & Self::CLASS) >> Self::CLASS_SHIFT) as u8) {
            Some(class) => class,
            None => panic!("two bits name a class"),
        }
    }

    /// Returns the state with the bit of a flow that has another destination.
    pub(crate) const fn redirected(self) -> Self {
        Self(self.0 & !Self::SETTLED | Self::REDIRECTED)
    }

    /// Returns the state of a session that this packet opens.
    #[inline]
    pub(crate) fn opened(
        protocol: Protocol,
        sender: SentBy,
        tcp_flags: u8,
        class: FlowClass,
    ) -> Self {
        let class = u16::from(class.number()) << Self::CLASS_SHIFT;
        let lasting = match sender {
            SentBy::Inside => class,
            SentBy::Remote => class | Self::OPENED_BY_REMOTE,
        };
        // One packet settles nothing.
        Self(match (protocol, sender) {
            (Protocol::Tcp, _) => Self(lasting).bits_after_segment(sender, tcp_flags),
            (_, SentBy::Inside) => lasting | Self::SEEN_INSIDE,
            (_, SentBy::Remote) => lasting | Self::SEEN_REMOTE,
        })
    }

    /// Returns the state after a packet of `sender`.
    #[inline]
    pub(crate) fn after(self, protocol: Protocol, sender: SentBy, tcp_flags: u8) -> Self {
        match (protocol, sender) {
            (Protocol::Tcp, _) => self.after_segment(sender, tcp_flags),
            (_, SentBy::Inside) => Self::of_datagrams(self.0 | Self::SEEN_INSIDE),
            (_, SentBy::Remote) => Self::of_datagrams(self.0 | Self::SEEN_REMOTE),
        }
    }

    /// True if the remote has answered what the inside began; for TCP, by a handshake that the
    /// inside completed.
    #[inline]
    pub(crate) fn is_answered(self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Tcp => self.has_been_established(),
            Protocol::Udp | Protocol::Icmp => self.has(Self::SEEN_BOTH),
        }
    }

    pub(crate) fn phase(self, protocol: Protocol) -> SessionPhase {
        match protocol {
            Protocol::Tcp => self.tcp_phase(),
            Protocol::Udp if self.has(Self::SEEN_BOTH) => SessionPhase::UdpStream,
            Protocol::Udp => SessionPhase::Udp,
            Protocol::Icmp => SessionPhase::Icmp,
        }
    }
}

/// The phase of a session; each has its timer in [`Timeouts`](crate::Timeouts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionPhase {
    SynSent,
    SynReceived,
    Established,
    FinWait,
    CloseWait,
    LastAck,
    TimeWait,
    Closed,
    /// A RST of the remote alone, in a connection that the inside has not ended.
    Reset,
    Udp,
    UdpStream,
    Icmp,
}

impl SessionPhase {
    pub(crate) const COUNT: usize = 12;
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Closed,
        Self::Reset,
        Self::Udp,
        Self::UdpStream,
        Self::Icmp,
    ];

    /// Returns the name that `weir sessions` prints.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "syn-sent",
            Self::SynReceived => "syn-received",
            Self::Established => "established",
            Self::FinWait => "fin-wait",
            Self::CloseWait => "close-wait",
            Self::LastAck => "last-ack",
            Self::TimeWait => "time-wait",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Udp => "one-way",
            Self::UdpStream => "stream",
            Self::Icmp => "query",
        }
    }
}
