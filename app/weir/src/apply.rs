//! `weir apply`: writes the settings of the whole cluster to etcd.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use jiff::Timestamp;
use weir_config::{Desired, Diagnostic};
use weir_controller::operate::{ApplyProgress, Comparison, Operator};
use weir_etcd::Revision;

use crate::etcd::{EtcdArgs, random, unix_ms};
use crate::rules::LoadedPolicy;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Exit codes of `--dry-run`.
const WOULD_CHANGE: u8 = 3;
const WOULD_STRAND: u8 = 4;

/// Write the cluster file to etcd, for all nodes and controllers.
///
/// Says what changes, and what each change does to live flows. Changes that would end some are
/// marked with !, and are refused without --force. The first time it makes the cluster.
/// When somebody else has applied a file meanwhile, nothing is written.
///
///   weir apply cluster.toml --dry-run
///   weir apply cluster.toml --wait --config /etc/weir/weir.toml
///
/// Exit codes: 0 applied, or nothing to change; 1 not applied; with --dry-run 3 if something would
/// change, 4 if that would end live flows.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The cluster file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write nothing, only say what would change.
    #[arg(long, conflicts_with_all = ["wait", "force"])]
    dry_run: bool,
    /// Return only when the leading controller and all running nodes have taken it, every shard is
    /// served, and the cluster is not at risk.
    #[arg(long)]
    wait: bool,
    /// Although live flows end by it: all those that the changes marked with ! name.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    etcd: EtcdArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    apply(args).unwrap_or_else(|error| {
        eprintln!("weir: {error:#}");
        ExitCode::FAILURE
    })
}

fn apply(args: &Args) -> anyhow::Result<ExitCode> {
    let file = args.file.display().to_string();
    let text =
        std::fs::read_to_string(&args.file).map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
    let (desired, warnings) = match weir_config::parse_cluster(&text, &file) {
        Ok(parsed) => parsed,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("error: {error}"));
            anyhow::bail!("{file} is not valid, so nothing was written");
        }
    };
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let desired = with_files(desired, &text, &file)?;
    let cluster = desired.cluster.name.clone();
    args.etcd.operate_on(Some(&cluster), async |operator| -> anyhow::Result<ExitCode> {
        let comparison = operator.compare(desired.clone()).await?;
        print_comparison(&desired, &comparison)?;
        if args.dry_run || comparison.is_same() {
            return Ok(verdict(&comparison));
        }
        let revision = operator.apply(&comparison, args.force, random()?, unix_ms()).await?;
        print("applied")?;
        if args.wait {
            wait(&operator, revision).await?;
        }
        print_leftover(&comparison)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the state as it goes to etcd: with what the files of its sets and static mappings have
/// in itself, and rules that each node can compile.
fn with_files(desired: Desired, text: &str, file: &str) -> anyhow::Result<Desired> {
    let refused = |errors: Vec<Diagnostic>| {
        errors.iter().for_each(|error| eprintln!("error: {error}"));
        anyhow::anyhow!("{file} is not valid, so nothing was written")
    };
    let desired = desired.with_files(|path| std::fs::read_to_string(path)).map_err(refused)?;
    let policy = LoadedPolicy::of_cluster(&desired, text, file).map_err(refused)?;
    policy.warnings().iter().for_each(|warning| eprintln!("warning: {warning}"));
    Ok(desired)
}

fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Returns the exit code of a dry run.
fn verdict(comparison: &Comparison) -> ExitCode {
    match comparison {
        same if same.is_same() => ExitCode::SUCCESS,
        hard if hard.needs_force() => ExitCode::from(WOULD_STRAND),
        _ => ExitCode::from(WOULD_CHANGE),
    }
}

fn print_comparison(desired: &Desired, comparison: &Comparison) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let (name, shards) = (&desired.cluster.name, desired.shards.len());
    if comparison.is_first() {
        let replicas = desired.cluster.replicas;
        return writeln!(out, "cluster {name} is new: shards: {shards}, replicas: {replicas}");
    }
    if comparison.is_same() {
        return writeln!(out, "cluster {name} is to be so already: nothing to change");
    }
    let before = comparison.applied.as_ref().map_or_else(String::new, |applied| {
        let seconds = i64::try_from(applied.at_ms / 1_000).unwrap_or(i64::MAX);
        let time = Timestamp::from_second(seconds).map_or_else(|_| "-".into(), |it| it.to_string());
        format!("; before, {} applied a file at {time}", applied.by)
    });
    writeln!(out, "cluster {name}: changes: {}{before}", comparison.changes.len())?;
    if let Some(why) = &comparison.unreadable {
        writeln!(out, "! what is wanted now cannot be read: {why}")?;
    }
    for change in &comparison.changes {
        let mark = if change.effect.is_stranding() { '!' } else { ' ' };
        writeln!(out, "{mark} {change}")?;
    }
    Ok(())
}

/// Returns when the file has taken effect; prints the progress meanwhile.
async fn wait(operator: &Operator, revision: Revision) -> anyhow::Result<()> {
    let mut printed = String::new();
    loop {
        let progress = operator.apply_progress(revision).await?;
        let text = words(&progress);
        if text != printed {
            print(&text)?;
            printed = text;
        }
        if progress.is_done() {
            return Ok(());
        }
        // A blocking sleep: this command has nothing else to do meanwhile.
        sleep(LOOK_INTERVAL);
    }
}

fn words(progress: &ApplyProgress) -> String {
    let ApplyProgress { is_taken, wanted, served, lagging, waits, risk } = progress;
    let taken =
        if *is_taken { "the controller has taken it" } else { "no controller has taken it yet" };
    let waits = match risk {
        _ if progress.is_done() => String::new(),
        _ if progress.is_served() && !lagging.is_empty() => {
            format!("; have not taken the settings yet: {}", lagging.join(", "))
        }
        Some(risk) if progress.is_served() => format!("; at risk: {risk}"),
        _ if waits.is_empty() => String::new(),
        _ => format!("; waits: {waits}"),
    };
    format!("{taken}, {served} of {wanted} shards are served{waits}")
}

fn print_leftover(comparison: &Comparison) -> io::Result<()> {
    if comparison.leftover.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = comparison.leftover.iter().map(u32::to_string).collect();
    let ids = ids.join(" ");
    print(&format!(
        "not in the file, but served: {ids}; `weir controller retire {ids}` ends their flows"
    ))
}
