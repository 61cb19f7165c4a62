//! Hot. What a packet of an IPv6 flow has in common with the flow's record, in the record's layout.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use weir_flow::{Hash, Index};

use crate::endpoint::Protocol;
use crate::look_up::PacketKey;
use crate::nat::Nat;
use crate::sessions::mapping::{Mapping, MappingKind};
use crate::sessions::session_state::SessionState;

/// An IPv6 address and a port, both in host order. For ICMPv6 echo the port is the identifier at
/// the inside endpoint, and 0 at the remote one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint6 {
    pub address: u128,
    pub port: u16,
}

impl Endpoint6 {
    pub const fn new(address: u128, port: u16) -> Self {
        Self { address, port }
    }

    /// Returns the first 64 bits of the address.
    pub const fn prefix64(&self) -> u64 {
        (self.address >> 64) as u64
    }
}

impl From<Endpoint6> for SocketAddr {
    fn from(Endpoint6 { address, port }: Endpoint6) -> Self {
        Self::V6(SocketAddrV6::new(Ipv6Addr::from(address), port, 0, 0))
    }
}

impl fmt::Display for Endpoint6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

/// Bits of a record's third word that are compared: inside port, protocol, kind.
const ENDS: u64 = 0x0000_ffff_0000_ffff;
/// Bits of a record's fourth word that are compared: SETTLED, remote port, and a bit that no record
/// has beside SETTLED.
const REMOTE: u64 = REMOTE_PORT | SETTLED | NOT_ORDINARY;
const REMOTE_PORT: u64 = 0xffff << 48;
const SETTLED: u64 = (SessionState::SETTLED as u64) << 32;
/// Keeps the key of a packet that is not ordinary from being found.
const NOT_ORDINARY: u64 = (SessionState::REDIRECTED as u64) << 32;
const LIVE: u64 = (MappingKind::LiveIpv6 as u64) << 40;
/// The bit in which committed and uncommitted flows differ.
const UNCOMMITTED: u64 = ((MappingKind::UncommittedIpv6 as u64) << 40) ^ LIVE;

/// The endpoints and the protocol of a packet, word by word as its flow's record has them.
///
/// An *ordinary* packet is UDP, or TCP with ACK and without SYN, FIN and RST: it changes nothing in
/// a settled flow but the time of its last packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowKey6 {
    /// The octets of the address, as they lie in memory.
    inside: [u64; 2],
    remote: [u64; 2],
    /// Inside port, protocol, kind.
    ends: u64,
    /// Last four octets of the inside address, the expected state, remote port.
    remote_word: u64,
}

impl FlowKey6 {
    /// The key of no packet.
    pub const EMPTY: Self = Self { inside: [0; 2], remote: [0; 2], ends: 0, remote_word: 0 };

    /// Makes the key of a packet. `inside` and `remote` are the octets of the addresses, as they
    /// lie in memory: `u64::from_ne_bytes` of each half.
    #[inline(always)]
    pub fn of_words(
        (inside, inside_port): ([u64; 2], u16),
        (remote, remote_port): ([u64; 2], u16),
        protocol: Protocol,
        is_ordinary: bool,
    ) -> Self {
        let expected = if is_ordinary { SETTLED } else { SETTLED | NOT_ORDINARY };
        Self {
            inside,
            remote,
            ends: u64::from(inside_port) | (protocol as u64) << 32 | LIVE,
            remote_word: inside[1] >> 32 | expected | u64::from(remote_port) << 48,
        }
    }

    /// As [`of_words`](Self::of_words), of endpoints in host order.
    #[inline]
    pub fn new(
        inside: Endpoint6,
        remote: Endpoint6,
        protocol: Protocol,
        is_ordinary: bool,
    ) -> Self {
        let words = |end: Endpoint6| (words_of(end.address), end.port);
        Self::of_words(words(inside), words(remote), protocol, is_ordinary)
    }

    #[inline]
    pub fn inside(&self) -> Endpoint6 {
        Endpoint6::new(address_of(self.inside), self.ends as u16)
    }

    #[inline]
    pub fn remote(&self) -> Endpoint6 {
        Endpoint6::new(address_of(self.remote), (self.remote_word >> 48) as u16)
    }

