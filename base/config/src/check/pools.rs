//! The public addresses of a shard suffice for its homes: those that are in no source pool.

use ipnet::Ipv4Net;

use crate::check::AddressSet;
use crate::check::reserve_lanes::{self, blocks_of_primary};
use crate::cluster_types::ClusterFile;
use crate::findings::Findings;
use crate::types::{Config, NatSettings, PoolingSetting};

/// Most public addresses of all shards of a worker.
const ADDRESSES_MAX: u64 = 65_536;
/// Most homes of all shards of a worker.
const HOMES_MAX: u64 = 1 << 22;
/// Most blocks that all homes of a worker may open together.
const QUOTA_BLOCKS_MAX: u64 = 1 << 28;

pub(crate) fn single(config: &Config, quota_fits: bool, findings: &mut Findings<'_>) {
    let pooled = AddressSet::pooled(&config.policy.source_pools);
    for (index, shard) in config.shards.iter().enumerate() {
        let path = format!("shard[{index}]");
        let homes = homes(shard.subscribers_max, &shard.subscribers);
        let public = (&shard.public[..], &pooled);
        check_shard(&config.nat, 0, &path, (homes, public), quota_fits, findings);
    }
    if quota_fits && (0..config.shards.len()).all(|index| is_pool_good(index, findings)) {
        workers(config, findings);
    }
}

/// Checks a cluster, where a part of the ports is in reserve. It is not known which worker has
/// which shards.
pub(crate) fn cluster(file: &ClusterFile, quota_fits: bool, findings: &mut Findings<'_>) {
    let pooled = AddressSet::pooled(&file.policy.source_pools);
    let replicas = if findings.is_good("cluster.replicas") { file.cluster.replicas } else { 0 };
    for (index, shard) in file.shards.iter().enumerate() {
        let path = format!("shard[{index}]");
        let homes = homes(shard.subscribers_max, &shard.subscribers);
        let public = (&shard.public[..], &pooled);
        check_shard(&file.nat, replicas, &path, (homes, public), quota_fits, findings);
    }
    for (index, pool) in file.pools.iter().enumerate() {
        let path = format!("pool[{index}]");
        let are_good = ["public", "per_shard", "subscribers_per_shard", "subscribers_max"]
            .iter()
            .all(|name| findings.is_whole(&format!("{path}.{name}")));
        if !are_good || !quota_fits {
            continue;
        }
        let Some(shard) = pool.shards().max_by_key(|shard| pooled.count_of(&shard.public)) else {
            continue;
        };
        let homes = homes(shard.subscribers_max, &shard.subscribers);
        let in_pools = pooled.count_of(&shard.public);
        let addresses = addresses(&shard.public).saturating_sub(in_pools);
        let more = |needed: u64| {
            let bits = (needed + in_pools).next_power_of_two().ilog2();
            format!("write per_shard = {}", 32 - bits.min(16))
        };
        let key = format!("{path}.per_shard");
        reserve_lanes::check(&file.nat, replicas, &key, (homes, addresses), more, findings);
        check_blocks(&file.nat, replicas, &key, (homes, addresses), more, findings);
    }
}

/// Checks a shard with the homes and public prefixes of the file.
fn check_shard(
    nat: &NatSettings,
    replicas: u8,
    path: &str,
    (homes, (public, pooled)): (u64, (&[Ipv4Net], &AddressSet)),
    quota_fits: bool,
    findings: &mut Findings<'_>,
) {
    let key = format!("{path}.public");
    if !findings.is_whole(&key) || public.is_empty() {
        return;
    }
    let count = addresses(public);
    if count > ADDRESSES_MAX {
        let message = format!("{count} addresses in one shard");
        findings.error(&key, message, format!("a worker serves at most {ADDRESSES_MAX}"));
    } else if findings.is_good(&format!("{path}.subscribers_max")) && quota_fits {
        let in_pools = pooled.count_of(public);
        let addresses = count.saturating_sub(in_pools);
        let more = |needed: u64| format!("add addresses ({} are enough)", needed + in_pools);
        reserve_lanes::check(nat, replicas, &key, (homes, addresses), more, findings);
        check_blocks(nat, replicas, &key, (homes, addresses), more, findings);
    }
}

fn is_pool_good(index: usize, findings: &Findings<'_>) -> bool {
    ["public", "subscribers_max", "worker"]
        .iter()
        .all(|name| findings.is_good(&format!("shard[{index}].{name}")))
}

/// Checks the limits of one worker for all its shards together.
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

pub(crate) fn quota_blocks(nat: &NatSettings) -> u64 {
    u64::from(nat.ports_per_subscriber / u32::from(nat.port_block).max(1))
}

pub(crate) fn addresses(nets: &[Ipv4Net]) -> u64 {
    nets.iter().map(|net| 1 << (32 - net.prefix_len())).sum()
}

/// Number of homes a shard serves at once: in plain mode at most the addresses of its prefixes.
pub(crate) fn homes(subscribers_max: u32, subscribers: &[Ipv4Net]) -> u64 {
    let limit = u64::from(subscribers_max);
    if subscribers.is_empty() { limit } else { limit.min(addresses(subscribers)) }
}

/// Every home needs one block; with less than the whole quota for every home, ports run out first
/// come, first served. `more` describes how to get a number of addresses.
fn check_blocks(
    nat: &NatSettings,
    replicas: u8,
    key: &str,
    (homes, addresses): (u64, u64),
    more: impl Fn(u64) -> String,
    findings: &mut Findings<'_>,
) {
    if !findings.is_good(key) {
        return;
    }
    let blocks_of_address = u64::from(blocks_of_primary(nat.port_block, replicas)).max(1);
    let blocks = addresses * blocks_of_address;
    let quota_blocks = quota_blocks(nat);
    // With hard pooling a home stays on one address (RFC 4787 REQ-2), so other homes cannot use the
    // blocks that an address has left over.
    let whole_quotas = match nat.pooling {
        PoolingSetting::Hard => addresses * (blocks_of_address / quota_blocks.max(1)),
        PoolingSetting::Soft => blocks / quota_blocks.max(1),
    };
    if blocks < homes {
        let message = format!(
            "{homes} homes do not fit: {addresses} addresses have {blocks} blocks of {} ports, each home needs one",
            nat.port_block
        );
        let needed = homes.div_ceil(blocks_of_address);
        let fix = format!("{}, or lower subscribers_max to {blocks}", more(needed));
        findings.error(key, message, fix);
    } else if whole_quotas < homes {
        let reserve = if replicas == 0 { "" } else { " beside the reserve lanes" };
        let message = format!(
            "only {whole_quotas} of {homes} homes can have their {} ports at once{reserve}",
            nat.ports_per_subscriber
        );
        let needed = match nat.pooling {
            PoolingSetting::Hard => {
                homes.div_ceil((blocks_of_address / quota_blocks.max(1)).max(1))
            }
            PoolingSetting::Soft => (homes * quota_blocks).div_ceil(blocks_of_address),
        };
        let fix = format!("{needed} addresses would do; it has {addresses}");
        findings.warning(key, message, fix);
    }
}
