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

macro_rules! block {
    ($($more:ident),*) => {
        &[
            ObservationTimeMilliseconds, NatEvent, NatInstanceId, SourceIpv4Address,
            PostNatSourceIpv4Address, PortRangeStart, PortRangeEnd, PortRangeStepSize,
            PortRangeNumPorts, $($more,)* Lane, Epoch, Index,
        ]
    };
}

macro_rules! session {
    ($($more:ident),*) => {
        &[
            ObservationTimeMilliseconds, NatEvent, NatInstanceId, SourceIpv4Address,
            PostNatSourceIpv4Address, ProtocolIdentifier, SourceTransportPort,
            PostNaptSourceTransportPort, $($more,)* Lane, Epoch, Index,
        ]
    };
}

macro_rules! quota {
    ($($more:ident),*) => {
        &[
            ObservationTimeMilliseconds, NatEvent, NatQuotaExceededEvent, MaxEntriesPerUser,
            NatInstanceId, SourceIpv4Address, $($more,)*
        ]
    };
}

macro_rules! exhausted {
    ($($more:ident),*) => {
        &[ObservationTimeMilliseconds, NatEvent, NatPoolId, SourceIpv4Address, $($more,)*]
    };
}

macro_rules! prefix {
    ($($more:ident),*) => {
        &[
            ObservationTimeMilliseconds, NatEvent, NatInstanceId, SourceIpv4Address,
            SourceIpv6Prefix, SourceIpv6PrefixLength, $($more,)* Lane, Epoch, Index,
        ]
    };
}

/// Sorted by id, from [`FIRST_ID`] on: each kind of event without a GRE key, then with one.
pub(crate) static TEMPLATES: [Template; 21] = [
    template(256, block!()),
    template(257, block!(RealmWithKey, GreKey)),
    template(258, block!(HeldSince)),
    template(259, block!(RealmWithKey, GreKey, HeldSince)),
    template(260, session!(Realm)),
    template(261, session!(RealmWithKey, GreKey)),
    template(
        262,
        session!(
            DestinationIpv4Address,
            PostNatDestinationIpv4Address,
            DestinationTransportPort,
            PostNaptDestinationTransportPort,
            Realm
        ),
    ),
    template(
        263,
        session!(
            DestinationIpv4Address,
            PostNatDestinationIpv4Address,
            DestinationTransportPort,
            PostNaptDestinationTransportPort,
            RealmWithKey,
            GreKey
        ),
    ),
    template(264, quota!(SourceTransportPortsLimit)),
    template(265, quota!(SourceTransportPortsLimit, RealmWithKey, GreKey)),
    template(266, quota!()),
    template(267, quota!(RealmWithKey, GreKey)),
    template(268, exhausted!(PostNatSourceIpv4Address, ProtocolIdentifier)),
    template(269, exhausted!(PostNatSourceIpv4Address, ProtocolIdentifier, RealmWithKey, GreKey)),
    template(270, exhausted!()),
    template(271, exhausted!(RealmWithKey, GreKey)),
    // The Exporting Process Reliability Statistics of RFC 7011, section 4.3, without packets and
    // octets.
    Template {
        id: LOST_ID,
        scope: 1,
        elements: &[ExportingProcessId, ObservationTimeMilliseconds, NotSentFlowTotalCount],
    },
    template(273, prefix!()),
    template(274, prefix!(RealmWithKey, GreKey)),
    template(275, prefix!()),
    template(276, prefix!(RealmWithKey, GreKey)),
];

pub(crate) const FIRST_ID: u16 = 256;
const LOST_ID: u16 = 272;
/// The templates from this index on are those of IPv6 prefixes.
const FIRST_OF_PREFIXES: usize = 17;

/// Returns the templates of a collector; without those of IPv6 prefixes if it gets none.
pub(crate) fn templates(has_prefixes: bool) -> &'static [Template] {
    if has_prefixes { &TEMPLATES } else { &TEMPLATES[..FIRST_OF_PREFIXES] }
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
            NatEventKind::RecordsLost { .. } => 16,
            NatEventKind::PrefixClaimed(_) | NatEventKind::PrefixReleased(_) => FIRST_OF_PREFIXES,
            NatEventKind::PrefixHeld(_) => FIRST_OF_PREFIXES + 2,
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
