//! `weir reload`: has a single node take its file again.

use std::io::{self, Write};
use std::process::ExitCode;

use weir_admin::api::{Reload, ReloadChange, ReloadOutcome};

use crate::node_socket::NodeSocket;
use crate::print_error;

/// Have a node take the settings of its file again, while packets pass. Needs root.
///
/// The node reads the file that it was started with, checks all of it, says what changes and what
/// each change does to live flows, and takes the whole file or nothing of it. Changes that would
/// end live flows are marked with !, and are refused without --force. A file with a key that only a
/// restart takes is refused, and the key is named. After a refusal the former settings go on.
///
/// The nodes of a cluster take their settings with `weir apply`.
///
///   weir reload --dry-run
///   weir reload
///
/// Exit codes: 0 applied, or nothing to change, or with --dry-run applicable; 1 refused, or a
/// worker has not taken the settings yet.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Change nothing, only say what would change; for every user that may ask the node.
    #[arg(long)]
    dry_run: bool,
    /// Although live flows end by it: all those that the changes marked with ! name.
    #[arg(long)]
    force: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match reload(args) {
        Ok(code) => code,
        Err(error) => {
            print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn reload(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.node.client()?;
    let path = if args.force { "/reload?force=true" } else { "/reload" };
    let answer: Reload = if args.dry_run { client.get(path)? } else { client.post(path)? };
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    } else {
        print(&mut out, &answer)?;
    }
    let is_done = answer.outcome != ReloadOutcome::Refused && answer.lagging.is_empty();
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(out: &mut impl Write, answer: &Reload) -> io::Result<()> {
    for warning in &answer.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    for change in &answer.changes {
        writeln!(out, "{}", line(change))?;
    }
    for error in &answer.errors {
        writeln!(out, "error: {error}")?;
    }
    let generation = answer.generation;
    match answer.outcome {
        ReloadOutcome::Applied => writeln!(out, "applied: generation {generation}")?,
        ReloadOutcome::Unchanged => writeln!(out, "nothing to change: generation {generation}")?,
        ReloadOutcome::WouldApply => writeln!(out, "can be applied; nothing was changed")?,
        ReloadOutcome::Refused => {
            writeln!(out, "refused: generation {generation} goes on, nothing was changed")?;
        }
    }
    for worker in &answer.lagging {
        writeln!(out, "error: worker {worker} has not taken it yet: see `weir status`")?;
    }
    Ok(())
}

/// Returns the line of a change.
fn line(change: &ReloadChange) -> String {
    let ReloadChange { subject, what, effect, is_stranding, needs_restart } = change;
    match (needs_restart, is_stranding) {
        (true, _) => format!("! {subject}: {what} (needs a restart)"),
        (false, true) => format!("! {subject}: {what} ({effect})"),
        (false, false) => format!("  {subject}: {what} ({effect})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(outcome: ReloadOutcome, changes: &[ReloadChange], errors: &[&str]) -> String {
        let answer = Reload {
            outcome,
            generation: 3,
            errors: errors.iter().map(ToString::to_string).collect(),
            warnings: Vec::new(),
            changes: changes.to_vec(),
            lagging: vec![],
        };
        let mut out = Vec::new();
        print(&mut out, &answer).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn change(subject: &str, is_stranding: bool, needs_restart: bool) -> ReloadChange {
        let (subject, what, effect) = (subject.into(), "1 -> 2".into(), "flows go on".into());
        ReloadChange { subject, what, effect, is_stranding, needs_restart }
    }

    #[test]
    fn refused_file_names_each_change_and_the_generation_that_goes_on() {
        let changes =
            [change("nat.flows_max", false, true), change("timeouts.udp_sec", false, false)];
        let text = printed(ReloadOutcome::Refused, &changes, &["nat.flows_max needs a restart"]);
        let expected = "! nat.flows_max: 1 -> 2 (needs a restart)\n\
                        \u{20} timeouts.udp_sec: 1 -> 2 (flows go on)\n\
                        error: nat.flows_max needs a restart\n\
                        refused: generation 3 goes on, nothing was changed\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn applied_file_names_its_generation() {
        let text = printed(ReloadOutcome::Applied, &[change("limits.flows", false, false)], &[]);
        assert!(text.ends_with("applied: generation 3\n"), "{text}");
        let same = printed(ReloadOutcome::Unchanged, &[], &[]);
        assert_eq!(same, "nothing to change: generation 3\n");
    }
}
