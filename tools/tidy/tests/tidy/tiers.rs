//! Each folder is a tier: a crate uses crates of its own tier and of lower ones.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::source::{assert_none, root};

/// The tiers, from the lowest up.
pub(crate) const TIERS: [&str; 6] = ["base", "dataplane", "io", "cluster", "app", "tools"];

/// Arrows that may go up: the `weir` command still carries the generator and the gateway.
const EXCEPTIONS: [(&str, &str); 2] = [("app/weir", "tools/traffic"), ("app/weir", "tools/cpe")];

/// A package: its folder from the root of the tree, and the names of what it uses, for tests too.
struct Package {
    folder: String,
    uses: Vec<String>,
}

fn packages() -> HashMap<String, Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let package = |package: &Value| {
        let manifest = package["manifest_path"].as_str().unwrap();
        let folder = manifest.strip_suffix("/Cargo.toml").unwrap();
        let folder = folder.strip_prefix(root().to_str().unwrap()).unwrap();
        let uses = package["dependencies"].as_array().unwrap().iter();
        let uses = uses.filter(|used| !used["path"].is_null());
        let uses = uses.map(|used| used["name"].as_str().unwrap().to_owned()).collect();
        let name = package["name"].as_str().unwrap().to_owned();
        (name, Package { folder: folder.trim_start_matches('/').to_owned(), uses })
    };
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

/// The number of the folder's tier.
fn tier(folder: &str) -> usize {
    let name = folder.split('/').next().unwrap();
    let tier = TIERS.iter().position(|tier| *tier == name);
    tier.unwrap_or_else(|| panic!("{folder} lies in none of the tiers {TIERS:?}"))
}

#[test]
fn no_crate_uses_a_crate_of_a_higher_tier() {
    let packages = packages();
    let mut faults = Vec::new();
    for (name, package) in &packages {
        for used in package.uses.iter().filter_map(|used| packages.get(used)) {
            let is_excepted = EXCEPTIONS.contains(&(&package.folder, &used.folder));
            if tier(&used.folder) > tier(&package.folder) && !is_excepted {
                faults.push(format!("{name} in {} uses {}", package.folder, used.folder));
            }
        }
    }
    assert!(packages.len() > 20);
    assert_none(&faults, "A crate may use crates of its own tier and of lower ones: move one.");
}

#[test]
fn the_map_of_the_architecture_names_every_crate() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let missing: Vec<_> = packages()
        .into_values()
        .filter(|package| !text.contains(&format!("`{}`", package.folder)))
        .map(|package| package.folder)
        .collect();
    assert_none(&missing, "ARCHITECTURE.md has a line for each crate, with its folder in quotes.");
}
