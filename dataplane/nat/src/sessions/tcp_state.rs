//! Hot. TCP tracking by flags: which side has sent SYN, ACK, FIN and RST.
//!
//! RFC 5382 REQ-2: "A NAT MUST support all valid sequences of TCP packets (defined in [RFC0793])
//! for connections initiated both internally as well as externally when the connection is permitted
//! by the NAT." So no segment of a known session is refused for its flags; they only choose the
//! timer:
//!
//! ```text
//!   SYN inside --> syn-sent -- SYN remote --> syn-received -- both ACK --> established
//!   SYN remote ----------------------------------^                            |    |
//!                                                                  FIN inside |    | FIN remote
//!                                                                   fin-wait <'    '> close-wait
//!                                                                       | the other FIN |
//!                             time-wait <-- last ACK -- last-ack <------+---------------'
//!   RST of the inside, or of the remote unless established or close-wait: closed.
//!   RST of the remote in established or close-wait: reset.
//!   SYN of either side in last-ack, time-wait or closed, of the inside in reset too: opens again.
//! ```
//!
//! Sequence numbers are not tracked: a RST or FIN never deletes anything, it only shortens the
//! timer. Anyone can forge a segment of the remote. One forged RST far outside the window, which
//! the inside ignores, must not cost an idle connection its mapping after 4 minutes, nor may a
//! forged SYN behind it wipe out what is known. So *reset* keeps the session much longer, and ends
//! with the next segment of the remote that goes on with the connection. What the inside sends
//! comes through its own tunnel and is believed.

use crate::sessions::session_state::{SentBy, SessionPhase, SessionState};

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

const SYN_INSIDE: u16 = 1 << 0;
const SYN_REMOTE: u16 = 1 << 1;
const ACK_INSIDE: u16 = 1 << 2;
const ACK_REMOTE: u16 = 1 << 3;
const FIN_INSIDE: u16 = 1 << 4;
const FIN_REMOTE: u16 = 1 << 5;
const RST_INSIDE: u16 = 1 << 6;
const RST_REMOTE: u16 = 1 << 7;
const LAST_ACK: u16 = 1 << 8;

const BOTH_ACK: u16 = ACK_INSIDE | ACK_REMOTE;
const BOTH_FIN: u16 = FIN_INSIDE | FIN_REMOTE;
const ANY_RST: u16 = RST_INSIDE | RST_REMOTE;

/// The bits of a connection that is open on both sides and has not begun to end.
pub(crate) const OPEN: u16 = SYN_INSIDE | SYN_REMOTE | BOTH_ACK;
/// Those, and those of its end.
pub(crate) const OPEN_OR_ENDED: u16 = OPEN | BOTH_FIN | ANY_RST;

/// True if a segment with these flags opens a connection: a SYN alone; the ECN bits (RFC 3168) and
/// PSH may come with it.
pub(crate) const fn is_opening(tcp_flags: u8) -> bool {
    tcp_flags & (SYN | ACK | RST | FIN) == SYN
}

/// The bits of one side, so that one function serves both.
struct SideBits {
    syn: u16,
    ack: u16,
    fin: u16,
    rst: u16,
    other_syn: u16,
}

const INSIDE: SideBits = SideBits {
    syn: SYN_INSIDE,
    ack: ACK_INSIDE,
    fin: FIN_INSIDE,
    rst: RST_INSIDE,
    other_syn: SYN_REMOTE,
};
const REMOTE: SideBits = SideBits {
    syn: SYN_REMOTE,
    ack: ACK_REMOTE,
    fin: FIN_REMOTE,
    rst: RST_REMOTE,
    other_syn: SYN_INSIDE,
};

impl SessionState {
    #[inline]
    pub(crate) fn after_segment(self, sender: SentBy, tcp_flags: u8) -> Self {
        Self::of_tcp(self.bits_after_segment(sender, tcp_flags))
    }

