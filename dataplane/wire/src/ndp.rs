//! Neighbor discovery of IPv6 over Ethernet (RFC 4861, addresses: RFC 4862): neighbor solicitations
//! and advertisements. Messages of routers are recognised as such only.
//!
//! ```text
//!   | ICMPv6: kind, code, checksum, flags |     8 bytes
//!   | target address                      |    16 bytes
//!   | options: type, length / 8, value ...|
//! ```
//!
//! [`parse`] makes the checks that RFC 4861 sections 7.1.1 and 7.1.2 oblige a receiver to.
//! [`NdpPacket`] builds what a node sends.

use crate::U128;
use crate::ethernet::Mac;
use crate::icmp6::{
    self, Icmp6, NEIGHBOR_ADVERTISEMENT, NEIGHBOR_SOLICITATION, REDIRECT, ROUTER_ADVERTISEMENT,
    ROUTER_SOLICITATION,
};
use crate::ipv6::{self, Ipv6};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod packet;

pub use packet::NdpPacket;

/// Hop limit of every message: one that a router forwarded has another (RFC 4861 section 3.1).
pub const HOP_LIMIT: u8 = 255;

/// Type of the option with the sender's link-layer address (RFC 4861 section 4.6.1).
pub const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
/// Type of the option with the target's link-layer address (RFC 4861 section 4.6.1).
pub const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

/// Largest number of options of a message that are read.
pub const OPTIONS_MAX: usize = 8;

/// The flags of an advertisement, in the first byte behind the checksum (RFC 4861 section 4.4).
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// A neighbor solicitation or advertisement: 24 bytes, options follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NeighborMessage {
    /// `rest[0]` has the flags of an advertisement; all else is reserved.
    pub icmp6: Icmp6,
    /// The address that is asked for or that the sender has.
    pub target: U128,
}

impl NeighborMessage {
    pub const LEN: usize = size_of::<NeighborMessage>();

    /// True if the sender is a router.
    #[inline]
    pub fn is_router(&self) -> bool {
        self.icmp6.rest[0] & ROUTER != 0
    }

    /// True if the advertisement answers a solicitation of the receiver: it proves that the target
    /// is reachable in both directions.
    #[inline]
    pub fn is_solicited(&self) -> bool {
        self.icmp6.rest[0] & SOLICITED != 0
    }

    /// True if the advertisement replaces the link-layer address that a receiver knows.
    #[inline]
    pub fn is_override(&self) -> bool {
        self.icmp6.rest[0] & OVERRIDE != 0
    }
}

/// The option with a link-layer address of Ethernet: 8 bytes (RFC 2464 section 6).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LinkLayerAddress {
    /// [`SOURCE_LINK_LAYER_ADDRESS`] or [`TARGET_LINK_LAYER_ADDRESS`].
    pub kind: u8,
    /// Length of the option in units of 8 bytes: 1.
    pub length: u8,
    pub mac: Mac,
}

impl LinkLayerAddress {
    pub const LEN: usize = size_of::<LinkLayerAddress>();
}

/// The messages of neighbor discovery (RFC 4861 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpKind {
    RouterSolicitation,
    RouterAdvertisement,
    NeighborSolicitation,
    NeighborAdvertisement,
    Redirect,
}

/// Returns the message that an ICMPv6 type stands for; `None` for other ICMPv6.
#[inline]
pub const fn kind(icmp6_kind: u8) -> Option<NdpKind> {
    match icmp6_kind {
        ROUTER_SOLICITATION => Some(NdpKind::RouterSolicitation),
        ROUTER_ADVERTISEMENT => Some(NdpKind::RouterAdvertisement),
        NEIGHBOR_SOLICITATION => Some(NdpKind::NeighborSolicitation),
        NEIGHBOR_ADVERTISEMENT => Some(NdpKind::NeighborAdvertisement),
        REDIRECT => Some(NdpKind::Redirect),
        _ => None,
    }
}

/// A valid neighbor solicitation (RFC 4861 section 4.3). Addresses in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborSolicitation {
    /// The sender, not multicast; `::` while it looks for duplicates of its address (RFC 4862
    /// section 5.4).
    pub source: u128,
    /// The target's solicited-node multicast address, or the target itself.
    pub destination: u128,
    /// The address that is asked for; not multicast.
    pub target: u128,
    /// Link-layer address of the sender.
    pub source_mac: Option<Mac>,
}

impl NeighborSolicitation {
    /// True for the question whether another node has the address already.
    #[inline]
    pub const fn detects_duplicates(&self) -> bool {
        ipv6::is_unspecified(self.source)
    }
}

/// A valid neighbor advertisement (RFC 4861 section 4.4). Addresses in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborAdvertisement {
    pub source: u128,
    pub destination: u128,
    /// The address that the sender has; not multicast.
    pub target: u128,
    pub is_router: bool,
    /// Whether it answers a solicitation; never to a multicast address.
    pub is_solicited: bool,
    /// Whether it replaces a known link-layer address.
    pub is_override: bool,
    /// Link-layer address of the target.
    pub target_mac: Option<Mac>,
}

/// A message of neighbor discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpMessage {
    Solicitation(NeighborSolicitation),
    Advertisement(NeighborAdvertisement),
    /// A message of or to routers, not read any further.
    Other(NdpKind),
}

