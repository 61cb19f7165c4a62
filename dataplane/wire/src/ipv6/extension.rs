//! The walk over the extension headers of IPv6 to the upper layer (RFC 8200 section 4), bounded in
//! headers and bytes. Hot where there are extension headers at all.
//!
//! A firewall has to see the header that its rules and sessions are about, or refuse the packet:
//! what it cannot see a host behind it may. So the walk
//! - accepts hop-by-hop options at the front only, and the others in any order (RFC 8200 section
//!   4.1 asks a receiver for that);
//! - steps over an authentication header: it hides nothing, and a rule about ports could be evaded
//!   with it otherwise, while refusing it is what RFC 6092 REC-21 forbids. The result says that
//!   there is one: an address that it covers cannot be translated;
//! - stops at ESP, at headers of other standards (mobility, HIP, shim6) and at unknown numbers:
//!   each is the upper protocol then, without ports;
//! - refuses routing headers of type 0 (RFC 5095), jumbograms (RFC 2675), a second fragment header,
//!   and a fragment that RFC 8200 section 4.5 obliges the destination to discard for its length.

use super::{
    Ipv6, PROTOCOL_AUTHENTICATION, PROTOCOL_DESTINATION_OPTIONS, PROTOCOL_FRAGMENT,
    PROTOCOL_HOP_BY_HOP, PROTOCOL_ROUTING,
};
use core::fmt;
use zerocopy::FromBytes;

/// Largest number of extension headers of a packet.
pub const EXTENSIONS_MAX: usize = 8;
/// Largest length of all extension headers of a packet, bytes.
pub const EXTENSIONS_MAX_BYTES: usize = 256;

/// Bytes of the fragment header: next header, reserved, offset and M (2), identification (4).
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// Length of an authentication header without a check value, bytes (RFC 4302 section 2).
const AUTHENTICATION_MIN: usize = 12;
/// Option of one byte (RFC 8200 section 4.2).
const PAD_1: u8 = 0;
/// Option type of the jumbo payload (RFC 2675 section 2).
const JUMBO_PAYLOAD: u8 = 0xc2;
/// Payload of a packet without jumbo payload option, bytes.
const PAYLOAD_MAX: usize = 65_535;

/// Fault of the extension headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtensionFault {
    /// A header ends behind the packet, or behind the bytes present; in a first fragment also a
    /// chain that does not end in it (RFC 7112 section 5).
    Truncated,
    /// Hop-by-hop options that are not the first header (RFC 8200 section 4.1).
    HopByHopNotFirst,
    /// A hop-by-hop option ends behind its header.
    OptionLength,
    /// An authentication header shorter than its fixed part.
    AuthenticationLength,
    /// A second fragment header: no source fragments a fragment (RFC 8200 section 4.5).
    SecondFragment,
    /// A fragment that is not the last and whose payload is no multiple of 8 bytes, or one that
    /// makes a payload of more than 65,535 bytes (RFC 8200 section 4.5).
    FragmentLength,
    /// A jumbogram (RFC 2675), for which no supported link has room.
    Jumbo,
    /// A routing header of type 0, whatever its segments left (RFC 5095).
    RoutingType0,
    /// More than [`EXTENSIONS_MAX`] headers.
    TooMany,
    /// More than [`EXTENSIONS_MAX_BYTES`] bytes of headers.
    TooLong,
}

impl ExtensionFault {
    /// True if the headers violate their RFC; false if they are well formed but not supported or
    /// not permitted: too many, too long, a jumbogram, a routing header of type 0.
    pub const fn is_malformed(self) -> bool {
        !matches!(self, Self::Jumbo | Self::RoutingType0 | Self::TooMany | Self::TooLong)
    }
}

