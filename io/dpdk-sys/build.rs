//! Compiles the C shim against the installed DPDK and generates bindings for the shim's own header.
//!
//! DPDK's compiler flags (`-include rte_config.h`, `-march=...`) come from pkg-config and apply to
//! the shim alone. The libraries are DPDK's shared ones; drivers are plugins that DPDK loads from
//! its own folder. Packages that depend on this one and have C code of their own find the flags in
//! the environment of their build scripts, as `DEP_WEIR_DPDK_SHIM_CFLAGS`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCES: [&str; 5] =
    ["shim/log.c", "shim/eal.c", "shim/mbuf.c", "shim/port.c", "shim/burst.c"];
const HEADER: &str = "shim/weir_dpdk.h";
/// The libraries that the shim calls; pkg-config would name all fifty.
const LIBRARIES: [&str; 4] = ["rte_eal", "rte_ethdev", "rte_mbuf", "rte_mempool"];

fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let output = Command::new("pkg-config")
        .args(arguments)
        .arg("libdpdk >= 22.11")
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "pkg-config does not run ({error}): install the packages pkg-config and libdpdk-dev"
            )
        });
    assert!(
        output.status.success(),
        "DPDK 22.11 or newer is not installed: install the package libdpdk-dev\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");

    let mut shim = cc::Build::new();
    shim.files(SOURCES)
        .include("shim")
        .warnings(true)
        .extra_warnings(true)
        .opt_level(3)
        .std("gnu11");
    // DPDK's inline functions are compiled at DPDK's own warning level, not at the shim's.
    let flags = pkg_config(&["--cflags"]);
    println!("cargo::metadata=CFLAGS={}", flags.join(" "));
    for flag in flags {
        match flag.strip_prefix("-I") {
            Some(folder) => shim.flag("-isystem").flag(folder),
            None => shim.flag(flag),
        };
    }
    shim.compile("weir_dpdk_shim");

    for folder in pkg_config(&["--libs-only-L"]) {
        println!("cargo:rustc-link-search=native={}", folder.trim_start_matches("-L"));
    }
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }

    let bindings = bindgen::Builder::default()
        .header(HEADER)
        .allowlist_item("weir_.*")
        .derive_default(true)
        .use_core()
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .generate()
        .expect(
            "bindgen reads the shim's header; it needs libclang: install the package libclang-dev",
        );
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(folder.join("bindings.rs")).expect("OUT_DIR is writable");
}
