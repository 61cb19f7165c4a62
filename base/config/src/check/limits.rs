//! The limits of a home against the tables that they are shares of.

use crate::findings::Findings;
use crate::policy_types::GroupSettings;
use crate::types::{LimitSettings, NatSettings};

const FLOWS: &str = "limits.flows";
const SESSIONS: &str = "limits.sessions";
const FORMER: &str = "nat.flows_per_subscriber";
const NAT_FLOWS: &str = "nat.flows_max";
const NAT_SESSIONS: &str = "nat.sessions_max";

pub(crate) fn check(limits: &LimitSettings, nat: &NatSettings, findings: &mut Findings<'_>) {
    if limits.flows.is_some() && nat.flows_per_subscriber.is_some() {
        let message = format!("the former name of {FLOWS}, which is written too");
        findings.error(FORMER, message, "remove it");
    }
    warn_of_share(FLOWS, limits.flows, (NAT_FLOWS, Some(nat.flows_max)), findings);
    warn_of_share(SESSIONS, limits.sessions, (NAT_SESSIONS, nat.sessions_max), findings);
    if limits.worker_icmp_errors_per_sec < limits.icmp_errors_per_sec
        && findings.is_good("limits.worker_icmp_errors_per_sec")
        && findings.is_good("limits.icmp_errors_per_sec")
    {
        let worker = limits.worker_icmp_errors_per_sec;
        let message = format!(
            "one home may take all that a worker makes: limits.worker_icmp_errors_per_sec = {worker}"
        );
        findings.warning("limits.icmp_errors_per_sec", message, "write a small share of it");
    }
}

/// Checks the limits of groups.
pub(crate) fn check_groups(
    groups: &[GroupSettings],
    nat: &NatSettings,
    findings: &mut Findings<'_>,
) {
    for (index, group) in groups.iter().enumerate() {
        let key = |name: &str| format!("group[{index}].limits.{name}");
        let limits = &group.limits;
        let (flows, sessions) =
            ((NAT_FLOWS, Some(nat.flows_max)), (NAT_SESSIONS, nat.sessions_max));
        warn_of_share(&key("flows"), limits.flows, flows, findings);
        warn_of_share(&key("sessions"), limits.sessions, sessions, findings);
    }
}

/// Warns of a limit of a home that is as large as the table of all homes.
fn warn_of_share(
    key: &str,
    limit: Option<u32>,
    (table, room): (&str, Option<u32>),
    findings: &mut Findings<'_>,
) {
    let (Some(limit), Some(room)) = (limit, room) else { return };
    if limit >= room && findings.is_good(key) && findings.is_good(table) {
        let message = format!("one home may fill the table of all: {table} = {room}");
        findings.warning(key, message, "write a small share of it");
    }
}
