//! A flow as its two ends see it.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use weir_nat::Protocol;
use weir_wire::{icmp, tcp};

use crate::site::WorkerPosition;

/// Packets of a short flow, and of a lasting one, which another one then replaces.
const SHORT: u64 = 4;
const LONG: u64 = 150;
/// How long a home whose flow gets no answers waits.
const PATIENCE_US: u64 = 600_000;

/// An inside endpoint of a home. An IPv6 one is its own public endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) shard: u32,
    pub(crate) home: Ipv4Addr,
    pub(crate) inside: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Whether its flow has an address of the source pool, if all settings have that.
    pub(crate) is_pooled: bool,
    /// The endpoint that was seen last.
    pub(crate) public: Option<SocketAddr>,
    /// The endpoint that all copies held when the cluster was last whole.
    pub(crate) known: Option<SocketAddr>,
    /// The endpoint that must not change.
    pub(crate) protected: Option<SocketAddr>,
    /// What packets that left have shown, if packets wait for copies.
    pub(crate) left: Option<Left>,
}

/// An inside endpoint, of the home with this outer address, and whether this is its mapping in the
/// source pool, if all settings have that.
pub(crate) type Inside = (u32, SocketAddr, Protocol, bool);

impl Socket {
    pub(super) fn new(
        (shard, home): (u32, Ipv4Addr),
        inside: SocketAddr,
        protocol: Protocol,
        is_pooled: bool,
    ) -> Self {
        Self {
            shard,
            home,
            inside,
            protocol,
            is_pooled,
            public: None,
            known: None,
            protected: None,
            left: None,
        }
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.inside.is_ipv6()
    }

    /// Returns the key by which tables identify the mapping's owner.
    pub(crate) fn key(&self) -> Inside {
        (self.home.to_bits(), self.inside, self.protocol, self.is_pooled)
    }
}

/// What a packet that left made visible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) public: SocketAddr,
    /// The progress of the session.
    pub(crate) progress: Progress,
    /// When and where the first packet left that shows it.
    pub(crate) at_us: u64,
    pub(crate) position: WorkerPosition,
    /// When all copies, or as many as packets wait for, were last seen to hold the mapping.
    pub(crate) known_us: Option<u64>,
    /// The nodes that held it then, one bit each.
    pub(crate) known_by: u64,
}

/// The progress that a session must have for a packet to leave, which copies must know before. It
/// only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// The home has sent a packet.
    Begun,
    /// The server has sent a packet.
    Answered,
    /// Both sides of a TCP connection have acknowledged.
    Established,
    /// One side has closed it.
    HalfClosed,
    Closed,
}

impl Progress {
    /// Returns what a packet shows that leaves to the internet, or to a home.
    pub(crate) fn shown_by(protocol: Protocol, flags: u8, is_up: bool) -> Self {
        match (protocol, is_up) {
            // The next packet shows again which side has sent: copies need not know it.
            (Protocol::Udp | Protocol::Icmp, _) => Self::Begun,
            (_, true) if flags & tcp::SYN != 0 => Self::Begun,
            (_, false) if flags & tcp::SYN != 0 => Self::Answered,
            // The server closes only after the home.
            (_, true) if flags & tcp::FIN != 0 => Self::HalfClosed,
            (_, false) if flags & tcp::FIN != 0 => Self::Closed,
            _ => Self::Established,
        }
    }

    /// Converts the state that a table shows for a session.
    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            "syn-received" => Self::Answered,
            "established" => Self::Established,
            "fin-wait" | "close-wait" => Self::HalfClosed,
            "last-ack" | "time-wait" | "closed" | "reset" => Self::Closed,
            _ => Self::Begun,
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} of home {}", self.protocol, self.inside, self.home)
    }
}

/// The stage of a flow as its home sees it. UDP is established with the first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Opening,
    Established,
    Closing,
    Over,
}

#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) socket: usize,
    pub(crate) remote: SocketAddr,
    /// Where its last packet came to: a rule may have sent it elsewhere.
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) is_lasting: bool,
    pub(crate) stage: Stage,
    pub(crate) sent_up: u64,
    pub(crate) got_up: u64,
    pub(crate) sent_down: u64,
    pub(crate) got_down: u64,
    /// When its home sent its first packet, and its last.
    pub(crate) began_us: u64,
    pub(crate) sent_us: u64,
    /// When its first packet reached the server.
    pub(crate) first_us: Option<u64>,
    pub(crate) answered_us: u64,
    /// Packets that were missing, up and down, when the calm began.
    pub(super) calm: Option<(u64, u64)>,
}

impl Flow {
    pub(super) fn new(socket: usize, remote: SocketAddr, is_lasting: bool) -> Self {
        Self {
            socket,
            remote,
            destination: None,
            is_lasting,
            stage: Stage::Opening,
            sent_up: 0,
            got_up: 0,
            sent_down: 0,
            got_down: 0,
            began_us: 0,
            sent_us: 0,
            first_us: None,
            answered_us: 0,
            calm: None,
        }
    }

    /// Returns how many packets were sent and have not arrived, up and down.
    pub(crate) fn missing(&self) -> (u64, u64) {
        let Self { sent_up, got_up, sent_down, got_down, .. } = *self;
        (sent_up.saturating_sub(got_up), sent_down.saturating_sub(got_down))
    }

    /// Returns the flags of the next packet, see [`super::packet::build`]; `None` if the flow ends.
    pub(super) fn next_flags(&mut self, now_us: u64, protocol: Protocol) -> Option<u8> {
        // The answers have stopped: the connection starts again.
        if self.is_lasting
            && self.stage == Stage::Established
            && now_us > self.answered_us + PATIENCE_US
        {
            self.stage = Stage::Opening;
        }
        let is_enough = self.sent_up >= if self.is_lasting { LONG } else { SHORT };
        match (protocol, self.stage) {
            (_, Stage::Over) => None,
            (Protocol::Udp | Protocol::Icmp, _) if is_enough => None,
            (Protocol::Udp, _) => Some(0),
            (Protocol::Icmp, _) => Some(icmp::ECHO_REQUEST),
            // No answer comes: the flow gives up.
            (_, Stage::Opening | Stage::Closing)
                if !self.is_lasting && self.sent_up > 4 * SHORT =>
            {
                None
            }
            (_, Stage::Closing) if self.sent_up > LONG + SHORT => None,
            (_, Stage::Opening) => Some(tcp::SYN),
            (_, Stage::Established) if is_enough => {
                self.stage = Stage::Closing;
                Some(tcp::FIN | tcp::ACK)
            }
            (_, Stage::Established) => Some(tcp::ACK),
            (_, Stage::Closing) => Some(tcp::FIN | tcp::ACK),
        }
    }

    /// Notes an answer of the server.
    pub(super) fn on_answer(&mut self, now_us: u64, flags: u8) {
        self.answered_us = now_us;
        self.stage = match self.stage {
            Stage::Opening => Stage::Established,
            Stage::Closing if flags & tcp::FIN != 0 => Stage::Over,
            other => other,
        };
    }
}

/// Returns the flags of a server's answer; `None` if it does not answer.
pub(super) fn answer(protocol: Protocol, flags: u8) -> Option<u8> {
    match protocol {
        Protocol::Udp => Some(0),
        Protocol::Icmp => (flags == icmp::ECHO_REQUEST).then_some(icmp::ECHO_REPLY),
        _ if flags & tcp::SYN != 0 => Some(tcp::SYN | tcp::ACK),
        _ if flags & tcp::FIN != 0 => Some(tcp::FIN | tcp::ACK),
        _ => Some(tcp::ACK),
    }
}
