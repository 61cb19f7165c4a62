//! IPv6 (RFC 8200): the fixed header and the walk to the upper layer. Hot: per packet.
//!
//! ```text
//!   |ver| class |   flow label    | payload length |next|hop|     8 bytes
//!   | source                                                |    16 bytes
//!   | destination                                           |    16 bytes
//!   | extension headers (walk) ... | upper layer            |     payload length
//! ```
//!
//! A caller reads the header with [`parse`], cuts the packet to the total length that it returns,
//! and finds the upper layer with [`walk`].

use crate::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use crate::tcp::Tcp;
use crate::udp::Udp;
use crate::{Malformed, U16, U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod address;
mod extension;

pub use address::{
    ALL_NODES, LOOPBACK, UNSPECIFIED, is_link_local, is_loopback, is_multicast, is_solicited_node,
    is_unicast, is_unique_local, is_unspecified, is_v4_mapped, solicited_node,
};
pub use extension::{
    EXTENSIONS_MAX, EXTENSIONS_MAX_BYTES, ExtensionFault, FRAGMENT_HEADER_LEN, FragmentHeader,
    UpperLayer, walk,
};

/// Hop-by-hop options (RFC 8200 section 4.3).
pub const PROTOCOL_HOP_BY_HOP: u8 = 0;
/// IPv6 in IPv6 (RFC 2473) or in IPv4 (RFC 4213).
pub const PROTOCOL_IPV6: u8 = 41;
/// Routing header (RFC 8200 section 4.4).
pub const PROTOCOL_ROUTING: u8 = 43;
/// Fragment header (RFC 8200 section 4.5).
pub const PROTOCOL_FRAGMENT: u8 = 44;
/// Encapsulating security payload (RFC 4303): everything behind it is encrypted.
pub const PROTOCOL_ESP: u8 = 50;
/// Authentication header (RFC 4302).
pub const PROTOCOL_AUTHENTICATION: u8 = 51;
pub const PROTOCOL_ICMPV6: u8 = 58;
/// Nothing follows (RFC 8200 section 4.7); bytes behind it are passed on unchanged.
pub const PROTOCOL_NONE: u8 = 59;
/// Destination options (RFC 8200 section 4.6).
pub const PROTOCOL_DESTINATION_OPTIONS: u8 = 60;

/// Smallest MTU of a link, bytes (RFC 8200 section 5).
pub const MTU_MIN: usize = 1280;

/// The fixed IPv6 header: 40 bytes, extension headers follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Ipv6 {
    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    pub version_class_flow: U32,
    /// Bytes behind this header, extension headers included.
    pub payload_length: U16,
    /// Protocol of the first header behind this one.
    pub next_header: u8,
    pub hop_limit: u8,
    /// `get()` returns host order, `to_bytes()` the sixteen bytes.
    pub source: U128,
    pub destination: U128,
}

const _: () = assert!(size_of::<Ipv6>() == 40);

const VERSION_6: u32 = 6 << 28;
const CLASS_SHIFT: u32 = 20;
const CLASS_MASK: u32 = 0xff << CLASS_SHIFT;
const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

impl Ipv6 {
    pub const LEN: usize = size_of::<Ipv6>();

    /// Makes a header for `payload_len` bytes: hop limit 64, traffic class and flow label 0.
    /// Addresses in host order.
    #[inline]
    pub fn new(source: u128, destination: u128, next_header: u8, payload_len: u16) -> Ipv6 {
        Ipv6 {
            version_class_flow: U32::new(VERSION_6),
            payload_length: U16::new(payload_len),
            next_header,
            hop_limit: 64,
            source: U128::new(source),
            destination: U128::new(destination),
        }
    }

