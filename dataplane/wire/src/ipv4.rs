//! IPv4 (RFC 791). Hot: per packet.

use crate::checksum::{self, Delta};
use crate::{Malformed, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const PROTOCOL_ICMP: u8 = 1;
/// IPv4 in IPv4 (RFC 2003).
pub const PROTOCOL_IPIP: u8 = 4;
pub const PROTOCOL_TCP: u8 = 6;
pub const PROTOCOL_UDP: u8 = 17;
pub const PROTOCOL_GRE: u8 = 47;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// The fixed IPv4 header: 20 bytes, options follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Ipv4 {
    pub version_ihl: u8,
    /// DSCP (6 bits, RFC 2474) and ECN (2 bits, RFC 3168).
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_length: U16,
    pub identification: U16,
    /// Reserved bit, DF, MF, and the offset in units of 8 bytes.
    pub flags_fragment: U16,
    pub ttl: u8,
    pub protocol: u8,
    pub checksum: U16,
    pub source: U32,
    pub destination: U32,
}

impl Ipv4 {
    /// Bytes of a header without options.
    pub const LEN: usize = size_of::<Ipv4>();

    /// Makes a header without options for `payload_len` bytes: TTL 64, not fragmented, DF clear,
    /// identification 0, checksum set. Addresses in host order.
    #[inline]
    pub fn new(source: u32, destination: u32, protocol: u8, payload_len: u16) -> Ipv4 {
        let mut header = Ipv4 {
            version_ihl: 0x45,
            tos: 0,
            total_length: U16::new((Self::LEN as u16).saturating_add(payload_len)),
            identification: U16::ZERO,
            flags_fragment: U16::ZERO,
            ttl: 64,
            protocol,
            checksum: U16::ZERO,
            source: U32::new(source),
            destination: U32::new(destination),
        };
        header.set_checksum();
        header
    }

    #[inline]
    pub fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Returns the length of the header with its options, 0 to 60 bytes as the header says.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0x0f) * 4
    }

    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.flags_fragment.get() & DONT_FRAGMENT != 0
    }

    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.flags_fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Returns the offset of this fragment's payload in the packet, bytes.
    #[inline]
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.flags_fragment.get() & OFFSET_MASK) * 8
    }

    /// Whether the packet is a fragment: first, middle or last.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_fragment.get() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Sets DF, MF and the offset, which must be a multiple of 8 bytes. The checksum is not
    /// updated.
    #[inline]
    pub fn set_fragment(&mut self, dont_fragment: bool, more_fragments: bool, offset: usize) {
        debug_assert!(
            offset.is_multiple_of(8) && offset / 8 <= usize::from(OFFSET_MASK),
            "no fragment starts at {offset}"
        );
        let flags = if dont_fragment { DONT_FRAGMENT } else { 0 }
            | if more_fragments { MORE_FRAGMENTS } else { 0 };
        self.flags_fragment.set(flags | ((offset / 8) as u16 & OFFSET_MASK));
    }

    #[inline]
    pub fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos & 0b11
    }

    /// Computes the checksum of a header without options.
    #[inline]
    pub fn set_checksum(&mut self) {
        self.checksum = U16::ZERO;
        self.checksum.set(checksum::sum(self.as_bytes()));
    }

    /// Lowers the TTL by one and updates the checksum (RFC 1624). The TTL must not be 0.
    #[inline]
    pub fn decrement_ttl(&mut self) {
        debug_assert!(self.ttl > 0, "a packet with TTL 0 is not forwarded");
        let delta = Delta::new().decrement_upper();
        self.ttl = self.ttl.wrapping_sub(1);
        self.checksum.set(delta.apply(self.checksum.get()));
    }

    /// Writes the 20 bytes of the header to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// Returns the header at the front of `bytes`, its length with options, and the length of the whole
/// packet, in bytes. Bytes behind the packet (Ethernet padding) are allowed; the header checksum is
/// not verified: [`header_checksum_ok`].
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(&Ipv4, usize, usize), Malformed> {
    let (header, header_len, total_length) = parse_quoted(bytes)?;
    if total_length > bytes.len() {
        return Err(Malformed::TotalLength);
    }
    Ok((header, header_len, total_length))
}

/// Like [`parse`], to edit in place.
#[inline]
pub fn parse_mut(bytes: &mut [u8]) -> Result<(&mut Ipv4, usize, usize), Malformed> {
    let (_, header_len, total_length) = parse(bytes)?;
    let (header, _) = Ipv4::mut_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    Ok((header, header_len, total_length))
}

/// Like [`parse`], for a packet quoted in an ICMP error (RFC 792): the header must be whole, the
/// payload may be truncated, so the packet may be longer than `bytes`.
#[inline]
pub fn parse_quoted(bytes: &[u8]) -> Result<(&Ipv4, usize, usize), Malformed> {
    let (header, _) = Ipv4::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    if header.version() != 4 {
        return Err(Malformed::Version);
    }
    let header_len = header.header_len();
    if header_len < Ipv4::LEN {
        return Err(Malformed::HeaderLength);
    }
    if header_len > bytes.len() {
        return Err(Malformed::Truncated);
    }
    let total_length = usize::from(header.total_length.get());
    if total_length < header_len {
        return Err(Malformed::TotalLength);
    }
    Ok((header, header_len, total_length))
}

