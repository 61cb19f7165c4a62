//! The ports that the replicas' reserve lanes take from an address, and whether they suffice for
//! its homes.
//!
//! An address's blocks are assigned to eight lanes, `block index mod 8`. Each replica of a shard
//! reserves one lane in which the primary never opens a block. When the primary is lost, the
//! replica creates flows in that lane alone until it is granted the others, so every home of an
//! address needs a block there.

use crate::check::quota::{blocks_of_address, first_block};
use crate::findings::Findings;
use crate::types::NatSettings;

/// Number of lanes of a shard, as a u32 like block numbers.
pub(crate) const LANES: u32 = weir_ids::LANES as u32;

/// Number of blocks of an address in its smallest lane: any lane may become a reserve.
pub(crate) fn blocks_of_smallest_lane(port_block: u16) -> u32 {
    blocks_of_lanes(port_block).min().unwrap_or_default()
}

/// Number of blocks of an address that the primary may open beside `replicas` reserve lanes, if
/// these are the largest.
pub(crate) fn blocks_of_primary(port_block: u16, replicas: u8) -> u32 {
    let largest = blocks_of_lanes(port_block).max().unwrap_or_default();
    blocks_of_address(port_block).saturating_sub(u32::from(replicas) * largest)
}

fn blocks_of_lanes(port_block: u16) -> impl Iterator<Item = u32> {
    let (first, count) = (first_block(port_block), blocks_of_address(port_block));
    let below = |block: u32, lane: u32| (block + LANES - 1 - lane) / LANES;
    (0..LANES).map(move |lane| below(first + count, lane) - below(first, lane))
}

/// Checks that `homes` on `addresses` fit the reserve lane of every replica. `fix` describes how to
/// get a number of addresses.
pub(crate) fn check(
    nat: &NatSettings,
    replicas: u8,
    key: &str,
    (homes, addresses): (u64, u64),
    fix: impl Fn(u64) -> String,
    findings: &mut Findings<'_>,
) {
    let blocks = u64::from(blocks_of_smallest_lane(nat.port_block));
    let homes_of_address = homes.div_ceil(addresses.max(1));
    if replicas == 0 || homes_of_address <= blocks || !findings.is_good(key) {
        return;
    }
    let message = format!(
        "a replica's reserve lane has {blocks} blocks of {} ports on an address that {homes_of_address} homes share: \
         when it takes over, some of them would get no port",
        nat.port_block
    );
    let fix = format!(
        "{}, lower subscribers_max to {}, or write smaller blocks in nat.port_block",
        fix(homes.div_ceil(blocks.max(1))),
        blocks * addresses
    );
    findings.error(key, message, fix);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_share_the_blocks_of_an_address() {
        for port_block in (6..=13).map(|bits| 1 << bits) {
            let lanes: Vec<u32> = blocks_of_lanes(port_block).collect();
            assert_eq!(lanes.iter().sum::<u32>(), blocks_of_address(port_block), "{port_block}");
            let blocks =
                first_block(port_block)..first_block(port_block) + blocks_of_address(port_block);
            let third = blocks.filter(|block| block % LANES == 3).count();
            assert_eq!(lanes[3] as usize, third, "{port_block}");
        }
    }

    #[test]
    fn the_first_lanes_have_no_blocks_below_port_1024() {
        assert_eq!(blocks_of_smallest_lane(256), 31);
        assert_eq!(blocks_of_primary(256, 0), 252);
        assert_eq!(blocks_of_primary(256, 2), 252 - 2 * 32);
        assert_eq!(blocks_of_smallest_lane(1024), 7);
        assert_eq!(blocks_of_smallest_lane(8192), 1);
    }
}
