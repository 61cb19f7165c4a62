//! Plays histories from seeds and prints their outcomes; a failing one is shrunk and printed.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use weir_sim::fault::Timed;
use weir_sim::options::Options;
use weir_sim::{LogCounts, Outcome, planted, play_with, schedule, shrink};

/// The cluster in virtual time: production code under faults that come from a seed.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds: 1, or with `--planted` 1,000 for each bug at most.
    #[arg(long)]
    seeds: Option<u64>,
    /// Only histories in which packets wait for copies: so many of those.
    #[arg(long, conflicts_with = "planted")]
    commit: bool,
    /// Leave out the faults without which a failing history fails as well.
    #[arg(long)]
    shrink: bool,
    /// Print the timeline also if nothing failed.
    #[arg(long)]
    tell: bool,
    /// Play each history twice and compare the runs.
    #[arg(long)]
    twice: bool,
    /// Leave out these of the faults, by number from 0.
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
    /// Plant the bugs of tools/sim/mutations and say how many seeds it takes to find each. Builds a
    /// copy of the source tree with all of them in it, under target/planted, and plays there.
    #[arg(long)]
    planted: bool,
    /// Only this bug.
    #[arg(long, requires = "planted")]
    bug: Option<String>,
    /// Play first, of each bug, the history that its patch says has found it.
    #[arg(long, requires = "planted")]
    known_first: bool,
}

/// Most histories that are played for each planted bug.
const PLANTED_SEEDS: u64 = 1_000;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.planted {
        return match play_planted(&arguments) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("weir-sim: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let seeds = arguments.seeds.unwrap_or(1);
    let began = Instant::now();
    let (mut events, mut simulated_us, mut failed) = (0, 0, 0);
    let mut logs = LogCounts::default();
    let is_wanted = |seed: &u64| !arguments.commit || Options::of_seed(*seed).commit.is_some();
    for seed in (arguments.seed..).filter(is_wanted).take(seeds as usize) {
        let options = Options::of_seed(seed);
        let mut faults = schedule::draw(seed, &options);
        let mut number = 0;
        faults.retain(|_| {
            number += 1;
            !arguments.without.contains(&(number - 1))
        });
        let outcome = play_with(seed, &options, &faults, arguments.tell);
        events += outcome.events;
        simulated_us += outcome.simulated_us;
        logs += outcome.log_counts;
        if arguments.twice && play_with(seed, &options, &faults, false).digest != outcome.digest {
            println!("seed {seed}: two runs differ");
            failed += 1;
        }
        match &outcome.violation {
            Some(violation) => {
                failed += 1;
                println!("seed {seed} FAILED at {} s: {violation}", seconds(outcome.simulated_us));
                if arguments.shrink || seeds == 1 {
                    print_outcome(&outcome, &options, &faults, arguments.shrink);
                }
            }
            None if arguments.tell => outcome.timeline.iter().for_each(|line| println!("{line}")),
            None => {}
        }
    }
    let real = began.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {failed} failed: {events} events, {} s simulated in {real:.1} s: {:.0} events/s",
        seconds(simulated_us),
        events as f64 / real
    );
    println!(
        "who had a port, {} questions: all block logs answered {}, parts of them {}",
        logs.asked, logs.answered, logs.answered_by_parts
    );
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Plays histories of the planted bugs in the copy of the source tree that contains them.
fn play_planted(arguments: &Arguments) -> Result<ExitCode> {
    let mut mutations = planted::mutations()?;
    if let Some(only) = &arguments.bug {
        let names: Vec<_> = mutations.iter().map(|mutation| mutation.name).collect();
        if !names.contains(&only.as_str()) {
            bail!("--bug {only}: one of {}", names.join(", "));
        }
        mutations.retain(|mutation| mutation.name == only);
    }
    if planted::is_copy() {
        // A panic may be how a bug is found: the table shows it.
        std::panic::set_hook(Box::new(|_| {}));
        let first = arguments.seed;
        let seeds = first..first + arguments.seeds.unwrap_or(PLANTED_SEEDS);
        let are_found = planted::print_table(&mutations, seeds, arguments.known_first);
        return Ok(if are_found { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let binary = planted::build()?;
    let error = Command::new(&binary).args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| binary.display().to_string())
}

fn seconds(us: u64) -> String {
    format!("{:.3}", us as f64 / 1e6)
}

/// Prints the timeline of a failing history, with as few faults as it takes to fail.
fn print_outcome(outcome: &Outcome, options: &Options, faults: &[Timed], is_shrunk: bool) {
    let seed = outcome.seed;
    let left = if is_shrunk { shrink(seed, options, faults) } else { faults.to_vec() };
    println!("\nseed {seed}, {} of {} faults: {options:#?}", left.len(), faults.len());
    for line in play_with(seed, options, &left, true).timeline {
        println!("{line}");
    }
    println!("\nfaults:");
    for timed in &left {
        println!("  after {} s: {}", seconds(timed.after_us), timed.fault);
    }
}
