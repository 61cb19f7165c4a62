//! `weir-gate`: counts, prints a table, and fails when a part exceeds its limit.

#![forbid(unsafe_code)]

use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use weir_gate::{PARTS, Part, callgrind};

fn main() -> ExitCode {
    command().unwrap_or_else(|error| {
        eprintln!("weir-gate: {error:#}");
        ExitCode::FAILURE
    })
}

fn command() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => gate(),
        ["run", name] => {
            let part = PARTS.iter().find(|part| part.name == *name).context("no such part")?;
            println!("{}", (part.run)());
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("usage: weir-gate | weir-gate run PART"),
    }
}

/// Returns the instructions per packet of each part; all run at once.
fn count(program: &Path, parts: &[Part]) -> Vec<anyhow::Result<f64>> {
    std::thread::scope(|scope| {
        let count = |part| scope.spawn(move || callgrind::instructions_per_packet(program, part));
        let running: Vec<_> = parts.iter().map(count).collect();
        running.into_iter().map(|part| part.join().expect("counting does not panic")).collect()
    })
}

fn gate() -> anyhow::Result<ExitCode> {
    if cfg!(debug_assertions) {
        bail!("only release code counts: cargo run --release -p weir-gate");
    }
    let program = std::env::current_exe()?;
    println!("instructions per packet");
    println!("{:<16}{:>10}{:>10}{:>10}", "part", "now", "limit", "of limit");
    let mut exceeded: Vec<&Part> = Vec::new();
    // Counts are the same whatever else a machine does, so each core takes a part at a time.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    for parts in PARTS.chunks(cores) {
        for (part, now) in parts.iter().zip(count(&program, parts)) {
            let now = now?;
            let share = 100.0 * now / part.limit;
            println!(
                "{:<16}{now:>10.1}{:>10.1}{share:>8.1} %  {}",
                part.name, part.limit, part.about
            );
            if now > part.limit {
                exceeded.push(part);
            }
        }
    }
    for part in &exceeded {
        println!(
            "{} exceeds its limit (in gate/src/lib.rs); where they go: valgrind --tool=callgrind '{}' \
             --callgrind-out-file=gate.out {} run {} && callgrind_annotate gate.out",
            part.name,
            callgrind::TOGGLE,
            program.display(),
            part.name,
        );
    }
    Ok(if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
