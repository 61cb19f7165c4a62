//! A cluster: what its nodes report about themselves, and under load what homes see of each fault
//! in `docs/failover.md`. An upgrade has its own test.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_lab::cluster::{ClusterLab, ClusterNode, ClusterOptions, SHARDS};
use weir_lab::failover::{Event, Observer, Pace, TRIES_MAX, render};
use weir_lab::wait_for;

const SETTLED: Duration = Duration::from_secs(10);
/// Longer than the shipped value: a machine that runs tests may not run a thread for a tenth of a
/// second now and then.
const BFD: Duration = Duration::from_millis(300);
const EVENTS: [&str; 18] = [
    "nothing",
    "drain",
    "kill",
    "silence",
    "stop",
    "stuck",
    "freeze",
    "cut",
    "one-way",
    "one-way-internet",
    "flap",
    "etcd-cut",
    "etcd-lost",
    "swap",
    "term",
    "bird",
    "second",
    "add",
];

fn promises_are_kept(lab: &mut ClusterLab) -> Result<()> {
    nodes_are_well(lab)?;
    a_foreign_route_is_named(lab)?;
    let mut observer = Observer::start(lab, Pace::short())?;
    let mut rows = Vec::new();
    for name in EVENTS {
        rows.extend(Event::named(name)?.run(lab, &mut observer, |what| println!("{what}"))?);
    }
    let table = render(&rows);
    println!("{table}");
    let are_kept = rows.iter().all(|(promise, seen)| promise.missed(seen).is_empty());
    ensure!(are_kept, "{table}");
    logs_name_the_homes(lab)
}

/// After all faults: the block logs of all nodes, including those that died, name the home of each
/// existing session.
fn logs_name_the_homes(lab: &ClusterLab) -> Result<()> {
    // Each log has been marked complete since then, up to the time asked about.
    let at = run("date", &["-u", "-d", "-15 seconds", "+%FT%TZ"])?.1;
    let folder = lab.lab.directory();
    let logs = (1..=9).map(|node| folder.join(format!("node{node}-blocks.jsonl")));
    let logs: Vec<String> =
        logs.filter(|log| log.exists()).map(|log| log.to_string_lossy().into_owned()).collect();
    let weir = weir_lab::weir::binary()?.to_string_lossy().into_owned();
    // A home is known in IPv4 by the public address, and in IPv6 by its own.
    for (family, key) in [("4", "public"), ("6", "inside")] {
        let (mut asked, mut inconclusive) = (0, Vec::new());
        let running = lab.nodes.iter().filter(|node| node.weir.is_running());
        let sessions: Result<Vec<_>> = running.map(|node| sessions_of(node, family)).collect();
        for session in sessions?.concat() {
            let text = |key: &str| session[key].as_str().unwrap_or_default().to_owned();
            let (address, home) = (text(key), text("subscriber"));
            let mut args = vec!["where", &address, "--at", at.trim()];
            args.extend(logs.iter().flat_map(|log| ["--log", log]));
            let (code, output) = run(&weir, &args)?;
            asked += 1;
            match code {
                Some(0) => {
                    ensure!(output.contains(&home), "{address} at {at} is {home}'s: {output}")
                }
                Some(3) => inconclusive.push(output),
                other => anyhow::bail!("{address} at {at} is {home}'s: {other:?} {output}"),
            }
        }
        let named = asked - inconclusive.len();
        println!("the block logs named the homes of {named} of {asked} sessions of IPv{family}");
        ensure!(asked >= 100, "{asked} sessions of IPv{family} are not enough to tell");
        let first = inconclusive.first();
        ensure!(inconclusive.len() * 10 <= asked, "{named} of {asked}: {first:?}");
    }
    Ok(())
}

