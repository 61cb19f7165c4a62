//! GRE (RFC 2784) with key and sequence number (RFC 2890). Hot: per packet.
//!
//! ```text
//!   |C|R|K|S|s|Recur|  flags  | ver |        protocol        |     4 bytes
//!   |     checksum (if C)           |        reserved        |     4 bytes
//!   |     key (if K)                                         |     4 bytes
//!   |     sequence number (if S)                             |     4 bytes
//! ```

use crate::{Malformed, U16, checksum};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Protocol of an IPv4 payload.
pub const PROTOCOL_IPV4: u16 = 0x0800;
/// Protocol of an IPv6 payload (RFC 7676).
pub const PROTOCOL_IPV6: u16 = 0x86dd;
/// Protocol 0: a keepalive, whose payload is the packet to send back.
pub const PROTOCOL_KEEPALIVE: u16 = 0;

const CHECKSUM_PRESENT: u16 = 0x8000;
const KEY_PRESENT: u16 = 0x2000;
const SEQUENCE_PRESENT: u16 = 0x1000;
const VERSION: u16 = 0x0007;
/// Bits 1, 4 and 5: routing, strict source route and recursion control of RFC 1701. RFC 2784
/// section 2.3: a receiver that does not implement RFC 1701 MUST discard a packet with bits 1 to 5
/// set; RFC 2890 reassigned bits 2 and 3 to key and sequence number. Bits 6 to 12 MUST be ignored.
const MUST_BE_ZERO: u16 = 0x4c00;

/// The base header: 4 bytes, optional fields follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Gre {
    pub flags_version: U16,
    /// Ethertype of the payload.
    pub protocol: U16,
}

impl Gre {
    pub const LEN: usize = size_of::<Gre>();
}

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreHeader {
    /// Bytes up to the payload: 4 to 16.
    pub len: usize,
    /// Ethertype of the payload, or [`PROTOCOL_KEEPALIVE`].
    pub protocol: u16,
    pub key: Option<u32>,
    pub sequence: Option<u32>,
    /// Whether a checksum was present (and right).
    pub has_checksum: bool,
}

/// Reads the header at the front of `bytes`, which must be exactly the GRE packet: header and
/// payload, no padding behind. A checksum is verified over all of it (RFC 2784 section 2.5). The
/// order of sequence numbers is not checked.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<GreHeader, Malformed> {
    let (base, _) = Gre::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    let flags = base.flags_version.get();
    let protocol = base.protocol.get();
    // The header of almost every home: no option, no bit that matters.
    if flags == 0 {
        return Ok(GreHeader {
            len: Gre::LEN,
            protocol,
            key: None,
            sequence: None,
            has_checksum: false,
        });
    }
    parse_options(bytes, flags, protocol)
}

fn parse_options(bytes: &[u8], flags: u16, protocol: u16) -> Result<GreHeader, Malformed> {
    if flags & VERSION != 0 {
        return Err(Malformed::Version);
    }
    if flags & MUST_BE_ZERO != 0 {
        return Err(Malformed::Reserved);
    }
    let mut len = Gre::LEN;
    let has_checksum = flags & CHECKSUM_PRESENT != 0;
    if has_checksum {
        take_u32(bytes, &mut len)?;
    }
    let key = if flags & KEY_PRESENT != 0 { Some(take_u32(bytes, &mut len)?) } else { None };
    let sequence =
        if flags & SEQUENCE_PRESENT != 0 { Some(take_u32(bytes, &mut len)?) } else { None };
    if has_checksum && checksum::sum(bytes) != 0 {
        return Err(Malformed::Checksum);
    }
    Ok(GreHeader { len, protocol, key, sequence, has_checksum })
}

fn take_u32(bytes: &[u8], at: &mut usize) -> Result<u32, Malformed> {
    let field = bytes.get(*at..*at + 4).ok_or(Malformed::Truncated)?;
    *at += 4;
    Ok(u32::from_be_bytes([field[0], field[1], field[2], field[3]]))
}

/// Returns the length of the header that [`emit`] writes, bytes: 4, or 8 with a key.
#[inline]
pub const fn header_len(key: Option<u32>) -> usize {
    match key {
        None => 4,
        Some(_) => 8,
    }
}

/// Writes a header, with a key if there is one, to the front of `buffer`.
#[inline]
pub fn emit(buffer: &mut [u8], protocol: u16, key: Option<u32>) {
    let flags = if key.is_some() { KEY_PRESENT } else { 0 };
    if let Ok((base, _)) = Gre::mut_from_prefix(buffer) {
        *base = Gre { flags_version: U16::new(flags), protocol: U16::new(protocol) };
    }
    if let Some(key) = key {
        buffer[Gre::LEN..Gre::LEN + 4].copy_from_slice(&key.to_be_bytes());
    }
}

