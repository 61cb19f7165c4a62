//! Output commit on a whole cluster: a packet that makes a flow leaves when a copy has the flow, so
//! that every flow that the server has seen survives the death of a node; and the fate of packets
//! when there is no copy.
//!
//! Two nodes, so that no copy is left when a node is gone, under connections and a hundred new
//! flows a second. All waits are for conditions: a busy machine takes longer, but fails no test.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use weir_lab::cluster::{ClusterLab, ClusterNode, ClusterOptions, OnTimeout, OutputCommit};
use weir_lab::failover::{Observation, Observer, Pace, Promise, render};
use weir_lab::load::{Clock, Micros, Mixture, NewFlowReport, NewFlows, Window};
use weir_lab::metrics::metric_sum;
use weir_lab::wait_for;

/// Longer than the shipped value: a machine that runs tests may not run a thread for a tenth of a
/// second now and then.
const BFD: Duration = Duration::from_millis(300);
/// Longer than any pause of a machine that is merely busy: no packet is late while a copy exists.
const TIMEOUT_MS: u32 = 1_500;
const FLOWS_PER_SEC: u32 = 100;
/// Number of flows that gives a meaningful result.
const SOME: usize = 20;
const LATE: (&str, &str) = ("weir_commit_early_total", "cause=\"timeout\"");
const DEADLINE: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(2);

struct Trial<'a> {
    lab: &'a mut ClusterLab,
    observer: Observer,
    flows: NewFlows,
    clock: Clock,
    rows: Vec<(Promise, Observation)>,
}

impl<'a> Trial<'a> {
    fn begin(lab: &'a mut ClusterLab) -> Result<Self> {
        let mixture =
            Mixture { trickles: 24, streams: 2, dialogues: 36, idle: 0, short_per_sec: 20 };
        let probe_interval = Duration::from_millis(10);
        let before = Duration::from_secs(1);
        let pace = Pace { mixture, probe_interval, before, idle: Duration::ZERO };
        let clock = Clock::start();
        let observer = Observer::start(lab, pace)?;
        let flows = lab.begin_flows(clock, FLOWS_PER_SEC)?;
        Ok(Self { lab, observer, flows, clock, rows: Vec::new() })
    }

    /// Runs an act under load, and waits until every shard has its copies again.
    fn moment(
        &mut self,
        what: &str,
        promise: Promise,
        act: impl FnOnce(&mut ClusterLab, &NewFlows, Clock) -> Result<()>,
    ) -> Result<()> {
        println!("[{:5.1} s] {what}", self.clock.now() as f64 / 1e6);
        let Self { lab, observer, flows, clock, rows } = self;
        let seen = observer
            .observe(what, SETTLE, true, None, || act(lab, flows, *clock))
            .with_context(|| what.to_owned())?;
        rows.push((promise, seen));
        let is_kept = rows.iter().all(|(promise, seen)| promise.missed(seen).is_empty());
        ensure!(is_kept, "{}", render(rows));
        Ok(())
    }

    /// Waits until the flows begun since `start` have sent their last datagram. Returns their fate.
    fn wait_flows_since(&self, start: Micros) -> Result<NewFlowReport> {
        let end = self.clock.now();
        let age = (NewFlows::AGE_MAX + SETTLE).as_micros() as Micros;
        let has_aged = || (self.clock.now() >= end + age).then_some(());
        wait_for("age of the flows", DEADLINE, has_aged)?;
        Ok(self.flows.report(Window { start, end }))
    }
}

/// Returns the epoch of every shard's entry, which counts its changes.
fn epochs(lab: &ClusterLab) -> Result<BTreeMap<u32, u64>> {
    let map = lab.map.as_ref().context("no map")?.read()?;
    Ok(map.shards.into_iter().map(|(number, shard)| (number, shard.epoch)).collect())
}

/// Ends a node, and starts it again after `gone`. Returns when the map names its new incarnation:
/// with two nodes that changes the entry of every shard.
fn end_and_start(lab: &ClusterLab, victim: u8, gone: impl FnOnce() -> Result<()>) -> Result<()> {
    let (before, weir) = (epochs(lab)?, &lab.node(victim)?.weir);
    weir.end(Signal::SIGKILL)?;
    gone()?;
    weir.resume()?;
    wait_for("entries of the new life", DEADLINE, || {
        let now = epochs(lab).ok()?;
        now.iter().all(|(shard, epoch)| before.get(shard) < Some(epoch)).then_some(())
    })
}

