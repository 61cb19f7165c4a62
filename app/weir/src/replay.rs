//! `weir replay`: shows what a node decided, from a recording of its input.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use weir_node_core::recording::{Replayed, replay};

/// Replay a recording of `weir-node run --record`: the node's input, and what it decided.
///
/// Nothing is sent and nothing is written. Prints a line for each action of the node, and with
/// `--events` for each event, with its time in seconds since the node began.
///
///   weir replay n1.jsonl
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The recording.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Also the node's input.
    #[arg(long)]
    events: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| name.to_string())?;
    let mut out = std::io::stdout().lock();
    let mut printed = Ok(());
    let ended = replay(BufReader::new(file), |now, replayed| {
        let line = match replayed {
            Replayed::Event(_) if !args.events => return,
            Replayed::Event(event) => format!("{:>12.6}   {event:?}", now.as_secs_f64()),
            Replayed::Action(action) => format!("{:>12.6} > {action:?}", now.as_secs_f64()),
        };
        if printed.is_ok() {
            printed = writeln!(out, "{line}");
        }
    });
    printed?;
    let core = ended.with_context(|| name.to_string())?;
    core.with_context(|| {
        format!("{name}: it is empty: name a file that `weir-node run --record` wrote")
    })?;
    Ok(())
}
