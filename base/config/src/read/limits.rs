//! `[limits]`.

use crate::findings::Findings;
use crate::section::Section;
use crate::types::LimitSettings;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> LimitSettings {
    LimitSettings {
        flows: section.optional_integer("flows", findings),
        sessions: section.optional_integer("sessions", findings),
        new_flows_per_sec: section.integer("new_flows_per_sec", findings),
        new_flows_burst: section.integer("new_flows_burst", findings),
        new_homes_per_sec: section.optional_integer("new_homes_per_sec", findings),
        fragments_percent: section.integer("fragments_percent", findings),
        icmp_errors_per_sec: section.integer("icmp_errors_per_sec", findings),
        icmp_errors_to_homes: section.boolean("icmp_errors_to_homes", findings),
        icmp_errors_to_internet: section.boolean("icmp_errors_to_internet", findings),
        worker_icmp_errors_per_sec: section.integer("worker_icmp_errors_per_sec", findings),
        redirects_per_sec: section.integer("redirects_per_sec", findings),
        slow_path_packets_per_sec: section.integer("slow_path_packets_per_sec", findings),
    }
}
