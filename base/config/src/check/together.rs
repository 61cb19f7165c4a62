//! Checks of a node's file against the cluster file and the files of other nodes.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::REDIRECT_BYTES;
use crate::check::addresses::side_addresses;
use crate::check::{interfaces, ipv6, mtu};
use crate::cluster_types::{ClusterShard, MemberFile};
use crate::desired::Desired;
use crate::desired::difference::public_prefixes;
use crate::findings::Findings;
use crate::policy_types::RedirectSetting;
use crate::read::address::overlap;

/// Checks a node's file; `others` are the files of other nodes, with their names.
pub(crate) fn check(
    member: &MemberFile,
    desired: &Desired,
    others: &[(String, MemberFile)],
    findings: &mut Findings<'_>,
) {
    let (name, expected) = (&member.cluster.name, &desired.cluster.name);
    if name != expected && findings.is_good("cluster.name") {
        let message = format!("\"{name}\" is another cluster than \"{expected}\"");
        findings.error("cluster.name", message, "use the file of a node of this cluster");
    }
    let twin = others.iter().find(|(_, other)| other.node.name == member.node.name);
    if let Some((file, _)) = twin.filter(|_| findings.is_good("node.name")) {
        let message = format!("{} is also the name in {file}", member.node.name);
        findings.error("node.name", message, "each node has its own");
    }
    for (key, address) in own_addresses(member) {
        if let Some(holder) = holder(address, desired, others).filter(|_| findings.is_good(&key)) {
            let message = format!("{address} is also {holder}");
            findings.error(&key, message, "each address may be used once");
        }
    }
    links(member, desired, findings);
    reports(member, findings);
    next_hops(member, desired, others, findings);
    mtu::check(&desired.access, &desired.nat, &member.workers, REDIRECT_BYTES, findings);
    serves_ipv6(member, desired, findings);
}

/// Every worker that gets shards can get one with IPv6.
fn serves_ipv6(member: &MemberFile, desired: &Desired, findings: &mut Findings<'_>) {
    let gets_shards =
        |worker: usize| member.workers.get(worker).is_some_and(|worker| worker.weight > 0);
    let shard = desired.shards.iter().find(|shard| !shard.public6.is_empty());
    let reason = |worker: usize| {
        let shard = shard.filter(|_| gets_shards(worker))?;
        Some(format!("shard {} of the cluster has public6", shard.id))
    };
    ipv6::workers(&desired.access, &member.workers, reason, findings);
    let shard = desired.shards.iter().find(|shard| shard.endpoint6.is_some());
    let reason = |worker: usize| {
        let shard = shard.filter(|_| gets_shards(worker))?;
        Some(format!("shard {} of the cluster has endpoint6", shard.id))
    };
    ipv6::workers_with_endpoints(&member.workers, reason, findings);
}

/// A lost node counts as dead only when every node that replicated with it reports it silent.
fn reports(member: &MemberFile, findings: &mut Findings<'_>) {
    let message = match member.node.metrics.map(|address| address.ip()) {
        None => "not set, so controllers cannot ask this node whom it hears",
        Some(ip) if ip.is_loopback() || ip.is_unspecified() => {
            "controllers on other machines cannot ask there whom this node hears"
        }
        Some(_) => return,
    };
    if findings.is_good("node.metrics") {
        let fix = "write an address of the management network; else the loss of a peer is repaired \
                   only when somebody fences it";
        findings.warning("node.metrics", message, fix);
    }
}

fn next_hops(
    member: &MemberFile,
    desired: &Desired,
    others: &[(String, MemberFile)],
    findings: &mut Findings<'_>,
) {
    let workers =
        member.workers.len() + others.iter().map(|(_, other)| other.workers.len()).sum::<usize>();
    if let Some(max) = desired.cluster.max_next_hops.filter(|max| workers > *max as usize) {
        let message = format!("with these the cluster has {workers} workers, so many next hops");
        findings.error("worker", message, format!("cluster.max_next_hops is {max}"));
    }
}

/// Returns the addresses of a node's workers, with their keys. A replication address that equals
/// the access address counts once.
fn own_addresses(member: &MemberFile) -> Vec<(String, IpAddr)> {
    let sides = interfaces(&member.workers).flat_map(side_addresses);
    let workers = member.workers.iter().enumerate();
    let replication = workers
        .filter(|(_, worker)| worker.replication_address != worker.access.address.addr())
        .map(|(index, worker)| {
            (format!("worker[{index}].replication_address"), worker.replication_address.into())
        });
    sides.chain(replication).collect()
}

/// Returns the other holder of `address`, if there is one.
fn holder(address: IpAddr, desired: &Desired, others: &[(String, MemberFile)]) -> Option<String> {
    for (file, other) in others {
        if let Some((key, _)) = own_addresses(other).into_iter().find(|(_, own)| *own == address) {
            return Some(format!("in {file} ({key})"));
        }
    }
    let redirects =
        |to: &Option<RedirectSetting>| to.is_some_and(|to| IpAddr::from(to.address) == address);
    if let Some(rule) = desired.policy.rules.iter().find(|rule| redirects(&rule.to)) {
        return Some(format!("where rule {} redirects packets to", rule.name));
    }
    let is_endpoint = |shard: &ClusterShard| {
        [shard.endpoint.map(IpAddr::from), shard.endpoint6.map(IpAddr::from)]
            .contains(&Some(address))
    };
    let is_steer = |shard: &ClusterShard| {
        [shard.steer.map(IpAddr::from), shard.steer6.map(IpAddr::from)].contains(&Some(address))
    };
    let shard = desired.shards.iter().find(|shard| is_endpoint(shard) || is_steer(shard))?;
    let what = if is_endpoint(shard) { "endpoint" } else { "steering address" };
    Some(format!("the {what} of shard {}", shard.id))
}

/// Reports connected prefixes that overlap public addresses.
fn links(member: &MemberFile, desired: &Desired, findings: &mut Findings<'_>) {
    let links = interfaces(&member.workers).flat_map(|(path, side)| {
        let ipv4 = (format!("{path}.address"), IpNet::from(side.address.trunc()));
        let ipv6 = side.ipv6.as_ref().map(|it| IpNet::from(it.address.trunc()));
        [ipv4].into_iter().chain(ipv6.map(|net| (format!("{path}.address6"), net)))
    });
    for (key, link) in links {
        let taken = desired.shards.iter().find_map(|shard| {
            let net = public_prefixes(shard).find(|net| overlap(*net, link))?;
            Some((shard.id, net))
        });
        if let Some((shard, net)) = taken.filter(|_| findings.is_good(&key)) {
            let message = format!(
                "the connected prefix {link} overlaps the public prefix {net} of shard {shard}"
            );
            let fix = "public prefixes are routed to the worker and used by nothing else";
            findings.error(&key, message, fix);
        }
    }
}
