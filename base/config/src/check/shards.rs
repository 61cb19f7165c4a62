//! Each shard has the keys that its access mode requires, and its own number.

use crate::check::{mode_name, refuse_repeats};
use crate::cluster_types::ClusterFile;
use crate::findings::Findings;
use crate::read::address::overlap;
use crate::types::{Access, AccessSetting, Config};

use ipnet::Ipv4Net;

pub(crate) fn single(config: &Config, findings: &mut Findings<'_>) {
    let ids = config.shards.iter().enumerate();
    let ids: Vec<_> = ids.map(|(index, shard)| (format!("shard[{index}].id"), shard.id)).collect();
    refuse_repeats(ids, "shard", findings);
    idle_workers(config, findings);
    if !findings.is_good("access.mode") {
        return;
    }
    for (index, shard) in config.shards.iter().enumerate() {
        let (mode, path) = (config.access.mode, format!("shard[{index}]"));
        if !findings.is_good(&path) {
            continue;
        }
        let (needed, refused) = match mode {
            AccessSetting::Gre => (["endpoint"], &["subscribers"] as &[&str]),
            AccessSetting::Plain => (["subscribers"], &["endpoint", "endpoint6"] as &[&str]),
        };
        needs(mode, &path, &needed, refused, findings);
        public(mode, config.nat.enabled, &path, findings);
        homes(&config.access, &path, &shard.subscribers, findings);
    }
}

/// Checks that the shards and pools of a cluster have the keys that the access mode requires.
pub(crate) fn cluster(file: &ClusterFile, findings: &mut Findings<'_>) {
    if !findings.is_good("access.mode") {
        return;
    }
    let mode = file.access.mode;
    let pools = file.pools.iter().map(|pool| &pool.subscribers).enumerate();
    let pools = pools.map(|(index, homes)| (format!("pool[{index}]"), homes, true));
    let shards = file.shards.iter().map(|shard| &shard.subscribers).enumerate();
    let shards = shards.map(|(index, homes)| (format!("shard[{index}]"), homes, false));
    for (path, subscribers, is_pool) in pools.chain(shards) {
        if !findings.is_good(&path) {
            continue;
        }
        let (needed, refused): (&[&str], &[&str]) = match (mode, is_pool) {
            (AccessSetting::Gre, true) => {
                (&["endpoints"], &["subscribers", "subscribers_per_shard", "steer"])
            }
            (AccessSetting::Gre, false) => (&["endpoint"], &["subscribers", "steer"]),
            (AccessSetting::Plain, true) => {
                (&["subscribers", "steer"], &["endpoints", "endpoints6"])
            }
            (AccessSetting::Plain, false) => {
                (&["subscribers", "steer"], &["endpoint", "endpoint6"])
            }
        };
        needs(mode, &path, needed, refused, findings);
        public(mode, file.nat.enabled, &path, findings);
        homes(&file.access, &path, subscribers, findings);
    }
}

fn idle_workers(config: &Config, findings: &mut Findings<'_>) {
    for index in 0..config.workers.len() {
        if !config.shards.iter().any(|shard| shard.worker == index) && !config.shards.is_empty() {
            let fix = "add shards, or remove the worker";
            findings.warning(&format!("worker[{index}]"), "serves no shard", fix);
        }
    }
}

/// Checks that the keys of the access mode are present, and those of the other mode absent.
fn needs(
    mode: AccessSetting,
    path: &str,
    needed: &[&str],
    refused: &[&str],
    findings: &mut Findings<'_>,
) {
    for name in needed {
        let key = format!("{path}.{name}");
        if !findings.is_given(&key) {
            let message = format!("missing: access mode \"{}\" needs it", mode_name(mode));
            findings.error(&key, message, example(name));
        }
    }
    for name in refused {
        let key = format!("{path}.{name}");
        if findings.is_given(&key) {
            let message = format!("has no meaning in access mode \"{}\"", mode_name(mode));
            findings.error(&key, message, "remove it");
        }
    }
}

fn example(name: &str) -> &'static str {
    match name {
        "endpoint" => "write the homes' tunnel endpoint, e.g. \"10.100.0.1\"",
        "endpoints" => "write where the tunnel endpoints lie, e.g. \"10.100.0.0/20\"",
        "steer" => {
            "write what the access network sends to as next hop, e.g. \"10.101.0.1\", in a pool \"10.101.0.0/20\""
        }
        _ => "write the homes' prefixes, e.g. [\"100.64.0.0/24\"]",
    }
}

/// Checks that `public` is present unless weir is a firewall that sees the homes' own
/// addresses.
fn public(mode: AccessSetting, is_translated: bool, path: &str, findings: &mut Findings<'_>) {
    let key = format!("{path}.public");
    let is_needed = is_translated || mode == AccessSetting::Gre;
    if is_needed && !findings.is_given(&key) {
        let fix = "write the homes' public prefixes, e.g. [\"203.0.113.0/28\"]";
        findings.error(&key, "missing", fix);
    }
}

/// Checks that in plain mode the homes of a shard are homes of the access network.
fn homes(access: &Access, path: &str, subscribers: &[Ipv4Net], findings: &mut Findings<'_>) {
    let is_known = findings.is_good("access.subscribers") && !access.subscribers.is_empty();
    if !is_known || access.mode != AccessSetting::Plain {
        return;
    }
    for (position, net) in subscribers.iter().enumerate() {
        let key = findings.element(&format!("{path}.subscribers"), position);
        let is_inside = access.subscribers.iter().any(|served| served.contains(net));
        if findings.is_good(&key) && !is_inside {
            let served: Vec<_> = access.subscribers.iter().map(ToString::to_string).collect();
            let touches = access.subscribers.iter().any(|served| overlap(*served, *net));
            let how = if touches { "only in part" } else { "not" };
            let message =
                format!("{net} is {how} inside access.subscribers ({})", served.join(", "));
            findings.error(&key, message, "its homes would not be served");
        }
    }
}
