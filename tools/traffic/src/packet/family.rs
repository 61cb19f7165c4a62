//! What differs between IPv4 and IPv6 packets. Hot path.

use std::fmt::Debug;

use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};

use super::{fold, put, word64, words};

const TTL: u8 = 64;

/// The IP header of a packet. Offsets are those of the header in the packet.
pub trait Family: Clone + Copy + Debug + PartialEq + Eq {
    /// Source and destination address as wire words.
    type Pair: Clone + Copy + Debug + PartialEq + Eq;
    const HEADER_LEN: usize;
    /// Also the protocol type in GRE.
    const ETHERTYPE: u16;

    /// Writes a header without addresses and checksum of a packet of `len` bytes, header included.
    fn write_header(header: &mut [u8], protocol: u8, len: usize);

    /// Returns the sum of the header's words that do not differ from flow to flow; 0 if nothing
    /// sums them.
    fn header_sum(header: &[u8]) -> u64;

    /// Writes the addresses and, where the header has one, its checksum; `sum` is that of
    /// [`Family::header_sum`].
    fn put_addresses(packet: &mut [u8], at: usize, sum: u64, pair: Self::Pair);

    fn addresses(packet: &[u8], at: usize) -> Self::Pair;

    /// Returns the sum of the addresses' words, as in the pseudo header.
    fn sum(pair: Self::Pair) -> u64;

    /// True if there is a header without options at `at`, not a fragment, of the right protocol and
    /// of a packet of `len` bytes.
    fn is_whole(packet: &[u8], at: usize, protocol: u8, len: usize) -> bool;

    /// True unless the header has a wrong checksum.
    fn is_header_right(packet: &[u8], at: usize) -> bool;
}

/// A header of 20 bytes. The device may change the type of service, the identification, "don't
/// fragment" and the TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4;

impl Family for Ipv4 {
    type Pair = u64;
    const HEADER_LEN: usize = 20;
    const ETHERTYPE: u16 = ETHERTYPE_IPV4;

    fn write_header(header: &mut [u8], protocol: u8, len: usize) {
        header[0] = 0x45;
        put(header, 2, (len as u16).to_be_bytes());
        // Don't fragment.
        header[6] = 0x40;
        header[8] = TTL;
        header[9] = protocol;
    }

    fn header_sum(header: &[u8]) -> u64 {
        words(header)
    }

    #[inline(always)]
    fn put_addresses(packet: &mut [u8], at: usize, sum: u64, pair: u64) {
        put(packet, at + 10, (!fold(sum + Self::sum(pair))).to_le_bytes());
        put(packet, at + 12, pair.to_le_bytes());
    }

    #[inline(always)]
    fn addresses(packet: &[u8], at: usize) -> u64 {
        word64(packet, at + 12)
    }

    #[inline(always)]
    fn sum(pair: u64) -> u64 {
        halves(pair)
    }

    #[inline(always)]
    fn is_whole(packet: &[u8], at: usize, protocol: u8, len: usize) -> bool {
        const MASK: u64 = u64::from_le_bytes([0xff, 0, 0xff, 0xff, 0, 0, 0x3f, 0xff]);
        let len = (len as u16).to_be_bytes();
        let right = u64::from_le_bytes([0x45, 0, len[0], len[1], 0, 0, 0, 0]);
        word64(packet, at) & MASK == right && packet[at + 9] == protocol
    }

    #[inline(always)]
    fn is_header_right(packet: &[u8], at: usize) -> bool {
        fold(words(&packet[at..at + Self::HEADER_LEN])) == 0xffff
    }
}

/// A header of 40 bytes without extension headers. The device may change the hop limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6;

impl Family for Ipv6 {
    /// The halves of the source, then those of the destination.
    type Pair = [u64; 4];
    const HEADER_LEN: usize = 40;
    const ETHERTYPE: u16 = ETHERTYPE_IPV6;

    fn write_header(header: &mut [u8], protocol: u8, len: usize) {
        put(header, 0, word(protocol, len).to_le_bytes());
        header[7] = TTL;
    }

    fn header_sum(_: &[u8]) -> u64 {
        0
    }

    #[inline(always)]
    fn put_addresses(packet: &mut [u8], at: usize, _: u64, pair: [u64; 4]) {
        for (position, half) in pair.into_iter().enumerate() {
            put(packet, at + 8 + 8 * position, half.to_le_bytes());
        }
    }

    #[inline(always)]
    fn addresses(packet: &[u8], at: usize) -> [u64; 4] {
        [8, 16, 24, 32].map(|offset| word64(packet, at + offset))
    }

    #[inline(always)]
    fn sum(pair: [u64; 4]) -> u64 {
        pair.into_iter().map(halves).sum()
    }

    #[inline(always)]
    fn is_whole(packet: &[u8], at: usize, protocol: u8, len: usize) -> bool {
        const ALL_BUT_HOP_LIMIT: u64 = u64::MAX >> 8;
        word64(packet, at) & ALL_BUT_HOP_LIMIT == word(protocol, len)
    }

    #[inline(always)]
    fn is_header_right(_: &[u8], _: usize) -> bool {
        true
    }
}

impl Ipv6 {
    /// As [`Family::is_whole`], with any flow label: the device chooses that of a tunnel (RFC
    /// 6438).
    #[inline(always)]
    pub(super) fn is_whole_with_label(packet: &[u8], at: usize, protocol: u8, len: usize) -> bool {
        const MASK: u64 = u64::from_le_bytes([0xff, 0xf0, 0, 0, 0xff, 0xff, 0xff, 0]);
        word64(packet, at) & MASK == word(protocol, len)
    }
}

/// Returns the first eight bytes of an IPv6 header with hop limit 0.
#[inline(always)]
fn word(protocol: u8, len: usize) -> u64 {
    let len = ((len - Ipv6::HEADER_LEN) as u16).to_be_bytes();
    u64::from_le_bytes([0x60, 0, 0, 0, len[0], len[1], protocol, 0])
}

#[inline(always)]
fn halves(pair: u64) -> u64 {
    (pair & 0xffff_ffff) + (pair >> 32)
}