/// Reason for which a message of neighbor discovery is discarded. Each is one condition of RFC 4861
/// sections 7.1.1 and 7.1.2 or of the sections that it names, or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NdpFault {
    /// An ICMPv6 type of another purpose.
    OtherKind,
    /// A hop limit other than 255: not from this link.
    HopLimit,
    Checksum,
    /// A code other than 0.
    Code,
    /// Fewer than 24 bytes.
    Truncated,
    /// A source that is multicast (RFC 4291 section 2.7): an answer would go to its group.
    SourceMulticast,
    /// A target that is multicast.
    TargetMulticast,
    /// An option of length 0, one that ends behind the message, or a link-layer address of another
    /// length than Ethernet's.
    OptionLength,
    /// More than [`OPTIONS_MAX`] options.
    TooManyOptions,
    /// A solicitation from `::` to an address that is no solicited-node multicast address.
    UnspecifiedToUnicast,
    /// A solicitation from `::` with a source link-layer address.
    UnspecifiedWithAddress,
    /// An advertisement to a multicast address that says it answers a solicitation.
    SolicitedToMulticast,
}

impl fmt::Display for NdpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherKind => "not neighbor discovery",
            Self::HopLimit => "hop limit is not 255",
            Self::Checksum => "wrong checksum",
            Self::Code => "code is not 0",
            Self::Truncated => "truncated",
            Self::SourceMulticast => "multicast source",
            Self::TargetMulticast => "multicast target",
            Self::OptionLength => "impossible option length",
            Self::TooManyOptions => "too many options",
            Self::UnspecifiedToUnicast => "from :: to an address that is not solicited-node",
            Self::UnspecifiedWithAddress => "from :: with a source link-layer address",
            Self::SolicitedToMulticast => "solicited, but to a multicast address",
        })
    }
}

impl core::error::Error for NdpFault {}

/// Reads a message; `ip` = the header of its packet, `message` = exactly the ICMPv6 message. A
/// caller passes no message from a packet with a fragment header (RFC 6980 section 5).
pub fn parse(ip: &Ipv6, message: &[u8]) -> Result<NdpMessage, NdpFault> {
    let header = icmp6::parse(message).map_err(|_| NdpFault::Truncated)?;
    let kind = kind(header.kind).ok_or(NdpFault::OtherKind)?;
    if ip.hop_limit != HOP_LIMIT {
        return Err(NdpFault::HopLimit);
    }
    let (source, destination) = (ip.source.get(), ip.destination.get());
    if !icmp6::checksum_ok(source, destination, message) {
        return Err(NdpFault::Checksum);
    }
    if header.code != 0 {
        return Err(NdpFault::Code);
    }
    let option_kind = match kind {
        NdpKind::NeighborSolicitation => SOURCE_LINK_LAYER_ADDRESS,
        NdpKind::NeighborAdvertisement => TARGET_LINK_LAYER_ADDRESS,
        other => return Ok(NdpMessage::Other(other)),
    };
    let (neighbor, options) =
        NeighborMessage::ref_from_prefix(message).map_err(|_| NdpFault::Truncated)?;
    let target = neighbor.target.get();
    if ipv6::is_multicast(source) {
        return Err(NdpFault::SourceMulticast);
    }
    if ipv6::is_multicast(target) {
        return Err(NdpFault::TargetMulticast);
    }
    let mac = link_layer_address(options, option_kind)?;
    if kind == NdpKind::NeighborSolicitation {
        let solicitation = NeighborSolicitation { source, destination, target, source_mac: mac };
        return check_solicitation(solicitation).map(NdpMessage::Solicitation);
    }
    if neighbor.is_solicited() && ipv6::is_multicast(destination) {
        return Err(NdpFault::SolicitedToMulticast);
    }
    Ok(NdpMessage::Advertisement(NeighborAdvertisement {
        source,
        destination,
        target,
        is_router: neighbor.is_router(),
        is_solicited: neighbor.is_solicited(),
        is_override: neighbor.is_override(),
        target_mac: mac,
    }))
}

fn check_solicitation(
    solicitation: NeighborSolicitation,
) -> Result<NeighborSolicitation, NdpFault> {
    if solicitation.detects_duplicates() {
        if !ipv6::is_solicited_node(solicitation.destination) {
            return Err(NdpFault::UnspecifiedToUnicast);
        }
        if solicitation.source_mac.is_some() {
            return Err(NdpFault::UnspecifiedWithAddress);
        }
    }
    Ok(solicitation)
}

/// Returns the first link-layer address of type `kind`. Every option is checked for its length;
/// unknown types are skipped (RFC 4861 section 4.6).
fn link_layer_address(mut options: &[u8], kind: u8) -> Result<Option<Mac>, NdpFault> {
    let mut found = None;
    for _ in 0..OPTIONS_MAX {
        let &[option_kind, length, ..] = options else {
            return if options.is_empty() { Ok(found) } else { Err(NdpFault::OptionLength) };
        };
        let len = usize::from(length) * LinkLayerAddress::LEN;
        let (option, rest) =
            options.split_at_checked(len).filter(|_| len > 0).ok_or(NdpFault::OptionLength)?;
        if option_kind == kind {
            let address =
                LinkLayerAddress::ref_from_bytes(option).map_err(|_| NdpFault::OptionLength)?;
            found = found.or(Some(address.mac));
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(NdpFault::TooManyOptions) }
}

#[cfg(test)]
mod tests;
