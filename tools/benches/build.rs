//! Compiles the shims over `rte_hash` and `rte_acl` with the same DPDK flags as weir's own shim. It
//! links the shared libraries of DPDK.

const LIBRARIES: [&str; 4] = ["rte_acl", "rte_eal", "rte_hash", "rte_ring"];

fn main() {
    println!("cargo:rerun-if-changed=shim");

    let mut shim = cc::Build::new();
    shim.files(["shim/rte_hash.c", "shim/rte_acl.c"]);
    shim.extra_warnings(true).opt_level(3).std("gnu11");
    let flags = std::env::var("DEP_WEIR_DPDK_SHIM_CFLAGS").expect("weir-dpdk-sys sets it");
    for flag in flags.split_whitespace() {
        match flag.strip_prefix("-I") {
            Some(folder) => shim.flag("-isystem").flag(folder),
            None => shim.flag(flag),
        };
    }
    shim.compile("weir_benches_rivals");

    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
