//! A killed process leaves its XDP program and its memif socket behind; the next process starts at
//! once and works.
//!
//! The victim is this same test binary, run again with an environment variable.

mod setup;
#[path = "setup/veth.rs"]
mod veth;

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const VICTIM: &str = "WEIR_TEST_VICTIM_SOCKET";

#[test]
fn a_restart_after_sigkill_works_at_once() {
    if let Some(socket) = env::var_os(VICTIM) {
        be_the_victim(Path::new(&socket));
    }
    veth::create();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("memif.sock");
    for _ in 0..2 {
        kill_a_process_with_open_ports(&socket);
        assert!(veth::has_xdp_program("wa"), "the kill left nothing to replace");
        assert!(socket.exists());
    }

    let eal = setup::eal();
    let mut pool = setup::pool();
    let xdp = setup::attach(&eal, "net_af_xdp0,iface=wa", &pool);
    let kernel = setup::attach(&eal, "net_af_packet0,iface=wb", &pool);
    let _memif = setup::attach(&eal, &memif(&socket), &pool);
    let ((mut rx, _tx), (_rx, mut tx)) = (xdp.queues(), kernel.queues());
    let mut frames: Vec<_> =
        (0..50).map(|number| setup::frame(&mut pool, &setup::bytes(number))).collect();
    tx.burst(&mut frames);
    let expected: Vec<Vec<u8>> = (0..50).map(setup::bytes).collect();
    assert!(setup::receive(&mut rx, 50) == expected, "frames differ");
}

fn memif(socket: &Path) -> String {
    format!("net_memif0,role=server,socket={},socket-abstract=no", socket.display())
}

fn kill_a_process_with_open_ports(socket: &Path) {
    let mut victim = Command::new(env::current_exe().expect("this binary has a path"))
        .args(["--exact", "a_restart_after_sigkill_works_at_once", "--nocapture"])
        .env(VICTIM, socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary runs again");
    let lines = BufReader::new(victim.stdout.take().expect("is piped")).lines();
    let is_ready = lines.map_while(Result::ok).any(|line| line.contains("victim is ready"));
    victim.kill().expect("it is our child");
    // Not waited for before the next start: a supervisor does not always wait either.
    thread::spawn(move || victim.wait());
    assert!(is_ready, "the victim could not open its ports");
}

fn be_the_victim(socket: &Path) -> ! {
    let eal = setup::eal();
    let pool = setup::pool();
    let _xdp = setup::attach(&eal, "net_af_xdp0,iface=wa", &pool);
    let _memif = setup::attach(&eal, &memif(socket), &pool);
    println!("victim is ready");
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}
