//! The port quota of a home is a number of blocks that one address can hold.

use crate::findings::Findings;
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
    const QUOTA: &str = "nat.ports_per_subscriber";
    if !findings.is_good("nat.port_block") || !findings.is_good(QUOTA) {
        return false;
    }
    let (quota, block) = (nat.ports_per_subscriber, u32::from(nat.port_block));
    let address = blocks_of_address(nat.port_block) * block;
    if quota > address {
        let message =
            format!("{quota} ports are more than an address has in blocks of {block}: {address}");
        findings.error(QUOTA, message, format!("write at most {address}"));
    } else if quota % block != 0 {
        let (below, above) = (quota / block * block, quota.next_multiple_of(block).min(address));
        let fix =
            if below == 0 { format!("write {above}") } else { format!("write {below} or {above}") };
        findings.error(
            QUOTA,
            format!("{quota} is not a multiple of nat.port_block = {block}"),
            fix,
        );
    }
    findings.is_good(QUOTA)
}
