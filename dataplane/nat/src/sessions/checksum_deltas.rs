//! Hot. What the translation of a mapping adds to the checksums of a packet from inside (RFC 1624,
//! equation 3): the ones' complement sums of the old fields' complements and the new fields, as
//! the fields lie in memory.

use crate::endpoint::Endpoint;

/// The sums of a mapping: 32 bits of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumDeltas {
    /// Of the address: for the checksum of the IP header.
    pub address: u16,
    /// Of address and port: for the checksum of the UDP or TCP header.
    pub endpoint: u16,
}

impl ChecksumDeltas {
    /// Returns the sums of a packet from `inside` that leaves from `public`.
    pub(crate) fn new(inside: Endpoint, public: Endpoint) -> Self {
        let address = u64::from(!inside.address.to_be()) + u64::from(public.address.to_be());
        let port = u64::from(!inside.port.to_be()) + u64::from(public.port.to_be());
        Self { address: fold(address), endpoint: fold(address + port) }
    }

    /// Returns the sums of a packet to `public` that goes on to `inside`.
    #[inline(always)]
    pub(crate) const fn inverse(self) -> Self {
        Self { address: !self.address, endpoint: !self.endpoint }
    }

    #[inline(always)]
    pub(crate) const fn from_word(word: u32) -> Self {
        Self { address: word as u16, endpoint: (word >> 16) as u16 }
    }

    #[inline(always)]
    pub(crate) const fn word(self) -> u32 {
        self.address as u32 | (self.endpoint as u32) << 16
    }
}

/// Folds a sum to 16 bits with end-around carry.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
