//! A type name stands for one type: log lines, searches and people carry no module paths.

use std::collections::BTreeMap;

use crate::source::{SourceFile, assert_none, rust_files};

/// Names that may stand for several types: the arguments of a command, which its own file names.
const IDIOMS: [&str; 1] = ["Args"];

/// Words that begin the definition of a type.
const DEFINITIONS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// True if a file, or the folder that it is in, holds nothing but tests by its name, or is a tool.
fn is_exempt(path: &str) -> bool {
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    is_test || path.contains("/benches/") || path.starts_with("tools/")
}

/// Returns the files and folders of the modules that a file declares for tests only: paths without
/// `.rs`.
fn test_modules(file: &SourceFile) -> Vec<String> {
    let folder = ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .find_map(|name| file.path.strip_suffix(name))
        .map_or_else(|| file.path.replace(".rs", "/"), str::to_owned);
    let lines: Vec<_> = file.text.lines().collect();
    let modules = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]");
    let names = modules.filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'));
    names.map(|name| format!("{folder}{name}")).collect()
}

/// Returns the name of the type that a line defines. An indented `type` belongs to a trait.
fn defined(line: &str) -> Option<&str> {
    let is_before =
        |word: &&str| word.starts_with("pub") || word.ends_with(')') || *word == "unsafe";
    let mut words = line.split_whitespace().skip_while(is_before);
    let kind = words.next().filter(|word| DEFINITIONS.contains(word))?;
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let is_type = name.starts_with(|c: char| c.is_ascii_uppercase());
    (is_type && !(kind == "type" && line.starts_with(' '))).then_some(name)
}

/// Returns the types that a file defines outside its tests: line number and name. Relies on
/// rustfmt's layout.
fn types(file: &SourceFile) -> Vec<(usize, &str)> {
    let (mut found, mut is_behind_test, mut is_in_test) = (Vec::new(), false, false);
    for (number, line) in (1..).zip(file.text.lines()) {
        is_in_test |= is_behind_test && line.starts_with("mod ") && line.ends_with('{');
        is_behind_test = line == "#[cfg(test)]";
        if !is_in_test {
            found.extend(defined(line).map(|name| (number, name)));
        }
        is_in_test &= line != "}";
    }
    found
}

#[test]
fn a_type_name_stands_for_one_type() {
    let files = rust_files();
    let tests: Vec<String> = files.iter().flat_map(test_modules).collect();
    let is_in_tests = |path: &str| {
        let mut rests = tests.iter().filter_map(|module| path.strip_prefix(module.as_str()));
        rests.any(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|it| !is_exempt(&it.path) && !is_in_tests(&it.path)) {
        for (number, name) in types(file) {
            by_name.entry(name).or_default().push(format!("{}:{number}", file.path));
        }
    }
    assert!(by_name.len() > 1000, "only {} types: are these all files?", by_name.len());
    let mut faults = Vec::new();
    for (name, at) in &by_name {
        match (at.len() > 1, IDIOMS.contains(name)) {
            (true, false) => faults.push(format!("{name}: {}", at.join(", "))),
            (false, true) => faults.push(format!("{name}: an exception that is not needed")),
            _ => {}
        }
    }
    assert_none(&faults, "Name a type so that its name says which one it is.");
}

#[test]
fn types_are_found_outside_tests() {
    let text = "pub(crate) struct A<T>(T);\n\npub enum B {\n    C,\n}\n\nimpl D for B {\n    type E = A;\n}\n\n\
        type F = u8;\n\n#[cfg(test)]\nmod tests {\n    struct G;\n}\n\npub(in super::super) union H {}\n";
    let file = SourceFile { path: "a/src/b.rs".into(), text: text.into() };
    assert_eq!(types(&file), [(1, "A"), (3, "B"), (11, "F"), (18, "H")]);
    let text = "mod one;\n#[cfg(test)]\nmod two;\n".to_owned();
    let file = SourceFile { path: "a/src/lib.rs".into(), text };
    assert_eq!(test_modules(&file), ["a/src/two"]);
}
