//! Checks of all nodes of a cluster together with the cluster file. All findings are warnings:
//! files may be missing among those that are checked, and some networks need unusual settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::cluster_types::MemberFile;
use crate::desired::Desired;
use crate::findings::Findings;
use crate::types::{InterfaceSettings, WorkerSettings};

/// Sessions per home of a worker's shards, copies included, below which the worker's table is too
/// small: the least that `limits.flows` can allow a home.
const FLOWS_OF_HOME_MIN: u64 = 16;

/// A node's file, and the findings in it.
pub(crate) struct NodeFile<'m, 't> {
    pub(crate) name: &'t str,
    pub(crate) member: &'m MemberFile,
    pub(crate) findings: Findings<'t>,
}

/// Checks the nodes; `cluster` are the findings in the cluster file.
pub(crate) fn check(desired: &Desired, cluster: &mut Findings<'_>, nodes: &mut [NodeFile<'_, '_>]) {
    let members: Vec<&MemberFile> = nodes.iter().map(|node| node.member).collect();
    copies(desired, &members, cluster);
    flows(desired, &members, cluster);
    for node in &mut *nodes {
        room(desired, &members, node);
    }
    metrics(nodes);
    sides(nodes, "access", |worker| &worker.access);
    sides(nodes, "internet", |worker| &worker.internet);
}

/// Each copy of a shard needs a node other than those of its primary and the other copies.
fn copies(desired: &Desired, members: &[&MemberFile], findings: &mut Findings<'_>) {
    let takes_shards = |member: &&&MemberFile| {
        !member.node.drain && member.workers.iter().any(|worker| worker.weight > 0)
    };
    let (nodes, copies) =
        (members.iter().filter(takes_shards).count(), usize::from(desired.cluster.replicas));
    if !members.is_empty() && nodes <= copies {
        let word = if copies == 1 { "copy" } else { "copies" };
        let message = format!(
            "a primary and {copies} {word} need {} nodes that take shards, these files are of {nodes}: shards stay short \
             of copies",
            copies + 1
        );
        let fix = "add nodes, or the files that are missing here, or write fewer copies";
        findings.warning("cluster.replicas", message, fix);
    }
}

/// A worker needs room for the sessions of all homes that it serves and has copies of.
fn flows(desired: &Desired, members: &[&MemberFile], findings: &mut Findings<'_>) {
    let workers = members.iter().flat_map(|member| &member.workers);
    let shares = workers.map(|worker| desired.share(worker, members));
    let Some(share) = shares.max().filter(|share| *share > 0) else { return };
    let homes = (desired.homes() * share as u64).div_ceil(desired.shards.len() as u64);
    let flows = u64::from(desired.nat.flows_max);
    if flows < homes * FLOWS_OF_HOME_MIN {
        let message = format!(
            "{flows} sessions of a worker for the {homes} homes of its share, about {share} shards with the copies: \
             fewer than {FLOWS_OF_HOME_MIN} for each"
        );
        let fix = format!("write at least {}, or add workers", homes * FLOWS_OF_HOME_MIN);
        findings.warning("nat.flows_max", message, fix);
    }
}

/// A worker needs room for the shards of its share.
fn room(desired: &Desired, members: &[&MemberFile], node: &mut NodeFile<'_, '_>) {
    for (index, worker) in node.member.workers.iter().enumerate() {
        let (share, room) = (desired.share(worker, members), desired.shard_room(worker));
        if share > room {
            let message = format!(
                "room for {room} shards, fewer than its share of about {share}, copies included"
            );
            let fix = format!("write at least {share}, or add workers");
            node.findings.warning(&format!("worker[{index}].shards_max"), message, fix);
        }
    }
}

/// Two nodes of one machine cannot serve metrics at one address, and controllers would ask one node
/// for both.
fn metrics(nodes: &mut [NodeFile<'_, '_>]) {
    for index in 1..nodes.len() {
        let (before, from_here) = nodes.split_at_mut(index);
        let node = &mut from_here[0];
        let Some(address) = node.member.node.metrics else { continue };
        let is_twin = |other: &&NodeFile<'_, '_>| other.member.node.metrics == Some(address);
        let Some(twin) = before.iter().find(is_twin) else { continue };
        let message = format!("{address} is also node.metrics in {}", twin.name);
        let fix = if address.ip().is_loopback() || address.ip().is_unspecified() {
            "give nodes of one machine a port each; on two machines it may stay"
        } else {
            "write an address of this node's machine, and give nodes of one machine a port each"
        };
        node.findings.warning("node.metrics", message, fix);
    }
}

/// The network of one side of a worker, which is usually the same for most workers.
#[derive(Debug, PartialEq, Eq)]
struct SideNetwork {
    subnet: Ipv4Net,
    vlan: Option<u16>,
    /// The gateways, in order of addresses.
    gateways: Vec<Ipv4Addr>,
    /// The IPv6 subnet and its gateways, in order of addresses.
    ipv6: Option<(Ipv6Net, Vec<Ipv6Addr>)>,
}

