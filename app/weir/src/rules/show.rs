//! `weir rules show`: the rules in their order, with the sets and groups that they name.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};
use weir_config::{PolicySettings, RuleSettings, SetSource};

use super::given::phrase;
use super::policy_file::LoadedPolicy;
use super::{PolicySource, stdout};
use crate::table::{Align, Table};

/// Most elements of a list that a row shows.
const SHOWN_MAX: usize = 4;

/// Show the rules in their order, with what they take.
///
/// A rule has a filter for each combination of its subscribers, remotes and ports, after adjacent
/// prefixes are merged. The bound is what the packet costs that meets most filters.
///
///   weir rules show -c /etc/weir/weir.toml
///   weir rules show --json
///
/// Exit codes: 0 shown, 2 an error.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    source: PolicySource,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = args.source.load()?;
    let mut out = stdout();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&object(&policy)?)?)?,
        false => print(&policy, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print(policy: &LoadedPolicy, out: &mut impl Write) -> anyhow::Result<()> {
    let mut rules = Table::new(&[
        ("line", Align::Right),
        ("rule", Align::Left),
        ("action", Align::Left),
        ("filters", Align::Right),
        ("fits", Align::Left),
    ]);
    let filters = policy.compiled.filters_by_rule();
    for ((number, rule), filters) in (0..).zip(&policy.settings.rules).zip(filters) {
        let keys = keys(rule)?;
        let mut action = keys["action"].as_str().unwrap_or_default().to_owned();
        let to = rule.to.map(|to| to.to_string());
        action.push_str(&phrase(to.as_deref(), rule.class.as_deref(), rule.source_pool.as_deref()));
        for (is_set, words) in [(rule.rematch, ", ends live flows"), (rule.log, ", logged")] {
            action.push_str(if is_set { words } else { "" });
        }
        let line = policy.line(number).map_or_else(|| "-".to_owned(), |line| line.to_string());
        rules.row(vec![line, rule.name.clone(), action, filters.to_string(), conditions(&keys)]);
    }
    rules.print(out)?;
    if !policy.sets.is_empty() {
        writeln!(out)?;
        let mut sets =
            Table::new(&[("set", Align::Left), ("entries", Align::Right), ("from", Align::Left)]);
        for set in &policy.sets {
            sets.row(vec![set.name.clone(), set.entries().to_string(), source(policy, &set.name)]);
        }
        sets.print(out)?;
    }
    if !policy.settings.groups.is_empty() {
        writeln!(out)?;
        let mut groups =
            Table::new(&[("group", Align::Left), ("homes", Align::Left), ("limits", Align::Left)]);
        for group in &policy.settings.groups {
            let nets: Vec<Value> = group.subscribers.iter().map(|net| json!(net)).collect();
            groups.row(vec![group.name.clone(), words(&nets), table_words(&group.limits)?]);
        }
        groups.print(out)?;
    }
    print_given(&policy.settings, out)?;
    writeln!(out, "\n{}; memory: {}", policy.bound(), policy.memory())?;
    for worst in policy.worst().into_iter().flatten() {
        writeln!(out, "{worst}")?;
    }
    Ok(())
}

/// Prints what rules give flows: classes and source pools.
fn print_given(settings: &PolicySettings, out: &mut impl Write) -> anyhow::Result<()> {
    if !settings.classes.is_empty() {
        writeln!(out)?;
        let mut classes = Table::new(&[
            ("number", Align::Right),
            ("class", Align::Left),
            ("dscp", Align::Right),
            ("timeouts", Align::Left),
        ]);
        for class in &settings.classes {
            let dscp = class.dscp.map_or_else(|| "-".to_owned(), |dscp| dscp.to_string());
            let timeouts = table_words(&class.timeouts)?;
            classes.row(vec![class.id.to_string(), class.name.clone(), dscp, timeouts]);
        }
        classes.print(out)?;
    }
    if !settings.source_pools.is_empty() {
        writeln!(out)?;
        let mut pools = Table::new(&[("source pool", Align::Left), ("public", Align::Left)]);
        for pool in &settings.source_pools {
            let nets: Vec<Value> = pool.public.iter().map(|net| json!(net)).collect();
            pools.row(vec![pool.name.clone(), words(&nets)]);
        }
        pools.print(out)?;
    }
    Ok(())
}

/// Returns the keys of a table with their values as words.
fn table_words(table: &impl Serialize) -> anyhow::Result<String> {
    let keys: serde_json::Map<String, Value> =
        serde_json::from_value(serde_json::to_value(table)?)?;
    let words: Vec<String> = keys.iter().map(|(key, value)| format!("{key} {value}")).collect();
    Ok(if words.is_empty() { "as all".to_owned() } else { words.join(", ") })
}

/// Returns a rule with the keys that the file has.
fn keys(rule: &RuleSettings) -> anyhow::Result<serde_json::Map<String, Value>> {
    Ok(serde_json::from_value(serde_json::to_value(rule)?)?)
}

/// Returns what a rule fits as words of the file.
fn conditions(keys: &serde_json::Map<String, Value>) -> String {
    let others = ["name", "action", "to", "class", "source_pool", "log", "rematch"];
    let conditions = keys.iter().filter(|(key, _)| !others.contains(&key.as_str()));
    let words: Vec<String> = conditions
        .map(|(key, value)| match value {
            Value::Array(list) => format!("{key} {}", words(list)),
            value => format!("{key} {}", word(value)),
        })
        .collect();
    if words.is_empty() { "all flows of homes".to_owned() } else { words.join(", ") }
}

fn words(list: &[Value]) -> String {
    let shown = list.iter().take(SHOWN_MAX).map(word).collect::<Vec<_>>().join(" ");
    match list.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn source(policy: &LoadedPolicy, set: &str) -> String {
    let set = policy.settings.sets.iter().find(|it| it.name == set);
    match set.map(|set| &set.source) {
        Some(SetSource::File(path)) => path.display().to_string(),
        _ => policy.file.clone(),
    }
}

fn object(policy: &LoadedPolicy) -> anyhow::Result<Value> {
    let filters = policy.compiled.filters_by_rule();
    let mut rules = Vec::new();
    for ((number, rule), filters) in (0..).zip(&policy.settings.rules).zip(filters) {
        let mut keys = keys(rule)?;
        keys.insert("line".to_owned(), json!(policy.line(number)));
        keys.insert("filters".to_owned(), json!(filters));
        rules.push(Value::Object(keys));
    }
    let sets: Vec<Value> = policy
        .sets
        .iter()
        .map(|set| {
            json!({
                "name": set.name,
                "entries": set.entries(),
                "ipv6": set.ipv6.len(),
                "from": source(policy, &set.name),
            })
        })
        .collect();
    let [worst, worst_ipv6] = policy.worst();
    let (bound, bound6) = (policy.compiled.rules.bound(), policy.compiled.rules.bound6());
    Ok(json!({
        "file": policy.file,
        "rules": rules,
        "sets": sets,
        "groups": policy.settings.groups,
        "classes": policy.settings.classes,
        "source_pools": policy.settings.source_pools,
        "comparisons_max": bound.comparisons,
        "steps_max": bound.steps,
        "comparisons_max_ipv6": bound6.comparisons,
        "steps_max_ipv6": bound6.steps,
        "worst": worst,
        "worst_ipv6": worst_ipv6,
        "bytes": policy.compiled.rules.bytes(),
    }))
}