    /// Returns the bits of the state after a segment.
    pub(crate) fn bits_after_segment(self, sender: SentBy, tcp_flags: u8) -> u16 {
        let side = match sender {
            SentBy::Inside => &INSIDE,
            SentBy::Remote => &REMOTE,
        };
        if tcp_flags & RST != 0 {
            return self.bits() | side.rst;
        }
        let mut bits = self.bits();
        if is_opening(tcp_flags) {
            if self.may_reopen(sender) {
                bits &= Self::LASTING;
            }
            return bits | side.syn;
        }
        if tcp_flags & SYN != 0 {
            bits |= side.syn;
        }
        if tcp_flags & ACK != 0 {
            // A side that goes on with the connection has not aborted it: the RST was forged or
            // stale. As in RFC 6146 section 3.5.2.2, state TRANS: another packet brings the session
            // back.
            bits &= !side.rst;
            if bits & side.other_syn != 0 {
                bits |= side.ack;
            }
            if bits & BOTH_FIN == BOTH_FIN && tcp_flags & FIN == 0 {
                bits |= LAST_ACK;
            }
        }
        if tcp_flags & FIN != 0 {
            bits |= side.fin;
        }
        bits
    }

    /// RFC 5382 REQ-2 covers port reuse in TIME_WAIT (RFC 1122 section 4.2.2.13). A SYN of the
    /// inside after its own FIN can only be a new connection; one of the remote counts only when
    /// nothing is left to protect.
    fn may_reopen(self, sender: SentBy) -> bool {
        match sender {
            SentBy::Inside => self.has_any(ANY_RST | FIN_INSIDE),
            SentBy::Remote => self.has(BOTH_FIN) || self.is_reset_credibly(),
        }
    }

    /// True for a RST that is not only the remote's claim against an inside that goes on: the
    /// inside has aborted too, or has finished sending, or the connection was not established.
    fn is_reset_credibly(self) -> bool {
        self.has(RST_INSIDE)
            || (self.has(RST_REMOTE) && (self.has(FIN_INSIDE) || !self.has(BOTH_ACK)))
    }

    pub(crate) fn tcp_phase(self) -> SessionPhase {
        if self.has_any(ANY_RST) {
            return if self.is_reset_credibly() {
                SessionPhase::Closed
            } else {
                SessionPhase::Reset
            };
        }
        if !self.has(BOTH_ACK) {
            return if self.has(SYN_REMOTE) {
                SessionPhase::SynReceived
            } else {
                SessionPhase::SynSent
            };
        }
        match (self.has(FIN_INSIDE), self.has(FIN_REMOTE)) {
            (false, false) => SessionPhase::Established,
            (true, false) => SessionPhase::FinWait,
            (false, true) => SessionPhase::CloseWait,
            (true, true) if self.has(LAST_ACK) => SessionPhase::TimeWait,
            (true, true) => SessionPhase::LastAck,
        }
    }

    /// True if the handshake has been completed.
    #[inline]
    pub(crate) fn has_been_established(self) -> bool {
        self.has(BOTH_ACK)
    }

    /// True if the inside has opened or accepted this connection.
    pub(crate) fn is_joined_by_inside(self) -> bool {
        self.has(SYN_INSIDE)
    }

    /// True if this segment of the inside keeps the session alive. RFC 7857 section 7.1: "TCP RST
    /// outbound packets sent as a response to inbound packets SHOULD NOT refresh the mapping." Only
    /// the RST that ends an established connection counts: it starts the timer of the end.
    pub(crate) fn is_refreshed_by(self, tcp_flags: u8) -> bool {
        tcp_flags & RST == 0 || (self.has(BOTH_ACK) && !self.is_reset_credibly())
    }

    /// True if both sides have sent FIN and neither RST: RFC 6888 REQ-8 lets such a port be given
    /// again at once.
    pub(crate) fn is_closed_cleanly(self) -> bool {
        self.has(BOTH_FIN) && !self.has_any(ANY_RST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_rules::FlowClass;

    use crate::endpoint::Protocol;
    use SentBy::{Inside, Remote};

    const SYN_ACK: u8 = SYN | ACK;
    const FIN_ACK: u8 = FIN | ACK;
    const RST_ACK: u8 = RST | ACK;

    /// Plays segments and returns the phase after each.
    fn play(segments: &[(SentBy, u8)]) -> Vec<&'static str> {
        let mut state = SessionState::NONE;
        segments
            .iter()
            .map(|&(sender, flags)| {
                state = state.after(Protocol::Tcp, sender, flags);
                state.phase(Protocol::Tcp).name()
            })
            .collect()
    }

    const HANDSHAKE: [(SentBy, u8); 3] = [(Inside, SYN), (Remote, SYN_ACK), (Inside, ACK)];

    fn after_handshake(segments: &[(SentBy, u8)]) -> Vec<&'static str> {
        let all: Vec<_> = HANDSHAKE.into_iter().chain(segments.iter().copied()).collect();
        play(&all).split_off(HANDSHAKE.len() - 1)
    }

