//! The demonstration: a cluster of nodes under a thousand connections loses one node after the other, and a table tells
//! what the homes saw of it.
//!
//! Ends with an error when a promise was missed. With `KEEP=1` everything is left running, watched, until Ctrl-C.

mod keep;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use weir_lab::cluster::{ClusterLab, ClusterOptions, OnTimeout, OutputCommit};
use weir_lab::failover::{
    CONTROL, EVENTS, Event, Observation, Observer, Pace, Promise, TRIES_MAX, render, summary,
};
use weir_lab::steering::SwitchKind;

/// Lets one node after the other fail, under load, and tells what homes saw of it.
#[derive(Debug, Parser)]
struct Args {
    /// The events, or `all`; without any, those of the demonstration. A wrong name prints those that there are.
    events: Vec<String>,
    /// How often each event happens.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Switches of FRR instead of BIRD.
    #[arg(long)]
    frr: bool,
    /// Interval of BFD in milliseconds; three of them are a silence.
    #[arg(long, default_value_t = 50)]
    bfd: u64,
    /// Output commit (`commit = "replicated"`): a new flow leaves when its copies have it. At the end of the time-out of
    /// 0.1 s it leaves without them, or is dropped.
    #[arg(long, value_name = "ON_TIMEOUT", num_args = 0..=1, require_equals = true, default_missing_value = "release")]
    commit: Option<OnTimeout>,
    /// Leave out the negative control: the same kill in a cluster without copies, which must break connections.
    #[arg(long)]
    no_control: bool,
    /// Nodes at the start.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// Shards of each node, not counting copies; 8,192 of all nodes are the most that a cluster has. [default: 8 in all]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    shards: Option<u16>,
    /// Flows that each node's tables have room for, at about 95 bytes each. [default: 100000]
    #[arg(long, value_name = "FLOWS")]
    tables: Option<u32>,
    /// How long ports rest (`[nat] quarantine_sec`), and a site that restarts without etcd stays closed. [default: as shipped]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(5..=86_400))]
    quarantine: Option<u32>,
    /// Reserves huge pages for all tables as long as the demonstration runs.
    #[arg(long)]
    huge_pages: bool,
    /// Less load and no waiting for connections that are idle for 30 s.
    #[arg(long)]
    short: bool,
    /// Where the timeline goes.
    #[arg(long, value_name = "FILE", default_value = "target/failover.svg")]
    timeline: PathBuf,
    /// Show the logs of all daemons when a promise was missed.
    #[arg(long)]
    logs: bool,
}

type Rows = Vec<(Promise, Observation)>;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every promise was kept.
fn run(args: &Args) -> Result<bool> {
    let begun = Instant::now();
    let progress = |text: &str| println!("[{:5.1} s] {text}", begun.elapsed().as_secs_f32());
    let events: Vec<Event> = if args.events.is_empty() {
        EVENTS.iter().filter(|event| event.is_shown).copied().collect()
    } else if args.events == ["all"] {
        EVENTS.to_vec()
    } else {
        args.events.iter().map(|name| Event::named(name)).collect::<Result<_>>()?
    };
    let mut rows = cluster(args, &events, &progress)?;
    if !args.no_control {
        progress("negative control: a cluster without copies");
        rows.extend(control(args, &progress)?);
        print!("\n{}", render(&rows[rows.len() - 1..]));
    }
    let missed: BTreeSet<&str> = rows
        .iter()
        .filter(|(promise, seen)| !promise.missed(seen).is_empty())
        .map(|(_, seen)| seen.name.as_str())
        .collect();
    match missed.is_empty() {
        true => println!("\nEvery promise was kept."),
        false => println!("\nMissed: {}", missed.into_iter().collect::<Vec<_>>().join("; ")),
    }
    Ok(rows.iter().all(|(promise, seen)| promise.missed(seen).is_empty()))
}

fn options(args: &Args) -> ClusterOptions {
    let default = ClusterOptions::default();
    ClusterOptions {
        nodes: args.nodes,
        switches: if args.frr { SwitchKind::Frr } else { SwitchKind::Bird },
        bfd: Duration::from_millis(args.bfd),
        shards: args.shards.map_or(default.shards, |shards| shards * u16::from(args.nodes)),
        flows_max: args.tables.unwrap_or(default.flows_max),
        has_huge_pages: args.huge_pages,
        commit: args.commit.map(OutputCommit::ending_in),
        quarantine_sec: args.quarantine,
        ..default
    }
}

fn pace(args: &Args) -> Pace {
    if args.short { Pace::short() } else { Pace::full() }
}

fn cluster(args: &Args, events: &[Event], progress: &impl Fn(&str)) -> Result<Rows> {
    let adds = events.iter().filter(|event| event.name == "add").count() * args.runs;
    let adds = adds * usize::from(TRIES_MAX);
    let options = ClusterOptions { spare_nodes: u8::try_from(adds)?, ..options(args) };
    let mut lab = ClusterLab::start(options, progress)?;
    progress("opening connections");
    let mut observer = Observer::start(&lab, pace(args))?;
    progress(&format!("{} connections are open", observer.open_connections()));
    let mut rows = Rows::new();
    for _ in 0..args.runs {
        for event in events {
            let seen = event.run(&mut lab, &mut observer, progress);
            if !lab.lab.is_open() {
                anyhow::bail!("interrupted");
            }
            let seen = seen.with_context(|| lab.lab.logs())?;
            for (promise, observation) in &seen {
                for missed in promise.missed(observation) {
                    progress(&format!("  MISSED: {missed}"));
                }
            }
            rows.extend(seen);
        }
    }
    progress("done");
    print!("\n{}", render(&rows));
    if args.runs > 1 {
        print!("\n{}", summary(&rows));
    }
    if let Some(folder) = args.timeline.parent() {
        fs::create_dir_all(folder)?;
    }
    let svg = observer.timeline().svg().map_err(anyhow::Error::msg)?;
    fs::write(&args.timeline, svg).with_context(|| args.timeline.display().to_string())?;
    println!("timeline: {}", args.timeline.display());
    let status = lab.control()?.weir(&["cluster", "status"])?;
    println!("\n$ weir cluster status\n{}{}", status.stdout, status.stderr);
    let is_missed = rows.iter().any(|(promise, seen)| !promise.missed(seen).is_empty());
    if is_missed && args.logs {
        println!("{}", lab.lab.logs());
    }
    if std::env::var("KEEP").is_ok_and(|value| !matches!(value.as_str(), "" | "0")) {
        keep::watch(&lab, &mut observer)?;
    }
    Ok(rows)
}

fn control(args: &Args, progress: &impl Fn(&str)) -> Result<Rows> {
    let mut lab =
        ClusterLab::start(ClusterOptions { replicas: 0, commit: None, ..options(args) }, progress)?;
    let mut observer = Observer::start(&lab, Pace::short())?;
    CONTROL.run(&mut lab, &mut observer, progress)
}
