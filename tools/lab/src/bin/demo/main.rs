//! The demonstration: a cluster of nodes under a thousand connections loses one node after the
//! other, and a table shows what the homes saw of it.
//!
//! Ends with an error when a promise was missed. With `KEEP=1` the cluster is left running under
//! load, watched, until Ctrl-C: at once, or after the named events.

mod display;
mod keep;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use weir_lab::cluster::{ClusterLab, ClusterOptions, OnTimeout, OutputCommit};
use weir_lab::failover::{
    CONTROL, EVENTS, Event, Moment, Observer, Pace, TRIES_MAX, Timeline, picture, render, summary,
};
use weir_lab::machine::{Machine, Needs};
use weir_lab::program::exit_code;
use weir_lab::steering::SwitchKind;

use crate::display::{Display, Rows};

/// How long the machine is examined before anything is started on it.
const LOOK: Duration = Duration::from_secs(2);
/// Estimated time that a cluster takes to start.
const START: Duration = Duration::from_secs(10);

/// Lets one node after the other fail, under load, and tells what homes saw of it.
#[derive(Debug, Parser)]
struct Args {
    /// The events, or `all`; without any, those of the demonstration. A wrong name prints those
    /// that there are.
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
    /// Output commit (`commit = "replicated"`): a new flow leaves when its copies have it. At the
    /// end of the time-out of 0.1 s it leaves without them, or is dropped.
    #[arg(long, value_name = "ON_TIMEOUT", num_args = 0..=1, require_equals = true, default_missing_value = "release")]
    commit: Option<OnTimeout>,
    /// Leave out the negative control: the same kill in a cluster without copies, which must break
    /// connections.
    #[arg(long)]
    no_control: bool,
    /// Nodes at the start.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// Shards of each node, not counting copies; 8,192 of all nodes are the most that a cluster
    /// has. [default: 8 in all]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    shards: Option<u16>,
    /// Flows that each node's tables have room for, at about 95 bytes each. [default: 100000]
    #[arg(long, value_name = "FLOWS")]
    tables: Option<u32>,
    /// How long ports rest (`[nat] quarantine_sec`), and a site that restarts without etcd stays
    /// closed. [default: as shipped]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(5..=86_400))]
    quarantine: Option<u32>,
    /// Reserves huge pages for all tables as long as the demonstration runs.
    #[arg(long)]
    huge_pages: bool,
    /// Less load and no waiting for connections that are idle for 30 s.
    #[arg(long)]
    short: bool,
    /// Where the picture goes: what homes saw of each event, and the nodes' shards over time.
    #[arg(long, value_name = "FILE", default_value = "target/failover.svg")]
    timeline: PathBuf,
    /// Show the logs of all daemons when a promise was missed.
    #[arg(long)]
    logs: bool,
}

fn main() -> ExitCode {
    exit_code("demo", run(&Args::parse()))
}

/// Runs the demonstration. Returns whether every promise was kept.
fn run(args: &Args) -> Result<bool> {
    let events: Vec<Event> = if args.events.is_empty() {
        EVENTS.iter().filter(|event| event.is_shown).copied().collect()
    } else if args.events == ["all"] {
        EVENTS.to_vec()
    } else {
        args.events.iter().map(|name| Event::named(name)).collect::<Result<_>>()?
    };
    let keeps = std::env::var("KEEP").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    let mut display = Display::new(estimates(args, &events));
    look_at_machine(args, &display)?;
    if keeps && args.events.is_empty() {
        keep(args, &display)?;
        return Ok(true);
    }
    let timeline = cluster(args, &events, &mut display, keeps)?;
    if !args.no_control {
        let first = display.rows.len();
        control(args, &mut display)?;
        print!("\n{}", render(&display.rows[first..]));
        draw(args, &display.rows, &timeline)?;
    }
    let missed = missed(&display.rows);
    match missed.is_empty() {
        true => println!("\nEvery promise was kept."),
        false => println!("\nMissed: {}", missed.iter().copied().collect::<Vec<_>>().join("; ")),
    }
    Ok(missed.is_empty())
}

/// Returns the names of the rows that count and missed their promise.
fn missed(rows: &Rows) -> BTreeSet<&str> {
    let counts = rows.iter().filter(|(_, seen)| !seen.is_repeated);
    let missed = counts.filter(|(promise, seen)| !promise.missed(seen).is_empty());
    missed.map(|(_, seen)| seen.name.as_str()).collect()
}

