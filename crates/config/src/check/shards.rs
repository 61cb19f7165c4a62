//! Each shard has what its access mode asks for, and its own number.

use crate::check::{mode_name, refuse_repeats};
use crate::findings::Findings;
use crate::read::address::overlap;
use crate::types::{AccessMode, Config, Shard};

pub(crate) fn check(config: &Config, findings: &mut Findings<'_>) {
    let ids = config.shards.iter().enumerate();
    let ids: Vec<_> = ids.map(|(index, shard)| (format!("shard[{index}].id"), shard.id)).collect();
    refuse_repeats(ids, "shard", findings);
    idle_workers(config, findings);
    if !findings.is_good("access.mode") {
        return;
    }
    for (index, shard) in config.shards.iter().enumerate() {
        if !findings.is_good(&format!("shard[{index}]")) {
            continue;
        }
        mode(index, config.access.mode, findings);
        public(index, config, findings);
        if config.access.mode == AccessMode::Plain {
            homes(config, index, shard, findings);
        }
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

/// `endpoint` belongs to gre mode, `subscribers` to plain mode.
fn mode(index: usize, mode: AccessMode, findings: &mut Findings<'_>) {
    let (needed, refused) = match mode {
        AccessMode::Gre => ("endpoint", "subscribers"),
        AccessMode::Plain => ("subscribers", "endpoint"),
    };
    let (needed, refused_key) =
        (format!("shard[{index}].{needed}"), format!("shard[{index}].{refused}"));
    if !findings.is_given(&needed) {
        let message = format!("missing: access mode \"{}\" needs it", mode_name(mode));
        let fix = match mode {
            AccessMode::Gre => "write the homes' tunnel endpoint, e.g. \"10.100.0.1\"",
            AccessMode::Plain => "write the homes' prefixes, e.g. [\"100.64.0.0/24\"]",
        };
        findings.error(&needed, message, fix);
    }
    if findings.is_given(&refused_key) {
        let message = format!("has no meaning in access mode \"{}\"", mode_name(mode));
        findings.error(&refused_key, message, "remove it");
    }
}

/// Only a firewall that sees the homes' own addresses knows them without `public`.
fn public(index: usize, config: &Config, findings: &mut Findings<'_>) {
    let key = format!("shard[{index}].public");
    let is_needed = config.nat.enabled || config.access.mode == AccessMode::Gre;
    if is_needed && !findings.is_given(&key) {
        let fix = "write the homes' public prefixes, e.g. [\"203.0.113.0/28\"]";
        findings.error(&key, "missing", fix);
    }
}

/// Plain mode: the homes of a shard are homes of the access network.
fn homes(config: &Config, index: usize, shard: &Shard, findings: &mut Findings<'_>) {
    if !findings.is_good("access.subscribers") || config.access.subscribers.is_empty() {
        return;
    }
    for (position, net) in shard.subscribers.iter().enumerate() {
        let key = findings.element(&format!("shard[{index}].subscribers"), position);
        let is_inside = config.access.subscribers.iter().any(|served| served.contains(net));
        if findings.is_good(&key) && !is_inside {
            let served: Vec<_> =
                config.access.subscribers.iter().map(ToString::to_string).collect();
            let touches = config.access.subscribers.iter().any(|served| overlap(*served, *net));
            let how = if touches { "only in part" } else { "not" };
            let message =
                format!("{net} is {how} inside access.subscribers ({})", served.join(", "));
            findings.error(&key, message, "its homes would not be served");
        }
    }
}
