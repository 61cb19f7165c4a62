//! Columns of a comment, lines of a file and of a function.

use crate::source::{SourceFile, assert_none, rust_files};

/// Columns of a comment line, indentation included.
const COLUMNS_MAX: usize = 100;

/// Lines of a file.
const FILE_LINES_MAX: usize = 500;

/// Lines of a function, from `fn` to the brace that ends it.
const FUNCTION_LINES_MAX: usize = 70;

/// Longer files, and how long they may be. Cut one when it has to change.
const LONG_FILES: &[(&str, usize)] = &[
    ("cluster/map/tests/allocate/main.rs", 590),
    ("cluster/roles/src/lib.rs", 520),
    ("cluster/roles/src/role/machine.rs", 530),
    ("cluster/roles/tests/roles/by_hand.rs", 560),
    ("cluster/roles/tests/uniqueness/cluster.rs", 560),
    ("dataplane/engine/tests/engine/fragments.rs", 530),
    ("dataplane/engine/tests/engine/icmp_and_mtu.rs", 550),
    ("dataplane/nat/src/subscribers/subscriber.rs", 640),
    ("io/nat-log-export/src/spool.rs", 590),
    ("io/nat-log/src/timeline.rs", 520),
    ("io/nat-log/tests/records/cluster.rs", 710),
    ("tools/lab/tests/shipped_switches.rs", 600),
];

/// Longer functions, by file and name: tables of cases, and straight sequences.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("app/node/src/cluster/membership.rs", "take_part"),
    ("app/node/src/life_cycle.rs", "start_and_control"),
    ("base/config/tests/config/address_errors.rs", "addresses"),
    (
        "base/config/tests/config/cluster_file.rs",
        "pools_that_cannot_be_cut_into_shards_are_refused",
    ),
    ("base/config/tests/config/difference.rs", "keys"),
    (
        "base/config/tests/config/member_file.rs",
        "a_node_that_conflicts_with_its_cluster_is_refused",
    ),
    ("base/config/tests/config/policy.rs", "wrong_policies_are_refused_with_place_and_fix"),
    ("base/config/tests/config/shard_errors.rs", "shards"),
    ("base/config/tests/config/value_errors.rs", "values"),
    ("cluster/controller/tests/controller/hostile/values.rs", "json"),
    (
        "cluster/controller/tests/controller/processes.rs",
        "an_operator_drains_and_fences_nodes_and_reads_the_events",
    ),
    ("dataplane/engine/src/fast_path.rs", "read_fast_up"),
    (
        "dataplane/engine/tests/engine/drop_reasons.rs",
        "packets_from_the_access_side_are_dropped_for_one_reason_each",
    ),
    ("dataplane/nat/src/subscribers/admission_tests.rs", "play"),
    ("dataplane/nat/src/expire.rs", "expire_mappings"),
    ("tools/fuzz/tests/engine.rs", "run"),
    ("tools/traffic/src/bench/figure.rs", "head"),
    ("tools/traffic/src/linux_nat/feeder.rs", "instructions"),
];

#[test]
fn comments_fit_a_hundred_columns() {
    let mut faults = Vec::new();
    for file in rust_files() {
        for (number, line) in file.comments().filter(|(_, line)| line.chars().count() > COLUMNS_MAX)
        {
            faults.push(format!("{}:{number}: {} columns", file.path, line.chars().count()));
        }
    }
    assert_none(&faults, "A comment has at most 100 columns, as the code has.");
}

#[test]
fn files_have_at_most_five_hundred_lines() {
    let mut faults = Vec::new();
    let files = rust_files();
    for file in &files {
        let listed = LONG_FILES.iter().find(|(path, _)| *path == file.path);
        let limit = listed.map_or(FILE_LINES_MAX, |(_, limit)| *limit);
        let lines = file.text.lines().count();
        if lines > limit {
            faults.push(format!("{}: {lines} lines of {limit}", file.path));
        }
        if listed.is_some() && lines <= FILE_LINES_MAX {
            faults.push(format!("{}: {lines} lines, and still among the longer files", file.path));
        }
    }
    let is_gone = |path: &str| !files.iter().any(|file| file.path == path);
    faults.extend(
        LONG_FILES
            .iter()
            .filter(|(path, _)| is_gone(path))
            .map(|(path, _)| format!("{path}: gone")),
    );
    assert_none(&faults, "Cut the file, or list it in tools/tidy/tests/tidy/lengths.rs.");
}

/// The functions of a file: the number of the first line, the name, and how many lines. Relies on
/// rustfmt's layout.
fn functions(file: &SourceFile) -> Vec<(usize, &str, usize)> {
    let lines: Vec<_> = file.text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some((before, after)) = code.split_once("fn ") else { continue };
        let is_start = before.split_whitespace().all(|word| {
            word.starts_with("pub")
                || matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"")
        });
        let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let mut ends = lines[index..].iter().filter(|line| line.ends_with(['{', ';', '}']));
        let has_body = ends.next().is_some_and(|end| end.ends_with('{'));
        if !is_start || name.is_empty() || !has_body {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let length = lines[index..].iter().position(|line| line.starts_with(&end));
        found.push((index + 1, name, length.map_or(1, |length| length + 1)));
    }
    found
}

#[test]
fn functions_have_at_most_seventy_lines() {
    let (mut faults, mut used) = (Vec::new(), 0);
    for file in &rust_files() {
        for (number, name, lines) in functions(file) {
            let is_long = lines > FUNCTION_LINES_MAX;
            let is_listed = LONG_FUNCTIONS.contains(&(file.path.as_str(), name));
            used += usize::from(is_long && is_listed);
            if is_long && !is_listed {
                faults.push(format!("{}:{number}: {name} has {lines} lines", file.path));
            }
        }
    }
    if used != LONG_FUNCTIONS.len() {
        faults.push(format!("{} of {} listed functions are long", used, LONG_FUNCTIONS.len()));
    }
    assert_none(&faults, "Cut the function, or list it in tools/tidy/tests/tidy/lengths.rs.");
}

#[test]
fn a_function_ends_at_its_own_brace() {
    let text = "impl A {\n    pub(crate) fn a() {\n        if x {\n        }\n    }\n\n    fn b();\n    fn d(\n        x: u8,\n    ) -> u8;\n}\n\nfn c() -> u8 {\n    1\n}\n";
    let file = SourceFile { path: String::new(), text: text.to_owned() };
    assert_eq!(functions(&file), [(2, "a", 4), (13, "c", 3)]);
}
