//! The addresses of one side fit together.

use ipnet::{IpNet, Ipv4Net};

use crate::check::interfaces;
use crate::findings::Findings;
use crate::ipv6_types::Interface6;
use crate::read::address::overlap;
use crate::read::address6::LINK_LOCAL;
use crate::types::{InterfaceSettings, WorkerSettings};

/// Bytes of a packet that every link of IPv6 carries (RFC 8200 section 5).
pub(crate) const IPV6_MTU_MIN: u16 = 1280;

pub(crate) fn check(workers: &[WorkerSettings], findings: &mut Findings<'_>) {
    for (path, side) in interfaces(workers) {
        if findings.is_good(&format!("{path}.address")) {
            gateways(&path, side, findings);
        }
        gateway_macs(&path, side, findings);
        if let Some(ipv6) = &side.ipv6 {
            if findings.is_good(&format!("{path}.address6")) {
                gateways6(&path, ipv6, findings);
            }
            mtu6(&path, side.mtu, findings);
        }
    }
    for (index, worker) in workers.iter().enumerate() {
        let (access, internet) = (&worker.access, &worker.internet);
        let ipv4 = (access.address.trunc().into(), internet.address.trunc().into());
        apart(index, "address", ipv4, findings);
        if let Some((access, internet)) = access.ipv6.as_ref().zip(internet.ipv6.as_ref()) {
            let ipv6 = (access.address.trunc().into(), internet.address.trunc().into());
            apart(index, "address6", ipv6, findings);
        }
    }
}

/// Reports connected prefixes of both sides that overlap; `name` is the key of the addresses.
fn apart(
    index: usize,
    name: &str,
    (access, internet): (IpNet, IpNet),
    findings: &mut Findings<'_>,
) {
    let key = format!("worker[{index}].internet.{name}");
    let is_good =
        findings.is_good(&format!("worker[{index}].access.{name}")) && findings.is_good(&key);
    if is_good && overlap(access, internet) {
        let message =
            format!("the connected prefixes of both sides overlap: {access} and {internet}");
        findings.error(&key, message, "give each side its own prefix");
    }
}

fn gateways6(path: &str, side: &Interface6, findings: &mut Findings<'_>) {
    let net = side.address;
    for (index, gateway) in side.gateways.iter().enumerate() {
        let key = findings.element(&format!("{path}.gateways6"), index);
        if !findings.is_good(&key) {
            continue;
        }
        if *gateway == net.addr() {
            let message = format!("{gateway} is the worker's own address");
            findings.error(&key, message, "name the router");
        } else if !net.contains(gateway) && !LINK_LOCAL.contains(gateway) {
            let message = format!(
                "{gateway} is neither in the connected prefix {} nor link-local (fe80::/10)",
                net.trunc()
            );
            findings.error(&key, message, "a gateway is a neighbour on the link");
        }
    }
}

fn mtu6(path: &str, mtu: u16, findings: &mut Findings<'_>) {
    let key = format!("{path}.mtu");
    if findings.is_good(&key) && mtu < IPV6_MTU_MIN {
        let message = format!(
            "{mtu} bytes: a link with IPv6 carries at least {IPV6_MTU_MIN} (RFC 8200 section 5)"
        );
        let fix = format!("write mtu = {IPV6_MTU_MIN} or more, or remove address6 and gateways6");
        findings.error(&key, message, fix);
    }
}

/// Either every gateway has a MAC address, or none has.
fn gateway_macs(path: &str, side: &InterfaceSettings, findings: &mut Findings<'_>) {
    let (key, macs, gateways) =
        (format!("{path}.gateway_mac"), side.gateway_macs.len(), side.gateways.len());
    let is_good = findings.is_good(&key) && findings.is_good(&format!("{path}.gateway"));
    if is_good && macs != 0 && macs != gateways {
        let message = format!("{macs} MAC addresses for {gateways} gateways");
        findings.error(&key, message, "name one for each gateway, in the same order");
    }
    for (index, mac) in side.gateway_macs.iter().enumerate() {
        if side.mac == Some(*mac) && findings.is_good(&findings.element(&key, index)) {
            let message = "the worker's own MAC address";
            findings.error(&findings.element(&key, index), message, "name the router's");
        }
    }
}

fn gateways(path: &str, side: &InterfaceSettings, findings: &mut Findings<'_>) {
    let net: Ipv4Net = side.address;
    for (index, gateway) in side.gateways.iter().enumerate() {
        let key = findings.element(&format!("{path}.gateway"), index);
        if !findings.is_good(&key) {
            continue;
        }
        if *gateway == net.addr() {
            findings.error(
                &key,
                format!("{gateway} is the worker's own address"),
                "name the router",
            );
        } else if !net.contains(gateway) {
            let message = format!("{gateway} is not in the connected prefix {}", net.trunc());
            findings.error(&key, message, "a gateway is a neighbour on the link");
        } else if net.prefix_len() < 31 && [net.network(), net.broadcast()].contains(gateway) {
            let message =
                format!("{gateway} is the network or broadcast address of {}", net.trunc());
            findings.error(&key, message, "name the router");
        }
    }
}
