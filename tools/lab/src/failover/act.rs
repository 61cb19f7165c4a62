//! The acts of the events: functions that each take a cluster and the number of a node.

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::cluster::ClusterLab;
use crate::condition::wait_for;
use crate::steering::Network;

use super::upgrade;

/// How long one node is without etcd, and how long all nodes are.
const WITHOUT_STORE: Duration = Duration::from_secs(60);
const STORE_DOWN: Duration = Duration::from_secs(20);
/// How long a process is stopped together with its guard at most: not longer than the lease of its
/// node in etcd.
const FROZEN_MAX: Duration = Duration::from_secs(7);
/// How long a thread is stopped, unless its guard ends the process.
const STUCK: Duration = Duration::from_secs(10);
/// Number of stalls of two nodes in turn, length of each and pause after it, in ms: two or three a
/// second.
const STALLS: usize = 40;
const STALL_MS: RangeInclusive<u64> = 43..=150;
const STALL_PAUSE_MS: RangeInclusive<u64> = 250..=350;
const STALL_SEED: u64 = 7;
/// The longest time that routes are held off, with a margin.
const HELD_OFF_MAX: Duration = Duration::from_secs(45);
/// Number of times that a link goes down, and the time between two changes.
const FLAPS: usize = 5;
const FLAP_INTERVAL: Duration = Duration::from_secs(1);

/// Time until the cluster has noticed that BIRD announces nothing, and moved all primaries away.
const NOTICED: Duration = Duration::from_secs(60);

pub(super) fn nothing(_: &mut ClusterLab, _: u8) -> Result<()> {
    Ok(())
}

pub(super) fn operate(lab: &ClusterLab, args: &[&str]) -> Result<()> {
    lab.control()?.weir(args)?.success()?;
    Ok(())
}

pub(super) fn drain(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    operate(lab, &["drain", &format!("node{victim}"), "--wait"])
}

pub(super) fn undrain(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    operate(lab, &["undrain", &format!("node{victim}")])?;
    rebalance(lab, victim)
}

/// Kills the node; the supervisor restarts it at once.
pub(super) fn kill(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.node(victim)?.weir.signal(Signal::SIGKILL)
}

pub(super) fn kill_for_good(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.node(victim)?.weir.end(Signal::SIGKILL)
}

/// Fences the dead node, as an operator does who knows that it will not come back: its share of the
/// ports becomes free.
pub(super) fn fence_the_dead(lab: &mut ClusterLab, _: u8) -> Result<()> {
    for node in &lab.nodes {
        if node.weir.process()?.ended().is_some() {
            operate(lab, &["fence", &node.name()])?;
        }
    }
    Ok(())
}

/// Starts the dead node again, as after a repair.
pub(super) fn start_the_dead(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    for node in lab.nodes.iter().filter(|node| !node.weir.is_running()) {
        node.weir.resume()?;
        node.wait_ready(0)?;
        node.wait_sessions()?;
    }
    rebalance(lab, victim)
}

pub(super) fn silence(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.silence(victim, true)
}

pub(super) fn end_silence(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.silence(victim, false)
}

/// Stops the node's process. Its guard finds it silent and ends it; the supervisor restarts it.
pub(super) fn stop(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.node(victim)?.weir.signal(Signal::SIGSTOP)
}

/// Stops the node's process and its guard until the cluster has reported it. The routes stay: the
/// guard is stopped as well, and the node's kernel and BIRD go on.
pub(super) fn freeze(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    let weir = &lab.node(victim)?.weir;
    // A node that has just come back may have no shards yet: it replicates with no peer, so none
    // can miss it.
    let has_session = !upgrade::sessions(lab.node(victim)?)?.is_empty();
    // Whether the others can tell which of them is cut off depends on which nodes replicate with
    // each other.
    let expected = [
        format!(
            "node{victim} is cut-off: worker 0 is cut off: no node that replicates with it hears it"
        ),
        format!("node{victim} is not heard by node"),
    ];
    let mut last = String::new();
    weir.signal_family(Signal::SIGSTOP)?;
    if !has_session {
        thread::sleep(FROZEN_MAX);
        return weir.signal_family(Signal::SIGCONT);
    }
    let is_shown = wait_for("what stands still in the status", FROZEN_MAX, || {
        last = lab.control().ok()?.weir(&["cluster", "status"]).ok()?.stdout;
        expected.iter().any(|it| last.contains(it)).then_some(())
    });
    weir.signal_family(Signal::SIGCONT)?;
    is_shown.with_context(|| last)
}

/// Stalls two nodes in turn. Their guards go on, and fence them each time that they stop for 50 ms
/// or longer. Returns when no routes are held off.
pub(super) fn stalls(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    let next = 1 + victim % lab.nodes.len() as u8;
    let mut dice = fastrand::Rng::with_seed(STALL_SEED);
    for turn in 0..STALLS {
        let weir = &lab.node(if turn % 2 == 0 { victim } else { next })?.weir;
        weir.signal(Signal::SIGSTOP)?;
        thread::sleep(Duration::from_millis(dice.u64(STALL_MS)));
        weir.signal(Signal::SIGCONT)?;
        thread::sleep(Duration::from_millis(dice.u64(STALL_PAUSE_MS)));
    }
    for node in [victim, next] {
        let node = lab.node(node)?;
        wait_for("routes that are held off no more", HELD_OFF_MAX, || {
            let output = node.cli(&["status"]).ok()?;
            (!output.stdout.contains("routes are held off")).then_some(())
        })?;
    }
    Ok(())
}

