//! The next hop of each prefix on a switch over time, and when the prefixes of a node moved to
//! another node. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::load::Micros;

/// A route that a switch set or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// Time of the change.
    pub at: Micros,
    /// Destination prefix.
    pub prefix: IpNet,
    /// The worker that is the next hop. None: the route is gone.
    pub next_hop: Option<IpAddr>,
}

/// The routes of a switch, with all remembered changes.
#[derive(Clone, Debug, Default)]
pub struct RouteHistory {
    before: BTreeMap<IpNet, IpAddr>,
    /// Changes in order of time.
    changes: Vec<RouteChange>,
}

/// The fate of the routes that a node had at a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departures {
    /// Routes to the node at the fault.
    pub routes: usize,
    /// Routes of these that moved to another node.
    pub left: usize,
    /// Time from the fault until the last of them moved.
    pub last: Option<Micros>,
}

impl RouteHistory {
    /// Adds a change, which must be later than all others.
    pub fn push(&mut self, change: RouteChange) {
        self.changes.push(change);
    }

    /// Returns the fate of the routes to `next_hop`; each counts until it first moves to another
    /// next hop.
    pub fn departures(&self, next_hop: IpAddr, fault: Micros) -> Departures {
        let mut held = self.before.clone();
        let mut changes = self.changes.iter().peekable();
        while let Some(change) = changes.next_if(|change| change.at < fault) {
            apply(&mut held, change);
        }
        held.retain(|_, hop| *hop == next_hop);
        let mut seen = Departures { routes: held.len(), ..Departures::default() };
        for change in changes {
            let goes_elsewhere = change.next_hop.is_some_and(|hop| hop != next_hop);
            if goes_elsewhere && held.remove(&change.prefix).is_some() {
                seen.left += 1;
                seen.last = Some(change.at - fault);
            }
        }
        seen
    }

    /// Applies the changes before `time` to the starting state, and forgets them.
    pub fn forget_before(&mut self, time: Micros) {
        let kept = self.changes.partition_point(|change| change.at < time);
        for change in self.changes.drain(..kept) {
            apply(&mut self.before, &change);
        }
    }
}

impl Departures {
    /// Returns the sum over two switches.
    pub fn and(self, other: Self) -> Self {
        Self {
            routes: self.routes + other.routes,
            left: self.left + other.left,
            last: self.last.max(other.last),
        }
    }
}

fn apply(routes: &mut BTreeMap<IpNet, IpAddr>, change: &RouteChange) {
    match change.next_hop {
        Some(next_hop) => routes.insert(change.prefix, next_hop),
        None => routes.remove(&change.prefix),
    };
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const VICTIM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 10));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 20));

    fn history(changes: &[(Micros, u8, Option<IpAddr>)]) -> RouteHistory {
        let mut history = RouteHistory::default();
        for &(at, last, next_hop) in changes {
            let prefix = IpAddr::from(Ipv4Addr::new(10, 100, 0, last)).into();
            history.push(RouteChange { at, prefix, next_hop });
        }
        history
    }

    #[test]
    fn last_departure_is_the_last_route_to_leave_for_the_first_time() {
        let mut history = history(&[
            (1, 1, Some(VICTIM)),
            (2, 2, Some(VICTIM)),
            (3, 3, Some(OTHER)),
            (4, 4, Some(VICTIM)),
            (5, 4, Some(OTHER)),
            // The fault: route 1 vanishes before it moves elsewhere; route 2 moves elsewhere, back,
            // and elsewhere again.
            (20, 1, None),
            (22, 2, Some(OTHER)),
            (31, 1, Some(OTHER)),
            (40, 2, Some(VICTIM)),
            (50, 2, Some(OTHER)),
        ]);
        let expected = Departures { routes: 2, left: 2, last: Some(21) };
        assert_eq!(history.departures(VICTIM, 10), expected);
        history.forget_before(10);
        assert_eq!(history.departures(VICTIM, 10), expected);
        history.forget_before(45);
        let expected = Departures { routes: 1, left: 1, last: Some(2) };
        assert_eq!(history.departures(VICTIM, 48), expected);
    }

    #[test]
    fn routes_that_stay_or_vanish_have_not_left() {
        let history = history(&[(1, 1, Some(VICTIM)), (2, 2, Some(VICTIM)), (20, 2, None)]);
        let expected = Departures { routes: 2, left: 0, last: None };
        assert_eq!(history.departures(VICTIM, 10), expected);
        assert_eq!(history.departures(OTHER, 10), Departures::default());
        let other = Departures { routes: 3, left: 3, last: Some(7) };
        assert_eq!(expected.and(other), Departures { routes: 5, left: 3, last: Some(7) });
    }
}