    #[test]
    fn t2_three_way_handshake_from_inside() {
        assert_eq!(play(&HANDSHAKE), ["syn-sent", "syn-received", "established"]);
    }

    #[test]
    fn t2_three_way_handshake_from_the_remote() {
        assert_eq!(
            play(&[(Remote, SYN), (Inside, SYN_ACK), (Remote, ACK)]),
            ["syn-received", "syn-received", "established"]
        );
    }

    #[test]
    fn t2a_simultaneous_open_needs_no_data_to_be_established() {
        assert_eq!(
            play(&[(Inside, SYN), (Remote, SYN), (Inside, SYN_ACK), (Remote, SYN_ACK)]),
            ["syn-sent", "syn-received", "syn-received", "established"]
        );
    }

    #[test]
    fn t2_retransmitted_handshake_segments_change_nothing() {
        let segments = [
            (Inside, SYN),
            (Inside, SYN),
            (Remote, SYN_ACK),
            (Remote, SYN_ACK),
            (Inside, ACK),
            (Remote, SYN_ACK),
            (Inside, ACK),
        ];
        assert_eq!(*play(&segments).last().unwrap(), "established");
    }

    #[test]
    fn t2_a_challenge_ack_to_a_syn_establishes_nothing() {
        assert_eq!(
            play(&[(Inside, SYN), (Remote, ACK), (Inside, RST), (Inside, SYN)]),
            ["syn-sent", "syn-sent", "closed", "syn-sent"]
        );
    }

    #[test]
    fn t2_ecn_setup_syn_opens() {
        assert!(is_opening(SYN | 0x40 | 0x80));
        assert!(!is_opening(SYN_ACK) && !is_opening(SYN | FIN) && !is_opening(SYN | RST));
        assert!(!is_opening(ACK) && !is_opening(0));
    }

    #[test]
    fn t2_close_from_inside() {
        assert_eq!(
            after_handshake(&[(Inside, FIN_ACK), (Remote, ACK), (Remote, FIN_ACK), (Inside, ACK)]),
            ["established", "fin-wait", "fin-wait", "last-ack", "time-wait"]
        );
    }

    #[test]
    fn t2_half_close_keeps_carrying_data() {
        assert_eq!(
            after_handshake(&[(Remote, FIN_ACK), (Inside, ACK), (Inside, ACK), (Remote, ACK)]),
            ["established", "close-wait", "close-wait", "close-wait", "close-wait"]
        );
    }

    #[test]
    fn t2_simultaneous_close() {
        assert_eq!(
            after_handshake(&[(Inside, FIN_ACK), (Remote, FIN_ACK), (Inside, ACK), (Remote, ACK)]),
            ["established", "fin-wait", "last-ack", "time-wait", "time-wait"]
        );
    }

    #[test]
    fn t2_a_lost_last_ack_is_answered_after_the_retransmitted_fin() {
        assert_eq!(
            after_handshake(&[
                (Inside, FIN_ACK),
                (Remote, FIN_ACK),
                (Remote, FIN_ACK),
                (Inside, ACK)
            ]),
            ["established", "fin-wait", "last-ack", "last-ack", "time-wait"]
        );
    }

    #[test]
    fn t2_time_wait_is_reopened_by_either_side() {
        let closed = [(Inside, FIN_ACK), (Remote, FIN_ACK), (Inside, ACK)];
        for (opener, phase) in [(Inside, "syn-sent"), (Remote, "syn-received")] {
            let mut segments = closed.to_vec();
            segments.push((opener, SYN));
            assert_eq!(*after_handshake(&segments).last().unwrap(), phase);
        }
    }

    #[test]
    fn a_syn_in_an_established_connection_changes_nothing() {
        // A host that crashed and came back: the remote answers with a challenge ACK, the host
        // resets, and its next SYN opens.
        assert_eq!(
            after_handshake(&[(Inside, SYN), (Remote, ACK), (Inside, RST), (Inside, SYN)]),
            ["established", "established", "established", "closed", "syn-sent"]
        );
        assert_eq!(
            after_handshake(&[(Remote, SYN), (Remote, ACK)]),
            ["established", "established", "established"]
        );
    }

