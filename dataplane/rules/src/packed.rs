//! Hot. A filter as it lies in a list.

use crate::address::{IpAddress, Prefix};
use crate::filter::{PortRange, Question, RuleFilter};
use crate::flow_kind::FlowKinds;

/// A filter: 32 bytes for IPv4, of which two fill a cache line, 64 for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct PackedFilter<A> {
    /// Number of the rule; of a link, the list that it leads to.
    pub(crate) rule: u32,
    pub(crate) kinds: FlowKinds,
    /// [`LAST`](Self::LAST), [`LINK`](Self::LINK).
    pub(crate) flags: u8,
    groups: u16,
    local_ports: PortRange,
    remote_ports: PortRange,
    local: Prefix<A>,
    remote: Prefix<A>,
}

const _: () = assert!(size_of::<PackedFilter<u32>>() == 32);

impl<A: IpAddress> PackedFilter<A> {
    /// No filter follows in this list.
    pub(crate) const LAST: u8 = 1;
    /// Not a filter: another list is to be searched, too.
    pub(crate) const LINK: u8 = 2;

    pub(crate) fn new(filter: &RuleFilter<A>) -> Self {
        Self {
            rule: filter.rule,
            kinds: filter.kinds,
            flags: 0,
            groups: filter.groups,
            local_ports: filter.local_ports,
            remote_ports: filter.remote_ports,
            local: filter.local,
            remote: filter.remote,
        }
    }

    /// Returns a link to another list.
    pub(crate) fn link(list: u32) -> Self {
        Self { rule: list, flags: Self::LINK, ..Self::none() }
    }

    /// Returns a filter that fits nothing.
    pub(crate) fn none() -> Self {
        Self { kinds: FlowKinds::NONE, ..Self::new(&RuleFilter::all(u32::MAX)) }
    }

    #[inline(always)]
    pub(crate) fn is_link(&self) -> bool {
        self.flags & Self::LINK != 0
    }

    #[inline(always)]
    pub(crate) fn is_last(&self) -> bool {
        self.flags & Self::LAST != 0
    }

    #[inline(always)]
    pub(crate) fn fits(&self, question: &Question<A>) -> bool {
        // Without a branch between them: a packet fits nearly no filter, and which of its fields
        // does not cannot be predicted.
        self.kinds.has(question.kind)
            & (self.groups >> question.group & 1 != 0)
            & self.local_ports.has(question.local_port)
            & self.remote_ports.has(question.remote_port)
            & self.local.contains(question.local)
            & self.remote.contains(question.remote)
    }
}
