//! `[timeouts]`: a profile, and the keys that override it.

use std::collections::BTreeMap;

use crate::findings::Findings;
use crate::section::Section;
use crate::types::{TimeoutProfile, TimeoutSettings};

/// The keys of the timers.
const TIMERS: [&str; 12] = [
    "tcp_syn_sent_sec",
    "tcp_syn_received_sec",
    "tcp_established_sec",
    "tcp_fin_wait_sec",
    "tcp_close_wait_sec",
    "tcp_last_ack_sec",
    "tcp_time_wait_sec",
    "tcp_close_sec",
    "tcp_reset_sec",
    "udp_sec",
    "udp_stream_sec",
    "icmp_sec",
];

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> TimeoutSettings {
    let profile = match section.choice("profile", findings) {
        "carrier" => TimeoutProfile::Carrier,
        _ => TimeoutProfile::Rfc,
    };
    TimeoutSettings::of(profile).with(&given(section, findings))
}

/// Returns the timers that the section has.
pub(crate) fn given(
    section: &Section<'_>,
    findings: &mut Findings<'_>,
) -> BTreeMap<&'static str, u32> {
    let mut timers = BTreeMap::new();
    for name in TIMERS {
        if let Some(seconds) = section.optional_integer(name, findings) {
            timers.insert(name, seconds);
        }
    }
    timers
}

impl TimeoutSettings {
    /// Returns the values of a profile.
    pub fn of(profile: TimeoutProfile) -> Self {
        let timer = |name| crate::key::profile_sec(name, profile);
        Self {
            profile,
            tcp_syn_sent_sec: timer("tcp_syn_sent_sec"),
            tcp_syn_received_sec: timer("tcp_syn_received_sec"),
            tcp_established_sec: timer("tcp_established_sec"),
            tcp_fin_wait_sec: timer("tcp_fin_wait_sec"),
            tcp_close_wait_sec: timer("tcp_close_wait_sec"),
            tcp_last_ack_sec: timer("tcp_last_ack_sec"),
            tcp_time_wait_sec: timer("tcp_time_wait_sec"),
            tcp_close_sec: timer("tcp_close_sec"),
            tcp_reset_sec: timer("tcp_reset_sec"),
            udp_sec: timer("udp_sec"),
            udp_stream_sec: timer("udp_stream_sec"),
            icmp_sec: timer("icmp_sec"),
        }
    }

    /// Returns the values with those of these keys replaced.
    #[must_use]
    pub fn with(&self, others: &BTreeMap<&'static str, u32>) -> Self {
        let timer = |name, own| others.get(name).copied().unwrap_or(own);
        Self {
            profile: self.profile,
            tcp_syn_sent_sec: timer("tcp_syn_sent_sec", self.tcp_syn_sent_sec),
            tcp_syn_received_sec: timer("tcp_syn_received_sec", self.tcp_syn_received_sec),
            tcp_established_sec: timer("tcp_established_sec", self.tcp_established_sec),
            tcp_fin_wait_sec: timer("tcp_fin_wait_sec", self.tcp_fin_wait_sec),
            tcp_close_wait_sec: timer("tcp_close_wait_sec", self.tcp_close_wait_sec),
            tcp_last_ack_sec: timer("tcp_last_ack_sec", self.tcp_last_ack_sec),
            tcp_time_wait_sec: timer("tcp_time_wait_sec", self.tcp_time_wait_sec),
            tcp_close_sec: timer("tcp_close_sec", self.tcp_close_sec),
            tcp_reset_sec: timer("tcp_reset_sec", self.tcp_reset_sec),
            udp_sec: timer("udp_sec", self.udp_sec),
            udp_stream_sec: timer("udp_stream_sec", self.udp_stream_sec),
            icmp_sec: timer("icmp_sec", self.icmp_sec),
        }
    }
}
