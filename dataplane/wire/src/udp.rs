//! UDP (RFC 768). Hot: per packet.

use crate::checksum::{self, Delta};
use crate::ipv4::PROTOCOL_UDP;
use crate::{Malformed, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The UDP header: 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Udp {
    pub source_port: U16,
    pub destination_port: U16,
    /// Bytes of header and payload.
    pub length: U16,
    /// 0 = the sender computed none.
    pub checksum: U16,
}

impl Udp {
    pub const LEN: usize = size_of::<Udp>();

    /// Makes a header for `payload_len` bytes, without checksum.
    pub fn new(source_port: u16, destination_port: u16, payload_len: u16) -> Udp {
        Udp {
            source_port: U16::new(source_port),
            destination_port: U16::new(destination_port),
            length: U16::new((Self::LEN as u16).saturating_add(payload_len)),
            checksum: U16::ZERO,
        }
    }

    /// True if the sender computed a checksum. Over IPv6 it has to (RFC 8200 section 8.1), except
    /// in a tunnel that is configured for it (RFC 6935).
    #[inline]
    pub fn has_checksum(&self) -> bool {
        self.checksum != U16::ZERO
    }

    /// Writes the 8 bytes of the header to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// Returns the header at the front of a whole datagram; its length must be at least 8 and not above
/// `bytes.len()`.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<&Udp, Malformed> {
    let header = parse_header(bytes)?;
    let length = usize::from(header.length.get());
    if length < Udp::LEN || length > bytes.len() {
        return Err(Malformed::TotalLength);
    }
    Ok(header)
}

/// Like [`parse`], to edit in place.
#[inline]
pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Udp, Malformed> {
    parse(bytes)?;
    parse_header_mut(bytes)
}

/// Returns the header alone, without a check of its length field: for first fragments and quoted
/// packets, which end before the datagram does.
#[inline]
pub fn parse_header(bytes: &[u8]) -> Result<&Udp, Malformed> {
    Udp::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// Like [`parse_header`], to edit in place.
#[inline]
pub fn parse_header_mut(bytes: &mut [u8]) -> Result<&mut Udp, Malformed> {
    Udp::mut_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// Returns the checksum field after edits: 0 (none computed) stays 0, RFC 3022 section 4.1; a
/// computed 0 is sent as 0xffff, RFC 768.
#[inline]
#[must_use]
pub fn apply_delta(checksum: u16, delta: Delta) -> u16 {
    match checksum {
        0 => 0,
        checksum => never_zero(delta.apply(checksum)),
    }
}

/// Returns the value for the checksum field of `datagram` (header and payload, its own checksum
/// field taken as 0), never 0.
pub fn checksum(source: u32, destination: u32, datagram: &[u8]) -> u16 {
    computed(pseudo(source, destination, datagram), datagram)
}

/// Like [`checksum()`], over IPv6 (RFC 8200 section 8.1): addresses in host order.
pub fn checksum6(source: u128, destination: u128, datagram: &[u8]) -> u16 {
    computed(pseudo6(source, destination, datagram), datagram)
}

/// Whether the checksum of `datagram` (exactly its bytes) is right or absent.
pub fn checksum_ok(source: u32, destination: u32, datagram: &[u8]) -> bool {
    parse_header(datagram).is_ok_and(|header| {
        !header.has_checksum() || is_right(pseudo(source, destination, datagram), datagram)
    })
}

/// Whether the checksum of `datagram` (exactly its bytes) over IPv6 is right. An absent one is
/// wrong: RFC 8200 section 8.1 obliges the receiver to discard it, except at the end of a tunnel
/// that is configured for it (RFC 6935, RFC 6936), where a caller asks [`Udp::has_checksum`] first.
pub fn checksum6_ok(source: u128, destination: u128, datagram: &[u8]) -> bool {
    parse_header(datagram).is_ok_and(|header| {
        header.has_checksum() && is_right(pseudo6(source, destination, datagram), datagram)
    })
}

fn pseudo(source: u32, destination: u32, datagram: &[u8]) -> u32 {
    checksum::pseudo_header(source, destination, PROTOCOL_UDP, datagram.len() as u16)
}

fn pseudo6(source: u128, destination: u128, datagram: &[u8]) -> u32 {
    checksum::pseudo_header6(source, destination, PROTOCOL_UDP, datagram.len() as u32)
}

fn computed(pseudo: u32, datagram: &[u8]) -> u16 {
    let present = datagram.get(6..8).map_or(0, |field| u16::from_be_bytes([field[0], field[1]]));
    never_zero(checksum::finish(pseudo + checksum::partial(datagram) + u32::from(!present)))
}

fn is_right(pseudo: u32, datagram: &[u8]) -> bool {
    checksum::finish(pseudo + checksum::partial(datagram)) == 0
}

#[inline]
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 8] = [0x9c, 0x40, 0x00, 0x35, 0x00, 0x08, 0x00, 0x00];

    #[test]
    fn the_length_must_fit() {
        let mut datagram = [0; 12];
        datagram[..8].copy_from_slice(&HEADER);
        assert_eq!(
            parse(&datagram).unwrap().source_port,
            40_000,
            "bytes behind the datagram are allowed"
        );
        for (length, result) in [(0, false), (7, false), (8, true), (12, true), (13, false)] {
            datagram[5] = length;
            assert_eq!(parse(&datagram).is_ok(), result, "length {length}");
            assert!(parse_header(&datagram).is_ok());
        }
        assert_eq!(parse(&datagram[..7]).unwrap_err(), Malformed::Truncated);
    }

    #[test]
    fn no_checksum_stays_none() {
        assert_eq!(apply_delta(0, Delta::new().replace16(1, 2)), 0);
        assert!(checksum_ok(1, 2, &HEADER));
    }

    #[test]
    fn absent_checksum_is_wrong_over_ipv6() {
        assert!(!parse(&HEADER).unwrap().has_checksum());
        assert!(!checksum6_ok(1, 2, &HEADER));
        let mut datagram = HEADER;
        let checksum = checksum6(1, 2, &datagram);
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        assert!(parse(&datagram).unwrap().has_checksum());
        assert!(checksum6_ok(1, 2, &datagram) && !checksum6_ok(1, 3, &datagram));
        assert_eq!(checksum6(1, 2, &datagram), checksum, "the present one does not count");
        assert!(!checksum6_ok(1, 2, &datagram[..7]));
        // The ports chosen so that all words add up to 0xffff: sent as 0xffff, never as 0.
        datagram[0..2].copy_from_slice(&{
            let port = u32::from(u16::from_be_bytes([HEADER[0], HEADER[1]]));
            let sum = port + u32::from(checksum);
            ((sum & 0xffff) as u16 + (sum >> 16) as u16).to_be_bytes()
        });
        assert_eq!(checksum6(1, 2, &datagram), 0xffff);
        datagram[6..8].copy_from_slice(&[0xff; 2]);
        assert!(checksum6_ok(1, 2, &datagram));
        datagram[6..8].copy_from_slice(&[0; 2]);
        assert!(!checksum6_ok(1, 2, &datagram), "0 is absent, although the sum is right");
    }

    #[test]
    fn a_computed_zero_is_sent_as_ffff() {
        // 0xdd2f with this edit is 0 (RFC 1624 section 4).
        assert_eq!(apply_delta(0xdd2f, Delta::new().replace16(0x5555, 0x3285)), 0xffff);
        // The ports chosen so that all words add up to 0xffff.
        let mut datagram = HEADER;
        let (source, destination) = (0x0a00_0001, 0x0a00_0002);
        let computed = checksum(source, destination, &datagram);
        let port = u16::from_be_bytes([datagram[0], datagram[1]]);
        let folded = u32::from(port) + u32::from(computed);
        datagram[0..2]
            .copy_from_slice(&((folded & 0xffff) as u16 + (folded >> 16) as u16).to_be_bytes());
        assert_eq!(checksum(source, destination, &datagram), 0xffff);
        datagram[6..8].copy_from_slice(&[0xff; 2]);
        assert!(checksum_ok(source, destination, &datagram));
        assert_eq!(
            checksum(source, destination, &datagram),
            0xffff,
            "the present checksum does not count"
        );
    }
}
