//! What a home's packet may measure, and who tells the home.

use crate::findings::Findings;
use crate::types::{Access, AccessMode, GreKey, MssClamp, Nat, Worker};

/// IPv4 and GRE header (RFC 2784).
const TUNNEL_BYTES: u16 = 24;
/// The key field (RFC 2890).
const KEY_BYTES: u16 = 4;
/// IPv4 and TCP header.
const TCP_BYTES: u16 = 40;
/// What a home expects of an Internet line.
const HOME_MTU: u16 = 1500;

pub(crate) fn check(access: &Access, nat: &Nat, workers: &[Worker], findings: &mut Findings<'_>) {
    let mut reported = Vec::new();
    for (index, worker) in workers.iter().enumerate() {
        let path = format!("worker[{index}]");
        let keys = [format!("{path}.access.mtu"), format!("{path}.internet.mtu")];
        let mtus = (worker.access.mtu, worker.internet.mtu);
        // Workers are alike as a rule: one warning for all that are.
        if keys.iter().all(|key| findings.is_good(key)) && !reported.contains(&mtus) {
            reported.push(mtus);
            homes(access, &path, worker, findings);
            clamp(access, nat, &path, worker, findings);
        }
    }
}

/// The bytes that the tunnel takes from an access packet.
fn overhead(access: &Access) -> u16 {
    match (access.mode, access.gre_key) {
        (AccessMode::Plain, _) => 0,
        (AccessMode::Gre, GreKey::Ignore) => TUNNEL_BYTES,
        (AccessMode::Gre, GreKey::Subscriber) => TUNNEL_BYTES + KEY_BYTES,
    }
}

/// The largest packet between a home and the Internet.
fn inner_mtu(access: &Access, worker: &Worker) -> u16 {
    (worker.access.mtu - overhead(access)).min(worker.internet.mtu)
}

fn homes(access: &Access, path: &str, worker: &Worker, findings: &mut Findings<'_>) {
    let inner = inner_mtu(access, worker);
    if inner >= HOME_MTU {
        return;
    }
    let overhead = overhead(access);
    let is_access = worker.access.mtu - overhead <= worker.internet.mtu;
    let (side, needed) =
        if is_access { ("access", HOME_MTU + overhead) } else { ("internet", HOME_MTU) };
    let tunnel = match overhead {
        0 => String::new(),
        bytes if is_access => format!(" ({} - {bytes} of GRE)", worker.access.mtu),
        _ => String::new(),
    };
    let message = format!("homes get an MTU of {inner} bytes{tunnel}, not {HOME_MTU}");
    let fix = format!("write mtu = {needed} where the {side} network carries it");
    findings.warning(&format!("{path}.{side}.mtu"), message, fix);
}

fn clamp(access: &Access, nat: &Nat, path: &str, worker: &Worker, findings: &mut Findings<'_>) {
    let inner = inner_mtu(access, worker);
    let mss = inner - TCP_BYTES;
    match nat.mss_clamp {
        MssClamp::Off if inner < worker.internet.mtu || inner < HOME_MTU => {
            let message = format!(
                "off, and full-size packets do not fit the {inner} bytes of {path}: TCP hangs wherever ICMP is filtered"
            );
            findings.warning("nat.mss_clamp", message, "write mss_clamp = true");
        }
        MssClamp::Max(max) if max > mss => {
            let message =
                format!("{max} bytes do not fit the MTU of {inner} bytes ({path}): {mss} do");
            findings.warning("nat.mss_clamp", message, "write mss_clamp = true");
        }
        _ => {}
    }
}