    #[inline]
    pub fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// Returns DSCP (6 bits, RFC 2474) and ECN (2 bits, RFC 3168) as one byte.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        ((self.version_class_flow.get() & CLASS_MASK) >> CLASS_SHIFT) as u8
    }

    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        let others = self.version_class_flow.get() & !CLASS_MASK;
        self.version_class_flow.set(others | u32::from(class) << CLASS_SHIFT);
    }

    #[inline]
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    #[inline]
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 0b11
    }

    /// Returns the flow label, 20 bits (RFC 6437); 0 = none.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & FLOW_LABEL_MASK
    }

    /// Sets the flow label to the lower 20 bits of `label`.
    #[inline]
    pub fn set_flow_label(&mut self, label: u32) {
        let others = self.version_class_flow.get() & !FLOW_LABEL_MASK;
        self.version_class_flow.set(others | label & FLOW_LABEL_MASK);
    }

    /// Returns the bytes of header and payload as the header says, 40 to 65,575.
    #[inline]
    pub fn total_length(&self) -> usize {
        Self::LEN + usize::from(self.payload_length.get())
    }

    /// Lowers the hop limit by one; no checksum covers it. It must not be 0.
    #[inline]
    pub fn decrement_hop_limit(&mut self) {
        debug_assert!(self.hop_limit > 0, "a packet with hop limit 0 is not forwarded");
        self.hop_limit = self.hop_limit.wrapping_sub(1);
    }

    /// Writes the 40 bytes of the header to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// Whether the packet, which is one of IP, is of version 6.
#[inline]
pub fn is_version_6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

/// Returns the header at the front of `bytes`, and the length of the whole packet in bytes, which
/// are present. Bytes behind the packet (Ethernet padding) are allowed: a caller cuts them off with
/// `&bytes[..total_length]`, or [`Frame::truncate`](crate::frame::Frame::truncate).
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(&Ipv6, usize), Malformed> {
    let (header, total_length) = parse_quoted(bytes)?;
    if total_length > bytes.len() {
        return Err(Malformed::TotalLength);
    }
    Ok((header, total_length))
}

/// Like [`parse`], to edit in place.
#[inline]
pub fn parse_mut(bytes: &mut [u8]) -> Result<(&mut Ipv6, usize), Malformed> {
    let (_, total_length) = parse(bytes)?;
    let (header, _) = Ipv6::mut_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    Ok((header, total_length))
}

/// Like [`parse`], for a packet quoted in an ICMPv6 error (RFC 4443 section 2.4): the header must
/// be whole, the payload may be truncated, so the packet may be longer than `bytes`.
#[inline]
pub fn parse_quoted(bytes: &[u8]) -> Result<(&Ipv6, usize), Malformed> {
    let (header, _) = Ipv6::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    if header.version() != 6 {
        return Err(Malformed::Version);
    }
    Ok((header, header.total_length()))
}

/// Like [`parse_quoted`], to edit in place.
#[inline]
pub fn parse_quoted_mut(bytes: &mut [u8]) -> Result<(&mut Ipv6, usize), Malformed> {
    let (_, total_length) = parse_quoted(bytes)?;
    let (header, _) = Ipv6::mut_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    Ok((header, total_length))
}

/// Returns the header and the total length of a TCP or UDP packet without extension headers, whose
/// fixed transport header is present, at offset 40. `None` for every other packet, also a malformed
/// one: [`parse`] and [`walk`] say which.
#[inline]
pub fn parse_plain(bytes: &[u8]) -> Option<(&Ipv6, usize)> {
    let (header, rest) = Ipv6::ref_from_prefix(bytes).ok()?;
    let transport_len = match header.next_header {
        PROTOCOL_TCP => Tcp::LEN,
        PROTOCOL_UDP => Udp::LEN,
        _ => return None,
    };
    let payload_length = usize::from(header.payload_length.get());
    let is_plain = header.version() == 6 && (transport_len..=rest.len()).contains(&payload_length);
    is_plain.then_some((header, Ipv6::LEN + payload_length))
}

#[cfg(test)]
mod tests;
