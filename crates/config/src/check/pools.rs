//! The public addresses of a shard seat its homes.

use ipnet::Ipv4Net;

use crate::check::quota::blocks_of_address;
use crate::findings::Findings;
use crate::types::{Config, Nat, Pooling, Shard};

/// Public addresses of all shards of a worker.
const ADDRESSES_MAX: u64 = 65_536;
/// Homes of all shards of a worker.
const HOMES_MAX: u64 = 1 << 22;
/// Blocks that all homes of a worker may open together.
const QUOTA_BLOCKS_MAX: u64 = 1 << 28;

pub(crate) fn check(config: &Config, quota_fits: bool, findings: &mut Findings<'_>) {
    for (index, shard) in config.shards.iter().enumerate() {
        let public = format!("shard[{index}].public");
        let are_good = (0..shard.public.len())
            .all(|position| findings.is_good(&findings.element(&public, position)));
        if !are_good || shard.public.is_empty() {
            continue;
        }
        let addresses = addresses(&shard.public);
        if addresses > ADDRESSES_MAX {
            let message = format!("{addresses} addresses in one shard");
            findings.error(&public, message, format!("a worker serves at most {ADDRESSES_MAX}"));
        } else if findings.is_good(&format!("shard[{index}].subscribers_max")) && quota_fits {
            seats(config, index, shard, addresses, findings);
        }
    }
    if quota_fits && (0..config.shards.len()).all(|index| is_pool_good(index, findings)) {
        workers(config, findings);
    }
}

fn is_pool_good(index: usize, findings: &Findings<'_>) -> bool {
    ["public", "subscribers_max", "worker"]
        .iter()
        .all(|name| findings.is_good(&format!("shard[{index}].{name}")))
}

/// What one worker can keep, all its shards together.
fn workers(config: &Config, findings: &mut Findings<'_>) {
    for index in 0..config.workers.len() {
        let shards = || config.shards.iter().filter(|shard| shard.worker == index);
        let addresses: u64 = shards().map(|shard| addresses(&shard.public)).sum();
        let homes: u64 = shards().map(|shard| u64::from(shard.subscribers_max)).sum();
        let blocks = homes * quota_blocks(&config.nat);
        let limits = [
            (addresses, ADDRESSES_MAX, "public addresses"),
            (homes, HOMES_MAX, "homes"),
            (blocks, QUOTA_BLOCKS_MAX, "blocks of all homes' quotas"),
        ];
        for (count, limit, what) in limits {
            if count > limit {
                let message = format!("its shards have {count} {what}, a worker at most {limit}");
                findings.error(&format!("worker[{index}]"), message, "give shards to more workers");
            }
        }
    }
}

fn quota_blocks(nat: &Nat) -> u64 {
    u64::from(nat.ports_per_subscriber / u32::from(nat.port_block).max(1))
}

fn addresses(nets: &[Ipv4Net]) -> u64 {
    nets.iter().map(|net| 1 << (32 - net.prefix_len())).sum()
}

/// Homes the shard serves at once: in plain mode no more than its prefixes have addresses.
fn homes(shard: &Shard) -> u64 {
    let limit = u64::from(shard.subscribers_max);
    if shard.subscribers.is_empty() { limit } else { limit.min(addresses(&shard.subscribers)) }
}

/// Every home needs one block; with less than the whole quota for every home, ports run out first come, first served.
fn seats(
    config: &Config,
    index: usize,
    shard: &Shard,
    addresses: u64,
    findings: &mut Findings<'_>,
) {
    let nat = &config.nat;
    let homes = homes(shard);
    let blocks_of_address = u64::from(blocks_of_address(nat.port_block));
    let blocks = addresses * blocks_of_address;
    let quota_blocks = quota_blocks(nat);
    // With hard pooling a home stays on one address (RFC 4787 REQ-2), so what an address has left over helps nobody.
    let whole_quotas = match nat.pooling {
        Pooling::Hard => addresses * (blocks_of_address / quota_blocks.max(1)),
        Pooling::Soft => blocks / quota_blocks.max(1),
    };
    let key = format!("shard[{index}].public");
    if blocks < homes {
        let message = format!(
            "{homes} homes do not fit: {addresses} addresses have {blocks} blocks of {} ports, each home needs one",
            nat.port_block
        );
        let needed = homes.div_ceil(blocks_of_address);
        let fix =
            format!("add addresses ({needed} are enough), or lower subscribers_max to {blocks}");
        findings.error(&key, message, fix);
    } else if whole_quotas < homes {
        let message = format!(
            "only {whole_quotas} of {homes} homes can have their {} ports at once",
            nat.ports_per_subscriber
        );
        let needed = match nat.pooling {
            Pooling::Hard => homes.div_ceil((blocks_of_address / quota_blocks.max(1)).max(1)),
            Pooling::Soft => (homes * quota_blocks).div_ceil(blocks_of_address),
        };
        let fix = format!("{needed} addresses would do; it has {addresses}");
        findings.warning(&key, message, fix);
    }
}
