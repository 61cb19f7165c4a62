//! `weir traffic bench`: weir beside raw packet I/O.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_traffic::bench::{self, BenchPlan};
use weir_traffic::generator::FloodPlan;
use weir_traffic::scenario::Scenario;

use super::SEED;

/// Flood before the measured part of a round.
const WARM_UP: Duration = Duration::from_millis(500);
/// Huge pages of 2 MiB a benchmark likes to have: packet memory of two processes and the tables of a million flows.
const BENCH_HUGE_PAGES: u64 = 1024;

/// Measure weir beside raw DPDK forwarding over the same pair of memif ports, in alternating rounds.
///
/// Raw is testpmd in io mode (Debian package dpdk-dev). Needs two cores that nobody else uses, and
/// root for huge pages (it also runs without). Exit code 1 when a packet came back wrong, or when
/// no round counts because the machine changed its speed.
///
///   weir traffic bench
///   weir traffic bench --short --flows 10000
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Bench {
    /// Fewer and shorter rounds: 3 of 2 s instead of 5 of 5 s.
    #[arg(long)]
    short: bool,

    /// Numbers of flows to measure with.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 1_000_000])]
    flows: Vec<u32>,

    /// Flows of each home.
    #[arg(long, value_name = "N", default_value_t = 64)]
    flows_per_subscriber: u32,

    /// Core of the generator.
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    generator_core: usize,

    /// Core of the device under test.
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    device_core: usize,

    /// Leave the machine's huge pages as they are, instead of reserving 2 GiB while it runs.
    #[arg(long)]
    keep_huge_pages: bool,

    /// Folder for report.md and report.json.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    output: PathBuf,
}

pub(super) fn run(args: &Bench) -> anyhow::Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let scenarios: Result<Vec<_>, _> = args
        .flows
        .iter()
        .map(|&flows| Scenario::new(flows, args.flows_per_subscriber, SEED))
        .collect();
    let (pairs, measured) =
        if args.short { (3, Duration::from_secs(2)) } else { (5, Duration::from_secs(5)) };
    let plan = BenchPlan {
        scenarios: scenarios?,
        pairs,
        flood: FloodPlan { warm_up: WARM_UP, measured },
        generator_core: args.generator_core,
        device_core: args.device_core,
        weir: std::env::current_exe().context("the weir binary")?,
        huge_pages: if args.keep_huge_pages { 0 } else { BENCH_HUGE_PAGES },
        interrupted,
    };
    let report = bench::bench(&plan, |line| eprintln!("{line}"))?;
    report.write(&args.output)?;
    println!("\n{}\nDetails: {}", report.table(), args.output.join("report.md").display());
    ensure!(report.wrong() == 0, "{} packets came back wrong", report.wrong());
    ensure!(report.is_conclusive(), "no round counts: the machine changed its speed all the time");
    Ok(())
}