    #[test]
    fn a_remote_syn_does_not_undo_a_half_close() {
        assert_eq!(
            after_handshake(&[(Remote, FIN_ACK), (Remote, SYN)]),
            ["established", "close-wait", "close-wait"]
        );
    }

    #[test]
    fn b2_rst_shortens_the_timer_and_a_live_sender_undoes_it() {
        assert_eq!(
            after_handshake(&[(Remote, RST_ACK), (Inside, ACK), (Remote, ACK)]),
            ["established", "reset", "reset", "established"]
        );
        assert_eq!(
            after_handshake(&[(Inside, RST_ACK), (Remote, ACK), (Inside, ACK)]),
            ["established", "closed", "closed", "established"]
        );
    }

    #[test]
    fn b2_a_rst_of_the_remote_is_believed_when_the_inside_is_done_or_was_refused() {
        assert_eq!(play(&[(Inside, SYN), (Remote, RST_ACK)]), ["syn-sent", "closed"]);
        assert_eq!(
            after_handshake(&[(Inside, FIN_ACK), (Remote, RST_ACK)]),
            ["established", "fin-wait", "closed"]
        );
        assert_eq!(
            after_handshake(&[(Remote, RST), (Inside, FIN_ACK)]),
            ["established", "reset", "closed"]
        );
        assert_eq!(
            after_handshake(&[(Remote, RST), (Inside, RST_ACK)]),
            ["established", "reset", "closed"]
        );
        assert_eq!(
            after_handshake(&[(Remote, FIN_ACK), (Remote, RST)]),
            ["established", "close-wait", "reset"]
        );
    }

    #[test]
    fn b2_a_forged_syn_behind_a_forged_rst_wipes_nothing_out() {
        assert_eq!(
            after_handshake(&[(Remote, RST), (Remote, SYN), (Inside, ACK), (Remote, ACK)]),
            ["established", "reset", "reset", "reset", "established"]
        );
    }

    #[test]
    fn a_connection_reset_by_the_remote_is_opened_again_by_either_side() {
        assert_eq!(
            after_handshake(&[(Remote, RST), (Inside, SYN), (Remote, SYN_ACK), (Inside, ACK)]),
            ["established", "reset", "syn-sent", "syn-received", "established"]
        );
        assert_eq!(
            after_handshake(&[(Remote, RST), (Remote, SYN), (Inside, SYN_ACK), (Remote, ACK)]),
            ["established", "reset", "reset", "reset", "established"]
        );
    }

    #[test]
    fn c8_only_two_fins_without_rst_are_a_clean_close() {
        let end = |segments: &[(SentBy, u8)]| {
            HANDSHAKE
                .iter()
                .chain(segments)
                .fold(SessionState::NONE, |state, &(sender, flags)| {
                    state.after(Protocol::Tcp, sender, flags)
                })
                .is_closed_cleanly()
        };
        assert!(end(&[(Inside, FIN_ACK), (Remote, FIN_ACK), (Inside, ACK)]));
        assert!(!end(&[(Inside, FIN_ACK)]));
        assert!(!end(&[(Inside, FIN_ACK), (Remote, RST)]));
        assert!(!end(&[]));
    }

    #[test]
    fn udp_becomes_a_stream_when_both_sides_have_spoken() {
        let one_way = SessionState::opened(Protocol::Udp, Inside, 0, FlowClass::NONE);
        assert_eq!(one_way.phase(Protocol::Udp), SessionPhase::Udp);
        let both = one_way.after(Protocol::Udp, Remote, 0);
        assert_eq!(both.phase(Protocol::Udp), SessionPhase::UdpStream);
    }

    #[test]
    fn reopening_keeps_who_opened_it_and_the_class() {
        let class = FlowClass::new(2).unwrap();
        let state = SessionState::opened(Protocol::Tcp, Remote, SYN, class)
            .after(Protocol::Tcp, Inside, RST_ACK)
            .after(Protocol::Tcp, Remote, SYN);
        assert!(state.has(SessionState::OPENED_BY_REMOTE) && state.class() == class);
        assert_eq!(state.phase(Protocol::Tcp), SessionPhase::SynReceived);
    }
}
