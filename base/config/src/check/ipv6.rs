//! IPv6 of shards, pools and workers fits together.

use ipnet::Ipv6Net;

use crate::check::{interfaces, mode_name, mtu};
use crate::cluster_types::ClusterFile;
use crate::findings::Findings;
use crate::read::address6::UNIQUE_LOCAL;
use crate::types::{Access, AccessSetting, Config, WorkerSettings};

/// The key of the length of a home's prefix.
const HOME_LENGTH: &str = "ipv6.home_length6";

/// Checks the shards of a single node, and the workers that serve them.
pub(crate) fn single(config: &Config, findings: &mut Findings<'_>) {
    for (index, shard) in config.shards.iter().enumerate() {
        let key = format!("shard[{index}].public6");
        unique_local(&key, &shard.public6, findings);
        home_length(config.ipv6.home_length6, &key, &shard.public6, findings);
    }
    let shard_of = |worker: usize| {
        config.shards.iter().position(|it| it.worker == worker && !it.public6.is_empty())
    };
    let reason = |worker: usize| Some(format!("shard[{}] has public6", shard_of(worker)?));
    workers(&config.access, &config.workers, reason, findings);
    let shard_of = |worker: usize| {
        config.shards.iter().position(|it| it.worker == worker && it.endpoint6.is_some())
    };
    let reason = |worker: usize| Some(format!("shard[{}] has endpoint6", shard_of(worker)?));
    workers_with_endpoints(&config.workers, reason, findings);
    let keys = (0..config.shards.len()).map(|index| format!("shard[{index}].endpoint6"));
    outer_addresses(&config.access, keys, findings);
}

/// Checks the shards and pools of a cluster.
pub(crate) fn cluster(file: &ClusterFile, findings: &mut Findings<'_>) {
    let of_pools = (0..file.pools.len()).map(|index| format!("pool[{index}].endpoints6"));
    let of_shards = (0..file.shards.len()).map(|index| format!("shard[{index}].endpoint6"));
    outer_addresses(&file.access, of_pools.chain(of_shards), findings);
    let length = file.ipv6.home_length6;
    for (index, pool) in file.pools.iter().enumerate() {
        let path = format!("pool[{index}]");
        keys(file.access.mode, &path, &["steer6", "per_shard6"], findings);
        unique_local(&format!("{path}.public6"), &pool.public6, findings);
        let is_used = !pool.public6.is_empty() && findings.is_good(HOME_LENGTH);
        if is_used && findings.is_good(&format!("{path}.per_shard6")) && pool.per_shard6 > length {
            let message =
                format!("homes of /{length} are larger than the /{} of {path}", pool.per_shard6);
            let fix = format!("write at least {}, or a smaller per_shard6", pool.per_shard6);
            findings.error(HOME_LENGTH, message, fix);
        }
    }
    for (index, shard) in file.shards.iter().enumerate() {
        let path = format!("shard[{index}]");
        keys(file.access.mode, &path, &["steer6"], findings);
        unique_local(&format!("{path}.public6"), &shard.public6, findings);
        home_length(length, &format!("{path}.public6"), &shard.public6, findings);
    }
}

/// Checks the workers that serve IPv6, for which `reason` says why: each has an address on the
/// internet side and, without tunnels, on the access side, and an MTU for the homes' packets.
pub(crate) fn workers(
    access: &Access,
    workers: &[WorkerSettings],
    reason: impl Fn(usize) -> Option<String>,
    findings: &mut Findings<'_>,
) {
    for (at, (path, side)) in interfaces(workers).enumerate() {
        let (worker, is_access) = (at / 2, at % 2 == 0);
        let is_needed = !is_access || access.mode == AccessSetting::Plain;
        let has_keys = ["address6", "gateways6"]
            .iter()
            .any(|name| findings.is_given(&format!("{path}.{name}")));
        // Half of the keys is an error of its own.
        if side.ipv6.is_some() || has_keys || !is_needed {
            continue;
        }
        if let Some(reason) = reason(worker) {
            let fix = "write address6 and gateways6, or remove public6";
            findings.error(&format!("{path}.address6"), format!("missing: {reason}"), fix);
        }
    }
    mtu::check_ipv6(access, workers, |worker| reason(worker).is_some(), findings);
}

