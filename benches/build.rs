//! Compiles the shim against the installed DPDK. DPDK's compiler flags come from pkg-config and apply to the shim
//! alone; its libraries are the shared ones.

use std::process::Command;

const LIBRARIES: [&str; 3] = ["rte_eal", "rte_hash", "rte_ring"];

fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let output = Command::new("pkg-config")
        .args(arguments)
        .arg("libdpdk >= 22.11")
        .output()
        .unwrap_or_else(|error| panic!("pkg-config does not run ({error}): see `make deps`"));
    assert!(
        output.status.success(),
        "DPDK 22.11 or newer is not installed: see `make deps`\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");

    let mut shim = cc::Build::new();
    shim.file("shim/rte_hash.c").extra_warnings(true).opt_level(3).std("gnu11");
    for flag in pkg_config(&["--cflags"]) {
        match flag.strip_prefix("-I") {
            Some(folder) => shim.flag("-isystem").flag(folder),
            None => shim.flag(flag),
        };
    }
    shim.compile("weir_benches_rte_hash");

    for folder in pkg_config(&["--libs-only-L"]) {
        println!("cargo:rustc-link-search=native={}", folder.trim_start_matches("-L"));
    }
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
