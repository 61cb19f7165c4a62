//! Tests of several files are one program, whose `main.rs` names each file: the compiler does not
//! see a file that has no such line, so its tests would never run.

use std::collections::HashMap;

use crate::source::{SourceFile, assert_none, rust_files};

/// Returns the folder in `tests/` that has this file, and the name of the file without `.rs`.
fn place(file: &SourceFile) -> Option<(&str, &str)> {
    let (folder, name) = file.path.strip_suffix(".rs")?.rsplit_once('/')?;
    let (_, in_tests) = folder.rsplit_once("/tests/")?;
    (!in_tests.contains('/')).then_some((folder, name))
}

#[test]
fn every_file_of_a_test_program_is_one_of_its_modules() {
    let files = rust_files();
    let mains: HashMap<&str, &str> = files
        .iter()
        .filter_map(|file| place(file).filter(|(_, name)| *name == "main").zip(Some(&*file.text)))
        .map(|((folder, _), text)| (folder, text))
        .collect();
    assert!(mains.len() > 10, "only {} programs", mains.len());
    let is_missing = |file: &&SourceFile| {
        let main = place(file).and_then(|(folder, name)| Some((mains.get(folder)?, name)));
        main.is_some_and(|(main, name)| name != "main" && !main.contains(&format!("mod {name};")))
    };
    let missing: Vec<_> = files.iter().filter(is_missing).map(|file| file.path.clone()).collect();
    assert_none(&missing, "The `main.rs` beside a test file has a line `mod NAME;` for it.");
}
