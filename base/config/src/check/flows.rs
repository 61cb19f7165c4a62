//! The limits of the session table.

use crate::findings::Findings;
use crate::types::NatSettings;

pub(crate) fn check(nat: &NatSettings, findings: &mut Findings<'_>) {
    const SESSIONS: &str = "nat.sessions_max";
    let Some(sessions) = nat.sessions_max else { return };
    let flows = nat.flows_max;
    if sessions > flows && findings.is_good(SESSIONS) && findings.is_good("nat.flows_max") {
        let message = format!("{sessions} are more than all sessions, nat.flows_max = {flows}");
        findings.error(SESSIONS, message, format!("write at most {flows}, or leave it out"));
    }
}
