//! Output commit on a whole cluster: a packet that makes a flow leaves when a copy has it, so that whatever the server has
//! seen of it survives the death of a node; and what becomes of packets when there is no copy.
//!
//! Two nodes, so that a node that is gone leaves no copy, under connections and a hundred new flows a second. All times
//! are conditions: a busy machine takes longer, and fails nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use weir_lab::cluster::{ClusterLab, ClusterNode, ClusterOptions, OnTimeout, OutputCommit};
use weir_lab::failover::{Observation, Observer, Pace, Promise, render};
use weir_lab::load::{Clock, Micros, Mixture, NewFlowReport, NewFlows, Window};
use weir_lab::metrics::metric_sum;
use weir_lab::wait_for;

/// Longer than as shipped: a machine that runs tests has something else to do for a tenth of a second now and then.
const BFD: Duration = Duration::from_millis(300);
/// Longer than any pause of a machine that is merely busy: nothing is late while a copy is there.
const TIMEOUT_MS: u32 = 1_500;
const FLOWS_PER_SEC: u32 = 100;
/// How many flows say something.
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

    /// Does something under load, and waits until every shard has its copies again.
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

    /// What became of the flows that began since, as far as they have sent their last datagram.
    fn wait_flows_since(&self, start: Micros) -> Result<NewFlowReport> {
        let end = self.clock.now();
        let age = (NewFlows::AGE_MAX + SETTLE).as_micros() as Micros;
        let has_aged = || (self.clock.now() >= end + age).then_some(());
        wait_for("age of the flows", DEADLINE, has_aged)?;
        Ok(self.flows.report(Window { start, end }))
    }
}

/// The entry of every shard, by how often it changed.
fn epochs(lab: &ClusterLab) -> Result<BTreeMap<u32, u64>> {
    let map = lab.map.as_ref().context("no map")?.read()?;
    Ok(map.shards.into_iter().map(|(number, shard)| (number, shard.epoch)).collect())
}

/// Lets a node end, and start again after `gone`. Returns when the map knows of its new life: with two nodes that is an
/// entry of every shard.
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

/// Sum over all nodes that run.
fn sum(lab: &ClusterLab, name: &str, label: &str) -> Result<u64> {
    let running = lab.nodes.iter().filter(|node| node.weir.is_running());
    let sums = running.map(|node| sum_of(node, name, label)).collect::<Result<Vec<u64>>>()?;
    Ok(sums.iter().sum())
}

fn sum_of(node: &ClusterNode, name: &str, label: &str) -> Result<u64> {
    metric_sum(&node.metrics()?, name, label).with_context(|| format!("no {name} {label}"))
}

/// The number of the node with the most primaries.
fn busiest(lab: &ClusterLab) -> Result<u8> {
    let map = lab.map.as_ref().context("no map")?.read()?;
    let nodes = lab.nodes.iter().max_by_key(|node| map.primaries(&node.name()));
    Ok(nodes.context("no nodes")?.number)
}

/// Waits until the sum is more than it is now, and `is_enough`.
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

/// Flows that began since `start`.
fn since(flows: &NewFlows, clock: Clock, start: Micros) -> NewFlowReport {
    flows.report(Window { start, end: clock.now() })
}

fn wait_seen(flows: &NewFlows, clock: Clock) -> Result<()> {
    let start = clock.now();
    let is_seen = || (since(flows, clock, start).seen >= SOME).then_some(());
    wait_for("new flows at the server", DEADLINE, is_seen)
}

/// With all well every packet that makes a flow waits, and leaves because a copy has it.
fn packets_wait_and_leave(trial: &mut Trial<'_>) -> Result<()> {
    let promise = Promise::NoneBrokenHoweverYoung;
    trial.moment("nothing", promise, |_, flows, clock| wait_seen(flows, clock))?;
    let waited = sum(trial.lab, "weir_commit_waits_total", "")?;
    ensure!(waited >= SOME as u64, "{waited} packets waited");
    for reason in ["commit-timeout", "commit-limit"] {
        let count = sum(trial.lab, "weir_drops_total", &format!("reason=\"{reason}\""))?;
        // A worker that stood still on a busy machine drops what waited.
        let stood_still = sum(trial.lab, "weir_late_packets_total", "")?;
        ensure!(count == 0 || stood_still > 0, "{reason}: {count}, {waited} packets waited");
    }
    Ok(())
}

/// Whose copies do not come, drops what waits when the time is over; nothing of it was seen, and with its end nothing is lost.
fn what_has_no_copy_is_not_seen(trial: &mut Trial<'_>) -> Result<()> {
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

/// With the other node gone there is no copy: nothing begins, and what there is goes on.
fn nothing_begins_without_a_copy(trial: &mut Trial<'_>) -> Result<()> {
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

/// With the other node gone the network goes on, and says what it does not keep.
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

/// As [`what_has_no_copy_is_not_seen`], but what waited leaves in the end: it is counted, and dies with the node.
fn what_leaves_late_is_counted_and_can_be_lost(trial: &mut Trial<'_>) -> Result<()> {
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

/// Nodes take these keys when they start.
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
    what_has_no_copy_is_not_seen(&mut trial)?;
    nothing_begins_without_a_copy(&mut trial)?;
    let report = trial.wait_flows_since(start)?;
    println!("{} flows begun, {} seen, {} moved", report.begun, report.seen, report.moved.len());
    ensure!(report.moved.is_empty(), "flows that the server had seen were lost");
    ensure!(2 * report.seen > report.begun, "most flows came to nothing");

    let commit = OutputCommit { timeout_ms: TIMEOUT_MS, on_timeout: OnTimeout::Release };
    restart_with(trial.lab, commit)?;
    flows_begin_without_a_copy(&mut trial)?;
    // At last: a connection that is lost here breaks later.
    what_leaves_late_is_counted_and_can_be_lost(&mut trial)?;
    println!("{}", render(&trial.rows));
    Ok(())
}

#[test]
fn what_the_server_has_seen_survives_the_death_of_a_node() {
    let commit = Some(OutputCommit { timeout_ms: TIMEOUT_MS, on_timeout: OnTimeout::Drop });
    let options = ClusterOptions { nodes: 2, bfd: BFD, commit, ..ClusterOptions::default() };
    let mut lab = ClusterLab::start(options, |what| println!("{what}")).unwrap();
    if let Err(error) = commit_keeps_its_promise(&mut lab) {
        panic!("{error:#}\n{}", lab.lab.logs());
    }
}