/// Estimates the time of each row, the control included.
fn estimates(args: &Args, events: &[Event]) -> Vec<Duration> {
    let of = |events: &[Event], pace: &Pace| -> Vec<Duration> {
        let moments = events.iter().flat_map(|event| event.moments);
        moments.map(|moment: &Moment| moment.estimate(pace)).collect()
    };
    let mut estimates = of(events, &pace(args)).repeat(args.runs);
    if !args.no_control {
        estimates.extend(of(&[CONTROL], &Pace::short()).iter().map(|time| *time + START));
    }
    estimates
}

/// Reports the state of the machine, and what of it endangers the promises.
fn look_at_machine(args: &Args, display: &Display) -> Result<()> {
    display.print(&format!("looking at this machine for {} s", LOOK.as_secs()));
    let machine = Machine::look(LOOK)?;
    display.print(&machine.to_string());
    let options = options(args);
    let pages = options.files().huge_pages() * u64::from(options.nodes);
    let needs = Needs { table_bytes: pages << 21, has_huge_pages: args.huge_pages };
    machine.faults(needs).iter().for_each(|fault| println!("  {fault}"));
    Ok(())
}

/// Runs the cluster and its load without any event.
fn keep(args: &Args, display: &Display) -> Result<()> {
    let begun = Instant::now();
    let lab = ClusterLab::start(options(args), |text| display.print(text))?;
    display.print("opening connections");
    let mut observer = Observer::start(&lab, keep::pace(pace(args)))?;
    let open = observer.open_connections();
    let took = begun.elapsed().as_secs_f32();
    display.print(&format!("{open} connections are open; the cluster was up in {took:.0} s"));
    keep::watch(&lab, &mut observer)
}

fn draw(args: &Args, rows: &Rows, timeline: &Timeline) -> Result<()> {
    if let Some(folder) = args.timeline.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let svg = picture(rows, timeline).map_err(anyhow::Error::msg)?;
    fs::write(&args.timeline, svg).with_context(|| args.timeline.display().to_string())
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

/// Runs the events on a cluster. Returns the map over the time of the run.
fn cluster(args: &Args, events: &[Event], display: &mut Display, keeps: bool) -> Result<Timeline> {
    let adds = events.iter().filter(|event| event.name == "add").count() * args.runs;
    let adds = adds * usize::from(TRIES_MAX);
    let options = ClusterOptions { spare_nodes: u8::try_from(adds)?, ..options(args) };
    let mut lab = ClusterLab::start(options, |text| display.print(text))?;
    display.print("opening connections");
    let mut observer = Observer::start(&lab, pace(args))?;
    display.print(&format!("{} connections are open", observer.open_connections()));
    for _ in 0..args.runs {
        for event in events {
            let seen = event
                .run_and_report(&mut lab, &mut observer, &mut |progress| display.show(progress));
            ensure!(lab.lab.is_open(), "interrupted");
            seen.with_context(|| lab.lab.logs())?;
        }
    }
    display.print("done");
    print!("\n{}", render(&display.rows));
    if args.runs > 1 {
        print!("\n{}", summary(&display.rows));
    }
    draw(args, &display.rows, observer.timeline())?;
    println!("picture: {}", args.timeline.display());
    let status = lab.control()?.weir(&["cluster", "status"])?;
    println!("\n$ weir cluster status\n{}{}", status.stdout, status.stderr);
    if !missed(&display.rows).is_empty() && args.logs {
        println!("{}", lab.lab.logs());
    }
    let timeline = observer.timeline().clone();
    if keeps {
        keep::watch(&lab, &mut observer)?;
    }
    Ok(timeline)
}

fn control(args: &Args, display: &mut Display) -> Result<()> {
    display.print("negative control: a cluster without copies");
    let options = ClusterOptions { replicas: 0, commit: None, ..options(args) };
    let mut lab = ClusterLab::start(options, |text| display.print(text))?;
    let mut observer = Observer::start(&lab, Pace::short())?;
    let seen =
        CONTROL.run_and_report(&mut lab, &mut observer, &mut |progress| display.show(progress));
    ensure!(lab.lab.is_open(), "interrupted");
    seen.with_context(|| lab.lab.logs())?;
    Ok(())
}