/// Returns the sum of a metric over all running nodes.
fn sum(lab: &ClusterLab, name: &str, label: &str) -> Result<u64> {
    let running = lab.nodes.iter().filter(|node| node.weir.is_running());
    let sums = running.map(|node| sum_of(node, name, label)).collect::<Result<Vec<u64>>>()?;
    Ok(sums.iter().sum())
}

fn sum_of(node: &ClusterNode, name: &str, label: &str) -> Result<u64> {
    metric_sum(&node.metrics()?, name, label).with_context(|| format!("no {name} {label}"))
}

/// Returns the number of the node with the most primaries.
fn busiest(lab: &ClusterLab) -> Result<u8> {
    let map = lab.map.as_ref().context("no map")?.read()?;
    let nodes = lab.nodes.iter().max_by_key(|node| map.primaries(&node.name()));
    Ok(nodes.context("no nodes")?.number)
}

/// Waits until the sum of a metric has increased, and `is_enough` is true.
fn wait_more(
    lab: &ClusterLab,
    (name, label): (&str, &str),
    is_enough: impl Fn() -> bool,
) -> Result<()> {
    let before = sum(lab, name, label)?;
    wait_for(&format!("more of {name} {label}"), DEADLINE, || {
        (sum(lab, name, label).ok()? > before && is_enough()).then_some(())
    })
}

/// Returns the flows that began since `start`.
fn since(flows: &NewFlows, clock: Clock, start: Micros) -> NewFlowReport {
    flows.report(Window { start, end: clock.now() })
}

fn wait_seen(flows: &NewFlows, clock: Clock) -> Result<()> {
    let start = clock.now();
    let is_seen = || (since(flows, clock, start).seen >= SOME).then_some(());
    wait_for("new flows at the server", DEADLINE, is_seen)
}

/// Without a fault every packet that makes a flow waits, and leaves because a copy has the flow.
fn packets_wait_and_leave(trial: &mut Trial<'_>) -> Result<()> {
    let promise = Promise::NoneBrokenHoweverYoung;
    trial.moment("nothing", promise, |_, flows, clock| wait_seen(flows, clock))?;
    let waited = sum(trial.lab, "weir_commit_waits_total", "")?;
    ensure!(waited >= SOME as u64, "{waited} packets waited");
    for reason in ["commit-timeout", "commit-limit"] {
        let count = sum(trial.lab, "weir_drops_total", &format!("reason=\"{reason}\""))?;
        // A worker that stalled on a busy machine drops the waiting packets.
        let stood_still = sum(trial.lab, "weir_late_packets_total", "")?;
        ensure!(count == 0 || stood_still > 0, "{reason}: {count}, {waited} packets waited");
    }
    Ok(())
}

/// A node whose records reach no copy drops the waiting packets at the time-out; the server has
/// seen none of their flows, so none is lost when the node ends.
fn uncopied_packets_are_not_seen_by_the_server(trial: &mut Trial<'_>) -> Result<()> {
    let promise = Promise::NoneBrokenHoweverYoung;
    trial.moment("no copies, then kill -9", promise, |lab, flows, clock| {
        let victim = busiest(lab)?;
        lab.network.lose_copies(victim, true)?;
        let start = clock.now();
        let is_enough = || since(flows, clock, start).begun >= SOME;
        wait_more(lab, ("weir_drops_total", "reason=\"commit-timeout\""), is_enough)?;
        let report = since(flows, clock, start);
        end_and_start(lab, victim, || lab.network.lose_copies(victim, false))?;
        ensure!(report.seen == 0, "{report:?}");
        Ok(())
    })
}

/// With the other node gone there is no copy: no flow begins, and existing flows go on.
fn no_flow_begins_without_a_copy(trial: &mut Trial<'_>) -> Result<()> {
    let promise = Promise::NoneBrokenHoweverYoung;
    trial.moment("a node is gone: drop", promise, |lab, flows, clock| {
        let victim = busiest(lab)?;
        end_and_start(lab, victim, || {
            let start = clock.now();
            let is_enough = || since(flows, clock, start).begun >= SOME;
            wait_more(lab, ("weir_drops_total", "reason=\"too-few-replicas\""), is_enough)?;
            let report = since(flows, clock, start);
            ensure!(report.seen == 0, "{report:?}");
            Ok(())
        })?;
        wait_seen(flows, clock)
    })
}

