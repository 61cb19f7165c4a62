//! ICMPv6 (RFC 4443). Hot: per packet.
//!
//! The checksum covers the pseudo header of IPv6 (RFC 4443 section 2.3), unlike that of ICMP: an
//! address that is translated changes it.

use crate::checksum::{self, Delta};
use crate::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use crate::ipv6::{self, PROTOCOL_ICMPV6, UpperLayer};
use crate::{Malformed, U16, ports};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const DESTINATION_UNREACHABLE: u8 = 1;
/// The MTU of the next hop is in the last four bytes of the header.
pub const PACKET_TOO_BIG: u8 = 2;
pub const TIME_EXCEEDED: u8 = 3;
/// The last four bytes of the header are the offset of the fault in the quoted packet.
pub const PARAMETER_PROBLEM: u8 = 4;
pub const ECHO_REQUEST: u8 = 128;
pub const ECHO_REPLY: u8 = 129;
/// RFC 4861, [`crate::ndp`].
pub const ROUTER_SOLICITATION: u8 = 133;
pub const ROUTER_ADVERTISEMENT: u8 = 134;
pub const NEIGHBOR_SOLICITATION: u8 = 135;
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
pub const REDIRECT: u8 = 137;

/// Codes of [`DESTINATION_UNREACHABLE`] (RFC 4443 section 3.1).
pub const CODE_NO_ROUTE: u8 = 0;
pub const CODE_ADMINISTRATIVELY_PROHIBITED: u8 = 1;
pub const CODE_BEYOND_SCOPE: u8 = 2;
pub const CODE_ADDRESS_UNREACHABLE: u8 = 3;
pub const CODE_PORT_UNREACHABLE: u8 = 4;
/// Source address failed ingress or egress policy.
pub const CODE_SOURCE_POLICY: u8 = 5;
pub const CODE_REJECT_ROUTE: u8 = 6;
/// Codes of [`TIME_EXCEEDED`] (RFC 4443 section 3.3).
pub const CODE_HOP_LIMIT_EXCEEDED: u8 = 0;
pub const CODE_REASSEMBLY_TIME_EXCEEDED: u8 = 1;
/// Codes of [`PARAMETER_PROBLEM`] (RFC 4443 section 3.4).
pub const CODE_ERRONEOUS_FIELD: u8 = 0;
pub const CODE_UNRECOGNIZED_NEXT_HEADER: u8 = 1;
pub const CODE_UNRECOGNIZED_OPTION: u8 = 2;
/// A first fragment without the whole header chain (RFC 7112 section 5).
pub const CODE_INCOMPLETE_CHAIN: u8 = 3;

/// The ICMPv6 header: 8 bytes, of which the last four depend on the kind.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Icmp6 {
    pub kind: u8,
    pub code: u8,
    pub checksum: U16,
    /// Echo: identifier, sequence. Errors: by kind.
    pub rest: [u8; 4],
}

impl Icmp6 {
    pub const LEN: usize = size_of::<Icmp6>();

    /// Makes a header without checksum.
    pub fn new(kind: u8, code: u8, rest: [u8; 4]) -> Icmp6 {
        Icmp6 { kind, code, checksum: U16::ZERO, rest }
    }

    /// Returns the identifier of an echo.
    #[inline]
    pub fn identifier(&self) -> u16 {
        u16::from_be_bytes([self.rest[0], self.rest[1]])
    }

    /// Sets the identifier of an echo; the checksum is not updated.
    #[inline]
    pub fn set_identifier(&mut self, identifier: u16) {
        [self.rest[0], self.rest[1]] = identifier.to_be_bytes();
    }

    /// Returns the sequence number of an echo.
    #[inline]
    pub fn sequence(&self) -> u16 {
        u16::from_be_bytes([self.rest[2], self.rest[3]])
    }

    /// Returns the MTU of [`PACKET_TOO_BIG`], bytes. A value below 1280 is possible: RFC 8201
    /// section 4 says to ignore it.
    #[inline]
    pub fn mtu(&self) -> u32 {
        u32::from_be_bytes(self.rest)
    }

    /// Sets the MTU; the checksum is not updated.
    #[inline]
    pub fn set_mtu(&mut self, mtu: u32) {
        self.rest = mtu.to_be_bytes();
    }

    /// Returns the pointer of [`PARAMETER_PROBLEM`]: an offset in the quoted packet, bytes, that
    /// may be behind what is quoted.
    #[inline]
    pub fn pointer(&self) -> u32 {
        u32::from_be_bytes(self.rest)
    }

