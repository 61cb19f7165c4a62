//! Computes the routes that the switches shall have: from workers, shards, roles and liveness to a
//! list for each worker.
//!
//! Invariants: both sides of a worker share fate, since half a path loses every packet of the other
//! half, and so do both families, which take the same ports; no two routes of the result have the
//! same key; no result exceeds the stated limits of the switches. It reads no clock, no kernel and
//! no role machine: each shard carries the metric that its role gives it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::route::{Route, RouteSide, WorkerIndex};

/// Addresses of a worker, and whether its two sides work (link up, a gateway answers). A side works
/// only if it works in every family that the worker has an address of there.
#[derive(Clone, Copy, Debug)]
pub struct RouteWorker {
    /// Its address on the access side: next hop of the tunnel endpoints.
    pub access: Ipv4Addr,
    /// Its address on the internet side: next hop of the public prefixes.
    pub internet: Ipv4Addr,
    /// Its IPv6 address on the access side, if it has one: next hop of the IPv6 endpoints.
    pub access6: Option<Ipv6Addr>,
    /// Its IPv6 address on the internet side, if it has one: next hop of the IPv6 prefixes.
    pub internet6: Option<Ipv6Addr>,
    /// Whether the access side works.
    pub is_access_up: bool,
    /// Whether the internet side works.
    pub is_internet_up: bool,
}

/// A shard that a worker serves.
#[derive(Clone, Copy, Debug)]
pub struct ServedShard<'a> {
    /// Addresses on the access side: the tunnel endpoint, or in plain mode the address that the BNG
    /// steers traffic to.
    pub endpoints: &'a [Ipv4Addr],
    /// The same for IPv6: tunnel endpoints, and addresses that the BNG steers IPv6 traffic to.
    pub endpoints6: &'a [Ipv6Addr],
    /// Its public prefixes.
    pub prefixes: &'a [Ipv4Net],
    /// The IPv6 prefixes of its homes.
    pub prefixes6: &'a [Ipv6Net],
    /// The worker, an index into the list of workers.
    pub worker: WorkerIndex,
    /// The metric of the worker's role, at least 1; `None` if the role announces nothing.
    pub metric: Option<u32>,
    /// True if no other worker has a synced copy. With one side down, half a path is then all there
    /// is, and stays announced; with both sides down there is nothing to announce.
    pub is_last_copy: bool,
    /// True if its routes are a last resort, whatever the metric.
    pub is_held_off: bool,
}

/// What the switches can hold of this cluster. Each limit applies to each switch by itself, and
/// counts both families together.
#[derive(Clone, Copy, Debug)]
pub struct RouteLimits {
    /// Most routes of a switch.
    pub max_routes: usize,
    /// Most different next hops of a switch: a worker with addresses of both families has two.
    pub max_next_hops: usize,
}

/// Why no list of routes can be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WantedError {
    /// A shard names a worker that does not exist.
    #[error("a shard is on worker {worker}, but there are only {workers}")]
    NoWorker {
        /// The worker named.
        worker: WorkerIndex,
        /// Number of workers.
        workers: usize,
    },
    /// A shard has an IPv6 prefix, and its worker has no IPv6 address to announce it with.
    #[error(
        "{prefix} is to be announced to the {side} switch, but worker {worker} has no IPv6 address on that side"
    )]
    NoAddress {
        /// The worker.
        worker: WorkerIndex,
        /// The side without an address.
        side: RouteSide,
        /// The prefix.
        prefix: Ipv6Net,
    },
    /// Two shards announce the same prefix with the same metric: no switch could distinguish them.
    #[error(
        "{one} and {other} differ only in the next hop or the shard: a prefix belongs to one shard"
    )]
    Twice {
        /// One of the two routes.
        one: Route,
        /// The other route.
        other: Route,
    },
    /// More routes than the switch holds.
    #[error(
        "{wanted} routes for the {side} switch, which holds {max} (max_routes): use larger prefixes or fewer shards"
    )]
    TooManyRoutes {
        /// The side of the switch.
        side: RouteSide,
        /// Routes wanted.
        wanted: usize,
        /// The limit.
        max: usize,
    },
    /// More next hops than the switch holds.
    #[error(
        "{wanted} next hops for the {side} switch, which holds {max} (max_next_hops): use fewer workers"
    )]
    TooManyNextHops {
        /// The side of the switch.
        side: RouteSide,
        /// Next hops wanted.
        wanted: usize,
        /// The limit.
        max: usize,
    },
}

