//! Timers below the minima of the RFCs end idle connections of applications.

use crate::desired::difference::object;
use crate::findings::Findings;
use crate::types::{TimeoutProfile, TimeoutSettings};

const TRANSITORY: (u32, &str) = (240, "RFC 5382 REQ-5");
const RESET: (u32, &str) = (240, "RFC 7857 section 2.2");
const UDP: (u32, &str) = (120, "RFC 4787 REQ-5");
/// The least value of each timer, in seconds.
const MINIMA: [(&str, (u32, &str)); 12] = [
    ("tcp_syn_sent_sec", TRANSITORY),
    ("tcp_syn_received_sec", TRANSITORY),
    ("tcp_established_sec", (7440, "RFC 5382 REQ-5")),
    ("tcp_fin_wait_sec", TRANSITORY),
    ("tcp_close_wait_sec", TRANSITORY),
    ("tcp_last_ack_sec", TRANSITORY),
    ("tcp_time_wait_sec", TRANSITORY),
    ("tcp_close_sec", RESET),
    ("tcp_reset_sec", RESET),
    ("udp_sec", UDP),
    ("udp_stream_sec", UDP),
    ("icmp_sec", (60, "RFC 5508 REQ-2")),
];

pub(crate) fn check(timeouts: &TimeoutSettings, findings: &mut Findings<'_>) {
    if timeouts.profile == TimeoutProfile::Carrier {
        let message =
            "the profile \"carrier\" is below the minima of RFC 4787, 5382, 5508 and 7857";
        findings.warning("timeouts.profile", message, "idle connections break; \"rfc\" keeps them");
        return;
    }
    let timers = object(timeouts);
    check_minima("timeouts", |name| timers.get(name)?.as_u64(), findings);
}

/// Warns of timers below their minima; `timer` gives those that are to be checked.
pub(crate) fn check_minima(
    section: &str,
    timer: impl Fn(&str) -> Option<u64>,
    findings: &mut Findings<'_>,
) {
    for (name, (least, source)) in MINIMA {
        let key = format!("{section}.{name}");
        let below = timer(name).filter(|seconds| *seconds < least.into());
        if let Some(seconds) = below.filter(|_| findings.is_good(&key)) {
            let message = format!("{seconds} s is below the minimum of {source}");
            findings.warning(&key, message, format!("{least} s or more"));
        }
    }
}
