//! packaging/alerts.yml: Prometheus accepts it, every alert fires when it should, and the documents
//! contain every name in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weir_lab::bird::packaged;
use weir_lab::process::run;
use weir_lab::weir;

const DEADLINE: Duration = Duration::from_secs(120);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// One alert of the file.
#[derive(Debug, Default)]
struct Alert {
    name: String,
    expression: String,
    severity: String,
    description: String,
    runbook: String,
}

fn alerts() -> Vec<Alert> {
    let text = packaged("alerts.yml").unwrap();
    text.split("- alert: ").skip(1).map(alert).collect()
}

fn alert(text: &str) -> Alert {
    let (expression, rest) = text.split_once("for: ").unwrap();
    let (name, expression) = expression.split_once("expr: ").unwrap();
    let field = |key: &str| {
        let value = rest.split_once(&format!("{key}: ")).map(|(_, value)| value.lines().next());
        value.flatten().unwrap_or_default().trim_matches('"').to_owned()
    };
    Alert {
        name: name.trim().to_owned(),
        expression: expression.to_owned(),
        severity: field("severity"),
        description: field("description"),
        runbook: field("runbook"),
    }
}

/// Returns the entries of the runbook: heading and text.
fn entries(runbook: &str) -> Vec<(String, &str)> {
    let sections = runbook.split("\n## ").skip(1);
    let sections = sections.filter_map(|section| section.split_once('\n'));
    sections.map(|(name, text)| (name.to_owned(), text.split("\n# ").next().unwrap())).collect()
}

/// Returns the names of metrics in a text, without the suffixes of histograms.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let metrics = words.filter(|word| word.starts_with("weir_"));
    let plain = |metric: &str| {
        let ends = ["_bucket", "_count", "_sum"];
        ends.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric).to_owned()
    };
    metrics.map(plain).collect()
}

/// Returns the metrics of the table in the operator's guide.
fn known_metrics(guide: &str) -> BTreeSet<String> {
    let rows = guide.lines().filter(|line| line.starts_with("| `weir_"));
    rows.flat_map(|row| metrics(row.split(" | ").next().unwrap())).collect()
}

/// Returns the values that the selectors of an expression compare labels with.
fn label_values(expression: &str) -> Vec<String> {
    let pieces: Vec<_> = expression.split('"').collect();
    let compared = pieces.chunks(2).filter(|pair| pair.len() == 2 && !pair[0].ends_with("job="));
    compared.flat_map(|pair| pair[1].split('|').map(str::to_owned)).collect()
}

#[test]
fn prometheus_takes_the_alerts_and_each_fires_when_it_should() {
    let folder = root().join("packaging");
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let mut command = Command::new("promtool");
        let finished = run(command.args(arguments).current_dir(&folder), DEADLINE).unwrap();
        let output = format!("{}{}", finished.stdout, finished.stderr);
        assert!(finished.status.success(), "promtool {}:\n{output}", arguments.join(" "));
    }
}

#[test]
fn every_alert_has_a_history_in_which_it_fires() {
    let histories = packaged("alerts_test.yml").unwrap();
    for alert in alerts() {
        let fires = format!("{{alertname=\"{}\"}}", alert.name);
        assert!(histories.contains(&fires), "no history has {fires}");
    }
}

