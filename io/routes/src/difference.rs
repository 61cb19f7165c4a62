//! From the routes that are there to the routes that shall be, step by step.
//!
//! Every announcement comes before every withdrawal: a prefix that stays is never without a route, also while its
//! metric changes, because routes of different metric are different routes.

use crate::route::Route;

/// One change of a kernel table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A route that is not there yet.
    Announce(Route),
    /// Another next hop for a prefix and metric that is there: one change in place, without a gap.
    Replace(Route),
    /// A route that shall go.
    Withdraw(Route),
}

impl Step {
    /// The route it is about.
    pub fn route(&self) -> Route {
        match self {
            Step::Announce(route) | Step::Replace(route) | Step::Withdraw(route) => *route,
        }
    }
}

/// The steps from `from` to `to`. Both are sorted, and no two routes of one have the same key.
pub fn difference(from: &[Route], to: &[Route]) -> Vec<Step> {
    debug_assert!(is_ordered(from) && is_ordered(to));
    let find = |routes: &[Route], route: &Route| {
        routes.binary_search_by_key(&route.key(), Route::key).ok().map(|at| routes[at])
    };
    let come = to.iter().filter_map(|route| match find(from, route) {
        None => Some(Step::Announce(*route)),
        Some(old) => (old != *route).then_some(Step::Replace(*route)),
    });
    let go =
        from.iter().filter(|route| find(to, route).is_none()).map(|route| Step::Withdraw(*route));
    come.chain(go).collect()
}

/// The same routes as a last resort, in order.
pub fn last_resort(routes: &[Route]) -> Vec<Route> {
    let mut last: Vec<Route> = routes.iter().copied().map(Route::last_resort).collect();
    last.sort_unstable();
    last.dedup_by_key(|route| route.key());
    last
}

/// Whether the routes are sorted and no key comes twice.
pub fn is_ordered(routes: &[Route]) -> bool {
    routes.is_sorted_by(|one, next| one.key() < next.key())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use ipnet::Ipv4Net;

    use super::*;
    use crate::route::Side;

    /// Few prefixes, metrics and next hops, so that lists meet often.
    fn routes(picks: &[(bool, u8, u8, u8)]) -> Vec<Route> {
        let by_key: BTreeMap<_, _> = picks
            .iter()
            .map(|(is_access, prefix, metric, next_hop)| Route {
                side: if *is_access { Side::Access } else { Side::Internet },
                prefix: Ipv4Net::new(Ipv4Addr::new(203, 0, prefix % 8, 0), 24).unwrap(),
                metric: (1 << 31) + u32::from(metric % 4),
                next_hop: Ipv4Addr::new(10, 9, 0, next_hop % 3),
            })
            .map(|route| (route.key(), route))
            .collect();
        by_key.into_values().collect()
    }

    #[test]
    fn the_steps_lead_there_and_no_prefix_that_stays_is_ever_without_a_route() {
        type Picks = Vec<(bool, u8, u8, u8)>;
        bolero::check!().with_type::<(Picks, Picks)>().for_each(|(from, to)| {
            let (from, to) = (routes(from), routes(to));
            let mut kernel: BTreeMap<_, _> =
                from.iter().map(|route| (route.key(), *route)).collect();
            let is_reached = |kernel: &BTreeMap<(Side, Ipv4Net, u32), Route>, route: &Route| {
                kernel
                    .keys()
                    .any(|(side, prefix, _)| (*side, *prefix) == (route.side, route.prefix))
            };
            let stays: Vec<Route> = from
                .iter()
                .filter(|old| to.iter().any(|new| (new.side, new.prefix) == (old.side, old.prefix)))
                .copied()
                .collect();
            let mut has_withdrawn = false;
            for step in difference(&from, &to) {
                match step {
                    Step::Announce(route) => {
                        assert!(!has_withdrawn);
                        assert_eq!(kernel.insert(route.key(), route), None);
                    }
                    Step::Replace(route) => {
                        assert!(!has_withdrawn);
                        assert_ne!(kernel.insert(route.key(), route), None);
                    }
                    Step::Withdraw(route) => {
                        has_withdrawn = true;
                        assert_eq!(kernel.remove(&route.key()), Some(route));
                    }
                }
                assert!(stays.iter().all(|route| is_reached(&kernel, route)));
            }
            assert_eq!(kernel.into_values().collect::<Vec<_>>(), to);
        });
    }

    #[test]
    fn equal_lists_need_no_step() {
        let same = routes(&[(true, 1, 2, 3), (false, 1, 2, 3)]);
        assert_eq!(difference(&same, &same), []);
    }
}
