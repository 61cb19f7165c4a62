//! Each folder is a tier: a crate uses crates of its own tier and of lower ones.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::source::{assert_none, root};

/// The tiers, from the lowest up.
pub(crate) const TIERS: [&str; 6] = ["base", "dataplane", "io", "cluster", "app", "tools"];

/// A package: its folder from the root of the tree, and the packages of the tree that it uses.
struct Package {
    folder: String,
    /// For tests, too.
    uses: Vec<String>,
    /// In its programs.
    links: Vec<String>,
}

/// What the commands and the controller must not bring along: they run on machines without DPDK.
const NEEDS_DPDK: [&str; 6] =
    ["weir-dpdk-sys", "weir-dpdk", "weir-node", "weir-traffic", "weir-cpe", "weir-lab"];

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
        let of_tree = package["dependencies"].as_array().unwrap().iter();
        let of_tree = of_tree.filter(|used| !used["path"].is_null());
        let name_of = |package: &Value| package["name"].as_str().unwrap().to_owned();
        let uses = of_tree.clone().map(name_of).collect();
        let links = of_tree.filter(|used| used["kind"] != "dev").map(name_of).collect();
        let folder = folder.trim_start_matches('/').to_owned();
        (name_of(package), Package { folder, uses, links })
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
            if tier(&used.folder) > tier(&package.folder) {
                faults.push(format!("{name} in {} uses {}", package.folder, used.folder));
            }
        }
    }
    assert!(packages.len() > 20);
    assert_none(&faults, "A crate may use crates of its own tier and of lower ones: move one.");
}

#[test]
fn weir_links_no_crate_that_needs_dpdk() {
    let packages = packages();
    let mut found = vec!["weir".to_owned()];
    let mut next = 0;
    while let Some(name) = found.get(next) {
        let further: Vec<_> =
            packages[name].links.iter().filter(|used| !found.contains(used)).cloned().collect();
        found.extend(further);
        next += 1;
    }
    assert!(found.len() > 10 && NEEDS_DPDK.iter().all(|name| packages.contains_key(*name)));
    let faults: Vec<_> =
        found.into_iter().filter(|name| NEEDS_DPDK.contains(&name.as_str())).collect();
    assert_none(&faults, "`weir` runs on machines without DPDK: a program of its own has this.");
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