#[test]
fn every_alert_has_its_entry_in_the_runbook_and_every_entry_its_alert() {
    let runbook = document("runbook.md");
    let (entries, alerts) = (entries(&runbook), alerts());
    assert!(alerts.len() > 40, "{} alerts", alerts.len());
    let names: Vec<_> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(entries.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
    for (alert, (name, entry)) in alerts.iter().zip(&entries) {
        assert!(["critical", "warning"].contains(&alert.severity.as_str()), "{alert:?}");
        assert_eq!(alert.runbook, format!("docs/runbook.md#{}", name.to_lowercase()));
        assert!(alert.description.contains("First"), "{name}: no first command");
        let parts = entry.lines().filter_map(|line| line.strip_prefix("- **")?.split("**").next());
        assert_eq!(parts.collect::<Vec<_>>(), ["Means", "Users", "Look", "Do"], "{name}");
        let means = format!("- **Means** ({}):", alert.severity);
        assert!(entry.contains(&means), "{name} is {}", alert.severity);
    }
}

#[test]
fn links_within_the_documents_lead_somewhere() {
    for name in ["runbook.md", "topology.md", "operations.md", "security.md"] {
        let text = document(name);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, anchor)) = target.split_once('#') else { continue };
            let there = document(if file.is_empty() { name } else { file });
            let headings = there.lines().filter(|line| line.starts_with('#'));
            let mut anchors = headings.map(|line| anchor_of(line.trim_start_matches(['#', ' '])));
            assert!(anchors.any(|it| it == anchor), "{name}: {target}");
        }
    }
}

/// Returns the anchor of a heading as the usual viewers make it.
fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || ['-', '_', ' '].contains(c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn the_operators_guide_has_every_metric_and_label_that_is_named() {
    let guide = document("operations.md");
    let known = known_metrics(&guide);
    assert!(known.len() > 40, "{known:?}");
    for Alert { name, expression, description, .. } in alerts() {
        let unknown: Vec<_> = metrics(&expression).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?} not in docs/operations.md");
        for value in label_values(&expression) {
            assert!(guide.contains(&format!("`{value}`")), "{name}: {value} is no known label");
        }
        named(&known, &name, &description);
    }
    for name in ["runbook.md", "topology.md"] {
        named(&known, name, &document(name));
    }
}

/// Checks that the guide has every metric in a text. A text may name a family of metrics by its
/// common prefix.
fn named(known: &BTreeSet<String>, place: &str, text: &str) {
    for metric in metrics(text) {
        let is_known =
            known.iter().any(|it| *it == metric || it.starts_with(&format!("{metric}_")));
        // Names of settings in BIRD's configuration look like metrics; those of IPv6 end in 6.
        let is_setting = ["weir_endpoints", "weir_node", "weir_prefixes"]
            .contains(&metric.trim_end_matches("6"));
        assert!(is_known || is_setting, "{place}: {metric} is not in docs/operations.md");
    }
}

#[test]
fn the_commands_to_run_first_are_those_of_weir() {
    let programs = [
        ("weir ", weir::binary().unwrap()),
        ("weir-node ", weir::node_binary().unwrap()),
        ("weir-lab ", weir::lab_binary().unwrap()),
    ];
    let help = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        let finished = run(command.args(words).arg("--help"), DEADLINE).unwrap();
        assert!(finished.status.success(), "{program:?} {words:?}: {}", finished.stderr);
        finished.stdout
    };
    let runbook = document("runbook.md");
    let alerts = alerts();
    let first = alerts.iter().filter_map(|alert| alert.description.split("First").nth(1));
    let first = first.filter_map(|text| text.split_once(": ")).map(|(_, command)| command);
    let topology = document("topology.md");
    let quoted =
        runbook.split('`').skip(1).step_by(2).chain(topology.split('`').skip(1).step_by(2));
    let mut count = 0;
    let commands = first.chain(quoted).filter_map(|line| {
        let (name, program) = programs.iter().find(|(name, _)| line.starts_with(name))?;
        Some((program, &line[name.len()..]))
    });
    for (program, command) in commands {
        let command = command.split(" | ").next().unwrap();
        // A quoted text is an argument, whatever it looks like.
        let unquoted: String = command.split('\'').step_by(2).collect();
        let words: Vec<_> = unquoted.split_whitespace().collect();
        let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase());
        let names: Vec<&str> = words.iter().take_while(is_name).copied().collect();
        let options = words.iter().filter(|word| word.starts_with('-'));
        let help = help(program, &names);
        for option in options {
            assert!(help.contains(option), "{program:?} {command}: no {option}");
        }
        count += 1;
    }
    assert!(count > 40, "only {count} commands found");
}