/// Returns the routes of each worker, in the order of `workers`, each list sorted.
///
/// # Errors
/// [`WantedError`]: there is no partial result.
pub fn wanted(
    workers: &[RouteWorker],
    shards: &[ServedShard<'_>],
    limits: RouteLimits,
) -> Result<Vec<Vec<Route>>, WantedError> {
    let mut lists = vec![Vec::new(); workers.len()];
    for shard in shards {
        let at = usize::from(shard.worker);
        let worker = workers
            .get(at)
            .ok_or(WantedError::NoWorker { worker: shard.worker, workers: workers.len() })?;
        append_routes(worker, shard, &mut lists[at])?;
    }
    for list in &mut lists {
        list.sort_unstable();
    }
    let mut all: Vec<Route> = lists.iter().flatten().copied().collect();
    all.sort_unstable();
    if let Some(pair) = all.windows(2).find(|pair| pair[0].key() == pair[1].key()) {
        return Err(WantedError::Twice { one: pair[0], other: pair[1] });
    }
    check(&all, RouteSide::Access, limits)?;
    check(&all, RouteSide::Internet, limits)?;
    Ok(lists)
}

/// Appends the routes of a shard, if they are announced.
fn append_routes(
    worker: &RouteWorker,
    shard: &ServedShard<'_>,
    list: &mut Vec<Route>,
) -> Result<(), WantedError> {
    let is_announced = match (worker.is_access_up, worker.is_internet_up) {
        (true, true) => true,
        (false, false) => false,
        (true, false) | (false, true) => shard.is_last_copy,
    };
    let Some(metric) = shard.metric.filter(|_| is_announced) else { return Ok(()) };
    let mut append = |side, prefix: IpNet, next_hop| {
        let route = Route { side, prefix: prefix.trunc(), metric, next_hop };
        list.push(if shard.is_held_off { route.last_resort() } else { route });
    };
    for endpoint in shard.endpoints {
        append(RouteSide::Access, Ipv4Net::from(*endpoint).into(), worker.access.into());
    }
    for prefix in shard.prefixes {
        append(RouteSide::Internet, (*prefix).into(), worker.internet.into());
    }
    let endpoints = shard.endpoints6.iter().map(|endpoint| Ipv6Net::from(*endpoint));
    let access = endpoints.map(|prefix| (RouteSide::Access, worker.access6, prefix));
    let prefixes = shard.prefixes6.iter().copied();
    let internet = prefixes.map(|prefix| (RouteSide::Internet, worker.internet6, prefix));
    for (side, address, prefix) in access.chain(internet) {
        let worker = shard.worker;
        let next_hop = address.ok_or(WantedError::NoAddress { worker, side, prefix })?;
        append(side, prefix.into(), next_hop.into());
    }
    Ok(())
}

fn check(all: &[Route], side: RouteSide, limits: RouteLimits) -> Result<(), WantedError> {
    let of_side = || all.iter().filter(|route| route.side == side);
    let (wanted, max) = (of_side().count(), limits.max_routes);
    if wanted > max {
        return Err(WantedError::TooManyRoutes { side, wanted, max });
    }
    let next_hops: BTreeSet<IpAddr> = of_side().map(|route| route.next_hop).collect();
    let (wanted, max) = (next_hops.len(), limits.max_next_hops);
    if wanted > max {
        return Err(WantedError::TooManyNextHops { side, wanted, max });
    }
    Ok(())
}

#[cfg(test)]
#[path = "wanted_tests.rs"]
mod tests;
