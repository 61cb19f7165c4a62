//! What is wanted, what the kernel holds and what BIRD exports, side by side.
//!
//! Invariant: each route that any of the three has stands in exactly one line. Of the routes of one prefix those stand
//! together that are the same, else those that have the next hop in common, else what is left. It asks nobody:
//! [`dump`](crate::dump) and [`bird::exported`](crate::bird::exported) do.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::bird::ExportedRoute;
use crate::route::{Route, Side};
use crate::route_socket::KernelRoute;

/// Where a route leads and what it costs, as the kernel or BIRD has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `None`: it has none of its own.
    pub next_hop: Option<Ipv4Addr>,
    /// Linux metric or MED; `None`: it has none.
    pub metric: Option<u32>,
}

/// One prefix of one side, and the routes to it that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Whose switch it is for.
    pub side: Side,
    /// Where to.
    pub prefix: Ipv4Net,
    /// As the node wants it; `None`: it does not.
    pub wanted: Option<Route>,
    /// As the kernel has it; `None`: it does not.
    pub kernel: Option<Seen>,
    /// As BIRD exports it; `None`: it does not, or did not tell.
    pub exported: Option<Seen>,
    /// What is not as wanted; empty if all is.
    pub differences: Vec<Difference>,
}

/// How a line is not as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Wanted, and the kernel has no route to the prefix that is left for it.
    MissingInKernel,
    /// The kernel has another next hop.
    KernelNextHop,
    /// The kernel has another metric.
    KernelMetric,
    /// Wanted, and BIRD does not tell the switch.
    NotExported,
    /// BIRD tells the switch another next hop.
    ExportedNextHop,
    /// BIRD tells the switch another metric.
    ExportedMetric,
    /// The kernel or BIRD has a route that the node does not want.
    NotWanted,
}

impl Difference {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::MissingInKernel => "missing in the kernel",
            Self::KernelNextHop => "next hop differs in the kernel",
            Self::KernelMetric => "metric differs in the kernel",
            Self::NotExported => "not exported",
            Self::ExportedNextHop => "next hop differs as exported",
            Self::ExportedMetric => "metric differs as exported",
            Self::NotWanted => "nobody wants it",
        }
    }
}

/// What one side has.
#[derive(Clone, Copy, Debug)]
pub struct SideRoutes<'a> {
    /// The side.
    pub side: Side,
    /// The side's kernel table.
    pub kernel: &'a [KernelRoute],
    /// What BIRD exports to the side's switch; `None`: it did not tell.
    pub exported: Option<&'a [ExportedRoute]>,
}

/// Lines of one prefix.
type Group = Vec<Line>;

/// All routes of a side, by prefix. Of `wanted` those of the other side are left out.
pub fn compare(wanted: &[Route], seen: SideRoutes<'_>) -> Vec<Line> {
    let side = seen.side;
    let mut groups: BTreeMap<Ipv4Net, Group> = BTreeMap::new();
    for route in wanted.iter().filter(|route| route.side == side) {
        let line = Line { wanted: Some(*route), ..line(side, route.prefix) };
        groups.entry(route.prefix).or_default().push(line);
    }
    let kernel = seen.kernel.iter().map(|route| {
        let KernelRoute { prefix, metric, next_hop, .. } = *route;
        (prefix, Seen { next_hop, metric: Some(metric) })
    });
    for (prefix, routes) in by_prefix(kernel) {
        enter(
            groups.entry(prefix).or_default(),
            routes,
            |line| &mut line.kernel,
            line(side, prefix),
        );
    }
    let exported = seen.exported.unwrap_or_default().iter();
    let exported =
        exported.map(|route| (route.prefix, Seen { next_hop: route.next_hop, metric: route.med }));
    for (prefix, routes) in by_prefix(exported) {
        enter(
            groups.entry(prefix).or_default(),
            routes,
            |line| &mut line.exported,
            line(side, prefix),
        );
    }
    for group in groups.values_mut() {
        let best = group.iter().filter_map(|line| line.exported?.metric).min();
        for line in group {
            // BGP tells its best route of a prefix only: a worse one of another worker here waits behind it.
            let is_behind = line.wanted.zip(best).is_some_and(|(it, best)| best < it.metric);
            line.differences = differences(line, seen.exported.is_some() && !is_behind);
        }
    }
    groups.into_values().flatten().collect()
}

fn line(side: Side, prefix: Ipv4Net) -> Line {
    Line { side, prefix, wanted: None, kernel: None, exported: None, differences: Vec::new() }
}

fn by_prefix(routes: impl Iterator<Item = (Ipv4Net, Seen)>) -> BTreeMap<Ipv4Net, Vec<Seen>> {
    let mut sorted: BTreeMap<Ipv4Net, Vec<Seen>> = BTreeMap::new();
    routes.for_each(|(prefix, seen)| sorted.entry(prefix).or_default().push(seen));
    sorted
}

/// Puts each of `routes` into the line it belongs to, or into a new one.
fn enter(
    group: &mut Group,
    mut routes: Vec<Seen>,
    place: fn(&mut Line) -> &mut Option<Seen>,
    empty: Line,
) {
    let fits: [fn(Seen, Seen) -> bool; 3] =
        [|one, other| one == other, |one, other| one.next_hop == other.next_hop, |_, _| true];
    for fit in fits {
        routes.retain(|route| {
            let free = group.iter_mut().find_map(|line| {
                let is_like = line.expected().is_some_and(|it| fit(it, *route));
                Some(place(line)).filter(|it| is_like && it.is_none())
            });
            match free {
                Some(free) => {
                    *free = Some(*route);
                    false
                }
                None => true,
            }
        });
    }
    for route in routes {
        let mut line = empty.clone();
        *place(&mut line) = Some(route);
        group.push(line);
    }
}

impl Line {
    /// What else is to be like: what is wanted, or if nothing is, what the kernel has.
    fn expected(&self) -> Option<Seen> {
        let wanted = self
            .wanted
            .map(|route| Seen { next_hop: Some(route.next_hop), metric: Some(route.metric) });
        wanted.or(self.kernel)
    }
}

fn differences(line: &Line, is_export_due: bool) -> Vec<Difference> {
    let Some(route) = line.wanted else { return vec![Difference::NotWanted] };
    let mut found = Vec::new();
    match line.kernel {
        None => found.push(Difference::MissingInKernel),
        Some(seen) => compare_one(
            route,
            seen,
            [Difference::KernelNextHop, Difference::KernelMetric],
            &mut found,
        ),
    }
    match line.exported {
        None if is_export_due => found.push(Difference::NotExported),
        None => {}
        Some(seen) => compare_one(
            route,
            seen,
            [Difference::ExportedNextHop, Difference::ExportedMetric],
            &mut found,
        ),
    }
    found
}

fn compare_one(
    route: Route,
    seen: Seen,
    [next_hop, metric]: [Difference; 2],
    found: &mut Vec<Difference>,
) {
    found.extend((seen.next_hop != Some(route.next_hop)).then_some(next_hop));
    found.extend((seen.metric != Some(route.metric)).then_some(metric));
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;
