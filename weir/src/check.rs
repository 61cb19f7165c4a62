//! `weir check`: what is wrong with a configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

/// Check a configuration file: all errors and warnings at once, each with line and column.
///
/// Says how much memory the tables of each worker will take. Needs no root and touches no device.
///
///   weir check /etc/weir/weir.toml
///
/// Exit codes: 0 valid (there may be warnings), 1 errors, 2 the file cannot be read.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let name = args.file.display().to_string();
    let text = match std::fs::read_to_string(&args.file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("weir: {name}: {error}");
            return ExitCode::from(2);
        }
    };
    match weir_config::parse(&text, &name) {
        Ok((config, warnings)) => {
            warnings.iter().for_each(|warning| println!("warning: {warning}"));
            let (workers, shards) = (config.workers.len(), config.shards.len());
            for worker in 0..workers {
                println!("worker {worker}: {}", weir_node::TableMemory::of(&config, worker));
            }
            println!(
                "{name}: valid; workers: {workers}, shards: {shards}, warnings: {}",
                warnings.len()
            );
            ExitCode::SUCCESS
        }
        Err(errors) => {
            errors.iter().for_each(|error| println!("error: {error}"));
            println!("{name}: not valid; errors: {}", errors.len());
            ExitCode::FAILURE
        }
    }
}
