//! Timers below the minima of the RFCs end idle connections of applications.

use crate::findings::Findings;
use crate::types::{TimeoutProfile, TimeoutSettings};

const TRANSITORY: (u32, &str) = (240, "RFC 5382 REQ-5");
const RESET: (u32, &str) = (240, "RFC 7857 section 2.2");

pub(crate) fn check(timeouts: &TimeoutSettings, findings: &mut Findings<'_>) {
    if timeouts.profile == TimeoutProfile::Carrier {
        let message =
            "the profile \"carrier\" is below the minima of RFC 4787, 5382, 5508 and 7857";
        findings.warning("timeouts.profile", message, "idle connections break; \"rfc\" keeps them");
        return;
    }
    let minima = [
        ("tcp_syn_sent_sec", timeouts.tcp_syn_sent_sec, TRANSITORY),
        ("tcp_syn_received_sec", timeouts.tcp_syn_received_sec, TRANSITORY),
        ("tcp_established_sec", timeouts.tcp_established_sec, (7440, "RFC 5382 REQ-5")),
        ("tcp_fin_wait_sec", timeouts.tcp_fin_wait_sec, TRANSITORY),
        ("tcp_close_wait_sec", timeouts.tcp_close_wait_sec, TRANSITORY),
        ("tcp_last_ack_sec", timeouts.tcp_last_ack_sec, TRANSITORY),
        ("tcp_time_wait_sec", timeouts.tcp_time_wait_sec, TRANSITORY),
        ("tcp_close_sec", timeouts.tcp_close_sec, RESET),
        ("tcp_reset_sec", timeouts.tcp_reset_sec, RESET),
        ("udp_sec", timeouts.udp_sec, (120, "RFC 4787 REQ-5")),
        ("udp_stream_sec", timeouts.udp_stream_sec, (120, "RFC 4787 REQ-5")),
        ("icmp_sec", timeouts.icmp_sec, (60, "RFC 5508 REQ-2")),
    ];
    for (name, seconds, (least, source)) in minima {
        let key = format!("timeouts.{name}");
        if seconds < least && findings.is_good(&key) {
            let message = format!("{seconds} s is below the minimum of {source}");
            findings.warning(&key, message, format!("{least} s or more"));
        }
    }
}
