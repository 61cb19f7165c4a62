//! Hours of faults: one after the other, drawn from a seed, on a cluster under load, until the time
//! is up. Then the load ends, and every port has to become free.
//!
//! Ends with an error when a promise was missed, a port is held without a flow, or a process has
//! grown.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use weir_lab::cluster::{ClusterLab, ClusterOptions, OnTimeout, OutputCommit};
use weir_lab::failover::{
    AtRest, Leftovers, Memory, Observation, Observer, Pace, Promise, picture, render, repeatable,
    summary,
};
use weir_lab::program::{clock_seed, exit_code};
use weir_lab::steering::SwitchKind;

/// Time until every port must be free: UDP mappings live for five minutes, then their ports are in
/// quarantine.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Lets faults happen to a cluster under load, drawn from a seed, until the time is up.
#[derive(Debug, Parser)]
struct Args {
    /// How long a new fault may begin, in minutes.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_080))]
    minutes: u64,
    /// Draws the faults and the nodes they happen to. [default: from the clock, and said]
    #[arg(long)]
    seed: Option<u64>,
    /// Switches of FRR instead of BIRD.
    #[arg(long)]
    frr: bool,
    /// Nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// Output commit (`commit = "replicated"`): a new flow leaves when its copies have it. At the
    /// end of the time-out of 0.1 s it leaves without them, or is dropped.
    #[arg(long, value_name = "ON_TIMEOUT", num_args = 0..=1, require_equals = true, default_missing_value = "release")]
    commit: Option<OnTimeout>,
    /// Where the picture goes.
    #[arg(long, value_name = "FILE", default_value = "target/soak.svg")]
    timeline: PathBuf,
    /// Show the logs of all daemons when something was missed.
    #[arg(long)]
    logs: bool,
}

fn main() -> ExitCode {
    exit_code("soak", run(&Args::parse()))
}

/// Runs the soak test. Returns whether every promise was kept.
fn run(args: &Args) -> Result<bool> {
    let begun = Instant::now();
    let progress = |text: &str| println!("[{:6.1} s] {text}", begun.elapsed().as_secs_f32());
    let seed = args.seed.unwrap_or_else(clock_seed);
    progress(&format!("seed {seed}"));
    let options = ClusterOptions {
        nodes: args.nodes,
        switches: if args.frr { SwitchKind::Frr } else { SwitchKind::Bird },
        commit: args.commit.map(OutputCommit::ending_in),
        ..ClusterOptions::default()
    };
    let mut lab = ClusterLab::start(options, progress)?;
    let mut observer = Observer::start(&lab, Pace::short())?;
    let mut memory = Memory::default();
    let mut rows: Vec<(Promise, Observation)> = Vec::new();
    let mut dice = fastrand::Rng::with_seed(seed);
    let events = repeatable();
    while begun.elapsed() < Duration::from_secs(60 * args.minutes) {
        let event = events[dice.usize(..events.len())];
        let victim = dice.u8(1..=args.nodes);
        memory.look(&lab)?;
        let seen = event.run_on(|_| Ok(victim), &mut lab, &mut observer, progress);
        ensure!(lab.lab.is_open(), "interrupted");
        let seen = seen.with_context(|| lab.lab.logs())?;
        for (promise, observation) in &seen {
            promise
                .complaints(observation)
                .iter()
                .for_each(|it| progress(&format!("  MISSED: {it}")));
        }
        rows.extend(seen);
    }
    memory.look(&lab)?;
    if let Some(folder) = args.timeline.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&args.timeline, picture(&rows, observer.timeline()).map_err(anyhow::Error::msg)?)?;
    progress("the load goes: every port has to come back");
    drop(observer);
    let at_rest = AtRest::begin(&lab)?;
    let left = Leftovers::wait_none(&lab, PATIENCE)?;
    let at_rest = at_rest.summary();
    progress("done");
    print!("\n{}\n{}", render(&rows), summary(&rows));
    let missed = rows.iter().filter(|(promise, seen)| !promise.missed(seen).is_empty()).count();
    println!("\nseed {seed}: {} faults, {missed} of them broke a promise", rows.len());
    println!("memory: {}", memory.summary());
    let grown = memory.grown();
    grown.iter().for_each(|line| println!("  GROWN: {line}"));
    println!("at rest: {at_rest}");
    match left.0.is_empty() {
        true => println!("ports: all are free again, on every node"),
        false => print!("ports: NOT FREE after {} minutes:\n{left}", PATIENCE.as_secs() / 60),
    }
    println!("picture: {}", args.timeline.display());
    let is_kept = missed == 0 && grown.is_empty() && left.0.is_empty();
    if !is_kept && args.logs {
        println!("{}", lab.lab.logs());
    }
    Ok(is_kept)
}