impl GreHeader {
    /// Makes a header without optional fields.
    pub fn new(protocol: u16) -> GreHeader {
        GreHeader { len: Gre::LEN, protocol, key: None, sequence: None, has_checksum: false }
    }

    /// Returns the length of the header with its present optional fields, bytes.
    pub fn emitted_len(&self) -> usize {
        let optional = [self.has_checksum, self.key.is_some(), self.sequence.is_some()];
        Gre::LEN + 4 * optional.into_iter().filter(|&present| present).count()
    }

    /// Writes the header to the front of `packet`, which ends with the payload and already contains
    /// it, and computes the checksum if the header has one.
    pub fn emit(&self, packet: &mut [u8]) {
        let checksum_flag = if self.has_checksum { CHECKSUM_PRESENT } else { 0 };
        let key_flag = if self.key.is_some() { KEY_PRESENT } else { 0 };
        let sequence_flag = if self.sequence.is_some() { SEQUENCE_PRESENT } else { 0 };
        let flags = checksum_flag | key_flag | sequence_flag;
        let base = Gre { flags_version: U16::new(flags), protocol: U16::new(self.protocol) };
        packet[..Gre::LEN].copy_from_slice(base.as_bytes());
        let checksum_field = self.has_checksum.then_some(0);
        let mut at = Gre::LEN;
        for field in [checksum_field, self.key, self.sequence].into_iter().flatten() {
            packet[at..at + 4].copy_from_slice(&field.to_be_bytes());
            at += 4;
        }
        if self.has_checksum {
            let sum = checksum::sum(packet);
            packet[Gre::LEN..Gre::LEN + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn the_plain_header_has_four_bytes() {
        let packet = build::gre().build(&[1, 2, 3]);
        assert_eq!(packet, [0, 0, 8, 0, 1, 2, 3]);
        assert_eq!(parse(&packet), Ok(GreHeader::new(PROTOCOL_IPV4)));
    }

    #[test]
    fn reads_key_sequence_and_checksum_in_order() {
        let packet = build::gre().key(0xa1b2_c3d4).sequence(7).checksum().build(b"payload");
        let header = parse(&packet).unwrap();
        assert_eq!(header.len, 16);
        assert_eq!(
            (header.key, header.sequence, header.has_checksum),
            (Some(0xa1b2_c3d4), Some(7), true)
        );
        assert_eq!(&packet[header.len..], b"payload");
    }

    #[test]
    fn the_checksum_covers_header_and_payload() {
        let packet = build::gre().key(1).checksum().build(b"payload");
        for at in 8..packet.len() {
            let mut broken = packet.clone();
            broken[at] ^= 0x10;
            assert_eq!(parse(&broken), Err(Malformed::Checksum), "byte {at}");
        }
    }

    #[test]
    fn bits_that_rfc_2784_says_to_discard_are_refused() {
        let with_flags = |flags: u16| {
            let mut packet = build::gre().build(&[0; 16]);
            packet[..2].copy_from_slice(&flags.to_be_bytes());
            parse(&packet).map(|header| header.len)
        };
        assert_eq!(with_flags(0x0001), Err(Malformed::Version), "PPTP");
        for routing_or_source_route_or_recursion in [0x4000, 0x0800, 0x0400] {
            assert_eq!(with_flags(routing_or_source_route_or_recursion), Err(Malformed::Reserved));
        }
        for ignored in [0x0200, 0x0100, 0x0080, 0x0008] {
            assert_eq!(with_flags(ignored), Ok(4));
        }
    }

    #[test]
    fn refuses_a_cut_header() {
        let packet = build::gre().key(1).sequence(2).build(&[]);
        for len in 0..packet.len() {
            assert_eq!(parse(&packet[..len]), Err(Malformed::Truncated), "{len} bytes");
        }
    }

    #[test]
    fn emits_with_and_without_key() {
        for key in [None, Some(0), Some(u32::MAX)] {
            let mut buffer = [0xee; 8];
            emit(&mut buffer, PROTOCOL_IPV4, key);
            let header = parse(&buffer[..header_len(key)]).unwrap();
            assert_eq!(
                (header.len, header.key, header.protocol),
                (header_len(key), key, PROTOCOL_IPV4)
            );
        }
    }
}
