//! Hot. Lists of filters, each sorted by rule number. Equal lists are stored once.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::address::IpAddress;
use crate::filter::RuleFilter;
use crate::packed::{AskedFlow, PackedFilter};

/// A list of a [`FilterLists`]: where it begins.
pub(crate) type ListStart = u32;

/// The list without a filter.
pub(crate) const EMPTY: ListStart = 0;

/// Lists begin below this: a word has four bits for a group above, and one for a mark.
pub(crate) const LISTS_END: ListStart = 1 << 27;

/// All lists of a classifier, one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct FilterLists<A: IpAddress> {
    filters: Vec<PackedFilter<A>>,
}

impl<A: IpAddress> FilterLists<A> {
    /// Prefetches the first filters of a list.
    #[inline(always)]
    pub(crate) fn prefetch(&self, list: ListStart) {
        weir_flow::prefetch(&self.filters, list as usize);
    }

    /// Returns the lowest rule number below `best` that fits in a list and those that it links to,
    /// else `best`. `bits` are those of the question's kind and group.
    #[inline(always)]
    pub(crate) fn search(
        &self,
        list: ListStart,
        asked: &AskedFlow<A>,
        bits: u32,
        best: u32,
    ) -> u32 {
        if list == EMPTY {
            return best;
        }
        let Some(filter) = self.first_that_fits(list, asked, bits, best) else { return best };
        match filter.linked() {
            None => filter.rule,
            Some(linked) => self.search_linked(list, linked, asked, bits, best),
        }
    }

    /// Returns the first filter of a list that fits, of a rule below `best`.
    #[inline(always)]
    fn first_that_fits(
        &self,
        list: ListStart,
        asked: &AskedFlow<A>,
        bits: u32,
        best: u32,
    ) -> Option<&PackedFilter<A>> {
        let mut at = list as usize;
        while let Some(filter) = self.filters.get(at) {
            if filter.rule >= best {
                break;
            }
            if filter.fits(asked, bits) {
                return Some(filter);
            }
            if filter.is_last() {
                break;
            }
            at += 1;
        }
        None
    }

    /// Searches a list that begins with a link, and those that it links to.
    #[inline(never)]
    fn search_linked(
        &self,
        mut list: ListStart,
        mut linked: ListStart,
        asked: &AskedFlow<A>,
        bits: u32,
        mut best: u32,
    ) -> u32 {
        loop {
            let own = self.first_that_fits(list + 1, asked, bits, best);
            best = own.map_or(best, |filter| filter.rule);
            match self.filters[linked as usize].linked() {
                None => return self.search(linked, asked, bits, best),
                Some(further) => (list, linked) = (linked, further),
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
                match filter.linked() {
                    Some(linked) => lists.push(linked),
                    None => rules.push(filter.rule),
                }
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
pub(crate) struct ListMaker<A: IpAddress> {
    filters: Vec<PackedFilter<A>>,
    /// A list of each hash.
    known: HashMap<u64, ListStart>,
}

impl<A: IpAddress> ListMaker<A> {
    pub(crate) fn new() -> Self {
        let mut end = PackedFilter::none();
        end.set_last();
        Self { filters: vec![end], known: HashMap::new() }
    }

    /// Stores a list of filters, which are sorted by rule number, and behind them those of another
    /// list. Returns where it begins.
    pub(crate) fn add(&mut self, filters: &[RuleFilter<A>], linked: ListStart) -> ListStart {
        if filters.is_empty() {
            return linked;
        }
        let start = self.filters.len();
        if linked != EMPTY {
            self.filters.push(PackedFilter::link(linked));
        }
        self.filters.extend(filters.iter().map(PackedFilter::new));
        assert!(self.filters.len() < LISTS_END as usize, "lists have fewer filters");
        if let Some(last) = self.filters.last_mut() {
            last.set_last();
        }
        let (before, list) = self.filters.split_at(start);
        let hash = self.known.hasher().hash_one(list);
        let known = *self.known.entry(hash).or_insert(start as ListStart);
        // Of other lists with this hash there are hardly any: each is stored as often as it occurs.
        if before.get(known as usize..).is_some_and(|known| known.starts_with(list)) {
            self.filters.truncate(start);
            return known;
        }
        start as ListStart
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
    let mut kept = 0;
    for at in 0..filters.len() {
        let filter = filters[at];
        if !filters[..kept].iter().any(|earlier| earlier.covers(&filter)) {
            filters[kept] = filter;
            kept += 1;
        }
    }
    filters.truncate(kept);
}
