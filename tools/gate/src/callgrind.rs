//! Runs a part under callgrind and reads how many instructions callgrind counted.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::Part;

/// Limits counting to this function: set-up, filling of tables and packet making are left out.
pub const TOGGLE: &str = "--toggle-collect=*measured_burst*";

/// Returns the instructions per packet of `part`, run by `program`, this crate's binary.
///
/// # Errors
/// When valgrind is missing, the part fails under it, or nothing was counted.
pub fn instructions_per_packet(program: &Path, part: &Part) -> anyhow::Result<f64> {
    let output = Command::new("valgrind")
        // So the kernel zeroes the buffers: valgrind takes an instruction for each byte that the
        // allocator zeroes.
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .args(["--tool=callgrind", TOGGLE, "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["run", part.name])
        .output()
        .context("valgrind does not run: install the package valgrind (`make deps` does)")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} fails under valgrind:\n{log}", part.name);
    let printed = String::from_utf8_lossy(&output.stdout);
    let packets: u64 = printed
        .trim()
        .parse()
        .with_context(|| format!("{}: {printed:?} is no number of packets", part.name))?;
    let Some(instructions) = collected(&log) else {
        bail!("{}: valgrind does not say what it counted:\n{log}", part.name);
    };
    ensure!(instructions > 0, "{}: nothing was counted: is measured_burst inlined?", part.name);
    Ok(instructions as f64 / packets as f64)
}

/// Returns the number in valgrind's line `==4711== Collected : 123456`.
fn collected(log: &str) -> Option<u64> {
    let line = log.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_the_log() {
        let log =
            "==1== Events    : Ir\n==1== Collected : 123456\n==1==\n==1== I   refs: 123,456\n";
        assert_eq!(collected(log), Some(123_456));
        assert_eq!(collected("==1== Events    : Ir\n"), None);
    }
}
