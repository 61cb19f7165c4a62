//! Hot: compares the eight tags of a bucket at once.
#![allow(unsafe_code)]

use crate::bucket::SLOTS;

/// Returns a bit set: bit s is set if tag s equals `tag`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn equal(tags: &[u16; SLOTS], tag: u16) -> u32 {
    // JUSTIFICATION: six instructions instead of two dozen, for each look-up; the compiler does not
    // find this form.
    // SAFETY: SSE2 is part of x86_64.
    unsafe { equal_sse2(tags, tag) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn equal_sse2(tags: &[u16; SLOTS], tag: u16) -> u32 {
    use core::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi16, _mm_set1_epi16,
        _mm_setzero_si128,
    };
    // Compiles to one load.
    let [a, b, c, d, e, f, g, h] = tags.map(u16::cast_signed);
    let tags = _mm_set_epi16(h, g, f, e, d, c, b, a);
    let equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(tag.cast_signed()));
    // From 16 to 8 bits a lane, where -1 stays -1; then one bit a lane.
    _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())).cast_unsigned()
}

/// Returns a bit set: bit s is set if tag s equals `tag`.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn equal(tags: &[u16; SLOTS], tag: u16) -> u32 {
    tags.iter().rev().fold(0, |bits, &other| bits << 1 | u32::from(other == tag))
}
