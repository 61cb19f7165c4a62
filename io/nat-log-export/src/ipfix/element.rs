//! Information elements, and the value that a record has for each.
//!
//! Numbers and types are those of the registry "IP Flow Information Export (IPFIX) Entities" of
//! IANA (RFC 7012); the templates of RFC 8158 section 5 determine the elements of each event.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::nat_event::{ExportedBlock, ExportedPrefix, ExportedSession, NatEvent, NatEventKind};

/// Set in the number of an enterprise-specific element (RFC 7011, section 3.2).
const ENTERPRISE_BIT: u16 = 0x8000;

/// Values of natEvent (230), from the registry "NAT Event Type".
mod nat_event_type {
    pub(super) const ADDRESSES_EXHAUSTED: u8 = 3;
    pub(super) const NAT44_SESSION_CREATE: u8 = 4;
    pub(super) const NAT44_SESSION_DELETE: u8 = 5;
    pub(super) const PORTS_EXHAUSTED: u8 = 12;
    pub(super) const QUOTA_EXCEEDED: u8 = 13;
    /// A claim of an IPv6 prefix: RFC 8158 has this event and the next for an inside address that
    /// gets a public one, and none for a home that gets addresses for itself.
    pub(super) const ADDRESS_BINDING_CREATE: u8 = 14;
    pub(super) const ADDRESS_BINDING_DELETE: u8 = 15;
    pub(super) const PORT_BLOCK_ALLOCATION: u8 = 16;
    pub(super) const PORT_BLOCK_DEALLOCATION: u8 = 17;
}

/// natQuotaExceededEvent (466): "Maximum entries per user", for both limits of a home.
const MAXIMUM_ENTRIES_PER_USER: u32 = 3;
/// The id of the one exporting process of a node.
const EXPORTING_PROCESS: u32 = 1;

/// An information element with the length that is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    ProtocolIdentifier,
    SourceTransportPort,
    SourceIpv4Address,
    DestinationTransportPort,
    DestinationIpv4Address,
    /// The home: its outer address, of IPv6.
    SourceIpv6Address,
    SourceIpv6PrefixLength,
    ExportingProcessId,
    NotSentFlowTotalCount,
    SourceIpv6Prefix,
    PostNatSourceIpv4Address,
    PostNatDestinationIpv4Address,
    PostNaptSourceTransportPort,
    PostNaptDestinationTransportPort,
    NatEvent,
    NatPoolId,
    ObservationTimeMilliseconds,
    PortRangeStart,
    PortRangeEnd,
    PortRangeStepSize,
    PortRangeNumPorts,
    SourceTransportPortsLimit,
    NatInstanceId,
    /// The home: its outer address.
    Realm,
    /// The home: its outer address and its GRE key.
    RealmWithKey,
    /// The home: its outer address, of IPv6.
    RealmOfIpv6,
    /// The home: its outer address, of IPv6, and its GRE key.
    RealmOfIpv6WithKey,
    NatQuotaExceededEvent,
    MaxEntriesPerUser,
    Lane,
    Epoch,
    Index,
    GreKey,
    HeldSince,
}

impl Element {
    /// Returns number and length; enterprise-specific elements have the enterprise bit.
    const fn number_and_length(self) -> (u16, u16) {
        match self {
            Self::ProtocolIdentifier => (4, 1),
            Self::SourceTransportPort => (7, 2),
            Self::SourceIpv4Address => (8, 4),
            Self::DestinationTransportPort => (11, 2),
            Self::DestinationIpv4Address => (12, 4),
            Self::SourceIpv6Address => (27, 16),
            Self::SourceIpv6PrefixLength => (29, 1),
            Self::ExportingProcessId => (144, 4),
            Self::NotSentFlowTotalCount => (166, 8),
            Self::SourceIpv6Prefix => (170, 16),
            Self::PostNatSourceIpv4Address => (225, 4),
            Self::PostNatDestinationIpv4Address => (226, 4),
            Self::PostNaptSourceTransportPort => (227, 2),
            Self::PostNaptDestinationTransportPort => (228, 2),
            Self::NatEvent => (230, 1),
            Self::NatPoolId => (283, 4),
            Self::ObservationTimeMilliseconds => (323, 8),
            Self::PortRangeStart => (361, 2),
            Self::PortRangeEnd => (362, 2),
            Self::PortRangeStepSize => (363, 2),
            Self::PortRangeNumPorts => (364, 2),
            Self::SourceTransportPortsLimit => (458, 2),
            Self::NatInstanceId => (463, 4),
            Self::Realm => (464, 4),
            Self::RealmWithKey => (464, 8),
            Self::RealmOfIpv6 => (464, 16),
            Self::RealmOfIpv6WithKey => (464, 20),
            Self::NatQuotaExceededEvent => (466, 4),
            Self::MaxEntriesPerUser => (473, 4),
            Self::Lane => (ENTERPRISE_BIT | 1, 1),
            Self::Epoch => (ENTERPRISE_BIT | 2, 8),
            Self::Index => (ENTERPRISE_BIT | 3, 8),
            Self::GreKey => (ENTERPRISE_BIT | 4, 4),
            Self::HeldSince => (ENTERPRISE_BIT | 5, 8),
        }
    }

