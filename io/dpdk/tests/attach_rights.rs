//! An AF_XDP port without CAP_SYS_ADMIN: the error names the missing capability and the file that
//! grants it.
//!
//! The process without the capability is this same test binary, run again by setpriv(1) with an
//! environment variable.

mod setup;
#[path = "setup/veth.rs"]
mod veth;

use std::env;
use std::process::Command;

use weir_dpdk::Port;

const POOR: &str = "WEIR_TEST_WITHOUT_SYS_ADMIN";
const ERROR_PREFIX: &str = "attach says: ";

#[test]
fn a_missing_capability_is_named() {
    if env::var_os(POOR).is_some() {
        let eal = setup::eal();
        let pool = setup::pool();
        let config = setup::port_config(&pool);
        let error = Port::attach(&eal, "net_af_xdp0,iface=wa", config).expect_err("no right to");
        println!("{ERROR_PREFIX}{error}");
        return;
    }
    veth::create();
    let output = Command::new("setpriv")
        .args(["--inh-caps", "-sys_admin", "--bounding-set", "-sys_admin"])
        .arg(env::current_exe().expect("this binary has a path"))
        .args(["--exact", "a_missing_capability_is_named", "--nocapture"])
        .env(POOR, "1")
        .output()
        .expect("setpriv is there");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let error =
        printed.lines().find_map(|line| line.split_once(ERROR_PREFIX)).expect("it says why").1;
    assert!(error.contains("CAP_SYS_ADMIN") && error.contains("weir-af_xdp.conf"), "{error}");
    assert!(!veth::has_xdp_program("wa"), "the failed port leaves no program behind");
}
