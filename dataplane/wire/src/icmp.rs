//! ICMP (RFC 792). Hot: per packet.

use crate::checksum::{self, Delta};
use crate::{Malformed, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const ECHO_REPLY: u8 = 0;
pub const DESTINATION_UNREACHABLE: u8 = 3;
pub const SOURCE_QUENCH: u8 = 4;
pub const REDIRECT: u8 = 5;
pub const ECHO_REQUEST: u8 = 8;
pub const TIME_EXCEEDED: u8 = 11;
pub const PARAMETER_PROBLEM: u8 = 12;
pub const TIMESTAMP_REQUEST: u8 = 13;
pub const TIMESTAMP_REPLY: u8 = 14;

/// Codes of [`DESTINATION_UNREACHABLE`].
pub const CODE_NET_UNREACHABLE: u8 = 0;
pub const CODE_HOST_UNREACHABLE: u8 = 1;
pub const CODE_PROTOCOL_UNREACHABLE: u8 = 2;
pub const CODE_PORT_UNREACHABLE: u8 = 3;
/// RFC 1191: the next-hop MTU is in the last two bytes of the header.
pub const CODE_FRAGMENTATION_NEEDED: u8 = 4;
/// RFC 1812 section 5.2.7.1.
pub const CODE_ADMINISTRATIVELY_PROHIBITED: u8 = 13;
/// Codes of [`TIME_EXCEEDED`].
pub const CODE_TTL_EXCEEDED: u8 = 0;
pub const CODE_REASSEMBLY_TIME_EXCEEDED: u8 = 1;

/// The ICMP header: 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Icmp {
    pub kind: u8,
    pub code: u8,
    pub checksum: U16,
    /// Queries: identifier, sequence. Errors: by kind; the MTU of "fragmentation needed" in the
    /// last two bytes.
    pub rest: [u8; 4],
}

impl Icmp {
    pub const LEN: usize = size_of::<Icmp>();

    /// Makes a header without checksum.
    pub fn new(kind: u8, code: u8, rest: [u8; 4]) -> Icmp {
        Icmp { kind, code, checksum: U16::ZERO, rest }
    }

    /// Returns the identifier of a query.
    #[inline]
    pub fn identifier(&self) -> u16 {
        u16::from_be_bytes([self.rest[0], self.rest[1]])
    }

    /// Sets the identifier of a query; the checksum is not updated.
    #[inline]
    pub fn set_identifier(&mut self, identifier: u16) {
        [self.rest[0], self.rest[1]] = identifier.to_be_bytes();
    }

    /// Returns the sequence number of a query.
    #[inline]
    pub fn sequence(&self) -> u16 {
        u16::from_be_bytes([self.rest[2], self.rest[3]])
    }

    /// Returns the next-hop MTU of "fragmentation needed", bytes (RFC 1191 section 4); 0 from
    /// routers older than that RFC.
    #[inline]
    pub fn next_hop_mtu(&self) -> u16 {
        u16::from_be_bytes([self.rest[2], self.rest[3]])
    }

    /// Sets the next-hop MTU; the checksum is not updated.
    #[inline]
    pub fn set_next_hop_mtu(&mut self, mtu: u16) {
        [self.rest[2], self.rest[3]] = mtu.to_be_bytes();
    }

    /// Writes the 8 bytes of the header to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// Returns the header at the front of a message.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<&Icmp, Malformed> {
    Icmp::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// Like [`parse`], to edit in place.
#[inline]
pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Icmp, Malformed> {
    Icmp::mut_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// Whether messages of this kind report an error and quote the packet that caused it (RFC 1122
/// section 3.2.2).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(
        kind,
        DESTINATION_UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM
    )
}

/// Whether messages of this kind are queries that a NAT can match to their answers (RFC 5508
/// section 3): echo, timestamp.
#[inline]
pub const fn is_query_request(kind: u8) -> bool {
    matches!(kind, ECHO_REQUEST | TIMESTAMP_REQUEST)
}

/// Whether messages of this kind answer a query: echo, timestamp.
#[inline]
pub const fn is_query_reply(kind: u8) -> bool {
    matches!(kind, ECHO_REPLY | TIMESTAMP_REPLY)
}

/// Whether the checksum of `bytes`, a whole message, is right.
#[inline]
pub fn checksum_ok(bytes: &[u8]) -> bool {
    checksum::sum(bytes) == 0
}

/// Computes the checksum of `message`; a message shorter than its header is left unchanged.
#[inline]
pub fn set_checksum(message: &mut [u8]) {
    if let Ok(header) = parse_mut(message) {
        header.checksum = U16::ZERO;
        let sum = checksum::sum(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Updates the checksum of `message` after the edits of `delta` have been made to it.
///
/// ICMP has no pseudo header, so an echo reply can consist of zeros only (identifier, sequence and
/// data 0). Its checksum is 0xffff, and RFC 1624 yields 0 there, which a receiver would refuse:
/// both are "zero" in ones' complement, and only the message's bytes distinguish them.
#[inline]
pub fn apply_delta(message: &mut [u8], delta: Delta) {
    if let Ok(header) = parse_mut(message) {
        let updated = delta.apply(header.checksum.get());
        header.checksum.set(updated);
        let may_be_zeros = updated == 0 && header.kind == ECHO_REPLY;
        if may_be_zeros && message.iter().all(|&byte| byte == 0) {
            message[2..4].copy_from_slice(&[0xff; 2]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn reads_a_query() {
        let message = build::icmp_echo(ECHO_REQUEST, 0x1234, 5, b"ping");
        let header = parse(&message).unwrap();
        assert_eq!((header.identifier(), header.sequence()), (0x1234, 5));
        assert!(checksum_ok(&message));
        assert_eq!(parse(&message[..7]).unwrap_err(), Malformed::Truncated);
    }

    #[test]
    fn every_kind_is_at_most_one_of_error_request_and_reply() {
        let things = |kind| [is_error(kind), is_query_request(kind), is_query_reply(kind)];
        for kind in 0..=255 {
            assert!(things(kind).iter().filter(|&&is| is).count() <= 1, "type {kind}");
        }
        assert_eq!(
            (0..=255).filter(|&kind| is_error(kind)).collect::<Vec<u8>>(),
            [3, 4, 5, 11, 12]
        );
    }

    #[test]
    fn a_changed_identifier_keeps_the_checksum_right() {
        let mut message = build::icmp_echo(ECHO_REPLY, 0x1234, 5, b"ping!");
        parse_mut(&mut message).unwrap().set_identifier(0xfedc);
        apply_delta(&mut message, Delta::new().replace16(0x1234, 0xfedc));
        assert!(checksum_ok(&message));
    }

    #[test]
    fn a_reply_of_zeros_keeps_the_checksum_ffff() {
        let mut message = build::icmp_echo(ECHO_REPLY, 9, 0, [0; 56]);
        parse_mut(&mut message).unwrap().set_identifier(0);
        apply_delta(&mut message, Delta::new().replace16(9, 0));
        assert_eq!(message, build::icmp_echo(ECHO_REPLY, 0, 0, [0; 56]));
        assert!(checksum_ok(&message));
        apply_delta(&mut message, Delta::new().replace16(7, 7));
        assert!(checksum_ok(&message));
    }

    #[test]
    fn the_next_hop_mtu_is_in_the_last_bytes() {
        let mut header = Icmp::new(DESTINATION_UNREACHABLE, CODE_FRAGMENTATION_NEEDED, [0; 4]);
        header.set_next_hop_mtu(1476);
        assert_eq!((header.rest, header.next_hop_mtu()), ([0, 0, 0x05, 0xc4], 1476));
    }
}
