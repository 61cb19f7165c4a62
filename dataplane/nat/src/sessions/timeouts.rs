//! Idle timers: how long a session may stay silent in each of its phases.

use crate::endpoint::Protocol;
use crate::sessions::session_state::SessionPhase;

/// Idle timeouts in seconds. The default holds the minima of RFC 5382, 4787, 5508 and 7857.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// SYN from inside, nothing from the remote yet.
    pub tcp_syn_sent: u32,
    /// SYN from the remote seen, handshake not finished.
    pub tcp_syn_received: u32,
    pub tcp_established: u32,
    /// FIN from inside: the inside host has closed its half.
    pub tcp_fin_wait: u32,
    /// FIN from the remote: the remote has closed its half.
    pub tcp_close_wait: u32,
    /// FIN from both, last acknowledgement outstanding.
    pub tcp_last_ack: u32,
    /// FIN from both, acknowledged.
    pub tcp_time_wait: u32,
    /// After a RST that no segment speaks against.
    pub tcp_close: u32,
    /// After a RST of the remote alone in an established connection: it may be forged.
    pub tcp_reset: u32,
    /// UDP seen from inside only.
    pub udp: u32,
    /// UDP seen in both directions.
    pub udp_stream: u32,
    /// ICMP query.
    pub icmp: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // RFC 5382 REQ-5: "The value of the "transitory connection idle-timeout" MUST NOT be
            // less than 4 minutes." RFC 7857 section 2.1 makes it configurable for the opening and
            // the closing separately.
            tcp_syn_sent: 240,
            tcp_syn_received: 240,
            // RFC 5382 REQ-5: "the value of the "established connection idle-timeout" MUST NOT be
            // less than 2 hours 4 minutes."
            tcp_established: 7440,
            // A half-closed connection may go on carrying data one way: RFC 6146 section 3.5.2.2
            // keeps the established timer (TCP_EST) until the second FIN, and so does weir.
            tcp_fin_wait: 7440,
            tcp_close_wait: 7440,
            tcp_last_ack: 240,
            tcp_time_wait: 240,
            // RFC 7857 section 2.2: "the NAT SHOULD wait for 4 minutes before deleting the
            // session".
            tcp_close: 240,
            // The same section asks to verify that a RST belongs to the connection. Sequence
            // numbers are not tracked, so an idle connection gets time for its next keepalive
            // instead.
            tcp_reset: 1800,
            // RFC 4787 REQ-5: at least two minutes, and 5c: "A default value of five minutes or
            // more for the NAT UDP mapping timer is RECOMMENDED."
            udp: 300,
            udp_stream: 300,
            // RFC 5508 REQ-2: "An ICMP Query session timer MUST NOT expire in less than 60
            // seconds."
            icmp: 60,
        }
    }
}

impl Timeouts {
    /// Returns the timer of a settled session.
    #[inline]
    pub(crate) const fn of_settled(&self, protocol: Protocol) -> u32 {
        if protocol as u8 == Protocol::Tcp as u8 { self.tcp_established } else { self.udp_stream }
    }

    /// The profile `carrier`: the timers of a carrier's conntrack NAT. Much shorter than the RFC
    /// minima, for pools under pressure.
    pub const fn carrier() -> Self {
        Self {
            tcp_syn_sent: 60,
            tcp_syn_received: 60,
            tcp_established: 600,
            tcp_fin_wait: 60,
            tcp_close_wait: 45,
            tcp_last_ack: 30,
            tcp_time_wait: 120,
            tcp_close: 10,
            tcp_reset: 120,
            udp: 30,
            udp_stream: 60,
            icmp: 30,
        }
    }

    /// Returns the timers as (configuration key, seconds).
    pub const fn named(&self) -> [(&'static str, u32); SessionPhase::COUNT] {
        [
            ("tcp_syn_sent", self.tcp_syn_sent),
            ("tcp_syn_received", self.tcp_syn_received),
            ("tcp_established", self.tcp_established),
            ("tcp_fin_wait", self.tcp_fin_wait),
            ("tcp_close_wait", self.tcp_close_wait),
            ("tcp_last_ack", self.tcp_last_ack),
            ("tcp_time_wait", self.tcp_time_wait),
            ("tcp_close", self.tcp_close),
            ("tcp_reset", self.tcp_reset),
            ("udp", self.udp),
            ("udp_stream", self.udp_stream),
            ("icmp", self.icmp),
        ]
    }

    pub(crate) const fn of(&self, phase: SessionPhase) -> u32 {
        match phase {
            SessionPhase::SynSent => self.tcp_syn_sent,
            SessionPhase::SynReceived => self.tcp_syn_received,
            SessionPhase::Established => self.tcp_established,
            SessionPhase::FinWait => self.tcp_fin_wait,
            SessionPhase::CloseWait => self.tcp_close_wait,
            SessionPhase::LastAck => self.tcp_last_ack,
            SessionPhase::TimeWait => self.tcp_time_wait,
            SessionPhase::Closed => self.tcp_close,
            SessionPhase::Reset => self.tcp_reset,
            SessionPhase::Udp => self.udp,
            SessionPhase::UdpStream => self.udp_stream,
            SessionPhase::Icmp => self.icmp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t5_defaults_keep_the_tcp_minima() {
        let timeouts = Timeouts::default();
        assert!(timeouts.tcp_established >= 2 * 3600 + 4 * 60);
        for transitory in [
            timeouts.tcp_syn_sent,
            timeouts.tcp_syn_received,
            timeouts.tcp_last_ack,
            timeouts.tcp_time_wait,
            timeouts.tcp_close,
        ] {
            assert!(transitory >= 240);
        }
    }

    #[test]
    fn u5_default_is_five_minutes() {
        assert!(Timeouts::default().udp >= 300 && Timeouts::default().udp_stream >= 300);
    }

    #[test]
    fn i2_default_is_a_minute() {
        assert!(Timeouts::default().icmp >= 60);
    }

    #[test]
    fn every_name_gives_the_value_of_its_phase() {
        for timeouts in [Timeouts::default(), Timeouts::carrier()] {
            for (phase, (name, seconds)) in SessionPhase::ALL.into_iter().zip(timeouts.named()) {
                assert_eq!(timeouts.of(phase), seconds, "{name}");
            }
        }
    }
}