impl fmt::Display for ExtensionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "truncated extension header",
            Self::HopByHopNotFirst => "hop-by-hop options not first",
            Self::OptionLength => "impossible option length",
            Self::AuthenticationLength => "impossible authentication header length",
            Self::SecondFragment => "second fragment header",
            Self::FragmentLength => "impossible fragment length",
            Self::Jumbo => "jumbo payload",
            Self::RoutingType0 => "routing header of type 0",
            Self::TooMany => "too many extension headers",
            Self::TooLong => "too long extension headers",
        })
    }
}

impl core::error::Error for ExtensionFault {}

/// The fields of a fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Offset of the fragment header in the packet, bytes. The payload of the fragment begins
    /// [`FRAGMENT_HEADER_LEN`] bytes behind it.
    pub at: usize,
    /// Offset of this fragment's payload in the fragmentable part, a multiple of 8 bytes up to
    /// 65,528.
    pub offset: u16,
    pub more_fragments: bool,
    pub identification: u32,
}

impl FragmentHeader {
    /// True for the fragment that has the upper header.
    #[inline]
    pub const fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// True for a whole packet with a fragment header (RFC 6946): it is never reassembled with
    /// others of its identification.
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more_fragments
    }
}

/// Where the extension headers of a packet end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// Protocol of the first header that is no extension header. In a fragment that is not the
    /// first, the protocol of the first header of the fragmentable part, which may be an extension
    /// header.
    pub protocol: u8,
    /// Offset of that header in the packet, 40 to 296 bytes, not behind the packet. In a fragment
    /// that is not the first, the offset of its payload.
    pub offset: usize,
    pub fragment: Option<FragmentHeader>,
    /// Whether an authentication header covers the packet.
    pub has_authentication: bool,
    /// Offset in the packet of the first "segments left" field that is not 0: the destination
    /// address is not the last one then, and the pseudo header has another (RFC 8200 section 8.1).
    pub segments_left_at: Option<usize>,
}

impl UpperLayer {
    /// True if the upper header is in this packet: no fragment, or the first.
    #[inline]
    pub const fn has_header(&self) -> bool {
        match self.fragment {
            Some(fragment) => fragment.is_first(),
            None => true,
        }
    }
}

/// Finds the upper layer of `packet`, which begins with an IPv6 header of `total_length` bytes in
/// all, as [`parse`](super::parse) returns it; bytes behind these are not read. A quoted packet
/// ([`parse_quoted`](super::parse_quoted)) may be longer than `packet`. Whether the upper header is
/// whole is not checked.
#[inline]
pub fn walk(packet: &[u8], total_length: usize) -> Result<UpperLayer, ExtensionFault> {
    let (header, _) = Ipv6::ref_from_prefix(packet).map_err(|_| ExtensionFault::Truncated)?;
    let upper = UpperLayer {
        protocol: header.next_header,
        offset: Ipv6::LEN,
        fragment: None,
        has_authentication: false,
        segments_left_at: None,
    };
    if !is_extension(header.next_header) {
        return Ok(upper);
    }
    let present = &packet[..packet.len().min(total_length)];
    ExtensionWalk { present, total_length, upper }.run()
}

/// True for the headers that the walk steps over.
#[inline]
const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        PROTOCOL_HOP_BY_HOP
            | PROTOCOL_ROUTING
            | PROTOCOL_FRAGMENT
            | PROTOCOL_AUTHENTICATION
            | PROTOCOL_DESTINATION_OPTIONS
    )
}

struct ExtensionWalk<'a> {
    present: &'a [u8],
    total_length: usize,
    /// The header that the walk has reached.
    upper: UpperLayer,
}

