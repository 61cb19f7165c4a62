//! The same random rules in the kernel's nftables and in `weir rules test`: both decide on the same
//! flows alike.
//!
//! The kernel decides on datagrams that a socket sends within a namespace: the call fails with
//! EPERM if a rule of the output hook drops the datagram.

use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use socket2::{Domain, Socket, Type};
use weir_lab::{Lab, Namespace, weir};

const DEADLINE: Duration = Duration::from_secs(60);
const RULE_SETS: u64 = 50;
const RULES: usize = 60;
const FLOWS: usize = 600;

/// The homes and the remotes, all of them addresses of the namespace's loopback.
const HOMES: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 0);
const REMOTES: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

const NODE: &str = r#"[[worker]]
core = 1
access = { device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2" }
internet = { device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }
[access]
subscribers = ["10.200.0.0/16"]
[[shard]]
id = 1
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]
"#;

/// What random rules draw from, so that they overlap and flows meet them.
struct Drawn {
    /// In weir's words, and in nft's.
    weir: String,
    nft: String,
    addresses: [Vec<Ipv4Addr>; 2],
    ports: Vec<u16>,
}

/// Returns a prefix in a /16, and keeps its corners.
fn prefix(rng: &mut Rng, base: Ipv4Addr, corners: &mut Vec<Ipv4Addr>) -> String {
    let (len, base) = (rng.u32(16..=32), base.to_bits());
    let size = 1_u64 << (32 - len);
    // Few bits differ, so that prefixes lie in each other.
    let inside = rng.u32(0..=u16::MAX.into()) & [0x0f0f, 0x00ff, 0xffff][rng.usize(0..3)];
    let first = (base | inside) & !((size - 1) as u32);
    for address in [first.wrapping_sub(1), first, first + (size - 1) as u32] {
        corners.extend((address & 0xffff_0000 == base).then(|| Ipv4Addr::from_bits(address)));
    }
    format!("{}/{len}", Ipv4Addr::from_bits(first))
}

/// Returns a range of ports in weir's words, and keeps its corners.
fn ports(rng: &mut Rng, corners: &mut Vec<u16>) -> String {
    let first = [53, 80, 443, rng.u16(1..60_000)][rng.usize(0..4)];
    let last = first + [0, 1, 1000][rng.usize(0..3)];
    corners.extend([first - 1, first, last, last + 1].into_iter().filter(|&port| port > 0));
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

fn draw(rng: &mut Rng) -> Drawn {
    let (mut weir, mut sets, mut rules) = (String::new(), String::new(), String::new());
    let mut addresses = [vec![HOMES], vec![REMOTES]];
    let mut drawn_ports = vec![1];
    for set in 0..3 {
        let prefixes: Vec<String> =
            (0..rng.usize(1..40)).map(|_| prefix(rng, REMOTES, &mut addresses[1])).collect();
        let quoted: Vec<String> = prefixes.iter().map(|it| format!("\"{it}\"")).collect();
        let _ = writeln!(weir, "[[set]]\nname = \"s{set}\"\nprefixes = [{}]", quoted.join(", "));
        let _ = writeln!(
            sets,
            "set s{set} {{ type ipv4_addr; flags interval; auto-merge; elements = {{ {} }} }}",
            prefixes.join(", ")
        );
    }
    for rule in 0..RULES {
        let (mut own, mut matches) = (String::new(), String::new());
        if rng.bool() {
            let net = prefix(rng, HOMES, &mut addresses[0]);
            let _ = writeln!(own, "subscribers = \"{net}\"");
            let _ = write!(matches, "ip saddr {net} ");
        }
        if rng.bool() {
            let (in_weir, in_nft) = match rng.bool() {
                true => {
                    let net = prefix(rng, REMOTES, &mut addresses[1]);
                    (net.clone(), net)
                }
                false => {
                    let set = rng.usize(0..3);
                    (format!("@s{set}"), format!("@s{set}"))
                }
            };
            let _ = writeln!(own, "remote = \"{in_weir}\"");
            let _ = write!(matches, "ip daddr {in_nft} ");
        }
        let protocol = ["udp", "udp", "udp", "tcp"][rng.usize(0..4)];
        let _ = writeln!(own, "protocol = \"{protocol}\"");
        let _ = write!(matches, "meta l4proto {protocol} ");
        for (key, end) in [("inside_port", "sport"), ("remote_port", "dport")] {
            if rng.bool() {
                let range = ports(rng, &mut drawn_ports);
                let _ = writeln!(own, "{key} = \"{range}\"");
                let _ = write!(matches, "{protocol} {end} {range} ");
            }
        }
        let action = ["accept", "drop"][rng.usize(0..2)];
        let _ = writeln!(weir, "[[rule]]\nname = \"r{rule}\"\n{own}action = \"{action}\"");
        let _ = writeln!(rules, "{matches}{action}");
    }
    let nft = format!(
        "flush ruleset\ntable ip t {{\n{sets}chain c {{ type filter hook output priority 0; \
         policy accept;\n{rules}}}\n}}\n"
    );
    Drawn { weir: format!("{NODE}{weir}"), nft, addresses, ports: drawn_ports }
}

/// Whether the kernel lets a datagram pass.
fn is_sent(from: SocketAddrV4, to: SocketAddrV4) -> Result<bool> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&from.into()).with_context(|| from.to_string())?;
    match socket.send_to(b"x", &to.into()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error).with_context(|| format!("{from} > {to}")),
    }
}