/// With the other node gone the network goes on, and the node reports that flows are not protected.
fn flows_begin_without_a_copy(trial: &mut Trial<'_>) -> Result<()> {
    trial.moment("a node is gone: release", Promise::NothingBroken, |lab, flows, clock| {
        let victim = busiest(lab)?;
        let other = lab.nodes.iter().find(|node| node.number != victim).context("no other")?;
        end_and_start(lab, victim, || {
            let are_short = || sum_of(other, "weir_commit_shards_short", "").is_ok_and(|it| it > 0);
            wait_more(lab, ("weir_commit_degraded_total", ""), are_short)?;
            wait_seen(flows, clock)?;
            wait_for("word of it in weir status", DEADLINE, || {
                let status = other.cli(&["status"]).ok()?.stdout;
                status.contains("fewer than 1 copies for its packets to wait for").then_some(())
            })
        })
    })
}

/// Like [`uncopied_packets_are_not_seen_by_the_server`], but the waiting packets leave in the end:
/// they are counted, and their flows die with the node.
fn late_packets_are_counted_and_their_flows_can_be_lost(trial: &mut Trial<'_>) -> Result<()> {
    let start = trial.clock.now();
    let late = sum(trial.lab, LATE.0, LATE.1)?;
    ensure!(late == 0, "{late} packets were late while there was a copy");
    trial.moment("late copies, then kill -9", Promise::NothingBroken, |lab, flows, clock| {
        let victim = busiest(lab)?;
        lab.network.lose_copies(victim, true)?;
        let start = clock.now();
        let is_enough = || since(flows, clock, start).seen > 0;
        wait_more(lab, LATE, is_enough)?;
        end_and_start(lab, victim, || lab.network.lose_copies(victim, false))
    })?;
    let report = trial.wait_flows_since(start)?;
    ensure!(!report.moved.is_empty(), "no flow was lost: nothing is measured");
    Ok(())
}

/// Applies new settings and restarts all nodes: nodes read these keys at their start.
fn restart_with(lab: &mut ClusterLab, commit: OutputCommit) -> Result<()> {
    lab.options.commit = Some(commit);
    lab.control()?.apply(lab.options.files())?;
    for node in &lab.nodes {
        end_and_start(lab, node.number, || Ok(()))?;
        lab.wait_whole()?;
    }
    Ok(())
}

fn commit_keeps_its_promise(lab: &mut ClusterLab) -> Result<()> {
    let mut trial = Trial::begin(lab)?;
    let start = trial.clock.now();
    packets_wait_and_leave(&mut trial)?;
    trial.moment("kill -9", Promise::NoneBrokenHoweverYoung, |lab, _, _| {
        end_and_start(lab, busiest(lab)?, || Ok(()))
    })?;
    uncopied_packets_are_not_seen_by_the_server(&mut trial)?;
    no_flow_begins_without_a_copy(&mut trial)?;
    let report = trial.wait_flows_since(start)?;
    println!("{} flows begun, {} seen, {} moved", report.begun, report.seen, report.moved.len());
    ensure!(report.moved.is_empty(), "flows that the server had seen were lost");
    ensure!(2 * report.seen > report.begun, "most flows came to nothing");

    let commit = OutputCommit { timeout_ms: TIMEOUT_MS, on_timeout: OnTimeout::Release };
    restart_with(trial.lab, commit)?;
    flows_begin_without_a_copy(&mut trial)?;
    // Last, since a connection whose state is lost here breaks later.
    late_packets_are_counted_and_their_flows_can_be_lost(&mut trial)?;
    println!("{}", render(&trial.rows));
    Ok(())
}

#[test]
fn flows_seen_by_the_server_survive_the_death_of_a_node() {
    let commit = Some(OutputCommit { timeout_ms: TIMEOUT_MS, on_timeout: OnTimeout::Drop });
    let options = ClusterOptions { nodes: 2, bfd: BFD, commit, ..ClusterOptions::default() };
    let mut lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    if let Err(error) = commit_keeps_its_promise(&mut lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
