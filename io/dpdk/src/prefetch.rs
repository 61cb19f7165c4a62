//! Hot: asks the processor for a cache line before it is needed.

/// Prefetches the line of an address for writing: another core that has it loses it at once,
/// instead of sharing it first.
#[inline(always)]
pub(crate) fn line_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        // JUSTIFICATION: received headers are in the sender's cache; waiting for them one by one
        // costs more than all else.
        // SAFETY: PREFETCHW reads nothing the program can see and does not fault, whatever the
        // address; processors without it execute it as a no-operation.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
