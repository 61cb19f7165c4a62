//! `[timeouts]`: a profile, and the keys that override it.

use crate::findings::Findings;
use crate::section::Section;
use crate::types::{TimeoutProfile, TimeoutSettings};

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> TimeoutSettings {
    let profile = match section.choice("profile", findings) {
        "carrier" => TimeoutProfile::Carrier,
        _ => TimeoutProfile::Rfc,
    };
    let preset = TimeoutSettings::of(profile);
    let mut timer =
        |name: &str, preset: u32| section.optional_integer(name, findings).unwrap_or(preset);
    TimeoutSettings {
        profile,
        tcp_syn_sent_sec: timer("tcp_syn_sent_sec", preset.tcp_syn_sent_sec),
        tcp_syn_received_sec: timer("tcp_syn_received_sec", preset.tcp_syn_received_sec),
        tcp_established_sec: timer("tcp_established_sec", preset.tcp_established_sec),
        tcp_fin_wait_sec: timer("tcp_fin_wait_sec", preset.tcp_fin_wait_sec),
        tcp_close_wait_sec: timer("tcp_close_wait_sec", preset.tcp_close_wait_sec),
        tcp_last_ack_sec: timer("tcp_last_ack_sec", preset.tcp_last_ack_sec),
        tcp_time_wait_sec: timer("tcp_time_wait_sec", preset.tcp_time_wait_sec),
        tcp_close_sec: timer("tcp_close_sec", preset.tcp_close_sec),
        tcp_reset_sec: timer("tcp_reset_sec", preset.tcp_reset_sec),
        udp_sec: timer("udp_sec", preset.udp_sec),
        udp_stream_sec: timer("udp_stream_sec", preset.udp_stream_sec),
        icmp_sec: timer("icmp_sec", preset.icmp_sec),
    }
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
}
