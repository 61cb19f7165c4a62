//! The addresses of one side fit together.

use ipnet::Ipv4Net;

use crate::check::interfaces;
use crate::findings::Findings;
use crate::read::address::overlap;
use crate::types::{InterfaceSettings, WorkerSettings};

pub(crate) fn check(workers: &[WorkerSettings], findings: &mut Findings<'_>) {
    for (path, side) in interfaces(workers) {
        if findings.is_good(&format!("{path}.address")) {
            gateways(&path, side, findings);
        }
        gateway_macs(&path, side, findings);
    }
    for (index, worker) in workers.iter().enumerate() {
        let access = format!("worker[{index}].access.address");
        let internet = format!("worker[{index}].internet.address");
        let is_good = findings.is_good(&access) && findings.is_good(&internet);
        if is_good && overlap(worker.access.address.trunc(), worker.internet.address.trunc()) {
            let message = format!(
                "the connected prefixes of both sides overlap: {} and {}",
                worker.access.address.trunc(),
                worker.internet.address.trunc()
            );
            findings.error(&internet, message, "give each side its own prefix");
        }
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
