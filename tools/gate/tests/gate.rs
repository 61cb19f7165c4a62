//! Runs the gate in `cargo test`, on the release build, which it makes first.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use weir_gate::PARTS;

/// Builds the release binary of this crate with the cargo that runs this test, and returns its
/// path.
fn release_binary() -> PathBuf {
    let cargo = std::env::var_os("CARGO").expect("cargo runs this test");
    let output = Command::new(cargo)
        .args(["build", "--release", "--locked", "-p", "weir-gate", "--bin", "weir-gate"])
        .args(["--message-format", "json"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "the release build fails");
    let messages = String::from_utf8(output.stdout).expect("JSON lines");
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).expect("a JSON line");
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.expect("cargo names the binary")
}

#[test]
fn no_part_takes_more_instructions_than_its_limit() {
    let output = Command::new(release_binary()).output().expect("the binary runs");
    let table = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{table}");
    assert!(output.status.success(), "{table}{errors}");
    for part in PARTS {
        assert!(table.contains(part.name), "{} was counted\n{table}", part.name);
    }
    let count = |name: &str| {
        table.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
    };
    assert_eq!(count("rules-up"), count("gre-udp-up"), "rules are nothing to established packets");
    let instructions = |part, way| {
        let count = count(&format!("{part}-{way}")).and_then(|it| it.parse::<f64>().ok());
        count.expect("a number")
    };
    for way in ["up", "down"] {
        let [mixed, ipv4, ipv6] =
            ["mixed", "gre-udp", "ipv6-gre"].map(|part| instructions(part, way));
        let ratio = mixed / ((ipv4 + ipv6) / 2.0);
        assert!(ratio <= 1.05, "a packet of a mixed burst takes {ratio:.3} of one alone, {way}");
    }
}
