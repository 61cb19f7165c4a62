//! The right of homes to IPv6 addresses: keys of the access mode, homes and prefixes that exist,
//! and prefixes that exclude each other.

use std::net::IpAddr;

use ipnet::Ipv6Net;

use crate::check::mode_name;
use crate::cluster_types::ClusterFile;
use crate::findings::Findings;
use crate::ipv6_types::{DelegationMode, DelegationSettings, Ipv6Settings};
use crate::types::{Access, AccessSetting, Config, GreKey};

/// Most delegations of a file.
const DELEGATIONS_MAX: usize = 1_000_000;

const TABLES: &str = "delegation";
const MODE: &str = "ipv6.delegation";
const HOLD: &str = "ipv6.claim_hold_sec";
const LENGTH: &str = "ipv6.home_length6";

pub(crate) fn single(config: &Config, findings: &mut Findings<'_>) {
    let nets = config.shards.iter().flat_map(|shard| &shard.public6).copied().collect();
    let is_known =
        (0..config.shards.len()).all(|index| findings.is_whole(&format!("shard[{index}].public6")));
    check(&config.ipv6, &config.access, is_known.then_some(nets), findings);
}

/// Checks a cluster file; `are_cut` is whether the shards of the pools are known.
pub(crate) fn cluster(file: &ClusterFile, are_cut: bool, findings: &mut Findings<'_>) {
    let of_shards = file.shards.iter().flat_map(|shard| &shard.public6).copied();
    let is_known = are_cut
        && (0..file.shards.len())
            .all(|index| findings.is_whole(&format!("shard[{index}].public6")));
    let nets = is_known.then(|| {
        let of_pools = file.pools.iter().flat_map(|pool| pool.shards());
        of_shards.chain(of_pools.flat_map(|shard| shard.public6)).collect()
    });
    check(&file.ipv6, &file.access, nets, findings);
}

/// Checks the settings; `public6` are the prefixes of all shards, if they are known.
fn check(
    settings: &Ipv6Settings,
    access: &Access,
    public6: Option<Vec<Ipv6Net>>,
    findings: &mut Findings<'_>,
) {
    if public6.as_ref().is_some_and(Vec::is_empty) && findings.is_given("ipv6") {
        let message = "no shard has public6: it has no effect";
        findings.warning("ipv6", message, "remove it, or write public6 for the shards");
    }
    if !findings.is_good("access.mode") || !findings.is_good(MODE) {
        return;
    }
    match (access.mode, settings.delegation) {
        (AccessSetting::Plain, _) => {
            let message = format!(
                "has no meaning in access mode \"{}\": the prefix itself names the home",
                mode_name(access.mode)
            );
            let fix = "remove it; ipv6.home_length6 is the length of a home's prefix";
            refuse(&[MODE, HOLD, TABLES], &message, fix, findings);
        }
        (AccessSetting::Gre, mode) => {
            let message = format!("has no meaning in access mode \"{}\"", mode_name(access.mode));
            refuse(&[LENGTH], &message, "remove it", findings);
            if mode == DelegationMode::Claim {
                let message = "has no effect: ipv6.delegation is \"claim\"";
                let fix = "write delegation = \"static\" in [ipv6], or remove it";
                refuse(&[TABLES], message, fix, findings);
                return;
            }
            let message = "has no effect: ipv6.delegation is \"static\"";
            refuse(&[HOLD], message, "remove it", findings);
            delegations(&settings.delegations, access, public6, findings);
        }
    }
}

fn refuse(keys: &[&str], message: &str, fix: &str, findings: &mut Findings<'_>) {
    for key in keys {
        if findings.is_given(key) {
            findings.error(key, message, fix);
        }
    }
}

