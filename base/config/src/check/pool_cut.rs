//! The lists of a pool can be cut into the same number of shards.

use ipnet::IpNet;

use crate::cluster_types::{ClusterFile, PoolSettings};
use crate::findings::Findings;
use crate::pool::{address_count, address_count6, pieces, pieces6};
use crate::types::AccessSetting;

/// Most shards of a cluster: they are stored in one value of etcd, which takes 1.5 MB.
const SHARDS_MAX: u64 = 8192;

/// Whether every pool can be cut.
pub(crate) fn check(file: &ClusterFile, findings: &mut Findings<'_>) -> bool {
    if !findings.is_given("pool") && !findings.is_given("shard") {
        findings.error("", "no shards", "write a [[pool]], or a [[shard]] for each");
    }
    let mut are_cut = findings.is_good("access.mode");
    for (index, pool) in file.pools.iter().enumerate() {
        let path = format!("pool[{index}]");
        large_enough(&path, "public", &pool.public, "per_shard", pool.per_shard, findings);
        if file.access.mode == AccessSetting::Plain {
            let (name, length) = ("subscribers_per_shard", pool.subscribers_per_shard);
            large_enough(&path, "subscribers", &pool.subscribers, name, length, findings);
        }
        let (name, length) = ("per_shard6", pool.per_shard6);
        large_enough(&path, "public6", &pool.public6, name, length, findings);
        if !is_readable(&path, findings) {
            are_cut = false;
        } else if are_cut {
            same_number(&path, pool, file.access.mode, findings);
            enough_ipv6(&path, pool, findings);
            are_cut = is_readable(&path, findings);
        }
    }
    are_cut && few_enough(file, findings)
}

/// Whether no list of the pool has an error.
fn is_readable(path: &str, findings: &Findings<'_>) -> bool {
    let names = [
        "endpoints",
        "endpoints6",
        "steer",
        "subscribers",
        "subscribers_per_shard",
        "public",
        "per_shard",
        "public6",
        "per_shard6",
        "steer6",
    ];
    names.iter().all(|name| findings.is_whole(&format!("{path}.{name}")))
}

fn large_enough<N: Copy + Into<IpNet>>(
    path: &str,
    name: &str,
    nets: &[N],
    length_name: &str,
    length: u8,
    findings: &mut Findings<'_>,
) {
    if !findings.is_good(&format!("{path}.{length_name}")) {
        return;
    }
    for (position, net) in nets.iter().enumerate() {
        let net: IpNet = (*net).into();
        let key = findings.element(&format!("{path}.{name}"), position);
        if findings.is_good(&key) && net.prefix_len() > length {
            let message = format!("{net} is smaller than the /{length} of a shard");
            let fix = format!("write a larger prefix, or {length_name} = {}", net.prefix_len());
            findings.error(&key, message, fix);
        }
    }
}

/// Checks that each shard gets an address and, in plain mode, homes.
fn same_number(path: &str, pool: &PoolSettings, mode: AccessSetting, findings: &mut Findings<'_>) {
    let shards = pool.shard_count();
    let (name, what, nets) = match mode {
        AccessSetting::Gre => ("endpoints", "tunnel endpoints", &pool.endpoints),
        AccessSetting::Plain => ("steer", "steering addresses", &pool.steer),
    };
    let key = format!("{path}.{name}");
    let addresses = address_count(nets);
    if addresses < shards && findings.is_given(&key) {
        let message = format!(
            "{shards} shards need {shards} {what}, these are {addresses} without the first of each prefix"
        );
        findings.error(&key, message, "add a prefix at the end, or write a larger one");
    }
    let homes = pieces(&pool.subscribers, pool.subscribers_per_shard);
    if mode == AccessSetting::Plain && !pool.public.is_empty() && homes != shards {
        let message = format!(
            "they make {homes} shards of /{}, public makes {shards} of /{}",
            pool.subscribers_per_shard, pool.per_shard
        );
        let fix = "change subscribers_per_shard, per_shard or a list until both are the same";
        findings.error(&format!("{path}.subscribers"), message, fix);
    }
}

/// Checks that each shard gets an IPv6 prefix, an IPv6 endpoint and, in plain mode, an IPv6
/// steering address, if there are such. What is left over is for growth.
fn enough_ipv6(path: &str, pool: &PoolSettings, findings: &mut Findings<'_>) {
    let shards = pool.shard_count();
    let prefixes = pieces6(&pool.public6, pool.per_shard6);
    if !pool.public6.is_empty() && prefixes < shards {
        let message = format!(
            "{shards} shards need {shards} prefixes of /{}, these are {prefixes}",
            pool.per_shard6
        );
        let fix = "add a prefix at the end, or write a larger one, or a larger per_shard6";
        findings.error(&format!("{path}.public6"), message, fix);
    }
    for (name, nets, what) in [
        ("endpoints6", &pool.endpoints6, "endpoints"),
        ("steer6", &pool.steer6, "steering addresses"),
    ] {
        let addresses = address_count6(nets);
        if !nets.is_empty() && addresses < shards {
            let message = format!(
                "{shards} shards need {shards} {what}, these are {addresses} without the first of each prefix"
            );
            let fix = "add a prefix at the end, or write a larger one";
            findings.error(&format!("{path}.{name}"), message, fix);
        }
    }
}

fn few_enough(file: &ClusterFile, findings: &mut Findings<'_>) -> bool {
    let counts: Vec<u64> = file.pools.iter().map(PoolSettings::shard_count).collect();
    let count = counts.iter().sum::<u64>() + file.shards.len() as u64;
    let largest = (0..counts.len()).max_by_key(|index| counts[*index]);
    let key = match largest.filter(|index| counts[*index] >= file.shards.len() as u64) {
        Some(index) => format!("pool[{index}]"),
        None => "shard".to_owned(),
    };
    if count > SHARDS_MAX {
        let message = format!("{count} shards in the cluster, at most {SHARDS_MAX} can be");
        findings.error(&key, message, "make shards larger, by a smaller per_shard");
    }
    count <= SHARDS_MAX
}