    /// Returns 0 if the record is in use and of this flow.
    #[inline(always)]
    pub(crate) fn differs(&self, record: &Mapping) -> u64 {
        let words = record.words();
        self.differs_in_addresses(words)
            | (words[2] ^ self.ends) & ENDS & !UNCOMMITTED
            | (words[3] ^ self.remote_word) & REMOTE_PORT
    }

    /// Returns 0 if the record is of this flow, committed and settled, and the packet is ordinary.
    #[inline(always)]
    pub(crate) fn differs_from_settled(&self, record: &Mapping) -> u64 {
        let words = record.words();
        self.differs_in_addresses(words)
            | (words[2] ^ self.ends) & ENDS
            | (words[3] ^ self.remote_word) & REMOTE
    }

    #[inline(always)]
    fn differs_in_addresses(&self, words: &[u64; 8]) -> u64 {
        let [w0, w1, _, w3, w4, w5, w6, _] = words;
        let [inside, remote] = [
            [w0 >> 32 | w1 << 32, w1 >> 32 | w3 << 32],
            [w4 >> 32 | w5 << 32, w5 >> 32 | w6 << 32],
        ];
        (inside[0] ^ self.inside[0])
            | (inside[1] ^ self.inside[1])
            | (remote[0] ^ self.remote[0])
            | (remote[1] ^ self.remote[1])
    }

    /// Returns the five words that name the flow.
    #[inline(always)]
    fn hashed(&self) -> [u64; 5] {
        let ports = self.ends | self.remote_word & REMOTE_PORT;
        [self.inside[0], self.inside[1], self.remote[0], self.remote[1], ports]
    }
}

impl PacketKey for FlowKey6 {
    #[inline(always)]
    fn index(nat: &Nat) -> &Index {
        &nat.outbound_index
    }

    #[inline(always)]
    fn hash(&self, nat: &Nat) -> Hash {
        nat.hash_flow6(self.hashed())
    }

    #[inline(always)]
    fn remote_word(&self) -> u64 {
        self.remote_word
    }
}

/// Returns the octets of an address as they lie in memory.
#[inline(always)]
pub(crate) fn words_of(address: u128) -> [u64; 2] {
    let [upper, lower] = [(address >> 64) as u64, address as u64];
    [upper.to_be(), lower.to_be()]
}

/// Returns the address of octets as they lie in memory.
#[inline(always)]
pub(crate) fn address_of([upper, lower]: [u64; 2]) -> u128 {
    u128::from(u64::from_be(upper)) << 64 | u128::from(u64::from_be(lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: Endpoint6 = Endpoint6::new(0x2001_0db8_1000_0102_0304_0506_0708_090a, 5000);
    const REMOTE_END: Endpoint6 = Endpoint6::new(0x2001_0db8_9000_0000_0000_0000_0000_0001, 443);

    #[test]
    fn key_returns_the_endpoints_that_it_was_made_of() {
        for is_ordinary in [false, true] {
            let key = FlowKey6::new(INSIDE, REMOTE_END, Protocol::Tcp, is_ordinary);
            assert_eq!((key.inside(), key.remote()), (INSIDE, REMOTE_END));
        }
    }

    #[test]
    fn each_bit_of_the_endpoints_and_the_protocol_is_hashed() {
        let hashed =
            |inside, remote, protocol| FlowKey6::new(inside, remote, protocol, true).hashed();
        let one = hashed(INSIDE, REMOTE_END, Protocol::Tcp);
        for bit in 0..128 {
            let other = |end: Endpoint6| Endpoint6 { address: end.address ^ 1 << bit, ..end };
            assert_ne!(one, hashed(other(INSIDE), REMOTE_END, Protocol::Tcp));
            assert_ne!(one, hashed(INSIDE, other(REMOTE_END), Protocol::Tcp));
        }
        for bit in 0..16 {
            let other = |end: Endpoint6| Endpoint6 { port: end.port ^ 1 << bit, ..end };
            assert_ne!(one, hashed(other(INSIDE), REMOTE_END, Protocol::Tcp));
            assert_ne!(one, hashed(INSIDE, other(REMOTE_END), Protocol::Tcp));
        }
        assert_ne!(one, hashed(INSIDE, REMOTE_END, Protocol::Udp));
        assert_ne!(one, hashed(REMOTE_END, INSIDE, Protocol::Tcp));
    }

    #[test]
    fn endpoint_is_written_as_operators_write_it() {
        assert_eq!(REMOTE_END.to_string(), "[2001:db8:9000::1]:443");
    }
}
