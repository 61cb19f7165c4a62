//! The first four bytes that TCP and UDP share. Hot: per packet.
//!
//! A quoted packet in an ICMP error may end eight bytes after its IP header (RFC 792), too early
//! for a TCP header; a NAT needs no more than these bytes.

use crate::{Malformed, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Source and destination port: 4 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TransportPorts {
    pub source: U16,
    pub destination: U16,
}

/// Returns the ports at the front of a TCP or UDP header.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<&TransportPorts, Malformed> {
    TransportPorts::ref_from_prefix(bytes).map(|(ports, _)| ports).map_err(|_| Malformed::Truncated)
}

/// Returns the ports at the front of a TCP or UDP header, to edit in place.
#[inline]
pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut TransportPorts, Malformed> {
    TransportPorts::mut_from_prefix(bytes).map(|(ports, _)| ports).map_err(|_| Malformed::Truncated)
}
