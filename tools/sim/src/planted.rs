//! Planted bugs: how many histories it takes until one of them fails for each bug.
//!
//! The code under test does not contain the bugs. [`build`] makes a copy of the source tree under
//! `target/planted` with every mutation of `tools/sim/mutations` in it, each behind its run-time
//! switch, and builds the simulator of that copy, which plays the histories.
//!
//! A bug is active only in the thread that plays, and only while it plays. A history that fails
//! without the bug as well proves nothing about it.

mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use weir_planted::{Mutation, Tree, mutate, plant};

use crate::play::play;

pub use table::print_table;

/// The package of the simulator, in the source tree or in its copy.
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The copy, as a path in the source tree.
const COPY: &str = "target/planted";

/// The history that found a bug.
#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    /// Number of histories played, this one included.
    pub played: u64,
    /// Number of events in all of them.
    pub events: u64,
    /// The first line of the violation.
    pub violation: String,
}

/// Whether this is the simulator of the copy, in which bugs can be planted.
pub fn is_copy() -> bool {
    Path::new(PACKAGE).ends_with(Path::new(COPY).join("tools/sim"))
}

/// Returns the mutations that belong to this simulator.
///
/// # Errors
/// Names the patch that is no mutation.
pub fn mutations() -> Result<Vec<Mutation>> {
    Mutation::read_all(&Path::new(PACKAGE).join("mutations"))
}

/// Makes or updates the copy and builds its simulator, in the same profile as this one. Returns the
/// binary.
///
/// # Errors
/// A mutation does not apply, or the build fails.
pub fn build() -> Result<PathBuf> {
    let root =
        Path::new(PACKAGE).ancestors().nth(2).context("the simulator lies in the source tree")?;
    let copy = root.join(COPY);
    mutate(&Tree::read(root)?, &mutations()?)?.write(&copy)?;
    let target = copy.join("target");
    let (profile, folder) =
        if cfg!(debug_assertions) { ("dev", "debug") } else { ("release", "release") };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "-p", "weir-sim", "--bin", "weir-sim", "--profile", profile])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(&copy)
        .status()
        .context("cargo does not run")?;
    ensure!(status.success(), "the mutated tree in {} does not build", copy.display());
    Ok(target.join(folder).join("weir-sim"))
}

/// Plays the seeds until one fails with this bug planted and not without it; `None` if there is
/// none.
pub fn find(bug: &'static str, seeds: impl IntoIterator<Item = u64>) -> Option<Found> {
    let (mut played, mut events) = (0, 0);
    for seed in seeds {
        plant(Some(bug));
        // Catches panics.
        let outcome = play(seed);
        plant(None);
        played += 1;
        events += outcome.events;
        // A failure without the bug as well proves nothing about it.
        if let Some(violation) = outcome.violation.filter(|_| play(seed).violation.is_none()) {
            let violation = violation.lines().next().unwrap_or_default().to_owned();
            return Some(Found { seed, played, events, violation });
        }
    }
    None
}
