//! The limits of a home against the tables that they are shares of.

use crate::findings::Findings;
use crate::types::{LimitSettings, NatSettings};

const FLOWS: &str = "limits.flows";
const SESSIONS: &str = "limits.sessions";
const FORMER: &str = "nat.flows_per_subscriber";

pub(crate) fn check(limits: &LimitSettings, nat: &NatSettings, findings: &mut Findings<'_>) {
    if limits.flows.is_some() && nat.flows_per_subscriber.is_some() {
        let message = format!("the former name of {FLOWS}, which is written too");
        findings.error(FORMER, message, "remove it");
    }
    let tables = [
        (FLOWS, limits.flows, "nat.flows_max", Some(nat.flows_max)),
        (SESSIONS, limits.sessions, "nat.sessions_max", nat.sessions_max),
    ];
    for (key, limit, table, room) in tables {
        let (Some(limit), Some(room)) = (limit, room) else { continue };
        if limit >= room && findings.is_good(key) && findings.is_good(table) {
            let message = format!("one home may fill the table of all: {table} = {room}");
            findings.warning(key, message, "write a small share of it");
        }
    }
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
