//! The Rust files of the source tree.

use std::fs;
use std::path::{Path, PathBuf};

/// A Rust file: its path from the root of the tree, with `/`, and its text.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    /// Its comment lines with their numbers, from 1, indentation included.
    pub(crate) fn comments(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_comment = |line: &&str| line.trim_start().starts_with("//");
        (1..).zip(self.text.lines()).filter(move |(_, line)| is_comment(line))
    }
}

/// The root of the source tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All Rust files of the tree, in the order of their paths.
pub(crate) fn rust_files() -> Vec<SourceFile> {
    let (root, mut files) = (root(), Vec::new());
    read_folder(&root, &root, &mut files);
    assert!(files.len() > 500, "only {} files: is this the root of the tree?", files.len());
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn read_folder(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || path == root.join("target") {
            continue;
        }
        if path.is_dir() {
            read_folder(root, &path, files);
        } else if name.ends_with(".rs") {
            let relative = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            files.push(SourceFile { path: relative, text: fs::read_to_string(&path).unwrap() });
        }
    }
}

/// Fails with all of `faults`, one a line, and what the rule is.
pub(crate) fn assert_none(faults: &[String], rule: &str) {
    assert!(faults.is_empty(), "{}\n{} in all. {rule}", faults.join("\n"), faults.len());
}
