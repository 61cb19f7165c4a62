//! Hot. Lists of filters, each sorted by rule number. Equal lists are stored once.

use std::collections::HashMap;

use crate::address::IpAddress;
use crate::filter::{Question, RuleFilter};
use crate::packed::PackedFilter;

/// A list of a [`FilterLists`]: where it begins.
pub(crate) type ListStart = u32;

/// The list without a filter.
pub(crate) const EMPTY: ListStart = 0;

/// All lists of a classifier, one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct FilterLists<A> {
    filters: Vec<PackedFilter<A>>,
}

impl<A: IpAddress> FilterLists<A> {
    /// Prefetches the first filters of a list.
    #[inline(always)]
    pub(crate) fn prefetch(&self, list: ListStart) {
        weir_flow::prefetch(&self.filters, list as usize);
    }

    /// Returns the lowest rule number below `best` that fits in a list and those that it links to,
    /// else `best`.
    #[inline]
    pub(crate) fn search(&self, list: ListStart, question: &Question<A>, mut best: u32) -> u32 {
        let mut at = list as usize;
        if list == EMPTY {
            return best;
        }
        // A link is the first of its list, so at most one is open.
        let mut linked = EMPTY;
        loop {
            let filter = &self.filters[at];
            if filter.is_link() {
                linked = filter.rule;
            } else if filter.rule >= best || filter.fits(question) {
                best = best.min(filter.rule);
                if linked == EMPTY {
                    return best;
                }
                at = std::mem::take(&mut linked) as usize;
                continue;
            }
            if !filter.is_last() {
                at += 1;
            } else if linked == EMPTY {
                return best;
            } else {
                at = std::mem::take(&mut linked) as usize;
            }
        }
    }

    /// Returns the rule numbers of a list and of those that it links to.
    pub(crate) fn rules(&self, list: ListStart) -> Vec<u32> {
        let (mut rules, mut lists) = (Vec::new(), vec![list]);
        while let Some(list) = lists.pop().filter(|&list| list != EMPTY) {
            let from = &self.filters[list as usize..];
            let length = 1 + from.iter().take_while(|filter| !filter.is_last()).count();
            for filter in &from[..length] {
                let into = if filter.is_link() { &mut lists } else { &mut rules };
                into.push(filter.rule);
            }
        }
        rules
    }

    /// Returns the bytes of memory of all lists.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.filters)
    }
}

/// Makes the lists of a classifier.
pub(crate) struct ListMaker<A> {
    filters: Vec<PackedFilter<A>>,
    known: HashMap<Box<[PackedFilter<A>]>, ListStart>,
}

impl<A: IpAddress> ListMaker<A> {
    pub(crate) fn new() -> Self {
        let mut end = PackedFilter::none();
        end.flags = PackedFilter::<A>::LAST;
        Self { filters: vec![end], known: HashMap::new() }
    }

    /// Stores a list of filters, which are sorted by rule number, and behind them those of another
    /// list. Returns where it begins.
    pub(crate) fn add(&mut self, filters: &[RuleFilter<A>], linked: ListStart) -> ListStart {
        let link = (linked != EMPTY).then(|| PackedFilter::link(linked));
        let own = filters.iter().map(PackedFilter::new);
        let mut list: Box<[PackedFilter<A>]> = link.into_iter().chain(own).collect();
        let Some(last) = list.last_mut() else { return EMPTY };
        last.flags |= PackedFilter::<A>::LAST;
        if let Some(&known) = self.known.get(&list) {
            return known;
        }
        let start = ListStart::try_from(self.filters.len()).expect("lists have 2^32 filters");
        self.filters.extend(&list);
        self.known.insert(list, start);
        start
    }

    pub(crate) fn finish(self) -> FilterLists<A> {
        let mut filters = self.filters;
        filters.shrink_to_fit();
        FilterLists { filters }
    }
}

/// Sorts filters by rule number, and removes each that an earlier one covers: it never decides.
pub(crate) fn sort_and_thin<A: IpAddress>(filters: &mut Vec<RuleFilter<A>>) {
    filters.sort_by_key(|filter| filter.rule);
    let mut kept: Vec<RuleFilter<A>> = Vec::with_capacity(filters.len());
    for filter in filters.iter() {
        if !kept.iter().any(|earlier| earlier.covers(filter)) {
            kept.push(*filter);
        }
    }
    *filters = kept;
}
