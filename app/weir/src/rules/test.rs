//! `weir rules test`: the rule that decides on a flow; or a table of flows with their verdicts.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use serde_json::json;
use weir_config::FilteringSetting;
use weir_policy::{FlowQuestion, RuleExplanation, RuleVerdict};
use weir_rules::{FlowOrigin, FlowPolicy};

use super::case::{self, FailedCase};
use super::given::GivenWords;
use super::policy_file::LoadedPolicy;
use super::{PolicySource, stdout};

/// Tell which rule decides on a flow, and which others fit it.
///
/// The flow is written as
///
///   FROM SUBSCRIBER tcp|udp INSIDE_PORT REMOTE:PORT
///   FROM SUBSCRIBER icmp REMOTE
///
/// FROM is home or internet: the side that begins it. SUBSCRIBER is the home: the outer address of
/// its tunnel, with plain access its own. Of an IPv6 flow SUBSCRIBER is the home's own address, in
/// a tunnel with the outer address behind @, which decides on the home's group; the remote is
/// [2001:db8:9::2]:53 or, as two words, 2001:db8:9::2 53; icmp is ICMPv6. With --table each line of
/// a file is such a flow, followed by the verdict that is expected (accept, drop, reject, bypass,
/// redirect, or filtering where no rule fits a packet from the internet) and perhaps the rule (-
/// for none); # begins a comment.
///
///   weir rules test -c /etc/weir/weir.toml home 10.200.1.5 udp 40000 198.51.100.7:53
///   weir rules test home 10.200.1.5 tcp 40000 192.0.2.7:25
///   weir rules test -c cluster.toml internet 10.200.1.5 icmp 198.51.100.7
///   weir rules test -c plain.toml home 2001:db8::1 udp 40000 2001:db8:9::2 53
///   weir rules test home 2001:db8::1@10.200.1.5 icmp 2001:db8:9::2
///   weir rules test home 2001:db8:e::5 udp 40000 198.51.100.7:53
///   weir rules test -c cluster.toml --table cases.txt
///
/// Exit codes: 0 accepted, or all lines are as expected; 1 refused, or some are not; 2 an error.
/// A packet from the internet that no rule fits counts as accepted with endpoint-independent
/// filtering only.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    source: PolicySource,
    /// The flow.
    #[arg(value_name = "FLOW", num_args = 4..=6, required_unless_present = "table")]
    flow: Vec<String>,
    /// A file of flows with the expected verdicts.
    #[arg(long, value_name = "FILE", conflicts_with = "flow")]
    table: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = args.source.load()?;
    match &args.table {
        Some(table) => run_table(&policy, table, args.json),
        None => run_flow(&policy, &args.flow, args.json),
    }
}

fn run_flow(policy: &LoadedPolicy, words: &[String], is_json: bool) -> anyhow::Result<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let flow = policy.flow(&words).map_err(|error| anyhow!("{error}"))?;
    let explained = policy.compiled.explain(&flow);
    let verdict = verdict(&flow, &explained);
    let group = policy.compiled.group_name(policy.compiled.group_of(&flow));
    match is_json {
        true => print_json(policy, &flow, verdict, group, &explained)?,
        false => print(policy, &flow, verdict, group, &explained)?,
    }
    let is_accepted = match verdict {
        RuleVerdict::Accept | RuleVerdict::Bypass | RuleVerdict::Redirect => true,
        RuleVerdict::Filtering => policy.filtering == FilteringSetting::EndpointIndependent,
        RuleVerdict::Drop | RuleVerdict::Reject => false,
    };
    Ok(if is_accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verdict(flow: &FlowQuestion, explained: &RuleExplanation) -> RuleVerdict {
    RuleVerdict::of(flow.from, explained.deciding)
}

fn given<'p>(policy: &'p LoadedPolicy, explained: &RuleExplanation) -> GivenWords<'p> {
    let given = explained.deciding.map_or(FlowPolicy::NONE, |rule| rule.policy);
    GivenWords::of(&policy.compiled, given)
}

