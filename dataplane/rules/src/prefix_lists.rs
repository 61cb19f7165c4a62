//! The lists of a door for addresses: one for each prefix, and one for each block of addresses with
//! few filters.
//!
//! ```text
//!   prefix  its filters without the prefix, which the walk has compared; those of the outer
//!           prefix are copied, or, where they are many, linked to
//!   block   all filters of the prefixes in it, each with its prefix: a walk ends at the block,
//!           and a comparison takes the place of the nodes behind it
//! ```

use std::ops::Range;

use crate::address::{IpAddress, Prefix};
use crate::doors::{COMPARED_MAX, COPIED_MAX, Most, THINNED_MAX, TooManyFilters};
use crate::filter::RuleFilter;
use crate::lists::{EMPTY, LISTS_END, ListMaker, ListStart, sort_and_thin};
use crate::trie::{PrefixTrie, TrieEntries};

/// Most filters of a block with a list of its own.
const BLOCK_MAX: usize = 2;

/// What a walk through a door for addresses leads to: a list, and the group of the address.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DoorValue(u32);

impl DoorValue {
    fn new(group: u8, list: ListStart) -> Self {
        Self((u32::from(group) * LISTS_END) | list)
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u32) -> Self {
        Self(word)
    }

    #[inline(always)]
    pub(crate) fn list(self) -> ListStart {
        self.0 % LISTS_END
    }

    #[inline(always)]
    pub(crate) fn group(self) -> u32 {
        self.0 / LISTS_END
    }
}

/// A door for addresses.
#[derive(Clone, Copy)]
pub(crate) struct AddressDoor<A> {
    pub(crate) name: &'static str,
    /// What of a filter the door decides on.
    pub(crate) prefix: fn(&mut RuleFilter<A>) -> &mut Prefix<A>,
}

/// A prefix that occurs in filters or has a group.
struct PrefixEntry {
    /// The filters with this prefix, by their places.
    own: Range<usize>,
    /// The list: places in `listed`, and behind these the list of another prefix.
    listed: Range<usize>,
    linked: Option<usize>,
    /// Filters of the list and of what it links to.
    compared: usize,
    group: u8,
    made: Option<ListStart>,
}

impl PrefixEntry {
    /// Whether the list may be copied into those of the prefixes inside.
    fn is_short(&self) -> bool {
        self.linked.is_none() && self.listed.len() <= COPIED_MAX
    }
}

/// The prefixes of a door, from which its lists are made as far as the trie needs them.
struct PrefixLists<'a, A: IpAddress> {
    door: AddressDoor<A>,
    /// All filters of the door, sorted by prefix.
    filters: Vec<RuleFilter<A>>,
    /// Filters of lists, without the door's prefix.
    listed: Vec<RuleFilter<A>>,
    entries: Vec<PrefixEntry>,
    maker: &'a mut ListMaker<A>,
    most: Most<A>,
}

impl<A: IpAddress> PrefixLists<'_, A> {
    fn prefix(&self, filter: &RuleFilter<A>) -> Prefix<A> {
        *(self.door.prefix)(&mut { *filter })
    }

    fn without_prefix(&self, mut filter: RuleFilter<A>) -> RuleFilter<A> {
        *(self.door.prefix)(&mut filter) = Prefix::all();
        filter
    }

    /// Adds a prefix, which lies in that of number `outer`.
    fn add(
        &mut self,
        prefix: Prefix<A>,
        own: Range<usize>,
        group: Option<u8>,
        outer: Option<usize>,
    ) -> Result<(), TooManyFilters> {
        let mut filters: Vec<RuleFilter<A>> =
            self.filters[own.clone()].iter().map(|&filter| self.without_prefix(filter)).collect();
        let outer = outer.map(|outer| (outer, &self.entries[outer]));
        let group = group.or(outer.map(|(_, it)| it.group)).unwrap_or(0);
        let (mut linked, mut compared) = (None, 0);
        match outer {
            Some((_, entry)) if entry.is_short() => {
                filters.extend(&self.listed[entry.listed.clone()]);
            }
            Some((outer, entry)) => (linked, compared) = (Some(outer), entry.compared),
            None => {}
        }
        let place = || format!("the {} {prefix}", self.door.name);
        if filters.len() > THINNED_MAX {
            return Err(TooManyFilters::new(place(), filters.len(), &filters[..COMPARED_MAX]));
        }
        sort_and_thin(&mut filters);
        compared += filters.len();
        if compared > COMPARED_MAX {
            return Err(TooManyFilters::new(place(), compared, &filters));
        }
        let listed = self.listed.len()..self.listed.len() + filters.len();
        self.listed.extend(filters);
        self.entries.push(PrefixEntry { own, listed, linked, compared, group, made: None });
        Ok(())
    }

    fn list(&mut self, entry: usize) -> ListStart {
        if let Some(made) = self.entries[entry].made {
            return made;
        }
        let linked = self.entries[entry].linked.map_or(EMPTY, |outer| self.list(outer));
        let PrefixEntry { own, listed, compared, .. } = &self.entries[entry];
        let made = self.maker.add(&self.listed[listed.clone()], linked);
        if let Some(filter) = self.filters.get(own.start).filter(|_| !own.is_empty()) {
            self.most.look(*compared, self.prefix(filter).address());
        }
        self.entries[entry].made = Some(made);
        made
    }
}

