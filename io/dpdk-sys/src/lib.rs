//! Bindings for weir's own C shim of DPDK, nothing else.
//!
//! `shim/weir_dpdk.h` documents each function; the safe layer over it is the crate `weir-dpdk`, its
//! only user. No type of DPDK is here: an mbuf is seen through [`weir_mbuf`], whose layout the
//! shim's C source asserts against DPDK's.
#![allow(unsafe_code)]

pub use generated::*;

/// bindgen's output: generated code, so the rules for writing `unsafe` do not apply.
#[allow(non_camel_case_types, missing_debug_implementations, unused_qualifications)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
