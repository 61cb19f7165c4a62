//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624). Hot: per packet.

use zerocopy::{FromBytes, Immutable};

/// Returns the ones' complement checksum of `bytes`, complemented, in host order: the value for a
/// checksum field. Over bytes that contain their right checksum the result is 0. An odd last byte
/// is padded with zero.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    finish(partial(bytes))
}

/// Returns the ones' complement sum of `bytes`, folded to 16 bits, not complemented. Parts may be
/// added with `+` and passed to [`finish`]; every part except the last must have an even length.
#[inline]
pub fn partial(bytes: &[u8]) -> u32 {
    // RFC 1071 section 2(B): the sum does not depend on byte order, so words are added as they lie
    // in memory and only the result is swapped. Four bytes at a time (section 2(C)); 2^32 such
    // words fit the accumulator.
    let words = bytes.chunks_exact(4);
    let tail = words.remainder();
    let mut last = [0u8; 4];
    last[..tail.len()].copy_from_slice(tail);
    let sum = words.fold(u64::from(u32::from_ne_bytes(last)), |sum, word| {
        sum + u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
    });
    u32::from(u16::from_be(fold(sum)))
}

/// An IP header without options by words, as they lie in memory.
#[derive(Clone, Copy, FromBytes, Immutable)]
#[repr(C, packed)]
struct HeaderWords {
    first: u32,
    others: [u64; 2],
}

impl HeaderWords {
    /// Returns the sum of the words modulo 2^64 - 1, which is a multiple of 0xffff.
    #[inline(always)]
    fn sum(self) -> u64 {
        let Self { first, others: [second, third] } = self;
        let (sum, carries) = second.overflowing_add(third);
        let (sum, carries_first) = sum.overflowing_add(u64::from(first));
        let (sum, carries_carry) = sum.overflowing_add(u64::from(carries));
        // If this addition carries, what is left is less than `first`.
        sum.wrapping_add(u64::from(carries_first | carries_carry))
    }
}

/// 0xffff times this is 1 modulo 2^64.
const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;

const _: () = assert!(INVERSE.wrapping_mul(0xffff) == 1);

/// Returns whether an IP header without options contains its right checksum.
#[inline(always)]
pub fn is_right(header: [u8; 20]) -> bool {
    let words: HeaderWords = zerocopy::transmute!(header);
    // As in `partial`, the sum does not depend on byte order, and only all ones are their own swap:
    // right is a sum of 0xffff, a multiple of it but not 0. The multiples are the products of the
    // numbers up to MAX / 0xffff; the inverse leads back to these (Granlund, Montgomery 1994,
    // section 9). 0 wraps to the largest number.
    words.sum().wrapping_mul(INVERSE).wrapping_sub(1) < u64::MAX / 0xffff
}

/// Returns the checksum field of a header of these words, whose own field is 0, all of them as they
/// lie in memory. The place of a word makes no difference.
#[inline(always)]
pub fn of_words([first, second, third]: [u64; 3]) -> u16 {
    !fold(add(add(first, second), third))
}

/// Returns the sum of two words modulo 2^64 - 1, which is a multiple of 0xffff.
#[inline(always)]
fn add(a: u64, b: u64) -> u64 {
    let (sum, carries) = a.overflowing_add(b);
    sum + u64::from(carries)
}

/// Folds a sum of partial sums and complements it.
#[inline]
pub fn finish(sum: u32) -> u16 {
    !fold(u64::from(sum))
}

/// Returns the sum of the TCP and UDP pseudo header (RFC 9293 section 3.1, RFC 768): addresses in
/// host order, `len` = bytes of the segment with its header. To be added to the [`partial`] of the
/// segment.
#[inline]
pub fn pseudo_header(source: u32, destination: u32, protocol: u8, len: u16) -> u32 {
    let sum = u64::from(source) + u64::from(destination) + u64::from(protocol) + u64::from(len);
    u32::from(fold(sum))
}

/// Returns the sum of the pseudo header of IPv6 (RFC 8200 section 8.1): addresses in host order,
/// `len` = bytes of the upper-layer packet with its header, `protocol` = of the upper layer,
/// whatever the next header of IPv6. To be added to the [`partial`] of the upper-layer packet.
#[inline]
pub fn pseudo_header6(source: u128, destination: u128, protocol: u8, len: u32) -> u32 {
    let sum = words128(source) + words128(destination) + u64::from(protocol) + u64::from(len);
    u32::from(fold(sum))
}

/// Returns the sum of the four 32-bit words of a number, below 2^34.
#[inline(always)]
const fn words128(number: u128) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let (upper, lower) = ((number >> 64) as u64, number as u64);
    (upper >> 32) + (upper & LOW) + (lower >> 32) + (lower & LOW)
}

