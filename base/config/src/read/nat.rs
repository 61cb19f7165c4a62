//! `[nat]`.

use toml::de::DeValue;

use crate::findings::Findings;
use crate::section::{self, Section};
use crate::types::{AccessSetting, FilteringSetting, MssClampSetting, NatSettings, PoolingSetting};

/// RFC 9293 section 3.7.1: every host accepts 536.
const MSS_MIN: u64 = 536;
/// The largest MTU without the IPv4 and TCP headers.
const MSS_MAX: u64 = 9176;

pub(crate) fn read(
    section: &Section<'_>,
    mode: AccessSetting,
    findings: &mut Findings<'_>,
) -> NatSettings {
    NatSettings {
        enabled: section.boolean("enabled", findings),
        filtering: match section.choice("filtering", findings) {
            "address-dependent" => FilteringSetting::AddressDependent,
            "endpoint-independent" => FilteringSetting::EndpointIndependent,
            _ => FilteringSetting::AddressAndPortDependent,
        },
        port_block: port_block(section, findings),
        ports_per_subscriber: section.integer("ports_per_subscriber", findings),
        flows_max: section.integer("flows_max", findings),
        sessions_max: section.optional_integer("sessions_max", findings),
        flows_per_subscriber: section.optional_integer("flows_per_subscriber", findings),
        quarantine_sec: section.integer("quarantine_sec", findings),
        pooling: match section.choice("pooling", findings) {
            "soft" => PoolingSetting::Soft,
            _ => PoolingSetting::Hard,
        },
        udp_inbound_refresh: section.boolean("udp_inbound_refresh", findings),
        inbound_sessions_max: section.integer("inbound_sessions_max", findings),
        forward_source_routes: section.boolean("forward_source_routes", findings),
        mss_clamp: mss_clamp(section, mode, findings),
    }
}

fn port_block(section: &Section<'_>, findings: &mut Findings<'_>) -> u16 {
    let ports: u16 = section.integer("port_block", findings);
    if !ports.is_power_of_two() {
        let below = 1 << ports.ilog2();
        let fix = format!("write {below} or {}", 2 * below);
        findings.error(
            &section.path_of("port_block"),
            format!("{ports} is not a power of two"),
            fix,
        );
    }
    ports
}

fn mss_clamp(
    section: &Section<'_>,
    mode: AccessSetting,
    findings: &mut Findings<'_>,
) -> MssClampSetting {
    let default = match mode {
        AccessSetting::Gre => MssClampSetting::Auto,
        AccessSetting::Plain => MssClampSetting::Off,
    };
    let Some(entry) = section.entry("mss_clamp", findings) else { return default };
    match entry.value {
        DeValue::Boolean(true) => MssClampSetting::Auto,
        DeValue::Boolean(false) => MssClampSetting::Off,
        value => match section::integer(value).filter(|mss| (MSS_MIN..=MSS_MAX).contains(mss)) {
            Some(mss) => MssClampSetting::Max(mss as u16),
            None => {
                entry.refuse(findings);
                default
            }
        },
    }
}
