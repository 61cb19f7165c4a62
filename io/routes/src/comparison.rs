//! Compares the wanted routes, the kernel's routes and the routes that BIRD exports.
//!
//! Invariant: each route that any of the three has is in exactly one line. The routes of one prefix
//! are put into one line if they are equal; of the rest, if they have the next hop in common; and
//! of the rest in any order. This module makes no queries: [`dump`](crate::dump) and
//! [`bird::exported`](crate::bird::exported) do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::bird::ExportedRoute;
use crate::route::{Route, RouteSide};
use crate::route_socket::KernelRoute;

/// Next hop and cost of a route, as the kernel or BIRD has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenRoute {
    /// Next hop; `None` if the route has none of its own.
    pub next_hop: Option<IpAddr>,
    /// Linux metric or MED; `None` if the route has none.
    pub metric: Option<u32>,
}

/// One prefix of one side, and the routes to it that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonLine {
    /// The side whose switch learns the route.
    pub side: RouteSide,
    /// Destination.
    pub prefix: IpNet,
    /// The route as the node wants it; `None` if it does not want one.
    pub wanted: Option<Route>,
    /// The route as the kernel has it; `None` if it has none.
    pub kernel: Option<SeenRoute>,
    /// The route as BIRD exports it; `None` if BIRD exports none, or its exports are not known.
    pub exported: Option<SeenRoute>,
    /// Deviations from the wanted route; empty if there are none.
    pub differences: Vec<Difference>,
}

/// A deviation of a line from the wanted route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// The route is wanted, and the kernel has no route to the prefix that is left to pair with it.
    MissingInKernel,
    /// The kernel has another next hop.
    KernelNextHop,
    /// The kernel has another metric.
    KernelMetric,
    /// The route is wanted, and BIRD does not export it to the switch.
    NotExported,
    /// BIRD exports another next hop to the switch.
    ExportedNextHop,
    /// BIRD exports another metric to the switch.
    ExportedMetric,
    /// The kernel or BIRD has a route that the node does not want.
    NotWanted,
}

impl Difference {
    /// Returns a phrase for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::MissingInKernel => "missing in the kernel",
            Self::KernelNextHop => "next hop differs in the kernel",
            Self::KernelMetric => "metric differs in the kernel",
            Self::NotExported => "not exported",
            Self::ExportedNextHop => "next hop differs as exported",
            Self::ExportedMetric => "metric differs as exported",
            Self::NotWanted => "no role wants it",
        }
    }
}

/// Routes that the kernel and BIRD have for one side.
#[derive(Clone, Copy, Debug)]
pub struct SideRoutes<'a> {
    /// The side.
    pub side: RouteSide,
    /// The side's kernel table.
    pub kernel: &'a [KernelRoute],
    /// Routes that BIRD exports to the side's switch; `None` if they are not known.
    pub exported: Option<&'a [ExportedRoute]>,
}

/// The lines of one prefix.
type Group = Vec<ComparisonLine>;

/// Returns all routes of a side, by prefix. Routes in `wanted` that belong to the other side are
/// left out.
pub fn compare(wanted: &[Route], seen: SideRoutes<'_>) -> Vec<ComparisonLine> {
    let side = seen.side;
    let mut groups: BTreeMap<IpNet, Group> = BTreeMap::new();
    for route in wanted.iter().filter(|route| route.side == side) {
        let line = ComparisonLine { wanted: Some(*route), ..line(side, route.prefix) };
        groups.entry(route.prefix).or_default().push(line);
    }
    let kernel = seen.kernel.iter().map(|route| {
        let KernelRoute { prefix, metric, next_hop, .. } = *route;
        (prefix, SeenRoute { next_hop, metric: Some(metric) })
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
    let exported = exported
        .map(|route| (route.prefix, SeenRoute { next_hop: route.next_hop, metric: route.med }));
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
            // BGP exports only its best route to a prefix: a worse one, of another worker of this
            // node, is held back.
            let is_behind = line.wanted.zip(best).is_some_and(|(it, best)| best < it.metric);
            line.differences = differences(line, seen.exported.is_some() && !is_behind);
        }
    }
    groups.into_values().flatten().collect()
}

fn line(side: RouteSide, prefix: IpNet) -> ComparisonLine {
    ComparisonLine {
        side,
        prefix,
        wanted: None,
        kernel: None,
        exported: None,
        differences: Vec::new(),
    }
}

fn by_prefix(routes: impl Iterator<Item = (IpNet, SeenRoute)>) -> BTreeMap<IpNet, Vec<SeenRoute>> {
    let mut sorted: BTreeMap<IpNet, Vec<SeenRoute>> = BTreeMap::new();
    routes.for_each(|(prefix, seen)| sorted.entry(prefix).or_default().push(seen));
    sorted
}

/// Puts each of `routes` into the line it belongs to, or into a new one.
fn enter(
    group: &mut Group,
    mut routes: Vec<SeenRoute>,
    field: fn(&mut ComparisonLine) -> &mut Option<SeenRoute>,
    empty: ComparisonLine,
) {
    let fits: [fn(SeenRoute, SeenRoute) -> bool; 3] =
        [|one, other| one == other, |one, other| one.next_hop == other.next_hop, |_, _| true];
    for fit in fits {
        routes.retain(|route| {
            let free = group.iter_mut().find_map(|line| {
                let is_like = line.expected().is_some_and(|it| fit(it, *route));
                Some(field(line)).filter(|it| is_like && it.is_none())
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
        *field(&mut line) = Some(route);
        group.push(line);
    }
}

impl ComparisonLine {
    /// Returns the route that the others are compared with: the wanted one, or the kernel's if none
    /// is wanted.
    fn expected(&self) -> Option<SeenRoute> {
        let wanted = self
            .wanted
            .map(|route| SeenRoute { next_hop: Some(route.next_hop), metric: Some(route.metric) });
        wanted.or(self.kernel)
    }
}

fn differences(line: &ComparisonLine, is_export_due: bool) -> Vec<Difference> {
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
    seen: SeenRoute,
    [next_hop, metric]: [Difference; 2],
    found: &mut Vec<Difference>,
) {
    found.extend((seen.next_hop != Some(route.next_hop)).then_some(next_hop));
    found.extend((seen.metric != Some(route.metric)).then_some(metric));
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;
