//! Each of weir's own addresses is unique: those of the workers and the tunnel endpoints.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use crate::check::{interfaces, refuse_repeats};
use crate::findings::Findings;
use crate::types::{InterfaceSettings, ShardSettings, WorkerSettings};

/// Checks addresses; `shards` are those of a single node, none in a cluster.
pub(crate) fn check(
    workers: &[WorkerSettings],
    shards: &[ShardSettings],
    findings: &mut Findings<'_>,
) {
    let sides = interfaces(workers).flat_map(side_addresses);
    let replication = replication_addresses(workers, findings);
    let endpoints = shards.iter().enumerate().filter_map(|(index, shard)| {
        Some((format!("shard[{index}].endpoint"), shard.endpoint?.into()))
    });
    let endpoints6 = shards.iter().enumerate().filter_map(|(index, shard)| {
        Some((format!("shard[{index}].endpoint6"), shard.endpoint6?.into()))
    });
    let own: Vec<_> = sides.chain(replication).chain(endpoints).chain(endpoints6).collect();
    refuse_repeats(own.clone(), "address", findings);

    for (path, side) in interfaces(workers) {
        for (key, gateway) in gateways(&path, side, findings) {
            let holder = own.iter().find(|(_, address)| *address == gateway);
            if let Some((holder, _)) = holder.filter(|(holder, _)| findings.is_good(holder)) {
                findings.error(
                    &key,
                    format!("{gateway} is weir's own ({holder})"),
                    "name the router",
                );
            }
        }
    }

    for (index, shard) in shards.iter().enumerate() {
        let key = format!("shard[{index}].endpoint");
        let access = workers.get(shard.worker).map(|worker| worker.access.address);
        let net = access.filter(|net| findings.is_good(&key) && net.prefix_len() > 0);
        if let (Some(net), Some(endpoint)) = (net, shard.endpoint) {
            if net.contains(&endpoint) && net.addr() != endpoint {
                let message = format!("{endpoint} lies in the connected prefix {}", net.trunc());
                let fix = "no host answers ARP for it: take an address outside and route it to the worker";
                findings.warning(&key, message, fix);
            }
        }
        let key = format!("shard[{index}].endpoint6");
        let access = workers.get(shard.worker).and_then(|worker| worker.access.ipv6.as_ref());
        if let (Some(own), Some(endpoint)) = (access, shard.endpoint6)
            && own.address.contains(&endpoint)
            && findings.is_good(&key)
        {
            let message =
                format!("{endpoint} lies in the connected prefix {}", own.address.trunc());
            let fix = "no host solicits it: take an address outside and route it to the worker";
            findings.error(&key, message, fix);
        }
    }
}

/// Returns the addresses of one side of a worker, of both families, with their keys.
pub(crate) fn side_addresses(
    (path, side): (String, &InterfaceSettings),
) -> impl Iterator<Item = (String, IpAddr)> {
    let ipv4 = (format!("{path}.address"), side.address.addr().into());
    let ipv6 = side.ipv6.as_ref().map(|it| it.address.addr().into());
    [ipv4].into_iter().chain(ipv6.map(|address| (format!("{path}.address6"), address)))
}

/// Returns the gateways of one side of a worker, of both families, with their keys.
fn gateways(
    path: &str,
    side: &InterfaceSettings,
    findings: &Findings<'_>,
) -> Vec<(String, IpAddr)> {
    let key = |name: &str, index| findings.element(&format!("{path}.{name}"), index);
    let ipv4 = side.gateways.iter().enumerate();
    let ipv4 = ipv4.map(|(index, gateway)| (key("gateway", index), IpAddr::from(*gateway)));
    let ipv6 = side.ipv6.iter().flat_map(|it| it.gateways.iter().enumerate());
    let ipv6 = ipv6.map(|(index, gateway)| (key("gateways6", index), IpAddr::from(*gateway)));
    ipv4.chain(ipv6).collect()
}

/// Returns the workers' replication addresses that are not their access addresses. Reports an
/// address that is outside the link's prefix.
fn replication_addresses(
    workers: &[WorkerSettings],
    findings: &mut Findings<'_>,
) -> Vec<(String, IpAddr)> {
    let mut addresses = Vec::new();
    for (index, worker) in workers.iter().enumerate() {
        let key = format!("worker[{index}].replication_address");
        let (access, own): (Ipv4Net, Ipv4Addr) =
            (worker.access.address, worker.replication_address);
        let is_known = findings.is_good(&format!("worker[{index}].access.address"));
        if !findings.is_given(&key) || !is_known || own == access.addr() {
            continue;
        }
        let is_host =
            access.prefix_len() == 31 || ![access.network(), access.broadcast()].contains(&own);
        if !access.contains(&own) || !is_host {
            let message = format!("{own} is no host of the connected prefix {}", access.trunc());
            findings.error(&key, message, "take an address of the access side");
        }
        addresses.push((key, own.into()));
    }
    addresses
}
