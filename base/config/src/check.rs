//! Checks of values that need more than one key.

mod address_plan;
mod addresses;
mod balance;
mod commit;
mod cores;
mod delegations;
mod devices;
mod families;
pub(crate) mod fleet;
mod flow_policy;
mod flows;
mod groups;
mod interfaces;
mod ipv6;
mod limits;
mod mtu;
mod overlaps;
mod paths;
mod policy;
mod pool_cut;
mod pools;
pub(crate) mod public;
mod quota;
mod reserve_lanes;
mod routes;
mod shard_ids;
mod shards;
mod source_pools;
mod timeouts;
pub(crate) mod together;

pub(crate) use address_plan::AddressSet;
pub(crate) use pools::{addresses, homes, quota_blocks};
pub(crate) use reserve_lanes::{LANES, blocks_of_primary};

use address_plan::AddressPlan;
use ipnet::Ipv4Net;

use crate::cluster_types::{ClusterFile, MemberFile};
use crate::findings::Findings;
use crate::public_types::PublicSettings;
use crate::types::{
    Access, AccessSetting, Config, InterfaceSettings, NatSettings, NodeSettings, ShardSettings,
    WorkerSettings,
};

/// Checks the file of a single node. Values with an error are left out.
pub(crate) fn single(config: &Config, findings: &mut Findings<'_>) {
    machine(&config.node, &config.workers, &config.shards, findings);
    shards::single(config, findings);
    overlaps::single(config, findings);
    policy::check(&config.policy, &AddressPlan::single(config, findings), findings);
    if config.nat.enabled {
        let quota_fits = quota::check(&config.nat, findings);
        quota::check_groups(&config.policy.groups, &config.nat, findings);
        pools::single(config, quota_fits, findings);
    }
    flows::check(&config.nat, findings);
    limits::check(&config.limits, &config.nat, findings);
    limits::check_groups(&config.policy.groups, &config.nat, findings);
    paths::check(&config.node, None, findings);
    mtu::check(&config.access, &config.nat, &config.workers, 0, findings);
    timeouts::check(&config.timeouts, findings);
    let nets = config.shards.iter().flat_map(|shard| &shard.public);
    public_settings(&config.public, &config.access, &config.nat, nets, findings);
    ipv6::single(config, findings);
    delegations::single(config, findings);
}

/// Checks the file of a cluster's node, whose shards are in the cluster file.
pub(crate) fn member(member: &MemberFile, findings: &mut Findings<'_>) {
    machine(&member.node, &member.workers, &[], findings);
    paths::check(&member.node, Some(&member.cluster), findings);
}

/// Checks a cluster file. Facts about the machines are in the nodes' files.
pub(crate) fn cluster(file: &ClusterFile, findings: &mut Findings<'_>) {
    shards::cluster(file, findings);
    overlaps::cluster(file, findings);
    let are_cut = pool_cut::check(file, findings);
    shard_ids::check(file, are_cut, findings);
    routes::check(file, are_cut, findings);
    policy::check(&file.policy, &AddressPlan::cluster(file, are_cut, findings), findings);
    if file.nat.enabled {
        let quota_fits = quota::check(&file.nat, findings);
        quota::check_groups(&file.policy.groups, &file.nat, findings);
        pools::cluster(file, quota_fits, findings);
    }
    flows::check(&file.nat, findings);
    limits::check(&file.limits, &file.nat, findings);
    limits::check_groups(&file.policy.groups, &file.nat, findings);
    timeouts::check(&file.timeouts, findings);
    let of_shards = file.shards.iter().flat_map(|shard| &shard.public);
    let nets = of_shards.chain(file.pools.iter().flat_map(|pool| &pool.public));
    public_settings(&file.public, &file.access, &file.nat, nets, findings);
    ipv6::cluster(file, findings);
    delegations::cluster(file, are_cut, findings);
    commit::check(file, findings);
    balance::check(file, findings);
    if file.cluster.replicas == 0 && findings.is_good("cluster.replicas") {
        let message = "no copies: the loss of a worker ends its flows";
        findings.warning("cluster.replicas", message, "write 1 or more with two or more nodes");
    }
}

fn public_settings<'n>(
    settings: &PublicSettings,
    access: &Access,
    nat: &NatSettings,
    nets: impl Iterator<Item = &'n Ipv4Net>,
    findings: &mut Findings<'_>,
) {
    let mut nets: Vec<Ipv4Net> = nets.copied().collect();
    nets.sort_unstable();
    public::check(settings, nat, &public::PublicContext { access, public: &nets }, findings);
}

fn machine(
    node: &NodeSettings,
    workers: &[WorkerSettings],
    shards: &[ShardSettings],
    findings: &mut Findings<'_>,
) {
    cores::check(node, workers, findings);
    devices::check(workers, findings);
    interfaces::check(workers, findings);
    addresses::check(workers, shards, findings);
}

/// Returns both sides of every worker, with their key paths.
fn interfaces(workers: &[WorkerSettings]) -> impl Iterator<Item = (String, &InterfaceSettings)> {
    workers.iter().enumerate().flat_map(|(index, worker)| {
        [
            (format!("worker[{index}].access"), &worker.access),
            (format!("worker[{index}].internet"), &worker.internet),
        ]
    })
}

fn mode_name(mode: AccessSetting) -> &'static str {
    match mode {
        AccessSetting::Gre => "gre",
        AccessSetting::Plain => "plain",
    }
}

/// Reports each value that an earlier key already has. `named` are the values to compare, with
/// their keys.
fn refuse_repeats<T: Ord + std::fmt::Display>(
    named: impl IntoIterator<Item = (String, T)>,
    what: &str,
    findings: &mut Findings<'_>,
) {
    let mut seen: std::collections::BTreeMap<T, String> = std::collections::BTreeMap::new();
    for (key, value) in named {
        if !findings.is_good(&key) {
            continue;
        }
        match seen.get(&value) {
            Some(first) => {
                let message = format!("{what} {value} is already at {first}");
                findings.error(&key, message, "each may be used once");
            }
            None => {
                seen.insert(value, key);
            }
        }
    }
}
