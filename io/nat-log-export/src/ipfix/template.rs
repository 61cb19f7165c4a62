//! The templates: the elements in the record of each kind of event, and their order.

use super::element::{Element, has_gre_key};
use crate::nat_event::{NatEvent, NatEventKind, Quota};

use Element::*;

/// A template or, with scope fields, an options template (RFC 7011, section 3.4).
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) id: u16,
    /// Number of leading fields that are the scope.
    pub(crate) scope: u16,
    elements: &'static [Element],
}

/// `$home` is the element of the home.
macro_rules! block {
    ($home:ident $(, $more:ident)*) => {
        &[
            ObservationTimeMilliseconds, NatEvent, NatInstanceId, $home, PostNatSourceIpv4Address,
            PortRangeStart, PortRangeEnd, PortRangeStepSize, PortRangeNumPorts, $($more,)* Lane,
            Epoch, Index,
        ]
    };
}

/// The source is the inside host; `$more` has the home.
macro_rules! session {
    ($($more:ident),*) => {
        &[
            ObservationTimeMilliseconds, NatEvent, NatInstanceId, SourceIpv4Address,
            PostNatSourceIpv4Address, ProtocolIdentifier, SourceTransportPort,
            PostNaptSourceTransportPort, $($more,)* Lane, Epoch, Index,
        ]
    };
}

macro_rules! session_with_remote {
    ($($more:ident),*) => {
        session!(
            DestinationIpv4Address, PostNatDestinationIpv4Address, DestinationTransportPort,
            PostNaptDestinationTransportPort, $($more),*
        )
    };
}

macro_rules! quota {
    ($home:ident $(, $more:ident)*) => {
        &[
            ObservationTimeMilliseconds, NatEvent, NatQuotaExceededEvent, MaxEntriesPerUser,
            NatInstanceId, $home, $($more,)*
        ]
    };
}

macro_rules! exhausted {
    ($home:ident $(, $more:ident)*) => {
        &[ObservationTimeMilliseconds, NatEvent, NatPoolId, $home, $($more,)*]
    };
}

macro_rules! prefix {
    ($home:ident $(, $more:ident)*) => {
        &[
            ObservationTimeMilliseconds, NatEvent, NatInstanceId, $home, SourceIpv6Prefix,
            SourceIpv6PrefixLength, $($more,)* Lane, Epoch, Index,
        ]
    };
}

/// Sorted by id, from [`FIRST_ID`] on: each kind of event without a GRE key, then with one; first
/// those of homes with an IPv4 address.
pub(crate) static TEMPLATES: [Template; 41] = [
    template(256, block!(SourceIpv4Address)),
    template(257, block!(SourceIpv4Address, RealmWithKey, GreKey)),
    template(258, block!(SourceIpv4Address, HeldSince)),
    template(259, block!(SourceIpv4Address, RealmWithKey, GreKey, HeldSince)),
    template(260, session!(Realm)),
    template(261, session!(RealmWithKey, GreKey)),
    template(262, session_with_remote!(Realm)),
    template(263, session_with_remote!(RealmWithKey, GreKey)),
    template(264, quota!(SourceIpv4Address, SourceTransportPortsLimit)),
    template(265, quota!(SourceIpv4Address, SourceTransportPortsLimit, RealmWithKey, GreKey)),
    template(266, quota!(SourceIpv4Address)),
    template(267, quota!(SourceIpv4Address, RealmWithKey, GreKey)),
    template(268, exhausted!(SourceIpv4Address, PostNatSourceIpv4Address, ProtocolIdentifier)),
    template(
        269,
        exhausted!(
            SourceIpv4Address,
            PostNatSourceIpv4Address,
            ProtocolIdentifier,
            RealmWithKey,
            GreKey
        ),
    ),
    template(270, exhausted!(SourceIpv4Address)),
    template(271, exhausted!(SourceIpv4Address, RealmWithKey, GreKey)),
    // The Exporting Process Reliability Statistics of RFC 7011, section 4.3, without packets and
    // octets.
    Template {
        id: LOST_ID,
        scope: 1,
        elements: &[ExportingProcessId, ObservationTimeMilliseconds, NotSentFlowTotalCount],
    },
    template(273, prefix!(SourceIpv4Address)),
    template(274, prefix!(SourceIpv4Address, RealmWithKey, GreKey)),
    template(275, prefix!(SourceIpv4Address)),
    template(276, prefix!(SourceIpv4Address, RealmWithKey, GreKey)),
    template(277, block!(SourceIpv6Address)),
    template(278, block!(SourceIpv6Address, RealmOfIpv6WithKey, GreKey)),
    template(279, block!(SourceIpv6Address, HeldSince)),
    template(280, block!(SourceIpv6Address, RealmOfIpv6WithKey, GreKey, HeldSince)),
    template(281, session!(RealmOfIpv6)),
    template(282, session!(RealmOfIpv6WithKey, GreKey)),
    template(283, session_with_remote!(RealmOfIpv6)),
    template(284, session_with_remote!(RealmOfIpv6WithKey, GreKey)),
    template(285, quota!(SourceIpv6Address, SourceTransportPortsLimit)),
    template(286, quota!(SourceIpv6Address, SourceTransportPortsLimit, RealmOfIpv6WithKey, GreKey)),
    template(287, quota!(SourceIpv6Address)),
    template(288, quota!(SourceIpv6Address, RealmOfIpv6WithKey, GreKey)),
    template(289, exhausted!(SourceIpv6Address, PostNatSourceIpv4Address, ProtocolIdentifier)),
    template(
        290,
        exhausted!(
            SourceIpv6Address,
            PostNatSourceIpv4Address,
            ProtocolIdentifier,
            RealmOfIpv6WithKey,
            GreKey
        ),
    ),
    template(291, exhausted!(SourceIpv6Address)),
    template(292, exhausted!(SourceIpv6Address, RealmOfIpv6WithKey, GreKey)),
    template(293, prefix!(SourceIpv6Address)),
    template(294, prefix!(SourceIpv6Address, RealmOfIpv6WithKey, GreKey)),
    template(295, prefix!(SourceIpv6Address)),
    template(296, prefix!(SourceIpv6Address, RealmOfIpv6WithKey, GreKey)),
];

