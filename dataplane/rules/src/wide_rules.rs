//! Hot. The rules that look at no address and no port: what decides where no other rule does.

use crate::address::IpAddress;
use crate::classifier::NO_RULE;
use crate::filter::RuleFilter;

/// Places for groups and for kinds: powers of two, so that a number is cut to them.
const GROUP_PLACES: usize = 16;
const KIND_PLACES: usize = 8;

/// The first of these rules for each kind and group, or [`NO_RULE`].
#[derive(Clone, Debug)]
pub(crate) struct WideRules {
    first: Box<[[u32; GROUP_PLACES]; KIND_PLACES]>,
}

impl WideRules {
    pub(crate) fn new<'a, A: IpAddress + 'a>(
        filters: impl Iterator<Item = &'a RuleFilter<A>>,
    ) -> Self {
        let mut first = Box::new([[NO_RULE; GROUP_PLACES]; KIND_PLACES]);
        for filter in filters {
            for (kind, groups) in first.iter_mut().enumerate() {
                let has_kind = filter.kinds.bits() >> kind & 1 != 0;
                for (group, first) in groups.iter_mut().enumerate() {
                    if has_kind && filter.groups >> group & 1 != 0 {
                        *first = filter.rule.min(*first);
                    }
                }
            }
        }
        Self { first }
    }

    /// Returns the rule for this kind and group.
    #[inline(always)]
    pub(crate) fn find(&self, kind: u32, group: u32) -> u32 {
        self.first[kind as usize % KIND_PLACES][group as usize % GROUP_PLACES]
    }

    /// Whether one of these rules decides before `filter` on all flows that it fits.
    pub(crate) fn cover<A>(&self, filter: &RuleFilter<A>) -> bool {
        self.first.iter().enumerate().filter(|(kind, _)| filter.kinds.bits() >> kind & 1 != 0).all(
            |(_, groups)| {
                let mut fitting = groups.iter().enumerate();
                fitting
                    .all(|(group, &first)| filter.groups >> group & 1 == 0 || first < filter.rule)
            },
        )
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.first)
    }
}
