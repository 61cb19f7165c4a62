//! The tunnel header of a packet on the access side: GRE over IPv4 (RFC 2784), GRE over IPv6 (RFC
//! 7676), or none. Hot path.
//!
//! The length of the header says which of them it is, and is known at compile time.
//!
//! Outer addresses are held as a pair of IPv4 addresses for both kinds of tunnels. Those of a
//! tunnel over IPv6 follow from it one-to-one ([`outer6`](crate::scenario::outer6)).

use weir_wire::ipv4::PROTOCOL_GRE;

use super::{ETHERNET_LEN, Family, Ipv4, Ipv6, put, word32, words};
use crate::scenario::OUTER6;

/// RFC 2784 section 2.1: no checksum, no key.
const GRE_LEN: usize = 4;
/// Bytes that no tunnel, GRE over IPv4 and GRE over IPv6 add to a packet.
pub const PLAIN: usize = 0;
pub const GRE: usize = Ipv4::HEADER_LEN + GRE_LEN;
pub const GRE6: usize = Ipv6::HEADER_LEN + GRE_LEN;

/// Outer addresses that no tunnel has.
const STRANGERS: u64 = u64::MAX;
/// Both halves of an outer IPv6 address, the first without octets 4 to 8: wire words.
const PREFIX6: u64 = ((OUTER6 >> 64) as u64).swap_bytes();
const SUFFIX6: u64 = (OUTER6 as u64).swap_bytes();
const DESTINATION: u64 = 0xffff_ffff << 32;

/// Returns the EtherType of a packet.
#[inline(always)]
pub(super) const fn ethertype<F: Family, const TUNNEL: usize>() -> u16 {
    match TUNNEL {
        PLAIN => F::ETHERTYPE,
        GRE => Ipv4::ETHERTYPE,
        _ => Ipv6::ETHERTYPE,
    }
}

/// Writes the header of a whole packet, without addresses and checksum; returns the sum of the
/// words that do not differ from flow to flow, as [`Family::header_sum`].
pub(super) fn write_header<F: Family, const TUNNEL: usize>(packet: &mut [u8]) -> u64 {
    let (header, len) = (ETHERNET_LEN, packet.len() - ETHERNET_LEN);
    match TUNNEL {
        PLAIN => return 0,
        GRE => Ipv4::write_header(&mut packet[header..], PROTOCOL_GRE, len),
        _ => Ipv6::write_header(&mut packet[header..], PROTOCOL_GRE, len),
    }
    // RFC 2784 section 2.3: the protocol type is the EtherType of the payload.
    put(packet, header + TUNNEL - 2, F::ETHERTYPE.to_be_bytes());
    if TUNNEL == GRE { words(&packet[header..header + Ipv4::HEADER_LEN]) } else { 0 }
}

/// Writes the outer addresses and, where the header has one, its checksum; `sum` is that of
/// [`write_header`].
#[inline(always)]
pub(super) fn put_addresses<const TUNNEL: usize>(packet: &mut [u8], sum: u64, pair: u64) {
    match TUNNEL {
        PLAIN => {}
        GRE => Ipv4::put_addresses(packet, ETHERNET_LEN, sum, pair),
        _ => Ipv6::put_addresses(packet, ETHERNET_LEN, sum, pair6(pair)),
    }
}

/// Returns the outer addresses of a packet of `len` bytes, and whether its outer checksum is right;
/// `None` if its tunnel header is another one. Without a tunnel the addresses are 0; addresses that
/// stand for no IPv4 ones are [`STRANGERS`].
#[inline(always)]
pub(super) fn read<F: Family, const TUNNEL: usize>(head: &[u8], len: usize) -> Option<(u64, bool)> {
    if TUNNEL == PLAIN {
        return Some((0, true));
    }
    let gre = u32::from(F::ETHERTYPE).swap_bytes();
    if word32(head, ETHERNET_LEN + TUNNEL - GRE_LEN) != gre {
        return None;
    }
    let len = len - ETHERNET_LEN;
    if TUNNEL == GRE {
        let is_whole = Ipv4::is_whole(head, ETHERNET_LEN, PROTOCOL_GRE, len);
        let outer = Ipv4::addresses(head, ETHERNET_LEN);
        is_whole.then(|| (outer, Ipv4::is_header_right(head, ETHERNET_LEN)))
    } else {
        let is_whole = Ipv6::is_whole_with_label(head, ETHERNET_LEN, PROTOCOL_GRE, len);
        is_whole.then(|| (pair_of(Ipv6::addresses(head, ETHERNET_LEN)), true))
    }
}

/// Returns the IPv6 addresses that a pair of IPv4 addresses stands for.
#[inline(always)]
fn pair6(pair: u64) -> [u64; 4] {
    [PREFIX6 | pair << 32, SUFFIX6, PREFIX6 | pair & DESTINATION, SUFFIX6]
}

#[inline(always)]
fn pair_of(addresses: [u64; 4]) -> u64 {
    let pair = addresses[0] >> 32 | addresses[2] & DESTINATION;
    if pair6(pair) == addresses { pair } else { STRANGERS }
}
