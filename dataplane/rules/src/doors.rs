//! Which filters go through which door, and the lists behind it.

use std::collections::HashMap;
use std::hash::Hash;

use crate::address::{IpAddress, Prefix};
use crate::filter::{PortRange, RuleFilter};
use crate::lists::{EMPTY, ListMaker, sort_and_thin};
use crate::ports::{PORTS, PortLists};
use crate::wide_rules::WideRules;

/// Longest list that is copied into those of the prefixes inside; a longer one is linked to.
pub(crate) const COPIED_MAX: usize = 8;

/// Filters of an address that cost no more than one of a port.
const PORT_COST: usize = 4;

/// Most filters that may be compared behind one door.
pub(crate) const COMPARED_MAX: usize = 64;

/// Filters of a list that are looked at before it is refused.
pub(crate) const THINNED_MAX: usize = 4096;

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
    pub(crate) fn new<A>(place: String, count: usize, filters: &[RuleFilter<A>]) -> Self {
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
    pub(crate) wide: WideRules,
}

/// How many filters share what each of them looks at.
struct Crowds<A> {
    remote: HashMap<Prefix<A>, usize>,
    local: HashMap<Prefix<A>, usize>,
    remote_ports: HashMap<PortRange, usize>,
    local_ports: HashMap<PortRange, usize>,
}

/// Counts how many filters have each key; those without one are not counted.
fn count<A, K: Eq + Hash>(
    filters: &[RuleFilter<A>],
    key: impl Fn(&RuleFilter<A>) -> Option<K>,
) -> HashMap<K, usize> {
    let mut counts = HashMap::new();
    filters.iter().filter_map(key).for_each(|key| *counts.entry(key).or_insert(0) += 1);
    counts
}

fn crowd<K: Eq + Hash>(counts: &HashMap<K, usize>, key: Option<K>) -> usize {
    key.map_or(usize::MAX, |key| counts[&key])
}

fn asked_prefix<A: IpAddress>(prefix: Prefix<A>) -> Option<Prefix<A>> {
    (!prefix.is_all()).then_some(prefix)
}

fn asked_ports(ports: PortRange) -> Option<PortRange> {
    (ports != PortRange::ALL).then_some(ports)
}

impl<A: IpAddress> ByDoor<A> {
    /// Sends each filter through the door at which it meets the fewest others; filters that never
    /// decide through none.
    pub(crate) fn new(filters: &[RuleFilter<A>]) -> Self {
        let crowds = Crowds {
            remote: count(filters, |filter| asked_prefix(filter.remote)),
            local: count(filters, |filter| asked_prefix(filter.local)),
            remote_ports: count(filters, |filter| asked_ports(filter.remote_ports)),
            local_ports: count(filters, |filter| asked_ports(filter.local_ports)),
        };
        let wide = WideRules::new(filters.iter().filter(|filter| filter.is_wide()));
        let (remote, local, remote_port, local_port) = (vec![], vec![], vec![], vec![]);
        let mut by_door = Self { remote, local, remote_port, local_port, wide };
        let narrow = filters.iter().filter(|filter| !filter.is_wide());
        for filter in narrow.filter(|filter| !by_door.wide.cover(filter)) {
            let doors = [
                crowd(&crowds.remote, asked_prefix(filter.remote)),
                crowd(&crowds.local, asked_prefix(filter.local)),
                crowd(&crowds.remote_ports, asked_ports(filter.remote_ports)),
                crowd(&crowds.local_ports, asked_ports(filter.local_ports)),
            ];
            // A few filters more of an address cost less than one more door with lists.
            let cost =
                |&door: &usize| doors[door].saturating_add(if door < 2 { 0 } else { PORT_COST });
            match (0..doors.len()).min_by_key(cost) {
                Some(0) => by_door.remote.push(*filter),
                Some(1) => by_door.local.push(*filter),
                Some(2) => by_door.remote_port.push(*filter),
                _ => by_door.local_port.push(*filter),
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
    pub(crate) fn look(&mut self, compared: usize, at: K) {
        if compared > self.compared {
            *self = Self { compared, at };
        }
    }
}

/// Makes the lists of one door for ports. `ports_mut` returns what the door decides.
pub(crate) fn port_lists<A: IpAddress>(
    filters: &[RuleFilter<A>],
    maker: &mut ListMaker<A>,
    door: &str,
    ports_mut: impl Fn(&mut RuleFilter<A>) -> &mut PortRange,
) -> Result<(Option<PortLists>, Most<u16>), TooManyFilters> {
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
