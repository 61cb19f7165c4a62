//! Computes the steps from the present routes to the wanted ones.
//!
//! Every announcement precedes every withdrawal: a prefix that stays always has a route, even while
//! its metric changes, because routes of different metrics are different routes.

use crate::route::Route;

/// One change of a kernel table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteStep {
    /// Adds a route whose key is not present.
    Announce(Route),
    /// Changes the next hop of a prefix and metric that are present: one change in place, without a
    /// gap.
    Replace(Route),
    /// Removes a route.
    Withdraw(Route),
}

impl RouteStep {
    /// Returns the route that the step adds, changes or removes.
    pub fn route(&self) -> Route {
        match self {
            RouteStep::Announce(route) | RouteStep::Replace(route) | RouteStep::Withdraw(route) => {
                *route
            }
        }
    }
}

/// Returns the steps from `from` to `to`. Both are sorted, and no two routes in one list have the
/// same key.
pub fn difference(from: &[Route], to: &[Route]) -> Vec<RouteStep> {
    debug_assert!(is_ordered(from) && is_ordered(to));
    let find = |routes: &[Route], route: &Route| {
        routes.binary_search_by_key(&route.key(), Route::key).ok().map(|at| routes[at])
    };
    let come = to.iter().filter_map(|route| match find(from, route) {
        None => Some(RouteStep::Announce(*route)),
        Some(old) => (old != *route).then_some(RouteStep::Replace(*route)),
    });
    let go = from
        .iter()
        .filter(|route| find(to, route).is_none())
        .map(|route| RouteStep::Withdraw(*route));
    come.chain(go).collect()
}

/// Returns the same routes as routes of last resort, sorted.
pub fn last_resort(routes: &[Route]) -> Vec<Route> {
    let mut last: Vec<Route> = routes.iter().copied().map(Route::last_resort).collect();
    last.sort_unstable();
    last.dedup_by_key(|route| route.key());
    last
}

/// True if the routes are sorted and no key occurs twice.
pub fn is_ordered(routes: &[Route]) -> bool {
    routes.is_sorted_by(|one, next| one.key() < next.key())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::IpNet;

    use super::*;
    use crate::route::RouteSide;

    /// Makes a route to one of few prefixes; every second one is an IPv6 prefix.
    fn toward(prefix: u8, next_hop: u8) -> Route {
        let (address, len, next_hop) = if prefix.is_multiple_of(2) {
            let address = Ipv4Addr::new(203, 0, prefix, 0);
            (address.into(), 24, Ipv4Addr::new(10, 9, 0, next_hop).into())
        } else {
            let address = |high, low: u8| Ipv6Addr::new(high, 0xdb8, 0, 0, 0, 0, 0, low.into());
            (address(0x2000 + u16::from(prefix), 0).into(), 32, address(0xfd09, next_hop).into())
        };
        let prefix = IpNet::new(address, len).unwrap();
        Route { side: RouteSide::Access, prefix, metric: 1, next_hop }
    }

    /// Makes routes of few prefixes, metrics and next hops, so that two lists often share keys.
    fn routes(picks: &[(bool, u8, u8, u8)]) -> Vec<Route> {
        let by_key: BTreeMap<_, _> = picks
            .iter()
            .map(|&(is_access, prefix, metric, next_hop)| Route {
                side: if is_access { RouteSide::Access } else { RouteSide::Internet },
                metric: (1 << 31) + u32::from(metric % 4),
                ..toward(prefix % 8, next_hop % 3)
            })
            .map(|route| (route.key(), route))
            .collect();
        by_key.into_values().collect()
    }

    #[test]
    fn steps_reach_the_target_and_no_kept_prefix_is_ever_without_a_route() {
        type Picks = Vec<(bool, u8, u8, u8)>;
        bolero::check!().with_type::<(Picks, Picks)>().for_each(|(from, to)| {
            let (from, to) = (routes(from), routes(to));
            let mut kernel: BTreeMap<_, _> =
                from.iter().map(|route| (route.key(), *route)).collect();
            let is_reached = |kernel: &BTreeMap<(RouteSide, IpNet, u32), Route>, route: &Route| {
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
                    RouteStep::Announce(route) => {
                        assert!(!has_withdrawn);
                        assert_eq!(kernel.insert(route.key(), route), None);
                    }
                    RouteStep::Replace(route) => {
                        assert!(!has_withdrawn);
                        assert_ne!(kernel.insert(route.key(), route), None);
                    }
                    RouteStep::Withdraw(route) => {
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
