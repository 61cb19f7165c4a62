//! Nodes that start while etcd does not answer: one node, two one after the other, and all.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use weir_lab::cluster::{ClusterLab, ClusterNode, ClusterOptions};
use weir_lab::load::{Clock, Mixture};
use weir_lab::wait_for;

/// Longer than the shipped value: a machine that runs tests may not run a thread for a tenth of a
/// second now and then.
const BFD: Duration = Duration::from_millis(300);
const DEADLINE: Duration = Duration::from_secs(120);

fn node_runs_reports_why_it_makes_no_flows_and_joins(lab: &ClusterLab) -> Result<()> {
    let (control, node) = (lab.control()?, lab.node(1)?);
    lab.wait_ok()?;
    control.kill_store()?;
    node.weir.signal(Signal::SIGKILL)?;
    node.wait_ready(1)?;
    wait_for("status of a node outside", DEADLINE, || {
        let status = node.cli(&["status"]).ok()?;
        let shows_why = status.stdout.contains("started without etcd: of shard");
        (shows_why && status.status.code() == Some(1)).then_some(())
    })?;
    control.restart_store()?;
    // Until then the map names the previous incarnation: it looks whole before and after.
    wait_for("status of a node that takes part", DEADLINE, || {
        let status = node.cli(&["status"]).ok()?;
        status.status.success().then_some(())
    })?;
    lab.wait_whole()?;
    lab.wait_ok()?;
    ensure!(node.weir.starts() == 2, "it was started {} times", node.weir.starts());
    Ok(())
}

#[test]
fn a_node_started_without_etcd_runs_and_joins_when_etcd_is_back() {
    let options = ClusterOptions { nodes: 2, bfd: BFD, ..ClusterOptions::default() };
    let lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    if let Err(error) = node_runs_reports_why_it_makes_no_flows_and_joins(&lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}

/// Returns whether a node has full copies and routes of `shards` shards.
fn has_copies(node: &ClusterNode, shards: usize) -> Option<()> {
    let member = node.get("/member").ok()?;
    let member = member.as_object()?;
    let has_copy = |shard: &&serde_json::Value| {
        let is_out = shard["is_route_out"].as_bool() == Some(true) && shard["metric"].is_u64();
        shard["role"].as_str() == Some("synced") && is_out
    };
    let copies = member.get("shards")?.as_array()?.iter().filter(has_copy).count();
    (copies == shards).then_some(())
}

/// Kills one node after the other while etcd is away; the first one has restarted meanwhile.
fn no_connection_ends(lab: &ClusterLab) -> Result<()> {
    let (control, first, second) = (lab.control()?, lab.node(1)?, lab.node(2)?);
    lab.wait_ok()?;
    let mixture = Mixture { trickles: 10, streams: 0, dialogues: 30, idle: 10, short_per_sec: 0 };
    let connections = lab.connect(Clock::start(), mixture)?;
    control.kill_store()?;
    first.weir.signal(Signal::SIGKILL)?;
    first.wait_ready(1)?;
    wait_for("copies of a node that began without etcd", DEADLINE, || {
        has_copies(first, usize::from(lab.options.shards))
    })?;
    connections.call().context("after the first failure")?;
    second.weir.end(Signal::SIGKILL)?;
    connections.call().context("after the second failure")?;
    let open = connections.ledger().open(None);
    ensure!(open == connections.lasting(), "{open} connections of {}", connections.lasting());
    // etcd comes back first, then the other node.
    control.restart_store()?;
    first.wait_registered()?;
    second.weir.resume()?;
    lab.wait_whole()?;
    connections.call().context("with etcd again")?;
    let open = connections.ledger().open(None);
    ensure!(open == connections.lasting(), "{open} connections of {}", connections.lasting());
    Ok(())
}

#[test]
fn no_connection_ends_when_two_nodes_fail_one_after_the_other_without_etcd() {
    let options = ClusterOptions { nodes: 2, bfd: BFD, ..ClusterOptions::default() };
    let lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    if let Err(error) = no_connection_ends(&lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}

const QUARANTINE_SEC: u32 = 10;

/// Kills all nodes at once while etcd is away; they restart without it.
fn the_site_opens_again(lab: &ClusterLab) -> Result<()> {
    lab.wait_ok()?;
    lab.restart_without_store()?;
    let mixture = Mixture { trickles: 10, streams: 0, dialogues: 30, idle: 10, short_per_sec: 0 };
    let connections = lab.connect(Clock::start(), mixture).context("opened without etcd")?;
    connections.call()?;
    lab.regain_store()?;
    connections.call().context("with etcd again")?;
    let open = connections.ledger().open(None);
    ensure!(open == connections.lasting(), "{open} connections of {}", connections.lasting());
    for node in &lab.nodes {
        ensure!(
            node.weir.starts() == 2,
            "{} was started {} times",
            node.name(),
            node.weir.starts()
        );
    }
    Ok(())
}

#[test]
fn a_site_that_restarts_as_a_whole_without_etcd_opens_after_the_quarantine() {
    let quarantine_sec = Some(QUARANTINE_SEC);
    let options = ClusterOptions { bfd: BFD, quarantine_sec, ..ClusterOptions::default() };
    let lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    if let Err(error) = the_site_opens_again(&lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
