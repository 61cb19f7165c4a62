//! Hot. The local and the remote prefix of a packed filter, so that two addresses are compared with
//! both at once.

use std::fmt::Debug;
use std::hash::Hash;

use crate::address::{IpAddress, Prefix};

/// A local and a remote prefix.
pub trait PrefixPair<A: IpAddress>: Copy + Eq + Hash + Debug {
    fn new(local: &Prefix<A>, remote: &Prefix<A>) -> Self;

    /// Returns 0 if each address is in its prefix.
    fn differences(&self, local: A, remote: A) -> u64;
}

/// Of IPv4: both addresses in a word, the remote one above, as they lie in a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaskedPair {
    addresses: u64,
    mask: u64,
}

#[inline(always)]
fn both(local: u32, remote: u32) -> u64 {
    u64::from(remote) << u32::BITS | u64::from(local)
}

impl PrefixPair<u32> for MaskedPair {
    fn new(local: &Prefix<u32>, remote: &Prefix<u32>) -> Self {
        let mask = |prefix: &Prefix<u32>| u32::MAX.network(prefix.bits());
        Self {
            addresses: both(local.address(), remote.address()),
            mask: both(mask(local), mask(remote)),
        }
    }

    #[inline(always)]
    fn differences(&self, local: u32, remote: u32) -> u64 {
        (both(local, remote) ^ self.addresses) & self.mask
    }
}

/// Of IPv6, whose masks would take another 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlainPair {
    local: u128,
    remote: u128,
    local_len: u8,
    remote_len: u8,
}

impl PrefixPair<u128> for PlainPair {
    fn new(local: &Prefix<u128>, remote: &Prefix<u128>) -> Self {
        Self {
            local: local.address(),
            remote: remote.address(),
            local_len: local.bits(),
            remote_len: remote.bits(),
        }
    }

    #[inline(always)]
    fn differences(&self, local: u128, remote: u128) -> u64 {
        let is_in =
            local.shares(self.local, self.local_len) & remote.shares(self.remote, self.remote_len);
        u64::from(!is_in)
    }
}