fn delegations(
    list: &[DelegationSettings],
    access: &Access,
    public6: Option<Vec<Ipv6Net>>,
    findings: &mut Findings<'_>,
) {
    if list.is_empty() && public6.as_ref().is_some_and(|nets| !nets.is_empty()) {
        let message = "there is no [[delegation]]: no home may send IPv6 packets";
        findings.warning(MODE, message, "write a [[delegation]] for each home's prefix");
    }
    if list.len() > DELEGATIONS_MAX {
        let message = format!("{} delegations, at most {DELEGATIONS_MAX} fit", list.len());
        findings.error(TABLES, message, "delegate shorter prefixes, or write \"claim\"");
        return;
    }
    let are_homes_known =
        ["access.subscribers", "access.subscribers6"].iter().all(|key| findings.is_whole(key));
    let public6 = public6.map(|mut nets| {
        nets.sort_unstable();
        nets
    });
    for (index, it) in list.iter().enumerate() {
        let home = format!("{TABLES}[{index}].home");
        let error = home_error(it, access).filter(|_| are_homes_known && findings.is_good(&home));
        if let Some((message, fix)) = error {
            findings.error(&home, message, fix);
        }
        let prefix = format!("{TABLES}[{index}].prefix");
        let nets = public6.as_ref().filter(|_| findings.is_good(&prefix));
        if let Some(message) = nets.and_then(|nets| prefix_error(it.prefix, nets)) {
            findings.error(&prefix, message, "delegate a prefix inside the public6 of one shard");
        }
    }
    refuse_shared(list, findings);
}

/// Returns what is wrong with the address of a home, and the fix.
pub(crate) fn unknown_home(address: IpAddr, access: &Access) -> Option<(String, &'static str)> {
    let (is_home, fix) = match address {
        IpAddr::V4(address) => (
            access.subscribers.iter().any(|net| net.contains(&address)),
            "name a home inside access.subscribers",
        ),
        IpAddr::V6(address) => (
            access.subscribers6.iter().any(|net| net.contains(&address)),
            "name a home inside access.subscribers6",
        ),
    };
    (!is_home).then(|| (format!("no home has the address {address}"), fix))
}

fn home_error(it: &DelegationSettings, access: &Access) -> Option<(String, &'static str)> {
    let home = it.home;
    let unknown = unknown_home(home.address, access);
    if unknown.is_some() {
        return unknown;
    }
    match (access.gre_key, home.gre_key) {
        (GreKey::Subscriber, None) => Some((
            format!("{home}: the home's GRE key is missing"),
            "write ADDRESS,KEY: access.gre_key is \"subscriber\"",
        )),
        (GreKey::Ignore, Some(_)) => {
            Some((format!("{home}: GRE keys tell no homes apart"), "remove the key"))
        }
        _ => None,
    }
}

/// Returns what is wrong with a delegated prefix; `public6` are the shards' prefixes in order.
fn prefix_error(prefix: Ipv6Net, public6: &[Ipv6Net]) -> Option<String> {
    let behind = public6.partition_point(|net| net.network() <= prefix.broadcast());
    let last = behind.checked_sub(1).map(|at| public6[at]);
    match last {
        Some(net) if net.contains(&prefix) => None,
        Some(net) if prefix.contains(&net) => {
            Some(format!("{prefix} is larger than {net} of a shard's public6"))
        }
        _ => Some(format!("{prefix} is in no shard's public6")),
    }
}

/// Reports prefixes that overlap. In order of addresses a prefix can only overlap the one before it
/// that reaches furthest. Prefixes with an error are left out.
fn refuse_shared(list: &[DelegationSettings], findings: &mut Findings<'_>) {
    let key = |index: usize| format!("{TABLES}[{index}].prefix");
    let mut sorted: Vec<usize> =
        (0..list.len()).filter(|index| findings.is_good(&key(*index))).collect();
    sorted.sort_unstable_by_key(|index| {
        let net = list[*index].prefix;
        (net.network(), net.prefix_len(), *index)
    });
    let mut reach: Option<usize> = None;
    for index in sorted {
        match reach.filter(|before| list[*before].prefix.contains(&list[index].prefix)) {
            Some(before) => {
                let (first, second) = (before.min(index), before.max(index));
                let (own, other) = (list[second].prefix, list[first]);
                let message = format!("{own} overlaps {other} ({})", key(first));
                findings.error(&key(second), message, "a prefix has one home");
            }
            None => reach = Some(index),
        }
    }
}