/// Returns the sum of an IPv6 address in host order, folded to 16 bits, as [`partial`] does of its
/// bytes. A [`Delta`] takes it in place of a 32-bit field: the way from an IPv6 address to an IPv4
/// address and back (RFC 7915).
#[inline]
pub const fn partial128(address: u128) -> u32 {
    fold(words128(address)) as u32
}

/// The difference that a set of field edits makes to a checksum: collected once, applied to every
/// checksum that covers the edited fields (an address is covered by IP, TCP and UDP checksums; a
/// port by TCP and UDP).
///
/// All fields of a delta are in host order, or all are as they lie in memory, and so is the
/// checksum that it is applied to (RFC 1071 section 2(B)).
///
/// RFC 1624 equation 3: HC' = ~(~HC + ~m + m'). The form of equation 4 and of RFC 1141 is wrong for
/// a sum of zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    sum: u64,
}

impl Delta {
    /// Returns the delta of no edit.
    #[inline]
    pub const fn new() -> Delta {
        Delta { sum: 0 }
    }

    /// Adds the replacement of an aligned 16-bit field, host order.
    #[inline]
    #[must_use]
    pub const fn replace16(self, old: u16, new: u16) -> Delta {
        Delta { sum: self.sum + !old as u64 + new as u64 }
    }

    /// Adds the replacement of a 32-bit field at an even offset, host order. Either may be a
    /// [`partial`] sum instead, of any number of fields.
    #[inline]
    #[must_use]
    pub const fn replace32(self, old: u32, new: u32) -> Delta {
        // 2^16 = 1 modulo 0xffff: a 32-bit word is the sum of its halves, and folding reduces it to
        // that. So a partial sum can stand in place of a field.
        Delta { sum: self.sum + !old as u64 + new as u64 }
    }

    /// Adds the replacement of an IPv6 address at an even offset, host order.
    #[inline]
    #[must_use]
    pub const fn replace128(self, old: u128, new: u128) -> Delta {
        Delta { sum: self.sum + words128(!old) + words128(new) }
    }

    /// Adds a decrement of the upper byte of a 16-bit field that is not below 256 in host order: ~m
    /// + m - 0x100, whatever m.
    #[inline]
    #[must_use]
    pub const fn decrement_upper(self) -> Delta {
        Delta { sum: self.sum + 0xfeff }
    }

    /// As [`decrement_upper`](Self::decrement_upper), in a delta of fields as they lie in memory: a
    /// decrement of the octet at the lower address.
    #[inline]
    #[must_use]
    pub const fn decrement_first(self) -> Delta {
        Delta { sum: self.sum + u16::from_be(0xfeff) as u64 }
    }

    /// Returns the delta of both sets of edits.
    #[inline]
    #[must_use]
    pub const fn then(self, other: Delta) -> Delta {
        Delta { sum: self.sum + other.sum }
    }

    /// Returns the checksum after the edits; a wrong checksum stays wrong by the same difference.
    /// UDP and ICMP have corner cases of their own: [`crate::udp::apply_delta`],
    /// [`crate::icmp::apply_delta`].
    #[inline]
    #[must_use]
    pub const fn apply(self, checksum: u16) -> u16 {
        !fold(!checksum as u64 + self.sum)
    }
}

/// A [`Delta`] of fields as they lie in memory, folded to 16 bits: a record can keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedDelta(pub u16);

impl FoldedDelta {
    /// As [`Delta::apply`]. 0 and 0xffff, which are the same, have the same effect.
    #[inline(always)]
    #[must_use]
    pub const fn apply(self, checksum: u16) -> u16 {
        // The complement of the checksum and 0xffff: the sum is never 0.
        !fold32(0x1_fffe - checksum as u32 + self.0 as u32)
    }

    /// As [`apply`](Self::apply), with [`Delta::decrement_first`].
    #[inline(always)]
    #[must_use]
    pub const fn apply_with_hop(self, checksum: u16) -> u16 {
        const HOP: u32 = u16::from_be(0xfeff) as u32;
        !fold32(0x1_fffe - checksum as u32 + HOP + self.0 as u32)
    }
}

#[inline(always)]
const fn fold32(sum: u32) -> u16 {
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Folds to 16 bits with end-around carry. A sum that is not 0 never becomes 0: it becomes 0xffff.
#[inline(always)]
pub(crate) const fn fold(sum: u64) -> u16 {
    // A word plus itself rotated by half its width: the upper half is the sum of both halves,
    // including the end-around carry of the lower half.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests;