    /// Writes the 8 bytes of the header to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        buffer[..Self::LEN].copy_from_slice(self.as_bytes());
    }
}

/// Returns the header at the front of a message.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<&Icmp6, Malformed> {
    Icmp6::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// Like [`parse`], to edit in place.
#[inline]
pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Icmp6, Malformed> {
    Icmp6::mut_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed::Truncated)
}

/// True if messages of this kind report an error, also kinds that no RFC defines yet (RFC 4443
/// section 2.1). No error is sent about them (section 2.4).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    kind < 128
}

/// True for the errors that RFC 4443 defines, all of which quote the packet that caused them:
/// [`quote`].
#[inline]
pub const fn quotes_a_packet(kind: u8) -> bool {
    matches!(kind, DESTINATION_UNREACHABLE | PACKET_TOO_BIG | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// Whether the checksum of `message`, exactly its bytes, between two addresses in host order is
/// right.
#[inline]
pub fn checksum_ok(source: u128, destination: u128, message: &[u8]) -> bool {
    checksum::finish(sum(source, destination, message)) == 0
}

/// Computes the checksum of `message`, exactly its bytes; a message shorter than its header is left
/// unchanged.
#[inline]
pub fn set_checksum(source: u128, destination: u128, message: &mut [u8]) {
    if let Ok(header) = parse_mut(message) {
        header.checksum = U16::ZERO;
        let checksum = checksum::finish(sum(source, destination, message));
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Updates the checksum of `message` after the edits of `delta` have been made to it or to its
/// addresses. The pseudo header is never zero, so the checksum has no corner case.
#[inline]
pub fn apply_delta(message: &mut [u8], delta: Delta) {
    if let Ok(header) = parse_mut(message) {
        let updated = delta.apply(header.checksum.get());
        header.checksum.set(updated);
    }
}

fn sum(source: u128, destination: u128, message: &[u8]) -> u32 {
    checksum::pseudo_header6(source, destination, PROTOCOL_ICMPV6, message.len() as u32)
        + checksum::partial(message)
}

/// What an error quotes of the packet that caused it: as much as a NAT or firewall needs to find
/// the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp6Quote {
    /// Addresses of the quoted packet, host order.
    pub source: u128,
    pub destination: u128,
    /// Its upper layer; offsets count from the quoted IPv6 header.
    pub upper: UpperLayer,
    pub session: QuotedSession,
}

/// Which session a quoted packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotedSession {
    /// Of TCP or UDP.
    Ports { source: u16, destination: u16 },
    /// Of an ICMPv6 echo.
    Echo { is_request: bool, identifier: u16 },
    /// The quote ends before them, is a fragment that is not the first, or has another protocol.
    None,
}

/// Reads the packet that an error quotes; `quoted` = the bytes behind its ICMPv6 header. The quote
/// may be truncated behind the extension headers. `None` if it has no whole IPv6 header, or
/// extension headers that [`ipv6::walk`] refuses or that are truncated.
#[inline]
pub fn quote(quoted: &[u8]) -> Option<Icmp6Quote> {
    let (header, total_length) = ipv6::parse_quoted(quoted).ok()?;
    let upper = ipv6::walk(quoted, total_length).ok()?;
    let present = quoted.get(upper.offset..quoted.len().min(total_length)).unwrap_or_default();
    let session = if upper.has_header() {
        quoted_session(upper.protocol, present)
    } else {
        QuotedSession::None
    };
    let (source, destination) = (header.source.get(), header.destination.get());
    Some(Icmp6Quote { source, destination, upper, session })
}

/// Reads the session at the front of the quoted upper header.
fn quoted_session(protocol: u8, present: &[u8]) -> QuotedSession {
    match protocol {
        PROTOCOL_TCP | PROTOCOL_UDP => match ports::parse(present) {
            Ok(ports) => QuotedSession::Ports {
                source: ports.source.get(),
                destination: ports.destination.get(),
            },
            Err(_) => QuotedSession::None,
        },
        PROTOCOL_ICMPV6 => match parse(present) {
            Ok(header) if matches!(header.kind, ECHO_REQUEST | ECHO_REPLY) => QuotedSession::Echo {
                is_request: header.kind == ECHO_REQUEST,
                identifier: header.identifier(),
            },
            _ => QuotedSession::None,
        },
        _ => QuotedSession::None,
    }
}

#[cfg(test)]
mod tests;
