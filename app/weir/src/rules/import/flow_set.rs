//! The new flows that a rule of nftables fits.

use std::ops::BitAnd;

use super::family::AddressFamily;
use super::ranges::{LAST_PORT, RangeSet};

/// Sides that begin flows, and protocols, bit by bit.
pub(super) const HOME: u8 = 1;
pub(super) const INTERNET: u8 = 2;
pub(super) const TCP: u8 = 1;
pub(super) const UDP: u8 = 2;
pub(super) const ICMP: u8 = 4;

/// All flows of a family whose first packet has all of this. Source and destination are those of
/// the packet, so which of them is the home's depends on the side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlowSet {
    pub family: AddressFamily,
    pub from: u8,
    pub protocols: u8,
    pub addresses: SetsByEnd,
    pub ports: SetsByEnd,
}

/// What the source and the destination of a packet are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetsByEnd {
    pub source: RangeSet,
    pub destination: RangeSet,
}

/// One end of a flow.
type EndOf = fn(&mut FlowSet) -> &mut RangeSet;

impl SetsByEnd {
    fn up_to(last: u128) -> Self {
        Self { source: RangeSet::up_to(last), destination: RangeSet::up_to(last) }
    }

    fn is_empty(&self) -> bool {
        self.source.is_empty() || self.destination.is_empty()
    }

    fn intersection(&self, other: &Self) -> Self {
        Self {
            source: self.source.intersection(&other.source),
            destination: self.destination.intersection(&other.destination),
        }
    }

    /// Whether exchanging source and destination changes nothing.
    fn is_symmetric(&self) -> bool {
        self.source == self.destination
    }
}

impl FlowSet {
    pub(super) fn all(family: AddressFamily) -> Self {
        Self {
            family,
            from: HOME | INTERNET,
            protocols: TCP | UDP | ICMP,
            addresses: SetsByEnd::up_to(family.last_address()),
            ports: SetsByEnd::up_to(LAST_PORT),
        }
    }

    /// Returns the set without flows.
    pub(super) fn none(family: AddressFamily) -> Self {
        Self { from: 0, ..Self::all(family) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.from == 0 || self.protocols == 0 || self.addresses.is_empty() || self.ports.is_empty()
    }

    /// Returns the flows of one side.
    pub(super) fn of_side(&self, side: u8) -> Self {
        Self { from: self.from & side, ..self.clone() }
    }

    /// Returns the flows that are not in the other set, as sets of which no two overlap.
    pub(super) fn without(&self, other: &Self) -> Vec<Self> {
        let mut rest = self.clone();
        let mut parts = Vec::new();
        let mut take = |part: Self| {
            if !part.is_empty() {
                parts.push(part);
            }
        };
        take(Self { from: rest.from & !other.from, ..rest.clone() });
        rest.from &= other.from;
        take(Self { protocols: rest.protocols & !other.protocols, ..rest.clone() });
        rest.protocols &= other.protocols;
        let last_address = self.family.last_address();
        let fields: [(EndOf, u128); 4] = [
            (|flows| &mut flows.addresses.source, last_address),
            (|flows| &mut flows.addresses.destination, last_address),
            (|flows| &mut flows.ports.source, LAST_PORT),
            (|flows| &mut flows.ports.destination, LAST_PORT),
        ];
        let mut other = other.clone();
        for (field, last) in fields {
            let theirs = field(&mut other);
            let mut part = rest.clone();
            *field(&mut part) = field(&mut rest).intersection(&theirs.complement(last));
            take(part);
            *field(&mut rest) = field(&mut rest).intersection(theirs);
        }
        parts
    }

    /// Whether the flows are those of some homes only.
    pub(super) fn limits_homes(&self) -> bool {
        let SetsByEnd { source, destination } = &self.addresses;
        let last = self.family.last_address();
        (self.from & HOME != 0 && !source.has_all(last))
            || (self.from & INTERNET != 0 && !destination.has_all(last))
    }

    /// Whether the flows are between all addresses.
    pub(super) fn has_all_addresses(&self) -> bool {
        let last = self.family.last_address();
        self.addresses.source.has_all(last) && self.addresses.destination.has_all(last)
    }

    /// Whether a home's and a remote's packet need no rule each.
    pub(super) fn is_symmetric(&self) -> bool {
        self.addresses.is_symmetric() && self.ports.is_symmetric()
    }
}

impl BitAnd for &FlowSet {
    type Output = FlowSet;

    /// Returns the flows that are in both, which are of one family.
    fn bitand(self, other: &FlowSet) -> FlowSet {
        debug_assert_eq!(self.family, other.family, "a walk is about one family");
        FlowSet {
            family: self.family,
            from: self.from & other.from,
            protocols: self.protocols & other.protocols,
            addresses: self.addresses.intersection(&other.addresses),
            ports: self.ports.intersection(&other.ports),
        }
    }
}