    pub(crate) const fn is_of_enterprise(self) -> bool {
        self.number_and_length().0 & ENTERPRISE_BIT != 0
    }

    /// Returns the length in a record, bytes.
    pub(crate) const fn length(self) -> usize {
        self.number_and_length().1 as usize
    }

    /// Appends the field specifier (RFC 7011, section 3.2).
    pub(crate) fn specify(self, enterprise: u32, out: &mut Vec<u8>) {
        let (number, length) = self.number_and_length();
        out.extend(number.to_be_bytes());
        out.extend(length.to_be_bytes());
        if self.is_of_enterprise() {
            out.extend(enterprise.to_be_bytes());
        }
    }

    /// Appends the event's value for the element: [`length`](Self::length) bytes, zeros if it has
    /// none.
    pub(crate) fn write(self, event: &NatEvent, out: &mut Vec<u8>) {
        let kind = &event.kind;
        match self {
            Self::ProtocolIdentifier => out.push(protocol(kind)),
            Self::SourceTransportPort => {
                put_u16(out, session(kind).map_or(0, |it| it.inside.port()))
            }
            Self::SourceIpv4Address => put_address(out, source(kind)),
            Self::DestinationTransportPort | Self::PostNaptDestinationTransportPort => {
                put_u16(
                    out,
                    session(kind).and_then(|it| it.remote).map_or(0, |remote| remote.port()),
                );
            }
            Self::DestinationIpv4Address | Self::PostNatDestinationIpv4Address => {
                let remote = session(kind).and_then(|session| session.remote);
                put_address(out, remote.map_or(Ipv4Addr::UNSPECIFIED, |remote| *remote.ip()));
            }
            Self::SourceIpv6Address | Self::RealmOfIpv6 => put_home6(out, kind),
            Self::SourceIpv6PrefixLength => out.push(ExportedPrefix::LENGTH),
            Self::ExportingProcessId => put_u32(out, EXPORTING_PROCESS),
            Self::NotSentFlowTotalCount => put_u64(out, lost_total(kind)),
            Self::SourceIpv6Prefix => out.extend_from_slice(&prefix(kind).octets()),
            Self::PostNatSourceIpv4Address => put_address(out, public(kind)),
            Self::PostNaptSourceTransportPort => {
                put_u16(out, session(kind).map_or(0, |it| it.public.port()));
            }
            Self::NatEvent => out.push(nat_event(kind)),
            Self::NatPoolId | Self::NatInstanceId => put_u32(out, event.shard),
            Self::ObservationTimeMilliseconds => put_u64(out, event.time_ms),
            Self::PortRangeStart => put_u16(out, block(kind).map_or(0, |block| block.port_first)),
            Self::PortRangeEnd => put_u16(out, block(kind).map_or(0, |block| block.port_last)),
            Self::PortRangeStepSize => put_u16(out, 1),
            Self::PortRangeNumPorts => put_u16(out, block(kind).map_or(0, ports)),
            Self::SourceTransportPortsLimit => {
                put_u16(out, u16::try_from(limit(kind)).unwrap_or(u16::MAX));
            }
            Self::Realm => put_address(out, home_address(kind)),
            Self::RealmWithKey => {
                put_address(out, home_address(kind));
                put_u32(out, gre_key(kind));
            }
            Self::RealmOfIpv6WithKey => {
                put_home6(out, kind);
                put_u32(out, gre_key(kind));
            }
            Self::NatQuotaExceededEvent => put_u32(out, MAXIMUM_ENTRIES_PER_USER),
            Self::MaxEntriesPerUser => put_u32(out, limit(kind)),
            Self::Lane => out.push(event.lane),
            Self::Epoch => put_u64(out, event.epoch),
            Self::Index => put_u64(out, event.index),
            Self::GreKey => put_u32(out, gre_key(kind)),
            Self::HeldSince => put_u64(out, since_ms(kind)),
        }
    }
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_address(out: &mut Vec<u8>, address: Ipv4Addr) {
    out.extend_from_slice(&address.octets());
}

fn nat_event(kind: &NatEventKind) -> u8 {
    use nat_event_type::*;
    match kind {
        NatEventKind::BlockAllocated(_) | NatEventKind::BlockHeld { .. } => PORT_BLOCK_ALLOCATION,
        NatEventKind::BlockReleased(_) => PORT_BLOCK_DEALLOCATION,
        NatEventKind::PrefixClaimed(_) | NatEventKind::PrefixHeld(_) => ADDRESS_BINDING_CREATE,
        NatEventKind::PrefixReleased(_) => ADDRESS_BINDING_DELETE,
        NatEventKind::SessionBegun(_) => NAT44_SESSION_CREATE,
        NatEventKind::SessionEnded(_) => NAT44_SESSION_DELETE,
        NatEventKind::QuotaExceeded { .. } => QUOTA_EXCEEDED,
        NatEventKind::PortsExhausted { .. } => PORTS_EXHAUSTED,
        NatEventKind::AddressesExhausted { .. } => ADDRESSES_EXHAUSTED,
        NatEventKind::RecordsLost { .. } => 0,
    }
}

fn block(kind: &NatEventKind) -> Option<&ExportedBlock> {
    match kind {
        NatEventKind::BlockAllocated(block)
        | NatEventKind::BlockReleased(block)
        | NatEventKind::BlockHeld { block, .. } => Some(block),
        _ => None,
    }
}

fn session(kind: &NatEventKind) -> Option<&ExportedSession> {
    match kind {
        NatEventKind::SessionBegun(session) | NatEventKind::SessionEnded(session) => Some(session),
        _ => None,
    }
}

fn prefix(kind: &NatEventKind) -> Ipv6Addr {
    kind.prefix().map_or(Ipv6Addr::UNSPECIFIED, |prefix| prefix.first())
}

/// Returns the number of ports; 0, "not specified", for the one block that has more ports than the
/// element can hold.
fn ports(block: &ExportedBlock) -> u16 {
    block.port_last.wrapping_sub(block.port_first).wrapping_add(1)
}

/// Returns the home's address in the templates of homes with an IPv4 address.
fn home_address(kind: &NatEventKind) -> Ipv4Addr {
    match kind.home().map(|home| home.address) {
        Some(IpAddr::V4(address)) => address,
        Some(IpAddr::V6(_)) | None => Ipv4Addr::UNSPECIFIED,
    }
}

/// Appends the home's address in the templates of homes with an IPv6 address.
fn put_home6(out: &mut Vec<u8>, kind: &NatEventKind) {
    let address = match kind.home().map(|home| home.address) {
        Some(IpAddr::V6(address)) => address,
        Some(IpAddr::V4(_)) | None => Ipv6Addr::UNSPECIFIED,
    };
    out.extend_from_slice(&address.octets());
}

fn gre_key(kind: &NatEventKind) -> u32 {
    kind.home().and_then(|home| home.gre_key).unwrap_or(0)
}

/// Returns the inside host of a session, and the home of any other event.
fn source(kind: &NatEventKind) -> Ipv4Addr {
    session(kind).map_or_else(|| home_address(kind), |session| *session.inside.ip())
}

fn public(kind: &NatEventKind) -> Ipv4Addr {
    match kind {
        NatEventKind::PortsExhausted { public, .. } => *public,
        _ => match (block(kind), session(kind)) {
            (Some(block), _) => block.public,
            (None, Some(session)) => *session.public.ip(),
            (None, None) => Ipv4Addr::UNSPECIFIED,
        },
    }
}

fn protocol(kind: &NatEventKind) -> u8 {
    match kind {
        NatEventKind::PortsExhausted { protocol, .. } => *protocol,
        _ => session(kind).map_or(0, |session| session.protocol),
    }
}

fn limit(kind: &NatEventKind) -> u32 {
    match kind {
        NatEventKind::QuotaExceeded { limit, .. } => *limit,
        _ => 0,
    }
}

fn lost_total(kind: &NatEventKind) -> u64 {
    match kind {
        NatEventKind::RecordsLost { total, .. } => *total,
        _ => 0,
    }
}

/// Returns 0 if the time is not known.
fn since_ms(kind: &NatEventKind) -> u64 {
    match kind {
        NatEventKind::BlockHeld { since_ms, .. } => since_ms.unwrap_or(0),
        _ => 0,
    }
}

/// Whether the event takes the template with a GRE key, of a pair of templates.
pub(crate) fn has_gre_key(event: &NatEvent) -> bool {
    event.kind.home().is_some_and(|home| home.gre_key.is_some())
}
