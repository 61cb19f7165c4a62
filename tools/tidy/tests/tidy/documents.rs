//! What documents point at: files behind links, and paths of the source tree in quotes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::source::{assert_none, root};
use crate::tiers::TIERS;

/// The documents: Markdown files of the tree, paths from its root.
fn documents() -> Vec<PathBuf> {
    let root = root();
    let folders = ["", "docs", "docs/design", "tools/fuzz"];
    let mut found = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "md") {
                found.push(path.strip_prefix(&root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    assert!(found.len() > 15, "{found:?}");
    found
}

/// A document without its drawings and examples.
fn prose(document: &Path) -> String {
    let text = fs::read_to_string(root().join(document)).unwrap();
    text.split("```").step_by(2).collect()
}

/// The files that links of `text` lead to, as they stand there, without their anchors.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://"));
    files.filter_map(|target| target.split('#').next()).filter(|file| !file.is_empty())
}

/// Quoted paths that begin with a tier's folder. A name in capitals or angle brackets stands for
/// any file.
fn quoted_paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|path| {
        let is_path = path.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        let tier = path.split('/').next().unwrap();
        is_path && path.contains('/') && TIERS.contains(&tier) && !path.contains("NAME")
    })
}

#[test]
fn links_and_quoted_paths_lead_to_files() {
    let (mut faults, mut found) = (Vec::new(), 0);
    for document in documents() {
        let text = prose(&document);
        let here = document.parent().unwrap();
        let linked = links(&text).map(|link| here.join(link));
        // The changelog names files as they were.
        let is_history = document.ends_with("CHANGELOG.md");
        let quoted = quoted_paths(&text).filter(|_| !is_history).map(PathBuf::from);
        for path in linked.chain(quoted) {
            found += 1;
            if !root().join(&path).exists() {
                faults.push(format!("{}: {}", document.display(), path.display()));
            }
        }
    }
    assert!(found > 100, "only {found} links and paths");
    assert_none(&faults, "A link and a quoted path name a file that exists.");
}

#[test]
fn links_and_paths_are_found_in_prose() {
    let text = "See [a](docs/a.md#part) and [b](https://x/y), `base/ids`, `tools/<name>`, `x/y`.";
    assert_eq!(links(text).collect::<Vec<_>>(), ["docs/a.md"]);
    assert_eq!(quoted_paths(text).collect::<Vec<_>>(), ["base/ids"]);
}