/// Returns sessions of a family that have existed for a while.
fn sessions_of(node: &ClusterNode, family: &str) -> Result<Vec<serde_json::Value>> {
    let args = ["sessions", "--json", "--family", family, "--older", "20", "--limit", "60"];
    let output = node.cli(&args)?.success()?.stdout;
    output.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Runs a command. Returns its exit code and output.
fn run(command: &str, args: &[&str]) -> Result<(Option<i32>, String)> {
    let ended = Command::new(command).args(args).output().with_context(|| command.to_owned())?;
    Ok((ended.status.code(), String::from_utf8_lossy(&ended.stdout).into_owned()))
}

/// Checks on every node that its membership is well, and that the wanted routes are in the kernel
/// and on the switches.
fn nodes_are_well(lab: &ClusterLab) -> Result<()> {
    // For each shard, the primary and one replica announce an endpoint and a prefix of each family.
    // The map is whole slightly earlier than each node, its guard and its BIRD have finished and
    // reported it.
    let announced = usize::from(SHARDS) * 2 * 3;
    let are_set = || {
        let routes: Result<Vec<_>> = lab.nodes.iter().map(routes_of).collect();
        let routes = routes.ok()?.concat();
        let is_set = |route: &serde_json::Value| route["wanted"]["is_set"] == true;
        (routes.len() == announced && routes.iter().all(is_set)).then_some(routes)
    };
    for route in wait_for("routes of all members", SETTLED, are_set)? {
        let is_known = !route["shard"].is_null() && route["exported"] == route["kernel"];
        ensure!(is_known, "{route}");
    }
    for node in &lab.nodes {
        let table = node.cli(&["routes"])?;
        ensure!(
            table.status.code() == Some(0),
            "{}\n{}{}",
            node.name(),
            table.stdout,
            table.stderr
        );
        ensure!(table.stdout.contains("in the kernel and exported as wanted"), "{}", table.stdout);
        // Without an answer of BIRD nothing is claimed about it, and the rest is shown.
        let silent = node.cli(&["routes", "--bird", "/nonexistent/bird.ctl"])?;
        ensure!(silent.status.code() == Some(3), "{}", silent.stdout);
        // A node may have no shard yet: the first node to register is given all of them.
        let has_routes = !routes_of(node)?.is_empty();
        let is_shown = silent.stdout.contains("as wanted  no answer");
        ensure!(is_shown == has_routes, "{}", silent.stdout);
        ensure!(silent.stdout.contains("BIRD does not run here"), "{}", silent.stdout);

        is_well(node)?;
    }
    Ok(())
}

/// Waits until a node's status has no finding: it shows changes of the map slightly later than the
/// map is whole.
fn is_well(node: &ClusterNode) -> Result<()> {
    let mut last = String::new();
    let seen = wait_for("status without a finding", SETTLED, || {
        let status = node.cli(&["status"]).ok()?;
        last = status.stdout;
        let is_ok = last.contains("\ncluster lab: OK\n");
        (status.status.code() == Some(0) && is_ok).then_some(())
    });
    seen.with_context(|| last)
}

/// Returns the routes of a node, which says itself which sessions of BIRD it watches.
fn routes_of(node: &ClusterNode) -> Result<Vec<serde_json::Value>> {
    let output = node.cli(&["routes", "--json"])?.success()?.stdout;
    let output: serde_json::Value = serde_json::from_str(&output)?;
    Ok(output["routes"].as_array().context("no routes")?.clone())
}

/// Checks that a foreign route in the kernel table is named, even before BIRD announces it to a
/// switch.
fn a_foreign_route_is_named(lab: &ClusterLab) -> Result<()> {
    let node = lab.node(1)?;
    lab.network.nodes[0].ip("route add 192.0.2.1/32 dev weir0 table 4242 metric 5")?;
    let table = node.cli(&["routes"])?;
    lab.network.nodes[0].ip("route delete 192.0.2.1/32 dev weir0 table 4242 metric 5")?;
    ensure!(table.status.code() == Some(1), "{}", table.stdout);
    let row = table.stdout.lines().find(|line| line.contains("192.0.2.1/32"));
    ensure!(row.is_some_and(|row| row.ends_with("no role wants it")), "{}", table.stdout);
    Ok(())
}

#[test]
fn no_fault_breaks_a_connection() {
    let options = ClusterOptions { bfd: BFD, spare_nodes: TRIES_MAX, ..ClusterOptions::default() };
    let mut lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    if let Err(error) = promises_are_kept(&mut lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
