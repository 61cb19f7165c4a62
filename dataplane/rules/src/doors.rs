//! Which filters go through which door, and the lists behind it.

use std::collections::HashMap;

use crate::address::{IpAddress, Prefix};
use crate::filter::{PortRange, RuleFilter};
use crate::lists::{EMPTY, ListMaker, ListStart, sort_and_thin};
use crate::ports::{PORTS, PortLists};
use crate::trie::PrefixTrie;

/// Longest list that is copied into those of the prefixes inside; a longer one is linked to.
const COPIED_MAX: usize = 8;

/// Most filters that may be compared behind one door.
pub(crate) const COMPARED_MAX: usize = 64;

/// Filters of a list that are looked at before it is refused.
const THINNED_MAX: usize = 4096;

/// More filters may have to be compared than a packet has time for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} filters may have to be compared for one packet, at most {COMPARED_MAX}: \
     they agree on {place}"
)]
pub struct TooManyFilters {
    /// What the filters have in common.
    pub place: String,
    pub count: usize,
    /// The rules that they belong to, from the lowest number on.
    pub rules: Vec<u32>,
}

impl TooManyFilters {
    fn new<A>(place: String, count: usize, filters: &[RuleFilter<A>]) -> Self {
        let mut rules: Vec<u32> = filters.iter().map(|filter| filter.rule).collect();
        rules.dedup();
        Self { place, count, rules }
    }
}

/// Filters, by the door that each goes through.
#[derive(Debug)]
pub(crate) struct ByDoor<A> {
    pub(crate) remote: Vec<RuleFilter<A>>,
    pub(crate) local: Vec<RuleFilter<A>>,
    pub(crate) remote_port: Vec<RuleFilter<A>>,
    pub(crate) local_port: Vec<RuleFilter<A>>,
}

/// How many filters share what each of them looks at.
struct Crowds<A> {
    remote: HashMap<Prefix<A>, usize>,
    local: HashMap<Prefix<A>, usize>,
    remote_ports: HashMap<PortRange, usize>,
    local_ports: HashMap<PortRange, usize>,
}

fn count<K: Eq + std::hash::Hash>(keys: impl Iterator<Item = K>) -> HashMap<K, usize> {
    let mut counts = HashMap::new();
    keys.for_each(|key| *counts.entry(key).or_insert(0) += 1);
    counts
}

impl<A: IpAddress> ByDoor<A> {
    /// Sends each filter through the door at which it meets the fewest others.
    pub(crate) fn new(filters: &[RuleFilter<A>]) -> Self {
        let crowds = Crowds {
            remote: count(filters.iter().map(|filter| filter.remote)),
            local: count(filters.iter().map(|filter| filter.local)),
            remote_ports: count(filters.iter().map(|filter| filter.remote_ports)),
            local_ports: count(filters.iter().map(|filter| filter.local_ports)),
        };
        let mut by_door =
            Self { remote: vec![], local: vec![], remote_port: vec![], local_port: vec![] };
        for filter in filters {
            let doors = [
                (!filter.remote.is_all()).then(|| crowds.remote[&filter.remote]),
                (!filter.local.is_all()).then(|| crowds.local[&filter.local]),
                (filter.remote_ports != PortRange::ALL)
                    .then(|| crowds.remote_ports[&filter.remote_ports]),
                (filter.local_ports != PortRange::ALL)
                    .then(|| crowds.local_ports[&filter.local_ports]),
            ];
            // A filter that looks at nothing of these is in each list of the remote ports.
            let best = (0..doors.len()).min_by_key(|&door| doors[door].unwrap_or(usize::MAX));
            match best.filter(|&door| doors[door].is_some()) {
                Some(0) => by_door.remote.push(*filter),
                Some(1) => by_door.local.push(*filter),
                Some(3) => by_door.local_port.push(*filter),
                _ => by_door.remote_port.push(*filter),
            }
        }
        by_door
    }
}

/// Most filters that are compared for one address or port, and the first with so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most<K> {
    pub(crate) compared: usize,
    pub(crate) at: K,
}

impl<K> Most<K> {
    fn look(&mut self, compared: usize, at: K) {
        if compared > self.compared {
            *self = Self { compared, at };
        }
    }
}

/// A prefix whose list is made, on the way to those inside it.
struct OuterPrefix<A> {
    prefix: Prefix<A>,
    /// All filters of its addresses, if they may be copied.
    copied: Option<Vec<RuleFilter<A>>>,
    list: ListStart,
    compared: usize,
}