impl SideNetwork {
    fn of(side: &InterfaceSettings) -> Self {
        let mut gateways = side.gateways.clone();
        gateways.sort_unstable();
        let ipv6 = side.ipv6.as_ref().map(|it| {
            let mut gateways = it.gateways.clone();
            gateways.sort_unstable();
            (it.address.trunc(), gateways)
        });
        Self { subnet: side.address.trunc(), vlan: side.vlan, gateways, ipv6 }
    }
}

/// Most workers share subnet, VLAN and gateways on a side: reports those that differ.
fn sides(
    nodes: &mut [NodeFile<'_, '_>],
    side: &str,
    of: impl Fn(&WorkerSettings) -> &InterfaceSettings,
) {
    let mut links: Vec<(SideNetwork, String)> = Vec::new();
    for node in &*nodes {
        for (index, worker) in node.member.workers.iter().enumerate() {
            links.push((
                SideNetwork::of(of(worker)),
                format!("{}, worker[{index}].{side}", node.name),
            ));
        }
    }
    let count = |link: &SideNetwork| links.iter().filter(|(other, _)| other == link).count();
    // The first link, where several are equally frequent.
    let usual = links.iter().rev().max_by_key(|(link, _)| count(link));
    let Some((usual, place)) = usual else { return };
    for node in nodes {
        let mut reported = Vec::new();
        for (index, worker) in node.member.workers.iter().enumerate() {
            let link = SideNetwork::of(of(worker));
            if link != *usual && !reported.contains(&link) {
                let path = format!("worker[{index}].{side}");
                odd_link(&link, usual, place, &path, &mut node.findings);
                reported.push(link);
            }
        }
    }
}

/// Reports the differences from the usual link; `place` is a worker that has it.
fn odd_link(
    link: &SideNetwork,
    usual: &SideNetwork,
    place: &str,
    path: &str,
    findings: &mut Findings<'_>,
) {
    if link.vlan != usual.vlan {
        let tag = |vlan: Option<u16>| {
            vlan.map_or_else(|| "untagged".to_owned(), |vlan| format!("VLAN {vlan}"))
        };
        let message = format!("{}, others are {} ({place})", tag(link.vlan), tag(usual.vlan));
        let fix = match usual.vlan {
            Some(vlan) => format!(
                "write vlan = {vlan}; right as it is only where the function or the switch sets the tag"
            ),
            None => "remove vlan; right as it is only where the others' tag is set by the function or the switch"
                .to_owned(),
        };
        findings.warning(&format!("{path}.vlan"), message, fix);
    }
    if link.subnet != usual.subnet {
        let message = format!("{} is another subnet than {} ({place})", link.subnet, usual.subnet);
        let fix = format!(
            "write an address of {}: workers and switch share one subnet on each side (docs/topology.md)",
            usual.subnet
        );
        findings.warning(&format!("{path}.address"), message, fix);
    } else if link.gateways != usual.gateways {
        odd_gateways(&link.gateways, &usual.gateways, place, &format!("{path}.gateway"), findings);
    }
    odd_ipv6(link, usual, place, path, findings);
}

fn odd_gateways<A: Copy + Into<IpAddr>>(
    gateways: &[A],
    usual: &[A],
    place: &str,
    key: &str,
    findings: &mut Findings<'_>,
) {
    let list = |gateways: &[A]| {
        let words = gateways.iter().map(|gateway| (*gateway).into().to_string());
        words.collect::<Vec<_>>().join(", ")
    };
    let message = format!("{}, others have {} ({place})", list(gateways), list(usual));
    let fix = "write the same gateways; right as it is only where each switch of a pair is the gateway of its own nodes";
    findings.warning(key, message, fix);
}

/// As [`odd_link`], for IPv6.
fn odd_ipv6(
    link: &SideNetwork,
    usual: &SideNetwork,
    place: &str,
    path: &str,
    findings: &mut Findings<'_>,
) {
    let key = format!("{path}.address6");
    match (&link.ipv6, &usual.ipv6) {
        (Some((subnet, _)), Some((expected, _))) if subnet != expected => {
            let message = format!("{subnet} is another subnet than {expected} ({place})");
            let fix = format!(
                "write an address of {expected}: workers and switch share one subnet on each side"
            );
            findings.warning(&key, message, fix);
        }
        (Some((_, gateways)), Some((_, expected))) if gateways != expected => {
            odd_gateways(gateways, expected, place, &format!("{path}.gateways6"), findings);
        }
        (None, Some((expected, _))) => {
            let message = format!("no IPv6, others have it in {expected} ({place})");
            findings.warning(&key, message, "write address6 and gateways6");
        }
        (Some((subnet, _)), None) => {
            let message = format!("{subnet}, others have no IPv6 ({place})");
            findings.warning(&key, message, "give the others address6 and gateways6, too");
        }
        _ => {}
    }
}
