//! The simulator finds every bug of `tools/sim/mutations` within 1,000 histories that are green
//! without it.

use std::process::Command;

#[test]
fn planted_bugs_are_found() {
    let found = Command::new(env!("CARGO_BIN_EXE_weir-sim")).arg("--planted").status();
    assert!(found.unwrap().success(), "the table says which bugs are not found");
}