/// Checks the workers of shards with tunnels over IPv6, for which `reason` says why: each has an
/// IPv6 address on the access side.
pub(crate) fn workers_with_endpoints(
    workers: &[WorkerSettings],
    reason: impl Fn(usize) -> Option<String>,
    findings: &mut Findings<'_>,
) {
    for (worker, settings) in workers.iter().enumerate() {
        let path = format!("worker[{worker}].access");
        let has_keys = ["address6", "gateways6"]
            .iter()
            .any(|name| findings.is_given(&format!("{path}.{name}")));
        if settings.access.ipv6.is_some() || has_keys {
            continue;
        }
        if let Some(reason) = reason(worker) {
            let fix = "write address6 and gateways6, or remove endpoint6";
            findings.error(&format!("{path}.address6"), format!("missing: {reason}"), fix);
        }
    }
}

/// Checks that tunnels over IPv6 have both ends: `endpoints` are the keys that may have one.
fn outer_addresses(
    access: &Access,
    endpoints: impl Iterator<Item = String>,
    findings: &mut Findings<'_>,
) {
    const HOMES: &str = "access.subscribers6";
    if !findings.is_good("access.mode") {
        return;
    }
    let are_given = findings.is_given(HOMES);
    if access.mode == AccessSetting::Plain {
        if are_given {
            let message = format!("has no meaning in access mode \"{}\"", mode_name(access.mode));
            findings.error(HOMES, message, "remove it");
        }
        return;
    }
    let given: Vec<String> = endpoints.filter(|key| findings.is_given(key)).collect();
    match (&given[..], are_given) {
        ([], true) => {
            let fix = "write endpoint6 for the shards of these homes, or remove it";
            findings.warning(HOMES, "no shard has endpoint6: it has no effect", fix);
        }
        ([first, ..], false) => {
            let fix = "write access.subscribers6, the prefixes of the homes' outer IPv6 addresses";
            findings.error(first, "access.subscribers6 is missing: no home could use it", fix);
        }
        _ => {}
    }
}

/// Checks the keys that belong to `public6`, of which `steer6` belongs to plain mode.
fn keys(mode: AccessSetting, path: &str, names: &[&str], findings: &mut Findings<'_>) {
    let has_prefixes = findings.is_given(&format!("{path}.public6"));
    for name in names {
        let key = format!("{path}.{name}");
        let (is_given, is_steer) = (findings.is_given(&key), *name == "steer6");
        match (is_given, is_steer, mode) {
            (true, true, AccessSetting::Gre) if findings.is_good("access.mode") => {
                let message = format!("has no meaning in access mode \"{}\"", mode_name(mode));
                findings.error(&key, message, "remove it");
            }
            (true, ..) if !has_prefixes => {
                let fix = "write public6, or remove it";
                findings.error(&key, "public6 is missing", fix);
            }
            (false, true, AccessSetting::Plain) if has_prefixes => {
                let message =
                    format!("missing: public6 in access mode \"{}\" needs it", mode_name(mode));
                let fix = "write what the access network sends IPv6 to as next hop, e.g. \"2001:db8:2::1\", in a pool \"2001:db8:2::/112\"";
                findings.error(&key, message, fix);
            }
            _ => {}
        }
    }
}

/// Warns of prefixes that only private networks route: homes' addresses are not translated.
fn unique_local(key: &str, nets: &[Ipv6Net], findings: &mut Findings<'_>) {
    for (position, net) in nets.iter().enumerate() {
        let key = findings.element(key, position);
        if UNIQUE_LOCAL.contains(net) && findings.is_good(&key) {
            let message = format!(
                "{net} is unique local (RFC 4193): the internet does not route it, and it is not translated"
            );
            let fix = "write a global prefix; right as it is only in a private network";
            findings.warning(&key, message, fix);
        }
    }
}

/// A home is not larger than the prefix of its shard.
fn home_length(length: u8, key: &str, nets: &[Ipv6Net], findings: &mut Findings<'_>) {
    for (position, net) in nets.iter().enumerate() {
        let key = findings.element(key, position);
        let are_good = findings.is_good(&key) && findings.is_good(HOME_LENGTH);
        if are_good && net.prefix_len() > length {
            let message = format!("homes of /{length} are larger than {net} ({key})");
            let fix = format!("write at least {}", net.prefix_len());
            findings.error(HOME_LENGTH, message, fix);
        }
    }
}