impl<A: IpAddress> TrieEntries<A> for PrefixLists<'_, A> {
    fn value(&mut self, entry: usize) -> u32 {
        let list = self.list(entry);
        DoorValue::new(self.entries[entry].group, list).0
    }

    fn joint_value(&mut self, entries: Range<usize>, outer: usize) -> Option<u32> {
        let inner = &self.entries[entries];
        let own = inner.first()?.own.start..inner.last()?.own.end;
        let PrefixEntry { group, compared, ref listed, .. } = self.entries[outer];
        let has_group = |entry: &PrefixEntry| entry.group == group;
        let is_few = own.len() <= BLOCK_MAX && own.len() + compared <= COMPARED_MAX;
        if !is_few || !inner.iter().all(has_group) {
            return None;
        }
        if own.is_empty() {
            return Some(self.value(outer));
        }
        let mut filters = self.filters[own.clone()].to_vec();
        let is_short = self.entries[outer].is_short();
        if is_short {
            filters.extend(&self.listed[listed.clone()]);
        }
        sort_and_thin(&mut filters);
        let linked = if is_short { 0 } else { compared };
        let address = self.prefix(&self.filters[own.start]).address();
        self.most.look(filters.len() + linked, address);
        let linked = if is_short { EMPTY } else { self.list(outer) };
        Some(DoorValue::new(group, self.maker.add(&filters, linked)).0)
    }
}

/// Makes the lists of one door for addresses, some of which have groups.
pub(crate) fn address_lists<A: IpAddress>(
    filters: Vec<RuleFilter<A>>,
    groups: &[(Prefix<A>, u8)],
    maker: &mut ListMaker<A>,
    door: AddressDoor<A>,
) -> Result<(PrefixTrie<A>, Most<A>), TooManyFilters> {
    let most = Most { compared: 0, at: Prefix::all().address() };
    let (listed, entries) = (Vec::new(), Vec::new());
    let mut lists = PrefixLists { door, filters, listed, entries, maker, most };
    let mut filters = std::mem::take(&mut lists.filters);
    filters.sort_by_cached_key(|filter| lists.prefix(filter));
    lists.filters = filters;
    let mut groups = groups.to_vec();
    groups.sort_unstable_by_key(|&(prefix, _)| prefix);
    let (mut prefixes, mut outers) = (Vec::new(), Vec::<usize>::new());
    let (mut place, mut groups) = (0, groups.as_slice());
    let mut next = Some(Prefix::all());
    while let Some(prefix) = next {
        while outers.pop_if(|&mut outer| !covers(&prefixes, outer, &prefix)).is_some() {}
        let is_own = |filter: &&RuleFilter<A>| lists.prefix(filter) == prefix;
        let own = place..place + lists.filters[place..].iter().take_while(is_own).count();
        let mut group = None;
        while let Some((&(_, own_group), rest)) =
            groups.split_first().filter(|((other, _), _)| *other == prefix)
        {
            (group, groups) = (Some(own_group), rest);
        }
        place = own.end;
        lists.add(prefix, own, group, outers.last().copied())?;
        outers.push(prefixes.len());
        prefixes.push(prefix);
        let filter = lists.filters.get(place).map(|filter| lists.prefix(filter));
        let group = groups.first().map(|&(prefix, _)| prefix);
        next = filter.into_iter().chain(group).min();
    }
    let trie = PrefixTrie::new(&prefixes, &mut lists);
    Ok((trie, lists.most))
}

fn covers<A: IpAddress>(prefixes: &[Prefix<A>], outer: usize, inner: &Prefix<A>) -> bool {
    prefixes[outer].covers(inner)
}
