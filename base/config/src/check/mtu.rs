//! The largest packet of a home, and how the home learns of it.

use crate::check::interfaces::IPV6_MTU_MIN;
use crate::findings::Findings;
use crate::types::{Access, MssClampSetting, NatSettings, WorkerSettings};

/// IPv4 and TCP header.
const TCP_BYTES: u16 = 40;
/// The MTU that a home expects of an Internet line.
const HOME_MTU: u16 = 1500;

/// Checks the MTUs. `redirect` is the number of bytes added to a packet that is redirected to
/// another worker over the access side; 0 on a single node.
pub(crate) fn check(
    access: &Access,
    nat: &NatSettings,
    workers: &[WorkerSettings],
    redirect: u16,
    findings: &mut Findings<'_>,
) {
    let mut reported = Vec::new();
    for (index, worker) in workers.iter().enumerate() {
        let path = format!("worker[{index}]");
        let keys = [format!("{path}.access.mtu"), format!("{path}.internet.mtu")];
        let mtus = (worker.access.mtu, worker.internet.mtu);
        // Workers are usually alike: those with equal MTUs get one warning.
        if keys.iter().all(|key| findings.is_good(key)) && !reported.contains(&mtus) {
            reported.push(mtus);
            homes(access, &path, worker, redirect, findings);
            clamp(access, nat, &path, worker, findings);
        }
    }
}

/// Checks that the access side of the workers that `serves_ipv6` carries a home's IPv6 packets
/// inside the tunnel.
pub(crate) fn check_ipv6(
    access: &Access,
    workers: &[WorkerSettings],
    serves_ipv6: impl Fn(usize) -> bool,
    findings: &mut Findings<'_>,
) {
    let tunnel = access.tunnel_bytes();
    for (index, worker) in workers.iter().enumerate() {
        let (key, mtu) = (format!("worker[{index}].access.mtu"), worker.access.mtu);
        let needed = IPV6_MTU_MIN + tunnel;
        if tunnel > 0 && serves_ipv6(index) && mtu < needed && findings.is_good(&key) {
            let message = format!(
                "{mtu} bytes leave {} beside {tunnel} of GRE for a home's IPv6 packet, which may have {IPV6_MTU_MIN} (RFC 8200 section 5)",
                mtu.saturating_sub(tunnel)
            );
            let fix = format!("write mtu = {needed} or more, or remove the shards' public6");
            findings.error(&key, message, fix);
        }
    }
}

/// Returns the largest packet between a home and the Internet.
fn inner_mtu(access: &Access, worker: &WorkerSettings) -> u16 {
    (worker.access.mtu - access.tunnel_bytes()).min(worker.internet.mtu)
}

fn homes(
    access: &Access,
    path: &str,
    worker: &WorkerSettings,
    redirect: u16,
    findings: &mut Findings<'_>,
) {
    let inner = inner_mtu(access, worker);
    let overhead = access.tunnel_bytes();
    let is_access = worker.access.mtu - overhead <= worker.internet.mtu;
    if inner >= HOME_MTU || !is_access {
        redirects(path, worker, (inner, overhead, redirect), findings);
    }
    if inner >= HOME_MTU {
        return;
    }
    let (side, needed) =
        if is_access { ("access", HOME_MTU + overhead + redirect) } else { ("internet", HOME_MTU) };
    let tunnel = match overhead {
        0 => String::new(),
        bytes if is_access => format!(" ({} - {bytes} of GRE)", worker.access.mtu),
        _ => String::new(),
    };
    let message = format!("homes get an MTU of {inner} bytes{tunnel}, not {HOME_MTU}");
    let fix = format!("write mtu = {needed} where the {side} network carries it");
    findings.warning(&format!("{path}.{side}.mtu"), message, fix);
}

/// A home's packets must also fit the access side when they are redirected to another worker.
fn redirects(
    path: &str,
    worker: &WorkerSettings,
    (inner, overhead, redirect): (u16, u16, u16),
    findings: &mut Findings<'_>,
) {
    let (added, largest) = (overhead + redirect, inner.min(HOME_MTU));
    let fitting = worker.access.mtu.saturating_sub(added);
    if redirect == 0 || fitting >= largest {
        return;
    }
    let message = format!(
        "of the homes' packets of up to {largest} bytes, those above {fitting} ({} - {added} of headers and seal) are cut \
         or refused when they go on to another worker, as in a hand-over",
        worker.access.mtu
    );
    let needed = HOME_MTU + added;
    let fix = format!("write mtu = {needed} where the access network carries it");
    findings.warning(&format!("{path}.access.mtu"), message, fix);
}

fn clamp(
    access: &Access,
    nat: &NatSettings,
    path: &str,
    worker: &WorkerSettings,
    findings: &mut Findings<'_>,
) {
    let inner = inner_mtu(access, worker);
    let mss = inner - TCP_BYTES;
    match nat.mss_clamp {
        MssClampSetting::Off if inner < worker.internet.mtu || inner < HOME_MTU => {
            let message = format!(
                "off, and full-size packets do not fit the {inner} bytes of {path}: TCP hangs wherever ICMP is filtered"
            );
            findings.warning("nat.mss_clamp", message, "write mss_clamp = true");
        }
        MssClampSetting::Max(max) if max > mss => {
            let message =
                format!("{max} bytes do not fit the MTU of {inner} bytes ({path}): {mss} do");
            findings.warning("nat.mss_clamp", message, "write mss_clamp = true");
        }
        _ => {}
    }
}
