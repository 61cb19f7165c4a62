//! The port quota of a home is a number of blocks that one address can hold.

use crate::findings::Findings;
use crate::policy_types::GroupSettings;
use crate::types::NatSettings;

/// Lower ports are never assigned: RFC 4787 REQ-3 keeps the well-known ports apart.
const PORT_MIN: u32 = 1024;

/// Number of blocks of one public address that have a port to assign. Blocks begin at multiples of
/// their size, so a large block that reaches below the lowest port has fewer ports.
pub(crate) fn blocks_of_address(port_block: u16) -> u32 {
    65_536 / u32::from(port_block).max(1) - first_block(port_block)
}

/// Index of the first of these blocks on its address.
pub(crate) fn first_block(port_block: u16) -> u32 {
    PORT_MIN / u32::from(port_block).max(1)
}

/// Whether quota and block size fit together, so that pools can be checked with them.
pub(crate) fn check(nat: &NatSettings, findings: &mut Findings<'_>) -> bool {
    check_quota("nat.ports_per_subscriber", nat.ports_per_subscriber, nat, findings)
}

/// Checks the quotas of groups.
pub(crate) fn check_groups(
    groups: &[GroupSettings],
    nat: &NatSettings,
    findings: &mut Findings<'_>,
) {
    for (index, group) in groups.iter().enumerate() {
        if let Some(quota) = group.limits.ports_per_subscriber {
            let key = format!("group[{index}].limits.ports_per_subscriber");
            check_quota(&key, quota, nat, findings);
        }
    }
}

fn check_quota(key: &str, quota: u32, nat: &NatSettings, findings: &mut Findings<'_>) -> bool {
    if !findings.is_good("nat.port_block") || !findings.is_good(key) {
        return false;
    }
    let block = u32::from(nat.port_block);
    let address = blocks_of_address(nat.port_block) * block;
    if quota > address {
        let message =
            format!("{quota} ports are more than an address has in blocks of {block}: {address}");
        findings.error(key, message, format!("write at most {address}"));
    } else if !quota.is_multiple_of(block) {
        let (below, above) = (quota / block * block, quota.next_multiple_of(block).min(address));
        let fix =
            if below == 0 { format!("write {above}") } else { format!("write {below} or {above}") };
        findings.error(key, format!("{quota} is not a multiple of nat.port_block = {block}"), fix);
    }
    findings.is_good(key)
}
