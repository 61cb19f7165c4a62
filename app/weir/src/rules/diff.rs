//! `weir rules diff`: what changes from one file to another, and on which flows they differ.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use weir_config::{SettingChange, policy_difference};
use weir_policy::{DecisionChange, PolicyComparison, RuleVerdict, compare};

use super::policy_file::LoadedPolicy;
use super::stdout;

/// Flows that are shown of each kind of change.
const EXAMPLES_MAX: usize = 3;

/// Compare the rules of two files: what is added, removed, moved and changed, and which flows are
/// decided otherwise.
///
/// Flows at the borders of both files' rules are asked of both, up to 400,000, first those of rules
/// that differ. So what is shown does change; a change without a flow here is possible.
///
///   weir rules diff /etc/weir/weir.toml new.toml
///   weir rules diff old.toml new.toml --json
///
/// Exit codes: 0 no difference, 1 differences, 2 an error.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The file with the rules of now.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The file with the rules to come.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A verdict and the rule that gives it.
type Decision<'p> = (RuleVerdict, Option<&'p str>);

/// The flows of each kind of change: from one decision to another.
type Kinds<'p> = BTreeMap<(Decision<'p>, Decision<'p>), Vec<&'p DecisionChange>>;

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let old = LoadedPolicy::read(&args.old)?;
    let new = LoadedPolicy::read(&args.new)?;
    let entries = |policy: &LoadedPolicy| policy.settings.clone().with_entries(&policy.sets);
    let changes = policy_difference(&entries(&old), &entries(&new));
    let homes = ipnet::Ipv4Net::aggregate(&[&old.homes[..], &new.homes[..]].concat());
    let comparison = compare(&old.compiled, &new.compiled, &homes);
    let kinds = kinds(&old, &new, &comparison);
    match args.json {
        true => print_json(&changes, &comparison, &kinds)?,
        false => print(&changes, &comparison, &kinds)?,
    }
    let is_same = changes.is_empty() && comparison.changes.is_empty();
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn kinds<'p>(
    old: &'p LoadedPolicy,
    new: &'p LoadedPolicy,
    comparison: &'p PolicyComparison,
) -> Kinds<'p> {
    let mut kinds = Kinds::new();
    for change in &comparison.changes {
        let before = (change.old, change.old_rule.map(|rule| old.name(rule)));
        let after = (change.new, change.new_rule.map(|rule| new.name(rule)));
        kinds.entry((before, after)).or_default().push(change);
    }
    kinds
}

fn words((verdict, rule): &Decision<'_>) -> String {
    match rule {
        Some(rule) => format!("{} by {rule}", verdict.name()),
        None => format!("{} without a rule", verdict.name()),
    }
}

fn print(
    changes: &[SettingChange],
    comparison: &PolicyComparison,
    kinds: &Kinds<'_>,
) -> anyhow::Result<()> {
    let mut out = stdout();
    for change in changes {
        writeln!(out, "{}: {}", change.subject, change.what)?;
    }
    for ((before, after), flows) in kinds {
        writeln!(out, "{} -> {}:", words(before), words(after))?;
        for change in flows.iter().take(EXAMPLES_MAX) {
            writeln!(out, "  {}", change.flow)?;
        }
    }
    let (asked, differ) = (comparison.asked, comparison.changes.len());
    writeln!(
        out,
        "changes: {}; questions: {asked}, flows decided otherwise: {differ}",
        changes.len()
    )?;
    Ok(out.flush()?)
}

fn print_json(
    changes: &[SettingChange],
    comparison: &PolicyComparison,
    kinds: &Kinds<'_>,
) -> anyhow::Result<()> {
    let changes: Vec<_> = changes
        .iter()
        .map(|change| json!({ "subject": change.subject, "what": change.what }))
        .collect();
    let side = |(verdict, rule): &Decision<'_>| json!({ "verdict": verdict.name(), "rule": rule });
    let decisions: Vec<_> = kinds
        .iter()
        .map(|((before, after), flows)| {
            let shown = flows.iter().take(EXAMPLES_MAX).map(|change| change.flow.to_string());
            json!({
                "old": side(before),
                "new": side(after),
                "flows": flows.len(),
                "examples": shown.collect::<Vec<_>>(),
            })
        })
        .collect();
    let answer =
        json!({ "changes": changes, "questions": comparison.asked, "decisions": decisions });
    let mut out = stdout();
    writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    Ok(out.flush()?)
}
