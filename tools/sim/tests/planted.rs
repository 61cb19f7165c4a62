//! The simulator finds every bug of `tools/sim/mutations` within 1,000 histories that are green
//! without it. The one that has found a bug before is played first: without it the rarest three
//! take most of the time.

use std::process::Command;

#[test]
fn planted_bugs_are_found() {
    let found =
        Command::new(env!("CARGO_BIN_EXE_weir-sim")).args(["--planted", "--known-first"]).status();
    assert!(found.unwrap().success(), "the table says which bugs are not found");
}
