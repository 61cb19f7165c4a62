//! Features that the processor reports (CPUID), and the register state that the operating system
//! saves (XCR0).
//!
//! `is_x86_feature_detected!` does not help for features that the build enables: for them it is the
//! constant `true`.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// The feature words, as named in Intel's manual, volume 2A, instruction CPUID; 0 where the
/// processor has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorFeatures {
    /// Leaf 1, ECX.
    pub leaf_1_ecx: u32,
    /// Leaf 7, sub-leaf 0, EBX.
    pub leaf_7_ebx: u32,
    /// Leaf 0x8000_0001, ECX.
    pub extended_1_ecx: u32,
    /// Extended control register 0: the register state that the operating system saves.
    pub xcr0: u64,
}

/// Leaf 1, ECX: XGETBV may be used.
const OSXSAVE: u32 = 1 << 27;

impl ProcessorFeatures {
    /// Reads the features of the processor on which this thread runs.
    #[allow(unused_unsafe, reason = "reading CPUID was unsafe in older compilers")]
    pub fn read() -> Self {
        let leaf = |leaf: u32| {
            // JUSTIFICATION: see the module: the standard library's macro does not query the
            // processor.
            // SAFETY: every x86-64 processor has CPUID; it changes nothing.
            unsafe { __cpuid(leaf) }
        };
        let mut features = Self { leaf_1_ecx: leaf(1).ecx, ..Self::default() };
        if leaf(0).eax >= 7 {
            // JUSTIFICATION: as above.
            // SAFETY: as above.
            features.leaf_7_ebx = unsafe { __cpuid_count(7, 0) }.ebx;
        }
        if leaf(0x8000_0000).eax >= 0x8000_0001 {
            features.extended_1_ecx = leaf(0x8000_0001).ecx;
        }
        if features.leaf_1_ecx & OSXSAVE != 0 {
            // JUSTIFICATION: the processor alone does not say whether the operating system keeps
            // YMM registers.
            // SAFETY: OSXSAVE says that XGETBV exists and is enabled; register 0 always exists
            // then.
            features.xcr0 = unsafe { _xgetbv(0) };
        }
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test itself was compiled for AVX2: on a processor without it the test would not get
    /// this far.
    #[test]
    fn the_processor_of_this_test_has_what_the_build_asks_for() {
        let features = ProcessorFeatures::read();
        assert_eq!(features.leaf_7_ebx >> 5 & 1, 1, "AVX2");
        assert_eq!(features.xcr0 & 0b110, 0b110, "the operating system saves the AVX registers");
    }
}