pub(super) fn cut(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.cut_worker(victim, Network::Access, true)
}

pub(super) fn uncut(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.cut_worker(victim, Network::Access, false)
}

pub(super) fn cut_internet(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.cut_worker(victim, Network::Internet, true)
}

pub(super) fn uncut_internet(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.cut_worker(victim, Network::Internet, false)
}

pub(super) fn lose_access(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.lose_from_worker(victim, Network::Access, true)
}

pub(super) fn regain_access(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.lose_from_worker(victim, Network::Access, false)
}

pub(super) fn lose_internet(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.lose_from_worker(victim, Network::Internet, true)
}

pub(super) fn regain_internet(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.lose_from_worker(victim, Network::Internet, false)
}

/// Stops the worker's thread. The guard finds the worker silent and ends the process; the
/// supervisor restarts it.
pub(super) fn stuck(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    let has_ended = lab.node(victim)?.hold_worker(STUCK)?;
    ensure!(has_ended, "a worker stood still for {STUCK:?} and was not fenced");
    Ok(())
}

pub(super) fn rebalance(lab: &mut ClusterLab, _: u8) -> Result<()> {
    operate(lab, &["rebalance"])
}

pub(super) fn lose_store(lab: &mut ClusterLab, _: u8) -> Result<()> {
    lab.control()?.kill_store()
}

pub(super) fn regain_store(lab: &mut ClusterLab, _: u8) -> Result<()> {
    lab.control()?.restart_store()
}

pub(super) fn kill_bird(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    let bird = lab.node(victim)?.bird.as_ref().context("a node without BIRD")?;
    bird.process().signal(Signal::SIGKILL)
}

/// Starts BIRD again once the cluster has reported the fault and its side, and the node is primary
/// of no shard.
pub(super) fn start_bird(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    let name = format!("node{victim}");
    let expected =
        format!("{name} is cut-off: worker 0 is cut off: BIRD does not answer (access side)");
    let mut last = String::new();
    wait_for(&expected, NOTICED, || {
        last = lab.control().ok()?.weir(&["cluster", "status"]).ok()?.stdout;
        let map = lab.map.as_ref()?.read().ok()?;
        (last.contains(&expected) && map.primaries(&name) == 0).then_some(())
    })
    .with_context(|| last)?;
    let ClusterLab { nodes, lab: laboratory, .. } = lab;
    let node = nodes.get_mut(usize::from(victim) - 1).context("no such node")?;
    node.bird.as_mut().context("a node without BIRD")?.start_again(laboratory)?;
    node.wait_sessions()
}

pub(super) fn flap(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    for _ in 0..FLAPS {
        cut(lab, victim)?;
        thread::sleep(FLAP_INTERVAL);
        uncut(lab, victim)?;
        thread::sleep(FLAP_INTERVAL);
    }
    Ok(())
}

pub(super) fn without_store(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.network.cut_management(victim, true)?;
    thread::sleep(WITHOUT_STORE);
    lab.network.cut_management(victim, false)
}

pub(super) fn store_killed(lab: &mut ClusterLab, _: u8) -> Result<()> {
    let control = lab.control()?;
    control.kill_store()?;
    thread::sleep(STORE_DOWN);
    control.restart_store()
}

/// Restarts the whole site, which ends every copy. Returns when every shard has a primary again.
pub(super) fn restart_site(lab: &mut ClusterLab, _: u8) -> Result<()> {
    lab.restart_without_store()
}

pub(super) fn restore_store(lab: &mut ClusterLab, _: u8) -> Result<()> {
    lab.regain_store()
}

pub(super) fn terminate(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    let weir = &lab.node(victim)?.weir;
    weir.end(Signal::SIGTERM)?;
    weir.resume()
}

/// Restarts the node with its log on a full pipe, and moves primaries back to it.
pub(super) fn leave_log_unread(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    let node = lab.node(victim)?;
    let starts = node.weir.starts();
    node.leave_log_unread()?;
    terminate(lab, victim)?;
    lab.node(victim)?.wait_ready(starts)?;
    lab.wait_whole()?;
    rebalance(lab, victim)
}

/// Ends the node. The unread log must delay neither the hand-over nor the end. The next start has a
/// log file again.
pub(super) fn terminate_with_log_unread(lab: &mut ClusterLab, victim: u8) -> Result<()> {
    lab.wait_whole()?;
    rebalance(lab, victim)?;
    lab.wait_whole()?;
    let node = lab.node(victim)?;
    let process = node.weir.process()?;
    node.read_log();
    terminate(lab, victim)?;
    let status = process.ended().context("it runs")?;
    ensure!(status.success(), "with a log that nobody reads it ended with {status}");
    Ok(())
}

pub(super) fn add(lab: &mut ClusterLab, _: u8) -> Result<()> {
    lab.add_node()?;
    let node = lab.nodes.last().context("no nodes")?;
    node.wait_ready(0)?;
    node.wait_sessions()?;
    rebalance(lab, 0)
}
