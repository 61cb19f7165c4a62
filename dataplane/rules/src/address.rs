//! Addresses of both families, in host order, and their prefixes.

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::net::IpAddr;

use crate::prefix_pair::{MaskedPair, PlainPair, PrefixPair};

/// An IPv4 address (`u32`) or an IPv6 address (`u128`).
pub trait IpAddress: Copy + Ord + Hash + Debug + Default {
    const BITS: u32;

    /// Two prefixes as a packed filter holds them.
    type PrefixPair: PrefixPair<Self>;

    /// Returns `count` bits, at most 16, of which bit `at`, below [`BITS`](Self::BITS), is the
    /// highest; bit 0 is the address's highest. What lies beyond its lowest bit is 0.
    fn bits(self, at: u32, count: u32) -> usize;

    /// Returns how many blocks of 2^`below` addresses, `below` less than [`BITS`](Self::BITS), lie
    /// between `first` and the address; a large number if the address comes before.
    fn blocks_from(self, first: Self, below: u32) -> usize;

    /// Whether the first `len` bits are those of `other`.
    fn shares(self, other: Self, len: u8) -> bool;

    /// Returns the first `len` bits, with 0 behind them.
    #[must_use]
    fn network(self, len: u8) -> Self;

    /// Returns the address with 1 behind the first `len` bits.
    #[must_use]
    fn last(self, len: u8) -> Self;

    /// Returns the address for text.
    fn to_ip(self) -> IpAddr;
}

impl IpAddress for u32 {
    const BITS: u32 = u32::BITS;
    type PrefixPair = MaskedPair;

    #[inline(always)]
    fn bits(self, at: u32, count: u32) -> usize {
        ((self << at) >> (Self::BITS - count)) as usize
    }

    #[inline(always)]
    fn blocks_from(self, first: Self, below: u32) -> usize {
        (self.wrapping_sub(first) >> below) as usize
    }

    #[inline(always)]
    fn shares(self, other: Self, len: u8) -> bool {
        u64::from(self ^ other) >> (Self::BITS - u32::from(len)) == 0
    }

    fn network(self, len: u8) -> Self {
        self & (u64::from(u32::MAX) << (Self::BITS - u32::from(len))) as u32
    }

    fn last(self, len: u8) -> Self {
        self | (u64::from(u32::MAX) >> len) as u32
    }

    fn to_ip(self) -> IpAddr {
        IpAddr::V4(self.into())
    }
}

impl IpAddress for u128 {
    const BITS: u32 = u128::BITS;
    type PrefixPair = PlainPair;

    #[inline(always)]
    fn bits(self, at: u32, count: u32) -> usize {
        ((self << at) >> (Self::BITS - count)) as usize
    }

    #[inline(always)]
    fn blocks_from(self, first: Self, below: u32) -> usize {
        usize::try_from(self.wrapping_sub(first) >> below).unwrap_or(usize::MAX)
    }

    #[inline(always)]
    fn shares(self, other: Self, len: u8) -> bool {
        len == 0 || (self ^ other) >> (Self::BITS - u32::from(len)) == 0
    }

    fn network(self, len: u8) -> Self {
        if len == 0 { 0 } else { self & (u128::MAX << (Self::BITS - u32::from(len))) }
    }

    fn last(self, len: u8) -> Self {
        self | u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
    }

    fn to_ip(self) -> IpAddr {
        IpAddr::V6(self.into())
    }
}

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    len: u8,
}

impl<A: IpAddress> Prefix<A> {
    /// Returns the prefix of the first `len` bits of an address.
    ///
    /// # Panics
    /// If an address has not so many bits.
    pub fn new(address: A, len: u8) -> Self {
        assert!(u32::from(len) <= A::BITS, "an address has {} bits, not {len}", A::BITS);
        Self { address: address.network(len), len }
    }

    /// Returns the prefix of all addresses.
    pub fn all() -> Self {
        Self::new(A::default(), 0)
    }

    /// Returns the first address.
    pub fn address(&self) -> A {
        self.address
    }

    /// Returns the last address.
    pub fn last(&self) -> A {
        self.address.last(self.len)
    }

    /// Returns the number of bits that all addresses have in common.
    pub fn bits(&self) -> u8 {
        self.len
    }

    /// Whether all addresses are in it.
    pub fn is_all(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub fn contains(&self, address: A) -> bool {
        address.shares(self.address, self.len)
    }

    /// Whether all addresses of the other prefix are in this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && self.contains(other.address)
    }
}

impl<A: IpAddress> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address.to_ip(), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<A: IpAddress>(one: A, bit: impl Fn(u32) -> A, differ: impl Fn(A, A) -> A) {
        for len in 0..=A::BITS as u8 {
            let prefix = Prefix::new(one, len);
            assert!(prefix.contains(one) && Prefix::all().covers(&prefix));
            for at in 0..A::BITS {
                let other = differ(one, bit(at));
                assert_eq!(prefix.contains(other), at >= u32::from(len), "{len} {at}");
                assert_eq!(prefix == Prefix::new(other, len), at >= u32::from(len));
            }
        }
    }

    #[test]
    fn a_prefix_holds_the_addresses_that_begin_with_its_bits() {
        check(0xc633_6407_u32, |at| 1 << (31 - at), |a, b| a ^ b);
        check(0x2001_0db8_0000_0007_8000_0000_0000_0001_u128, |at| 1 << (127 - at), |a, b| a ^ b);
    }

    #[test]
    fn bits_beyond_the_last_are_zero() {
        assert_eq!(0xffff_ffff_u32.bits(0, 16), 0xffff);
        assert_eq!(0x0000_000f_u32.bits(28, 6), 0b11_1100);
        assert_eq!((0b11_u128).bits(126, 6), 0b11_0000);
        assert_eq!((1_u128 << 127).bits(0, 16), 1 << 15);
    }

    #[test]
    fn prefix_is_written_as_operators_write_it() {
        assert_eq!(Prefix::new(0xc633_6407_u32, 24).to_string(), "198.51.100.0/24");
        assert_eq!(Prefix::new(0x2001_0db8_u128 << 96, 32).to_string(), "2001:db8::/32");
    }

    #[test]
    #[should_panic(expected = "an address has 32 bits, not 33")]
    fn a_prefix_is_no_longer_than_an_address() {
        Prefix::new(0_u32, 33);
    }
}