/// Like [`parse_quoted`], to edit in place.
#[inline]
pub fn parse_quoted_mut(bytes: &mut [u8]) -> Result<(&mut Ipv4, usize, usize), Malformed> {
    let (_, header_len, total_length) = parse_quoted(bytes)?;
    let (header, _) = Ipv4::mut_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    Ok((header, header_len, total_length))
}

/// Whether the checksum of the header at the front of `bytes` is right, options included; `false`
/// if the header is not whole.
#[inline]
pub fn header_checksum_ok(bytes: &[u8]) -> bool {
    bytes
        .first()
        .and_then(|version_ihl| bytes.get(..usize::from(version_ihl & 0x0f) * 4))
        .is_some_and(|header| header.len() >= Ipv4::LEN && checksum::sum(header) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    fn packet() -> Vec<u8> {
        build::ipv4("192.0.2.1", "198.51.100.2").options(&[1, 1, 1]).udp(1, 2, b"hello")
    }

    #[test]
    fn reads_every_field() {
        let packet = build::ipv4("192.0.2.1", "198.51.100.2")
            .dscp(46)
            .ecn(1)
            .identification(0xbeef)
            .df(true)
            .ttl(9)
            .payload(PROTOCOL_TCP, [0; 30]);
        let (header, header_len, total_length) = parse(&packet).unwrap();
        assert_eq!((header_len, total_length), (20, 50));
        assert_eq!(
            (header.dscp(), header.ecn(), header.ttl, header.protocol),
            (46, 1, 9, PROTOCOL_TCP)
        );
        assert_eq!(header.identification, 0xbeef);
        assert!(header.dont_fragment() && !header.more_fragments() && !header.is_fragment());
        assert_eq!((header.source.get(), header.destination.get()), (0xc000_0201, 0xc633_6402));
        assert!(header_checksum_ok(&packet));
    }

    #[test]
    fn knows_the_parts_of_a_packet() {
        let first = build::ipv4("10.0.0.1", "10.0.0.2").fragment(0, true).payload(17, [0; 8]);
        let last = build::ipv4("10.0.0.1", "10.0.0.2").fragment(65_528, false).payload(17, [0; 7]);
        let (header, ..) = parse(&first).unwrap();
        assert!(header.is_fragment() && header.more_fragments() && header.fragment_offset() == 0);
        let (header, ..) = parse(&last).unwrap();
        assert!(
            header.is_fragment() && !header.more_fragments() && header.fragment_offset() == 65_528
        );
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let good = packet();
        assert_eq!(parse(&good).map(|(_, header_len, total)| (header_len, total)), Ok((24, 37)));
        let edited = |at: usize, value: u8| {
            let mut bad = good.clone();
            bad[at] = value;
            parse(&bad).unwrap_err()
        };
        assert_eq!(edited(0, 0x66), Malformed::Version);
        assert_eq!(edited(0, 0x44), Malformed::HeaderLength);
        assert_eq!(edited(0, 0x4f), Malformed::Truncated);
        assert_eq!(edited(3, 38), Malformed::TotalLength);
        assert_eq!(edited(3, 23), Malformed::TotalLength);
        assert_eq!(parse(&good[..19]).unwrap_err(), Malformed::Truncated);
    }

    #[test]
    fn padding_is_allowed_and_a_quote_may_be_cut() {
        let mut padded = packet();
        padded.resize(46, 0);
        assert_eq!(parse(&padded).map(|(_, _, total)| total), Ok(37));
        let quote = &packet()[..32];
        assert_eq!(parse(quote).unwrap_err(), Malformed::TotalLength);
        assert_eq!(
            parse_quoted(quote).map(|(_, header_len, total)| (header_len, total)),
            Ok((24, 37))
        );
        assert_eq!(parse_quoted(&quote[..23]).unwrap_err(), Malformed::Truncated);
    }

    #[test]
    fn the_header_checksum_covers_the_options() {
        let mut packet = packet();
        assert!(header_checksum_ok(&packet));
        packet[21] ^= 1;
        assert!(!header_checksum_ok(&packet));
        assert!(!header_checksum_ok(&packet[..22]));
        assert!(!header_checksum_ok(&[]));
        assert!(!header_checksum_ok(&[0x40; 20]), "a header of no bytes");
    }

    #[test]
    fn the_ttl_goes_down_to_zero_with_a_right_checksum() {
        let mut header = Ipv4::new(0x0a00_0001, 0x0a00_0002, PROTOCOL_UDP, 8);
        header.ttl = 255;
        header.set_checksum();
        for ttl in (0..255).rev() {
            header.decrement_ttl();
            assert_eq!(header.ttl, ttl);
            assert!(header_checksum_ok(header.as_bytes()));
        }
    }
}
