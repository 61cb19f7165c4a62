//! What weir is built from may be used, changed and sold by an ISP without asking.

use std::process::Command;

use serde_json::Value;

use crate::source::{assert_none, root};

/// Licences without a duty to publish changes.
const ALLOWED: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// True if each part that an expression joins by AND is allowed in one of its alternatives.
/// Parentheses stand around a part only, as in `(MIT OR Apache-2.0) AND Unicode-3.0`.
fn is_allowed(expression: &str) -> bool {
    expression.split(" AND ").all(|part| {
        let part = part.trim_matches(['(', ')']).replace('/', " OR ");
        part.split(" OR ").any(|licence| ALLOWED.contains(&licence.trim()))
    })
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    // Only a build of the whole workspace has fetched what all crates use.
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("failed to download"), "{error}");
        println!("not looked at: not all dependencies are fetched yet");
        return;
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let mut faults = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence) {
            faults.push(format!("{}: {licence}", package["name"].as_str().unwrap()));
        }
    }
    assert!(packages.len() > 100);
    assert_none(
        &faults,
        "Use another crate, or list its licence in tools/tidy/tests/tidy/licences.rs.",
    );
}

#[test]
fn each_part_of_a_licence_needs_an_allowed_alternative() {
    assert!(is_allowed("MIT/Apache-2.0") && is_allowed("(MIT OR GPL-3.0) AND Unicode-3.0"));
    assert!(!is_allowed("GPL-3.0") && !is_allowed("MIT AND GPL-3.0") && !is_allowed("none"));
}