/// Makes the lists of one door for addresses. `prefix_mut` returns what the door decides.
pub(crate) fn address_lists<A: IpAddress>(
    filters: Vec<RuleFilter<A>>,
    maker: &mut ListMaker<A>,
    door: &str,
    prefix_mut: impl Fn(&mut RuleFilter<A>) -> &mut Prefix<A>,
) -> Result<(PrefixTrie, Most<A>), TooManyFilters> {
    let mut by_prefix: Vec<(Prefix<A>, RuleFilter<A>)> = filters
        .into_iter()
        .map(|mut filter| {
            let prefix = std::mem::replace(prefix_mut(&mut filter), Prefix::all());
            (prefix, filter)
        })
        .collect();
    by_prefix.sort_by_key(|&(prefix, _)| prefix);
    let mut entries = Vec::new();
    let mut outers: Vec<OuterPrefix<A>> = Vec::new();
    let mut most = Most { compared: 0, at: Prefix::all().address() };
    for group in by_prefix.chunk_by(|a, b| a.0 == b.0) {
        let prefix = group[0].0;
        outers.retain(|outer| outer.prefix.covers(&prefix));
        let mut filters: Vec<RuleFilter<A>> = group.iter().map(|&(_, filter)| filter).collect();
        let place = || format!("the {door} {prefix}");
        let (mut linked, mut compared) = (EMPTY, 0);
        match outers.last() {
            Some(OuterPrefix { copied: Some(outer), .. }) => filters.extend(outer),
            Some(outer) => (linked, compared) = (outer.list, outer.compared),
            None => {}
        }
        if filters.len() > THINNED_MAX {
            return Err(TooManyFilters::new(place(), filters.len(), &filters[..COMPARED_MAX]));
        }
        sort_and_thin(&mut filters);
        compared += filters.len();
        if compared > COMPARED_MAX {
            return Err(TooManyFilters::new(place(), compared, &filters));
        }
        most.look(compared, prefix.address());
        let list = maker.add(&filters, linked);
        entries.push((prefix, list));
        let copied = (linked == EMPTY && filters.len() <= COPIED_MAX).then_some(filters);
        outers.push(OuterPrefix { prefix, copied, list, compared });
    }
    Ok((PrefixTrie::new(entries, EMPTY), most))
}

/// Makes the lists of one door for ports. `ports_mut` returns what the door decides.
pub(crate) fn port_lists<A: IpAddress>(
    filters: &[RuleFilter<A>],
    maker: &mut ListMaker<A>,
    door: &str,
    ports_mut: impl Fn(&mut RuleFilter<A>) -> &mut PortRange,
) -> Result<(PortLists, Most<u16>), TooManyFilters> {
    // Where filters begin and end, by port.
    let mut changes: Vec<(usize, bool, usize)> = Vec::new();
    let mut widened = Vec::with_capacity(filters.len());
    for (number, filter) in filters.iter().enumerate() {
        let mut filter = *filter;
        let ports = std::mem::replace(ports_mut(&mut filter), PortRange::ALL);
        changes.push((usize::from(ports.first), true, number));
        changes.push((usize::from(ports.last) + 1, false, number));
        widened.push(filter);
    }
    changes.sort_unstable();
    let mut active = std::collections::BTreeSet::new();
    let (mut ranges, mut most) = (Vec::new(), Most { compared: 0, at: 0 });
    let mut changes = changes.as_slice();
    let mut first = 0;
    while first < PORTS {
        while let [(at, begins, number), rest @ ..] = changes
            && *at <= first
        {
            if *begins {
                active.insert(*number)
            } else {
                active.remove(number)
            };
            changes = rest;
        }
        let end = changes.first().map_or(PORTS, |&(at, ..)| at);
        let mut list: Vec<RuleFilter<A>> = active.iter().map(|&number| widened[number]).collect();
        if list.len() <= THINNED_MAX {
            sort_and_thin(&mut list);
        }
        if list.len() > COMPARED_MAX {
            let place = format!("the {door} {first}");
            let count = list.len();
            list.truncate(COMPARED_MAX);
            return Err(TooManyFilters::new(place, count, &list));
        }
        most.look(list.len(), first as u16);
        ranges.push(((end - 1) as u16, maker.add(&list, EMPTY)));
        first = end;
    }
    Ok((PortLists::new(&ranges), most))
}