pub(crate) const FIRST_ID: u16 = 256;
const LOST_ID: u16 = 272;
const LOST: usize = 16;
/// The templates from this index on are those of IPv6 prefixes.
const FIRST_OF_PREFIXES: usize = LOST + 1;
const PREFIXES: usize = 4;
/// The templates from this index on are those of homes with an IPv6 address, in the same order.
const FIRST_OF_IPV6: usize = FIRST_OF_PREFIXES + PREFIXES;

/// Returns the templates of homes with an IPv4 address, without those of IPv6 prefixes if the
/// collector gets none.
pub(crate) fn templates(has_prefixes: bool) -> &'static [Template] {
    let end = if has_prefixes { FIRST_OF_IPV6 } else { FIRST_OF_PREFIXES };
    &TEMPLATES[..end]
}

/// Does the same for homes with an IPv6 address.
pub(crate) fn templates_over_ipv6(has_prefixes: bool) -> &'static [Template] {
    let end = TEMPLATES.len() - if has_prefixes { 0 } else { PREFIXES };
    &TEMPLATES[FIRST_OF_IPV6..end]
}

const fn template(id: u16, elements: &'static [Element]) -> Template {
    Template { id, scope: 0, elements }
}

impl Template {
    /// Returns the template of the event's record.
    pub(crate) fn of(event: &NatEvent) -> &'static Self {
        let first = match &event.kind {
            NatEventKind::BlockAllocated(_) | NatEventKind::BlockReleased(_) => 0,
            NatEventKind::BlockHeld { .. } => 2,
            NatEventKind::SessionBegun(session) | NatEventKind::SessionEnded(session) => {
                if session.remote.is_some() { 6 } else { 4 }
            }
            NatEventKind::QuotaExceeded { quota: Quota::PortsPerHome, .. } => 8,
            NatEventKind::QuotaExceeded { quota: Quota::SessionsPerHome, .. } => 10,
            NatEventKind::PortsExhausted { .. } => 12,
            NatEventKind::AddressesExhausted { .. } => 14,
            NatEventKind::RecordsLost { .. } => LOST,
            NatEventKind::PrefixClaimed(_) | NatEventKind::PrefixReleased(_) => FIRST_OF_PREFIXES,
            NatEventKind::PrefixHeld(_) => FIRST_OF_PREFIXES + 2,
        };
        let first = match event.kind.is_over_ipv6() {
            false => first,
            // Without that of lost records, which are no home's.
            true => FIRST_OF_IPV6 + first - usize::from(first > LOST),
        };
        &TEMPLATES[first + usize::from(has_gre_key(event))]
    }

    /// Returns the elements of a record; without an enterprise number the enterprise-specific ones
    /// are left out.
    pub(crate) fn elements(&self, has_enterprise: bool) -> impl Iterator<Item = Element> {
        self.elements.iter().copied().filter(move |it| has_enterprise || !it.is_of_enterprise())
    }

    /// Returns the length of a record, bytes.
    pub(crate) fn record_bytes(&self, has_enterprise: bool) -> usize {
        self.elements(has_enterprise).map(Element::length).sum()
    }

    /// Appends the template record or options template record.
    pub(crate) fn specify(&self, enterprise: Option<u32>, out: &mut Vec<u8>) {
        let has_enterprise = enterprise.is_some();
        out.extend(self.id.to_be_bytes());
        out.extend((self.elements(has_enterprise).count() as u16).to_be_bytes());
        if self.scope > 0 {
            out.extend(self.scope.to_be_bytes());
        }
        for element in self.elements(has_enterprise) {
            element.specify(enterprise.unwrap_or(0), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_in_the_order_of_their_ids() {
        for (index, template) in TEMPLATES.iter().enumerate() {
            assert_eq!(usize::from(template.id), usize::from(FIRST_ID) + index);
        }
    }

    #[test]
    fn templates_without_an_enterprise_number_name_no_enterprise() {
        for template in &TEMPLATES {
            assert!(template.elements(false).all(|element| !element.is_of_enterprise()));
            let mut text = Vec::new();
            template.specify(None, &mut text);
            let head = if template.scope > 0 { 6 } else { 4 };
            assert_eq!(text.len(), head + 4 * template.elements(false).count());
        }
    }
}