/// Returns what a rule does with the flow if it decides.
fn action_name(policy: &LoadedPolicy, flow: &FlowQuestion, rule: u32) -> &'static str {
    RuleVerdict::of(flow.from, policy.compiled.rules.deciding(rule)).name()
}

fn print(
    policy: &LoadedPolicy,
    flow: &FlowQuestion,
    verdict: RuleVerdict,
    group: Option<&str>,
    explained: &RuleExplanation,
) -> anyhow::Result<()> {
    let mut out = stdout();
    let why = match (explained.deciding, flow.from) {
        (Some(deciding), _) => {
            let rule = deciding.rule;
            format!("rule {} ({})", policy.name(rule), policy.place(rule))
        }
        (None, FlowOrigin::Home) => "no rule fits, and flows from homes are accepted".to_owned(),
        (None, FlowOrigin::Internet) => {
            let filtering = policy.filtering_name();
            format!("no rule fits, and nat.filtering = \"{filtering}\" decides")
        }
    };
    writeln!(out, "{}: {why}", verdict.name())?;
    let given = given(policy, explained);
    let lines = [
        ("redirected to", given.destination_of(flow)),
        ("class of the flow:", given.class.map(str::to_owned)),
        ("source pool:", given.source_pool.map(str::to_owned)),
    ];
    for (what, value) in lines {
        if let Some(value) = value {
            writeln!(out, "{what} {value}")?;
        }
    }
    if let Some(group) = group {
        writeln!(out, "group of the home: {group}")?;
    }
    for rule in explained.candidates.iter().skip(1) {
        let action = action_name(policy, flow, *rule);
        let line = policy.line(*rule).map(|line| format!(", line {line}")).unwrap_or_default();
        let name = policy.name(*rule);
        writeln!(out, "would decide without those before it: {name} ({action}{line})")?;
    }
    Ok(out.flush()?)
}

fn print_json(
    policy: &LoadedPolicy,
    flow: &FlowQuestion,
    verdict: RuleVerdict,
    group: Option<&str>,
    explained: &RuleExplanation,
) -> anyhow::Result<()> {
    let candidate = |rule: &u32| {
        let action = action_name(policy, flow, *rule);
        json!({ "rule": policy.name(*rule), "action": action, "line": policy.line(*rule) })
    };
    let candidates: Vec<_> = explained.candidates.iter().map(candidate).collect();
    let given = given(policy, explained);
    let answer = json!({
        "flow": flow.to_string(),
        "group": group,
        "verdict": verdict.name(),
        "class": given.class,
        "source_pool": given.source_pool,
        "redirected_to": given.destination_of(flow),
        "rule": explained.deciding.map(|it| policy.name(it.rule)),
        "file": policy.file,
        "line": explained.deciding.and_then(|it| policy.line(it.rule)),
        "filtering": (verdict == RuleVerdict::Filtering).then(|| policy.filtering_name()),
        "candidates": candidates,
    });
    let mut out = stdout();
    writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    Ok(out.flush()?)
}

fn run_table(policy: &LoadedPolicy, table: &PathBuf, is_json: bool) -> anyhow::Result<ExitCode> {
    let file = table.display().to_string();
    let text = std::fs::read_to_string(table).map_err(|error| anyhow!("{file}: {error}"))?;
    let cases = match case::parse(&text, &|words| policy.flow(words)) {
        Ok(cases) => cases,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("error: {file}:{error}"));
            bail!("{file} is not valid: wrong lines: {}", errors.len());
        }
    };
    if cases.is_empty() {
        bail!("{file} has no flows");
    }
    let failures: Vec<FailedCase> = cases.iter().filter_map(|it| case::check(policy, it)).collect();
    let mut out = stdout();
    if is_json {
        let failed: Vec<_> = failures.iter().map(FailedCase::json).collect();
        let answer = json!({ "flows": cases.len(), "failed": failed });
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    } else {
        for failure in &failures {
            writeln!(out, "{file}:{failure}")?;
        }
        writeln!(out, "flows: {}, failed: {}", cases.len(), failures.len())?;
    }
    out.flush()?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
