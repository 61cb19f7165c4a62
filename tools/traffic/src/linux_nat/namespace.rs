//! A router in a network namespace of the calling thread: interfaces, routes, neighbours, and the
//! ruleset.
//!
//! ```text
//!   homes ──veth── access ▶ forward, conntrack, SNAT ▶ internet ──veth── hosts
//! ```
//!
//! The namespace has no name and no other member: it disappears, with everything in it, when the
//! thread ends.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;

use super::{LinuxNatPlan, LinuxRules, Skipped};
use crate::rule_mix::{MixedRule, mixed_rule};

const NETFILTER: &str = "/proc/sys/net/netfilter";

/// One queue each: everything happens on one core. `addrgenmode none`: the kernel sends no IPv6
/// packets by itself.
const INTERFACES: &str = "\
link add access address 02:00:00:00:00:01 numrxqueues 1 numtxqueues 1 type veth peer name homes address 02:00:00:00:00:02 numrxqueues 1 numtxqueues 1
link add internet address 02:00:00:00:00:03 numrxqueues 1 numtxqueues 1 type veth peer name hosts address 02:00:00:00:00:04 numrxqueues 1 numtxqueues 1
link set access addrgenmode none
link set homes addrgenmode none
link set internet addrgenmode none
link set hosts addrgenmode none
link set access up
link set homes up
link set internet up
link set hosts up
address add 10.1.0.1/24 dev access
address add 10.2.0.1/24 dev internet
neighbour add 10.1.0.2 lladdr 02:00:00:00:00:02 dev access
neighbour add 10.2.0.2 lladdr 02:00:00:00:00:04 dev internet
route add 10.128.0.0/9 via 10.1.0.2
route add 198.19.0.0/20 via 10.2.0.2
";

/// Returns a typical operator's ruleset: established flows first, then rules about new ones, which
/// begin only from inside; one public address.
fn ruleset(rules: LinuxRules) -> String {
    let (mut sets, mut chain) = (String::new(), String::new());
    let mixed = (0..rules.count).map(mixed_rule);
    if rules.are_sets {
        let [mut ports, mut homes, mut remotes] = [const { Vec::new() }; 3];
        for rule in mixed {
            match rule {
                MixedRule::TcpPort(port) => ports.push(port.to_string()),
                MixedRule::Homes(net) => homes.push(net),
                MixedRule::Remotes(net) => remotes.push(net),
            }
        }
        let named = [
            ("ports", "inet_service", "tcp dport", ports),
            ("homes", "ipv4_addr", "ip saddr", homes),
            ("remotes", "ipv4_addr", "ip daddr", remotes),
        ];
        for (name, kind, field, elements) in named.iter().filter(|(.., it)| !it.is_empty()) {
            let elements = elements.join(", ");
            let _ = writeln!(
                sets,
                "set {name} {{ type {kind}; flags interval; auto-merge; elements = {{ {elements} }} }}"
            );
            let _ = writeln!(chain, "{field} @{name} drop");
        }
    } else {
        for rule in mixed {
            let _ = match rule {
                MixedRule::TcpPort(port) => writeln!(chain, "tcp dport {port} drop"),
                MixedRule::Homes(net) => writeln!(chain, "ip saddr {net} drop"),
                MixedRule::Remotes(net) => writeln!(chain, "ip daddr {net} drop"),
            };
        }
    }
    format!(
        "table ip nat {{
            {sets}
            chain forward {{
                type filter hook forward priority filter; policy drop;
                ct state established,related accept
                {chain}
                iifname \"access\" oifname \"internet\" ct state new accept
            }}
            chain postrouting {{
                type nat hook postrouting priority srcnat;
                oifname \"internet\" snat to 198.18.0.1
            }}
        }}
        "
    )
}

/// Lifetime of a session without a packet, seconds: longer than filling the table takes.
const UDP_TIMEOUT_SECONDS: u32 = 600;

/// Indexes of the interfaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Router {
    pub(super) access: u32,
    pub(super) homes: u32,
    pub(super) internet: u32,
    pub(super) hosts: u32,
}

/// Moves the thread to a core and to a new namespace, and builds the router there. The thread must
/// end afterwards.
pub(super) fn build(plan: &LinuxNatPlan) -> Result<Router, Skipped> {
    let LinuxNatPlan { core, flows, rules, .. } = *plan;
    let mut cores = CpuSet::new();
    cores
        .set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores))
        .map_err(|errno| Skipped(format!("core {core} cannot be used: {}", errno.desc())))?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
        Errno::EPERM => Skipped("making a network namespace needs root".into()),
        errno => Skipped(format!("the kernel makes no network namespace: {}", errno.desc())),
    })?;
    run("ip", &["-batch", "-"], INTERFACES, "iproute2")?;
    run("nft", &["-f", "-"], &ruleset(rules), "nftables")?;
    require_room(flows)?;
    set("/proc/sys/net/ipv4/conf/all/rp_filter", 0)?;
    set("/proc/sys/net/ipv4/conf/access/rp_filter", 0)?;
    set("/proc/sys/net/ipv4/conf/internet/rp_filter", 0)?;
    set("/proc/sys/net/ipv4/ip_forward", 1)?;
    set(&format!("{NETFILTER}/nf_conntrack_udp_timeout"), UDP_TIMEOUT_SECONDS)?;
    set(&format!("{NETFILTER}/nf_conntrack_udp_timeout_stream"), UDP_TIMEOUT_SECONDS)?;
    Ok(Router {
        access: index("access")?,
        homes: index("homes")?,
        internet: index("internet")?,
        hosts: index("hosts")?,
    })
}

/// Returns the number of sessions that conntrack holds in this namespace.
pub(super) fn sessions() -> Result<u64, Skipped> {
    get(&format!("{NETFILTER}/nf_conntrack_count"))
}

/// Checks the limit of conntrack. It applies to the whole machine and cannot be raised from a
/// namespace; the machine is not changed.
fn require_room(flows: u32) -> Result<(), Skipped> {
    let max = get(&format!("{NETFILTER}/nf_conntrack_max"))?;
    // 0 means no limit.
    if max != 0 && max < u64::from(flows) {
        return Err(Skipped(format!(
            "{flows} flows are more than net.netfilter.nf_conntrack_max of this machine, {max}"
        )));
    }
    Ok(())
}

fn index(interface: &str) -> Result<u32, Skipped> {
    if_nametoindex(interface).map_err(|errno| Skipped(format!("{interface}: {}", errno.desc())))
}

fn get(path: &str) -> Result<u64, Skipped> {
    let text = fs::read_to_string(path).map_err(|error| Skipped(format!("{path}: {error}")))?;
    text.trim().parse().map_err(|_| Skipped(format!("{path} is not a number")))
}

fn set(path: &str, value: u32) -> Result<(), Skipped> {
    // This folder shows the namespace of the calling thread, so the setting is the namespace's.
    fs::write(Path::new(path), value.to_string())
        .map_err(|error| Skipped(format!("{path} cannot be set: {error}")))
}

/// Runs a program with `input`; fails if the program fails.
fn run(program: &str, arguments: &[&str], input: &str, package: &str) -> Result<(), Skipped> {
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => {
            Skipped(format!("{program} is not installed (Debian package {package})"))
        }
        _ => Skipped(format!("{program}: {error}")),
    };
    let mut child = started.map_err(failed)?;
    // A program that ended early reports why by itself.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(Skipped(format!("{program} fails: {}", why.lines().next().unwrap_or("without a word"))))
}
