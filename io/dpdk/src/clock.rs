//! The cycle counter of the CPU, read once per burst at most.

use weir_dpdk_sys as sys;

/// Returns the time stamp counter of this CPU, in cycles.
#[inline]
pub fn tsc() -> u64 {
    // JUSTIFICATION: the counter is read through the shim, as DPDK does on each architecture.
    // SAFETY: reads a register; no memory is involved.
    unsafe { sys::weir_tsc() }
}

/// Returns the cycles of [`tsc`] per second; 0 before [`crate::Eal::init`].
pub fn tsc_hz() -> u64 {
    // JUSTIFICATION: DPDK measured the frequency at start.
    // SAFETY: returns a number kept by the EAL, 0 before it started.
    unsafe { sys::weir_tsc_hz() }
}
