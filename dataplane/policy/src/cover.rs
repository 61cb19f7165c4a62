//! Rules that are never reached in a family, because earlier rules fit all that they fit of it.
//!
//! A filter is covered if one filter of an earlier rule fits all its flows: that filter's prefixes
//! are among the prefixes that contain this one's, so a look-up for each pair of lengths that
//! occurs finds it. That several filters cover one only together is not seen.

use std::collections::{BTreeSet, HashMap};

use weir_rules::{IpAddress, PortRange, Prefix, RuleFilter};

/// Most look-ups and comparisons: about a second.
const STEPS_MAX: u64 = 20_000_000;

/// A rule that is never reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoveredRule {
    pub(crate) rule: u32,
    /// The earlier rules that fit its flows, in order.
    pub(crate) by: Vec<u32>,
}

/// What the search has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoveredRules {
    pub(crate) rules: Vec<CoveredRule>,
    /// The first rule that was not looked at, if the search took too long.
    pub(crate) ended_before: Option<u32>,
}

/// The remote port of filters that are about one alone.
type OnePort = Option<u16>;

/// What a covering filter is looked up by.
#[derive(PartialEq, Eq, Hash)]
struct FilterPlace<A> {
    local: Prefix<A>,
    remote: Prefix<A>,
    port: OnePort,
}

struct EarlierFilters<A> {
    by_place: HashMap<FilterPlace<A>, Vec<RuleFilter<A>>>,
    /// The lengths of the prefixes that occur, with whether the filters are about one port.
    shapes: BTreeSet<(u8, u8, bool)>,
    steps: u64,
}

fn one_port(ports: PortRange) -> OnePort {
    (ports.first == ports.last).then_some(ports.first)
}

impl<A: IpAddress> EarlierFilters<A> {
    fn new() -> Self {
        Self { by_place: HashMap::new(), shapes: BTreeSet::new(), steps: 0 }
    }

    fn insert(&mut self, filter: &RuleFilter<A>) {
        let port = one_port(filter.remote_ports);
        self.shapes.insert((filter.local.bits(), filter.remote.bits(), port.is_some()));
        let place = FilterPlace { local: filter.local, remote: filter.remote, port };
        self.by_place.entry(place).or_default().push(*filter);
        self.steps += 1;
    }

    /// Returns the rule of a filter that covers this one.
    fn covering(&mut self, filter: &RuleFilter<A>) -> Option<u32> {
        let port = one_port(filter.remote_ports);
        for &(local, remote, is_one_port) in &self.shapes {
            let may_cover = local <= filter.local.bits()
                && remote <= filter.remote.bits()
                && (port.is_some() || !is_one_port);
            if !may_cover {
                continue;
            }
            let local = Prefix::new(filter.local.address(), local);
            let remote = Prefix::new(filter.remote.address(), remote);
            let place = FilterPlace { local, remote, port: port.filter(|_| is_one_port) };
            self.steps += 1;
            for earlier in self.by_place.get(&place).into_iter().flatten() {
                self.steps += 1;
                if earlier.covers(filter) {
                    return Some(earlier.rule);
                }
            }
        }
        None
    }
}

/// Finds the rules that are never reached, of those with filters in this family. `filters` are in
/// the order of their rules.
pub(crate) fn covered_rules<A: IpAddress>(filters: &[RuleFilter<A>]) -> CoveredRules {
    find(filters, STEPS_MAX)
}

fn find<A: IpAddress>(filters: &[RuleFilter<A>], steps_max: u64) -> CoveredRules {
    let mut earlier = EarlierFilters::new();
    let mut found = CoveredRules::default();
    for of_rule in filters.chunk_by(|one, next| one.rule == next.rule) {
        let rule = of_rule[0].rule;
        let mut by = BTreeSet::new();
        let mut is_covered = true;
        for filter in of_rule {
            if earlier.steps > steps_max {
                found.ended_before = Some(rule);
                return found;
            }
            match earlier.covering(filter) {
                Some(other) => drop(by.insert(other)),
                None => {
                    is_covered = false;
                    break;
                }
            }
        }
        match is_covered {
            true => found.rules.push(CoveredRule { rule, by: by.into_iter().collect() }),
            // What a covered rule covers, others cover already.
            false => of_rule.iter().for_each(|filter| earlier.insert(filter)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use weir_rules::{FlowKind, FlowKinds};

    use super::*;

    fn random(rule: u32, rng: &mut Rng) -> RuleFilter<u32> {
        let prefix = |rng: &mut Rng| match rng.u8(0..4) {
            0 => Prefix::all(),
            1 => Prefix::new(0x0a00_0000 | rng.u32(0..4) << 8, 24),
            _ => Prefix::new(0x0a00_0000 | rng.u32(0..1024), rng.u8(22..=32)),
        };
        let ports = |rng: &mut Rng| match rng.u8(0..3) {
            0 => PortRange::ALL,
            1 => PortRange { first: 25, last: 25 },
            _ => PortRange { first: rng.u16(20..30), last: rng.u16(30..40) },
        };
        let (local, remote) = (prefix(rng), prefix(rng));
        let (local_ports, remote_ports) = (PortRange::ALL, ports(rng));
        let kinds = match rng.bool() {
            true => FlowKinds::ALL,
            false => FlowKind::all().filter(|_| rng.bool()).collect(),
        };
        let groups = if rng.bool() { u16::MAX } else { rng.u16(..) };
        RuleFilter { rule, kinds, groups, local, remote, local_ports, remote_ports }
    }

    #[test]
    fn covered_rules_are_those_that_a_search_of_all_pairs_finds() {
        let mut covered = 0;
        for seed in 0..300 {
            let rng = &mut Rng::with_seed(seed);
            let mut filters = Vec::new();
            for rule in 0..rng.u32(1..60) {
                (0..rng.u8(1..3)).for_each(|_| filters.push(random(rule, rng)));
            }
            let is_covered = |filter: &RuleFilter<u32>| {
                filters.iter().any(|it| it.rule < filter.rule && it.covers(filter))
            };
            let chunks = filters.chunk_by(|one, next| one.rule == next.rule);
            let expected: Vec<u32> = chunks
                .filter(|of_rule| of_rule.iter().all(is_covered))
                .map(|of_rule| of_rule[0].rule)
                .collect();
            let found = covered_rules(&filters);
            assert_eq!(
                found.rules.iter().map(|it| it.rule).collect::<Vec<_>>(),
                expected,
                "{seed}"
            );
            assert!(found.rules.iter().all(|it| it.by.iter().all(|by| *by < it.rule)));
            covered += expected.len();
        }
        assert!(covered > 300, "{covered} rules are covered");
    }

    #[test]
    fn search_that_takes_too_long_says_where_it_ended() {
        let filters: Vec<_> = (0..100).map(|rule| random(rule, &mut Rng::with_seed(7))).collect();
        let found = find(&filters, 50);
        assert!(found.ended_before.is_some_and(|rule| rule > 0), "{found:?}");
    }
}
