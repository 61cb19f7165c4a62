//! A rolling upgrade: nodes restart with another protocol version, one after the other, as the
//! operator's guide describes it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::act;
use crate::cluster::{ClusterLab, ClusterNode};
use crate::condition::wait_for;

const SESSIONS_DEADLINE: Duration = Duration::from_secs(30);

/// Downgrades all nodes to the earlier version of the replication protocol.
pub(super) fn downgrade(lab: &mut ClusterLab, _: u8) -> Result<()> {
    roll(lab, true, |version| version - 1)
}

/// Upgrades all nodes to the version before the downgrade.
pub(super) fn upgrade(lab: &mut ClusterLab, _: u8) -> Result<()> {
    roll(lab, false, |version| version + 1)
}

/// Restarts each node in turn with or without support for the present version; at any time two
/// nodes use the newest version that both support.
fn roll(lab: &ClusterLab, is_earlier: bool, next: fn(u8) -> u8) -> Result<()> {
    let nodes: Vec<&ClusterNode> = lab.nodes.iter().filter(|it| it.weir.is_running()).collect();
    // A node that has failed several times within an hour is given no shards automatically, and
    // without shards it has no session.
    act::operate(lab, &["rebalance"])?;
    // A node that has just come back has no session until it gets shards.
    let first = nodes.first().context("no node runs")?;
    let newest = || sessions(first).ok()?.values().copied().max();
    let version = wait_for("a session, for its version", SESSIONS_DEADLINE, newest)?;
    let mut known: BTreeMap<String, u8> = nodes.iter().map(|it| (it.name(), version)).collect();
    check_sessions(&nodes, &known, 1)?;
    for node in &nodes {
        let starts = node.weir.starts();
        node.weir.end(Signal::SIGTERM)?;
        node.set_earlier(is_earlier);
        node.weir.resume()?;
        node.wait_ready(starts)?;
        lab.wait_ok()?;
        known.insert(node.name(), next(version));
        // The node has no session until it gets shards.
        check_sessions(&nodes, &known, 0).with_context(|| format!("restarted: {}", node.name()))?;
    }
    act::operate(lab, &["rebalance"])?;
    check_sessions(&nodes, &known, 1)
}

/// Waits until every session uses the newest version that both ends support. Only nodes that share
/// shards have a session; each node must have at least `least`.
fn check_sessions(
    nodes: &[&ClusterNode],
    known: &BTreeMap<String, u8>,
    least: usize,
) -> Result<()> {
    for node in nodes {
        let mut last = None;
        let agreed = wait_for("sessions of the wanted version", SESSIONS_DEADLINE, || {
            let found = sessions(node);
            let is_it = found.as_ref().is_ok_and(|it| agrees(&node.name(), it, known, least));
            last = Some(found);
            is_it.then_some(())
        });
        agreed.with_context(|| format!("{}: {last:?}; known: {known:?}", node.name()))?;
    }
    Ok(())
}

/// Returns the protocol version between a node and each peer, by the peer's node; 0: a session is
/// not set up yet.
pub(super) fn sessions(node: &ClusterNode) -> Result<BTreeMap<String, u8>> {
    let metrics = node.cli(&["metrics"])?.success()?.stdout;
    versions(&metrics).with_context(|| format!("metrics of {}", node.name()))
}

fn versions(metrics: &str) -> Option<BTreeMap<String, u8>> {
    let lines = metrics.lines().filter(|it| it.starts_with("weir_replication_version{"));
    let read = |line: &str| {
        let (_, rest) = line.split_once("peer=\"")?;
        let (peer, _) = rest.split_once("/0\"")?;
        let (_, value) = rest.rsplit_once(' ')?;
        Some((peer.to_owned(), value.parse::<f64>().ok()? as u8))
    };
    lines.map(read).collect()
}

/// True if the sessions of `node` with the running nodes use the right version. A node that does
/// not run remains a peer until it is known to be gone; its session is not checked.
fn agrees(
    node: &str,
    sessions: &BTreeMap<String, u8>,
    known: &BTreeMap<String, u8>,
    least: usize,
) -> bool {
    let wanted = |peer: &str| Some(*known.get(node)?.min(known.get(peer)?));
    let mut running = sessions.iter().filter_map(|(peer, version)| Some((*version, wanted(peer)?)));
    running.clone().count() >= least && running.all(|(version, wanted)| version == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(versions: &[(&str, u8)]) -> BTreeMap<String, u8> {
        versions.iter().map(|&(node, version)| (node.to_owned(), version)).collect()
    }

    #[test]
    fn session_versions_are_read_from_the_metrics() {
        let metrics = "# TYPE weir_replication_version gauge\n\
             weir_replication_silent_seconds{worker=\"0\",peer=\"node2/0\"} 7.0\n\
             weir_replication_version{worker=\"0\",peer=\"node1/0\"} 0.0\n\
             weir_replication_version{worker=\"0\",peer=\"node2/0\"} 2.0\n";
        assert_eq!(versions(metrics), Some(of(&[("node1", 0), ("node2", 2)])));
        assert_eq!(versions(""), Some(of(&[])));
        assert_eq!(versions("weir_replication_version{worker=\"0\"} 2.0"), None);
    }

    #[test]
    fn pair_of_nodes_must_use_the_newest_version_that_both_support() {
        let known = of(&[("node1", 2), ("node2", 2), ("node3", 1)]);
        let node1 = |sessions: &[(&str, u8)]| agrees("node1", &of(sessions), &known, 1);
        assert!(node1(&[("node2", 2), ("node3", 1)]));
        assert!(node1(&[("node2", 2), ("dead", 0)]));
        assert!(!node1(&[("node2", 1), ("node3", 1)]), "the later version is not taken");
        assert!(!node1(&[("node2", 2), ("node3", 0)]), "no session");
        assert!(!node1(&[("dead", 2)]), "a node without a running peer");
        assert!(agrees("node1", &of(&[]), &known, 0));
    }
}