/// Compares one set of rules; returns how many flows the kernel let pass.
fn compare(lab: &Lab, space: &Namespace, seed: u64) -> Result<usize> {
    let rng = &mut Rng::with_seed(seed);
    let Drawn { weir, nft, addresses, ports } = draw(rng);
    let file = |name: &str, text: &str| -> Result<String> {
        let path = lab.directory().join(name);
        fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let (config, script) = (file("node.toml", &weir)?, file("rules.nft", &nft)?);
    space.run(DEADLINE, "nft", &["-f", &script])?.success()?;
    let flows: Vec<(SocketAddrV4, SocketAddrV4)> = (0..FLOWS)
        .map(|_| {
            let mut end = |side: usize| {
                let address = addresses[side][rng.usize(0..addresses[side].len())];
                SocketAddrV4::new(address, ports[rng.usize(0..ports.len())])
            };
            (end(0), end(1))
        })
        .collect();
    let sent: Vec<bool> =
        space.enter(|| flows.iter().map(|&(from, to)| is_sent(from, to)).collect())?;
    let mut table = String::new();
    for ((from, to), is_sent) in flows.iter().zip(&sent) {
        let verdict = if *is_sent { "accept" } else { "drop" };
        let _ = writeln!(table, "home {} udp {} {to} {verdict}", from.ip(), from.port());
    }
    let cases = file("cases.txt", &table)?;
    let commands = weir::binary()?;
    let args = ["rules", "test", "-c", &config, "--table", &cases];
    let tested = space.run(DEADLINE, &commands.to_string_lossy(), &args)?;
    ensure!(tested.status.success(), "seed {seed}: {}\n{nft}", tested.stdout);
    Ok(sent.into_iter().filter(|is_sent| *is_sent).count())
}

#[test]
fn nftables_and_weir_decide_alike_on_random_rules() {
    let compared = || -> Result<()> {
        let lab = Lab::open()?;
        let space = lab.namespace("nft")?;
        // Routes make every address the namespace's own, without a broadcast address among them.
        space.ip(&format!("route add local {HOMES}/16 dev lo"))?;
        space.ip(&format!("route add local {REMOTES}/16 dev lo"))?;
        let mut passed = 0;
        for seed in 0..RULE_SETS {
            passed += compare(&lab, &space, seed)?;
        }
        let all = RULE_SETS as usize * FLOWS;
        ensure!((all / 10..all * 9 / 10).contains(&passed), "{passed} of {all} pass");
        Ok(())
    };
    compared().unwrap_or_else(|error| panic!("{error:#}"));
}
