//! A node whose BIRD announces nothing reports it, hands its shards over, and gets some again when
//! BIRD is back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use weir_lab::bird::Bird;
use weir_lab::cluster::{ClusterLab, ClusterNode, ClusterOptions};
use weir_lab::wait_for;

/// BIRD is queried twice a second, its answer is valid for three seconds, and the controller waits
/// two more.
const NOTICED: Duration = Duration::from_secs(60);
const BFD: Duration = Duration::from_millis(300);

fn bird(node: &ClusterNode) -> Result<&Bird> {
    node.bird.as_ref().context("a node without BIRD")
}

/// Waits until `weir status` of node 1 ends with this code and contains these words.
fn wait_status(lab: &ClusterLab, code: i32, words: &str) -> Result<()> {
    let mut last = String::new();
    let seen = wait_for(&format!("status {code}, \"{words}\""), NOTICED, || {
        let status = lab.node(1).ok()?.cli(&["status"]).ok()?;
        last = status.stdout;
        (status.status.code() == Some(code) && last.contains(words)).then_some(())
    });
    seen.with_context(|| last)
}

fn has_metric(lab: &ClusterLab, side: &str, value: &str) -> Result<()> {
    let metrics = lab.node(1)?.metrics()?;
    let line = format!("weir_bird_up{{side=\"{side}\"}} {value}");
    ensure!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    Ok(())
}

/// Waits until `weir cluster status` names the node, the side and the cause, and the node is
/// primary of no shard.
fn wait_noticed(lab: &ClusterLab, cause: &str) -> Result<()> {
    let mut last = String::new();
    let seen = wait_for(&format!("\"{cause}\" of node1"), NOTICED, || {
        last = lab.control().ok()?.weir(&["cluster", "status"]).ok()?.stdout;
        let map = lab.map.as_ref()?.read().ok()?;
        let is_shown = last.contains("node1 is cut-off: worker 0") && last.contains(cause);
        (is_shown && map.primaries("node1") == 0).then_some(())
    });
    seen.with_context(|| last)
}

fn wait_back(lab: &ClusterLab) -> Result<()> {
    wait_status(lab, 0, "BIRD: access up, 1 of 1 sessions; internet up, 2 of 2 sessions")?;
    has_metric(lab, "access", "1.0")?;
    lab.wait_ok()
}

fn a_dead_bird_is_seen_and_counts(lab: &mut ClusterLab) -> Result<()> {
    wait_back(lab)?;
    bird(lab.node(1)?)?.process().signal(Signal::SIGKILL)?;
    wait_status(lab, 1, "BIRD is down on the access side: BIRD does not run here")?;
    has_metric(lab, "access", "0.0")?;
    has_metric(lab, "internet", "0.0")?;
    wait_noticed(lab, "BIRD does not answer (access side)")?;
    let log = lab.node(1)?.weir.process()?.log();
    ensure!(log.contains("bird-down"), "{log}");
    let ClusterLab { nodes, lab: laboratory, .. } = lab;
    nodes[0].bird.as_mut().context("a node without BIRD")?.start_again(laboratory)?;
    wait_back(lab)?;
    ensure!(lab.node(1)?.weir.process()?.log().contains("bird-up"), "no word of its return");
    Ok(())
}

/// The node's shards leave, and do not come back while it has no route that could show the filter.
fn a_filter_that_drops_routes_is_named(lab: &ClusterLab) -> Result<()> {
    wait_for("shards of node1", NOTICED, || {
        lab.control().ok()?.weir(&["rebalance"]).ok()?;
        let map = lab.map.as_ref()?.read().ok()?;
        (map.primaries("node1") > 0).then_some(())
    })?;
    lab.wait_whole()?;
    let config = bird(lab.node(1)?)?.config()?;
    let filter = "filter from_weir {\n";
    ensure!(config.contains(filter), "{config}");
    let dropping = format!("{filter}  if net ~ 10.100.0.0/16 then reject;\n");
    bird(lab.node(1)?)?.configure(&config.replace(filter, &dropping))?;
    wait_status(lab, 1, "BIRD does not export all routes on the access side: access_switch")?;
    has_metric(lab, "access", "0.0")?;
    has_metric(lab, "internet", "1.0")?;
    wait_noticed(lab, "BIRD does not export all routes (access side)")?;
    bird(lab.node(1)?)?.configure(&config)?;
    wait_back(lab)
}

fn a_stopped_bird_is_down(lab: &ClusterLab) -> Result<()> {
    bird(lab.node(1)?)?.process().signal(Signal::SIGSTOP)?;
    let words = "BIRD is down on the internet side: BIRD's answer: it does not answer in time";
    wait_status(lab, 1, words)?;
    bird(lab.node(1)?)?.process().signal(Signal::SIGCONT)?;
    wait_back(lab)
}

#[test]
fn a_node_whose_bird_announces_nothing_is_named_and_emptied_until_it_does() {
    let options = ClusterOptions { bfd: BFD, ..ClusterOptions::default() };
    let mut lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    let result = a_dead_bird_is_seen_and_counts(&mut lab)
        .and_then(|()| a_filter_that_drops_routes_is_named(&lab))
        .and_then(|()| a_stopped_bird_is_down(&lab));
    if let Err(error) = result {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
