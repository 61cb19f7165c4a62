//! Hot. A filter as it lies in a list.

use crate::address::IpAddress;
use crate::filter::{Question, RuleFilter};
use crate::flow_kind::FlowKinds;
use crate::prefix_pair::PrefixPair;

/// A filter: 32 bytes for IPv4, of which two fill a cache line, 64 for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, align(32))]
pub(crate) struct PackedFilter<A: IpAddress> {
    /// Number of the rule; of a link, 0.
    pub(crate) rule: u32,
    /// The [`kind_and_group`] bits that it does not fit, and its flags.
    excluded: u32,
    /// First local and first remote port; of a link, the list that it leads to.
    first_ports: [u16; 2],
    /// How many local and remote ports follow the first ones.
    more_ports: [u16; 2],
    prefixes: A::PrefixPair,
}

const _: () = assert!(size_of::<PackedFilter<u32>>() == 32);
const _: () = assert!(size_of::<PackedFilter<u128>>() == 64);

/// No filter follows in this list.
const LAST: u32 = 1 << 31;
/// Not a filter: another list is to be searched, too.
const LINK: u32 = 1 << 30;

/// The kinds are below this bit of a filter, the groups from it on.
const GROUPS_AT: u32 = 8;

/// Returns the two bits of a kind and a group, by their numbers.
#[inline(always)]
pub(crate) fn kind_and_group(kind: u32, group: u32) -> u32 {
    1 << kind | (1 << GROUPS_AT) << group
}

/// A question as filters are compared with it: words without gaps, so that many are cleared and
/// each is written in few instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskedFlow<A> {
    pub(crate) local: A,
    pub(crate) remote: A,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    /// The kind's number, and the group above.
    kind_and_group: u32,
}

impl<A: IpAddress> AskedFlow<A> {
    const GROUP_AT: u32 = 8;

    /// Takes the place of the flow of another question.
    #[inline(always)]
    pub(crate) fn set(&mut self, question: &Question<A>) {
        // Field by field: a whole question is put together in a register before it is stored.
        (self.local, self.remote) = (question.local, question.remote);
        (self.local_port, self.remote_port) = (question.local_port, question.remote_port);
        let group = u32::from(question.group) << Self::GROUP_AT;
        self.kind_and_group = group | u32::from(question.kind.number());
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> u32 {
        self.kind_and_group % (1 << Self::GROUP_AT)
    }

    #[inline(always)]
    pub(crate) fn group(&self) -> u32 {
        self.kind_and_group >> Self::GROUP_AT
    }
}

impl<A: IpAddress> From<&Question<A>> for AskedFlow<A> {
    #[inline(always)]
    fn from(question: &Question<A>) -> Self {
        let mut asked = Self::default();
        asked.set(question);
        asked
    }
}

impl<A: IpAddress> PackedFilter<A> {
    pub(crate) fn new(filter: &RuleFilter<A>) -> Self {
        let excluded_kinds = FlowKinds::ALL.bits() & !filter.kinds.bits();
        let (local, remote) = (filter.local_ports, filter.remote_ports);
        Self {
            rule: filter.rule,
            excluded: u32::from(!filter.groups) << GROUPS_AT | u32::from(excluded_kinds),
            first_ports: [local.first, remote.first],
            more_ports: [local.last - local.first, remote.last - remote.first],
            prefixes: A::PrefixPair::new(&filter.local, &filter.remote),
        }
    }

    /// Returns a link to another list. As a filter it would fit each flow.
    pub(crate) fn link(list: u32) -> Self {
        Self {
            excluded: LINK,
            first_ports: [list as u16, (list >> u16::BITS) as u16],
            ..Self::new(&RuleFilter::all(0))
        }
    }

    /// Returns a filter that fits nothing.
    pub(crate) fn none() -> Self {
        Self::new(&RuleFilter { kinds: FlowKinds::NONE, ..RuleFilter::all(u32::MAX) })
    }

    /// Marks the last one of a list.
    pub(crate) fn set_last(&mut self) {
        self.excluded |= LAST;
    }

    #[inline(always)]
    pub(crate) fn is_last(&self) -> bool {
        self.excluded & LAST != 0
    }

    /// Returns the list that a link leads to.
    #[inline(always)]
    pub(crate) fn linked(&self) -> Option<u32> {
        let [low, high] = self.first_ports.map(u32::from);
        (self.excluded & LINK != 0).then_some(high << u16::BITS | low)
    }

    /// Whether it fits a flow whose [`kind_and_group`] bits are `bits`, or is a link.
    #[inline(always)]
    pub(crate) fn fits(&self, asked: &AskedFlow<A>, bits: u32) -> bool {
        let [local, remote] = self.first_ports;
        let [more_local, more_remote] = self.more_ports;
        // Without a branch between them: a packet fits nearly no filter, and which of its fields
        // does not cannot be predicted.
        let other_ports = (asked.local_port.wrapping_sub(local) > more_local)
            | (asked.remote_port.wrapping_sub(remote) > more_remote);
        u64::from(self.excluded & bits)
            | u64::from(other_ports)
            | self.prefixes.differences(asked.local, asked.remote)
            == 0
    }
}
