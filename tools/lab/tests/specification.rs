//! SPECIFICATION.md names a test for each promise: the test must exist.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of all functions in the project's Rust sources.
fn functions(folder: &Path, names: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            functions(&path, names);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            names.extend(text.split("fn ").skip(1).map(|rest| {
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
            }));
        }
    }
}

/// The last cell of each table row: "test `a`, `b`", "pending" or "exception: why".
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
    let mut known = HashSet::new();
    functions(&root(), &mut known);
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
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tested > 30, "only {tested} promises have a test");
}
