//! What a rule looks at in a flow, and the plain search that defines which rule decides.

use crate::address::{IpAddress, Prefix};
use crate::flow_kind::{FlowKind, FlowKinds};

/// Ports, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    pub const ALL: Self = Self { first: 0, last: u16::MAX };

    #[inline(always)]
    pub fn has(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    pub fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// A flow that begins. `local` is its end at the home, `remote` its end in the internet; the group
/// is the home's, below 16, or 0 where the rules know the groups of local addresses. A flow without
/// ports, or whose ports are not known, has ports 0: so have ICMP and ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<A> {
    pub kind: FlowKind,
    pub group: u8,
    pub local: A,
    pub remote: A,
    pub local_port: u16,
    pub remote_port: u16,
}

/// The flows that a rule, or a part of it, is about: all fields fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleFilter<A> {
    /// Number of the rule. The lowest number that fits a flow decides.
    pub rule: u32,
    pub kinds: FlowKinds,
    /// The homes' groups, bit by bit.
    pub groups: u16,
    pub local: Prefix<A>,
    pub remote: Prefix<A>,
    pub local_ports: PortRange,
    pub remote_ports: PortRange,
}

impl<A: IpAddress> RuleFilter<A> {
    /// Returns the filter that fits all flows.
    pub fn all(rule: u32) -> Self {
        Self {
            rule,
            kinds: FlowKinds::ALL,
            groups: u16::MAX,
            local: Prefix::all(),
            remote: Prefix::all(),
            local_ports: PortRange::ALL,
            remote_ports: PortRange::ALL,
        }
    }

    /// Whether it looks at no address and no port.
    pub(crate) fn is_wide(&self) -> bool {
        let all = Self::all(self.rule);
        *self == Self { kinds: self.kinds, groups: self.groups, ..all }
    }

    pub fn fits(&self, question: &Question<A>) -> bool {
        self.kinds.has(question.kind)
            && self.groups >> question.group & 1 != 0
            && self.local.contains(question.local)
            && self.remote.contains(question.remote)
            && self.local_ports.has(question.local_port)
            && self.remote_ports.has(question.remote_port)
    }

    /// Whether this filter fits all flows that the other one fits.
    pub fn covers(&self, other: &Self) -> bool {
        self.kinds.covers(other.kinds)
            && other.groups & !self.groups == 0
            && self.local.covers(&other.local)
            && self.remote.covers(&other.remote)
            && self.local_ports.covers(other.local_ports)
            && self.remote_ports.covers(other.remote_ports)
    }
}

/// Returns the lowest rule number of the filters that fit, by looking at all of them: the
/// definition that [`Classifier::find`](crate::Classifier::find) keeps.
pub fn first_match<A: IpAddress>(filters: &[RuleFilter<A>], question: &Question<A>) -> Option<u32> {
    filters.iter().filter(|filter| filter.fits(question)).map(|filter| filter.rule).min()
}
