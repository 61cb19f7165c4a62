//! TCP headers (RFC 9293 section 3.1). Hot: per packet.

use crate::ipv4::PROTOCOL_TCP;
use crate::{Malformed, U16, U32, checksum};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod mss;
pub use mss::{clamp_mss, mss};

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const URG: u8 = 0x20;

/// The fixed TCP header: 20 bytes, options follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Tcp {
    pub source_port: U16,
    pub destination_port: U16,
    pub sequence: U32,
    pub acknowledgment: U32,
    /// Data offset in 32-bit words (upper 4 bits), reserved bits.
    pub offset_reserved: u8,
    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN.
    pub flags: u8,
    pub window: U16,
    pub checksum: U16,
    pub urgent: U16,
}

impl Tcp {
    /// Bytes of a header without options.
    pub const LEN: usize = size_of::<Tcp>();

    /// Returns the length of the header with its options, 0 to 60 bytes as the header says.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.offset_reserved >> 4) * 4
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Writes the 20 bytes of the header to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// Returns the header at the front of `bytes`; its data offset must be at least 5 words and the
/// options must be present.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<&Tcp, Malformed> {
    let (header, _) = Tcp::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    if header.header_len() < Tcp::LEN {
        return Err(Malformed::HeaderLength);
    }
    if header.header_len() > bytes.len() {
        return Err(Malformed::Truncated);
    }
    Ok(header)
}

/// Like [`parse`], to edit in place.
#[inline]
pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Tcp, Malformed> {
    parse(bytes)?;
    Tcp::mut_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// Returns the value for the checksum field of `segment` (header and payload, its own checksum
/// field taken as 0).
pub fn checksum(source: u32, destination: u32, segment: &[u8]) -> u16 {
    computed(pseudo(source, destination, segment), segment)
}

/// Like [`checksum()`], over IPv6 (RFC 8200 section 8.1): addresses in host order.
pub fn checksum6(source: u128, destination: u128, segment: &[u8]) -> u16 {
    computed(pseudo6(source, destination, segment), segment)
}

/// Whether the checksum of `segment` (exactly its bytes) is right.
pub fn checksum_ok(source: u32, destination: u32, segment: &[u8]) -> bool {
    checksum::finish(pseudo(source, destination, segment) + checksum::partial(segment)) == 0
}

/// Like [`checksum_ok`], over IPv6: addresses in host order.
pub fn checksum6_ok(source: u128, destination: u128, segment: &[u8]) -> bool {
    checksum::finish(pseudo6(source, destination, segment) + checksum::partial(segment)) == 0
}

fn pseudo(source: u32, destination: u32, segment: &[u8]) -> u32 {
    checksum::pseudo_header(source, destination, PROTOCOL_TCP, segment.len() as u16)
}

fn pseudo6(source: u128, destination: u128, segment: &[u8]) -> u32 {
    checksum::pseudo_header6(source, destination, PROTOCOL_TCP, segment.len() as u32)
}

fn computed(pseudo: u32, segment: &[u8]) -> u16 {
    let present = segment.get(16..18).map_or(0, |field| u16::from_be_bytes([field[0], field[1]]));
    checksum::finish(pseudo + checksum::partial(segment) + u32::from(!present))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn reads_every_field() {
        let segment = build::tcp(40_000, 80)
            .syn()
            .ack()
            .sequence(0xdead_beef)
            .acknowledgment(7)
            .window(1024)
            .mss(1460)
            .payload(b"hi")
            .build(1, 2);
        let header = parse(&segment).unwrap();
        assert_eq!((header.source_port.get(), header.destination_port.get()), (40_000, 80));
        assert_eq!((header.sequence.get(), header.acknowledgment.get()), (0xdead_beef, 7));
        assert_eq!((header.window.get(), header.header_len()), (1024, 24));
        assert!(header.has(SYN | ACK) && !header.has(SYN | RST));
        assert_eq!(segment.len(), 26);
        assert!(checksum_ok(1, 2, &segment) && !checksum_ok(1, 3, &segment));
    }

    #[test]
    fn checksum_over_ipv6_covers_both_addresses() {
        let segment = build::tcp(40_000, 80).syn().payload(b"odd").build6(1 << 100, 2);
        assert!(checksum6_ok(1 << 100, 2, &segment) && checksum6_ok(2, 1 << 100, &segment));
        assert!(!checksum6_ok(1 << 101, 2, &segment) && !checksum6_ok(1 << 100, 3, &segment));
        let field = u16::from_be_bytes([segment[16], segment[17]]);
        assert_eq!(checksum6(1 << 100, 2, &segment), field, "the present one does not count");
    }

    #[test]
    fn the_data_offset_must_fit() {
        let mut segment = build::tcp(1, 2).option(&[1; 4]).build(1, 2);
        for (words, result) in [
            (0, Err(Malformed::HeaderLength)),
            (4, Err(Malformed::HeaderLength)),
            (5, Ok(())),
            (6, Ok(())),
            (7, Err(Malformed::Truncated)),
        ] {
            segment[12] = words << 4;
            assert_eq!(parse(&segment).map(|_| ()), result, "{words} words");
        }
        assert_eq!(parse(&segment[..19]).unwrap_err(), Malformed::Truncated);
    }
}