impl ExtensionWalk<'_> {
    fn run(mut self) -> Result<UpperLayer, ExtensionFault> {
        // RFC 2675 section 3: the length of a jumbogram is in its hop-by-hop options.
        if self.total_length == Ipv6::LEN && self.upper.protocol == PROTOCOL_HOP_BY_HOP {
            return Err(ExtensionFault::Jumbo);
        }
        for _ in 0..EXTENSIONS_MAX {
            if !is_extension(self.upper.protocol) || !self.upper.has_header() {
                return Ok(self.upper);
            }
            self.step()?;
        }
        if is_extension(self.upper.protocol) && self.upper.has_header() {
            return Err(ExtensionFault::TooMany);
        }
        Ok(self.upper)
    }

    /// Steps over one extension header.
    fn step(&mut self) -> Result<(), ExtensionFault> {
        let at = self.upper.offset;
        let &[next_header, length, third, fourth, ..] = self.present.get(at..).unwrap_or_default()
        else {
            return Err(ExtensionFault::Truncated);
        };
        let len = match self.upper.protocol {
            PROTOCOL_FRAGMENT => FRAGMENT_HEADER_LEN,
            // RFC 4302 section 2.2: in words of 4 bytes, minus 2.
            PROTOCOL_AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        let end = at + len;
        if end - Ipv6::LEN > EXTENSIONS_MAX_BYTES {
            return Err(ExtensionFault::TooLong);
        }
        let header = self.present.get(at..end).ok_or(ExtensionFault::Truncated)?;
        match self.upper.protocol {
            PROTOCOL_HOP_BY_HOP if at > Ipv6::LEN => return Err(ExtensionFault::HopByHopNotFirst),
            PROTOCOL_HOP_BY_HOP => check_hop_by_hop(&header[2..])?,
            PROTOCOL_ROUTING if third == 0 => return Err(ExtensionFault::RoutingType0),
            PROTOCOL_ROUTING if fourth != 0 => {
                self.upper.segments_left_at = self.upper.segments_left_at.or(Some(at + 3));
            }
            PROTOCOL_FRAGMENT if self.upper.fragment.is_some() => {
                return Err(ExtensionFault::SecondFragment);
            }
            PROTOCOL_FRAGMENT => self.upper.fragment = Some(self.fragment(header, at)?),
            PROTOCOL_AUTHENTICATION if len < AUTHENTICATION_MIN => {
                return Err(ExtensionFault::AuthenticationLength);
            }
            PROTOCOL_AUTHENTICATION => self.upper.has_authentication = true,
            _ => {}
        }
        (self.upper.protocol, self.upper.offset) = (next_header, end);
        Ok(())
    }

    /// Reads the 8 bytes of a fragment header at offset `at`.
    fn fragment(&self, header: &[u8], at: usize) -> Result<FragmentHeader, ExtensionFault> {
        let &[_, _, high, low, a, b, c, d] = header else {
            return Err(ExtensionFault::Truncated);
        };
        let offset_more = u16::from_be_bytes([high, low]);
        let fragment = FragmentHeader {
            at,
            offset: offset_more & !0b111,
            more_fragments: offset_more & 1 != 0,
            identification: u32::from_be_bytes([a, b, c, d]),
        };
        let payload_len = self.total_length.saturating_sub(at + FRAGMENT_HEADER_LEN);
        let assembled_len =
            payload_len.saturating_add(at - Ipv6::LEN + usize::from(fragment.offset));
        let is_cut_wrong = fragment.more_fragments && !payload_len.is_multiple_of(8);
        if is_cut_wrong || assembled_len > PAYLOAD_MAX {
            return Err(ExtensionFault::FragmentLength);
        }
        Ok(fragment)
    }
}

/// Checks that every option ends within `options` and that none is a jumbo payload.
fn check_hop_by_hop(mut options: &[u8]) -> Result<(), ExtensionFault> {
    loop {
        options = match options {
            [] => return Ok(()),
            [PAD_1, rest @ ..] => rest,
            [JUMBO_PAYLOAD, ..] => return Err(ExtensionFault::Jumbo),
            [_, len, rest @ ..] => {
                rest.get(usize::from(*len)..).ok_or(ExtensionFault::OptionLength)?
            }
            [_] => return Err(ExtensionFault::OptionLength),
        };
    }
}
