//! `weir-lab traffic bench`: the benchmark and its report.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_traffic::bench::{self, BenchPlan, RunsIn};

/// Measure weir beside raw DPDK forwarding and Linux NAT, in alternating rounds.
///
/// Raw is testpmd in io mode (Debian package dpdk-dev) over the same pair of memif ports. Needs two
/// cores that no other program uses, and root for huge pages (it also runs without). The report is
/// written after every experiment, so an interrupted run keeps what it has. Exit code 1 when a
/// packet came back wrong, or when something could not be measured that this machine can.
///
///   weir-lab traffic bench --short
///   weir-lab traffic bench --only established,flat
///   weir-lab traffic bench --only floods --rounds 3 --seconds 5
///   weir-lab traffic bench --only session-log --rounds 6
///   weir-lab traffic bench --only established --rounds 20 --against /usr/bin/weir-node
///   weir-lab traffic bench --only vpp --vpp /usr/bin/vpp
///   weir-lab traffic bench --list
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Bench {
    /// Under five minutes: fewer experiments, fewer and shorter rounds.
    #[arg(long)]
    short: bool,

    /// Experiments to run, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,

    /// Rounds of each point that shall count [default: as each experiment says].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,

    /// Seconds for which each flood is measured [default: as each experiment says].
    #[arg(long, value_name = "S", value_parser = super::seconds)]
    seconds: Option<Duration>,

    /// Another build of `weir-node`: each flood is measured with both, in turn, and their busy
    /// cycles are compared, with a 95 % interval from six rounds on.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    /// The program `vpp`, for the experiment of that name, with `vppctl` beside it and its plugins
    /// where its build puts them.
    #[arg(long, value_name = "FILE")]
    vpp: Option<PathBuf>,

    /// Names all experiments and ends.
    #[arg(long)]
    list: bool,

    /// Core of the generator.
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    generator_core: usize,

    /// Core of the device under test.
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    device_core: usize,

    /// Leave the machine's huge pages as they are, instead of reserving more while they are needed.
    #[arg(long)]
    keep_huge_pages: bool,

    /// Folder for report.md, report.json and the plots.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    output: PathBuf,
}

pub(crate) fn run(args: &Bench) -> anyhow::Result<()> {
    if args.list {
        for (name, title, runs_in) in bench::experiments() {
            let runs = match runs_in {
                RunsIn::Short => ", also in the short benchmark",
                RunsIn::Full => "",
                RunsIn::None => ", only when named",
            };
            println!("{name:<12} {title}{runs}");
        }
        return Ok(());
    }
    ensure!(args.seconds != Some(Duration::ZERO), "--seconds 0 measures nothing");
    if let Some(file) = &args.against {
        ensure!(
            file.is_file(),
            "--against {}: no such file; name another build of weir-node",
            file.display()
        );
    }
    if let Some(file) = &args.vpp {
        ensure!(file.is_file(), "--vpp {}: no such file", file.display());
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let generator = env::current_exe().context("the weir-lab binary")?;
    let plan = BenchPlan {
        is_short: args.short,
        only: args.only.clone(),
        rounds: args.rounds.map(usize::from),
        measured: args.seconds,
        generator_core: args.generator_core,
        device_core: args.device_core,
        node: node_beside(&generator)?,
        generator,
        against: args.against.clone(),
        vpp: args.vpp.clone(),
        takes_huge_pages: !args.keep_huge_pages,
        output: args.output.clone(),
        command: command(),
        interrupted,
    };
    let report = bench::bench(&plan, |line| eprintln!("{line}"))?;
    println!("\n{}\nDetails: {}", report.summary(), plan.output.join("report.md").display());
    ensure!(report.wrong() == 0, "{} packets came back wrong", report.wrong());
    let faults = report.faults();
    ensure!(faults.is_empty(), "not everything was measured:\n{}", faults.join("\n"));
    Ok(())
}

/// Returns the `weir-node` that lies beside this program.
fn node_beside(generator: &Path) -> anyhow::Result<PathBuf> {
    let node = generator.with_file_name("weir-node");
    ensure!(node.is_file(), "no program {}: `make build` makes it", node.display());
    Ok(node)
}

/// Returns the command line as it was given, except for the path of the binary.
fn command() -> String {
    let arguments = env::args().skip(1);
    std::iter::once("weir-lab".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
