//! SPECIFICATION.md names a test for each promise: the test must exist.

use std::collections::HashSet;
use std::fs;

use crate::source::{assert_none, root, rust_files};

/// Names of all functions in the project's Rust sources.
fn functions() -> HashSet<String> {
    let mut names = HashSet::new();
    for file in rust_files() {
        names.extend(file.text.split("fn ").skip(1).map(|rest| {
            rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
        }));
    }
    names
}

/// Returns the first and the last cell of each table row; the last is "test `a`, `b`", "pending" or
/// "exception: why".
fn rows(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|line| line.starts_with("| ")).filter_map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let is_head = cells.iter().all(|cell| cell.chars().all(|c| c == '-'));
        (!is_head && cells.len() >= 3).then(|| (cells[0], cells[cells.len() - 1]))
    })
}

#[test]
fn every_promise_has_its_test() {
    let text = fs::read_to_string(root().join("SPECIFICATION.md")).unwrap();
    let known = functions();
    let (mut tested, mut wrong) = (0, Vec::new());
    for (id, evidence) in rows(&text).filter(|(id, _)| *id != "id") {
        let named: Vec<_> = evidence.split('`').skip(1).step_by(2).collect();
        let is_open = evidence.starts_with("pending") || evidence.starts_with("exception");
        if named.is_empty() && !is_open {
            wrong.push(format!("{id}: neither a test nor pending nor an exception"));
        }
        tested += usize::from(!named.is_empty());
        wrong.extend(
            named
                .iter()
                .filter(|name| !known.contains(**name))
                .map(|name| format!("{id}: no test is called {name}")),
        );
    }
    assert_none(&wrong, "A promise has a test, or is pending, or an exception.");
    assert!(tested > 30, "only {tested} promises have a test");
}

#[test]
fn every_listed_fuzz_target_exists() {
    let list = fs::read_to_string(root().join("tools/fuzz/targets")).unwrap();
    let known = functions();
    let targets = list.lines().filter(|line| !line.starts_with('#'));
    let tests = targets.filter_map(|line| line.split(' ').nth(2));
    let missing = tests.filter(|test| !known.contains(test.rsplit("::").next().unwrap()));
    let missing: Vec<_> = missing.map(str::to_owned).collect();
    assert_none(&missing, "tools/fuzz/targets names package, test binary and test.");
}
