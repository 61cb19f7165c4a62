//! A pair of interfaces in a network namespace of the calling thread, which disappears with the
//! process, however that ends.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Moves the calling thread to a new namespace and makes the pair `wa`--`wb` there, without
/// offloads, up. Needs root.
pub(crate) fn create() {
    unshare(CloneFlags::CLONE_NEWNET).expect("device tests run as root");
    run(
        "ip link add wa numrxqueues 1 numtxqueues 1 type veth peer name wb numrxqueues 1 numtxqueues 1",
    );
    for end in ["wa", "wb"] {
        run(&format!("ethtool -K {end} tx off tso off gso off gro off"));
        run(&format!("ip link set {end} addrgenmode none up"));
    }
}

/// Whether an XDP program is on the interface.
pub(crate) fn has_xdp_program(interface: &str) -> bool {
    run(&format!("ip -details link show {interface}")).contains("prog/xdp")
}

pub(crate) fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command has a first word");
    let output = Command::new(program)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
