//! A route for the switches.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// The switch that learns a route; each side has a kernel table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteSide {
    /// Tunnel endpoints, for the access switch. The next hop is the worker's access address.
    Access,
    /// Public prefixes, for the internet switch. The next hop is the worker's internet address.
    Internet,
}

/// The kernel tables of the two sides. IPv4 and IPv6 have tables of the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteTables {
    /// Table of the tunnel endpoints.
    pub access: u32,
    /// Table of the public prefixes.
    pub internet: u32,
}

/// Number of a worker on its node, from 0, below [`WORKERS_MAX`].
pub type WorkerIndex = u16;

/// Most workers of one node: more than a server has cores.
pub const WORKERS_MAX: usize = 1024;

/// Most routes of one worker: more than a switch holds.
pub const ROUTES_MAX: usize = 1 << 16;

/// Lowest metric of a route of last resort: above all metrics that roles give.
const LAST_RESORT_MIN: u32 = (1 << 31) + 8;
/// Added to the metric of a role. The lowest metric, that of the last terms, would stay below the
/// lowest of last resort, and is raised to that.
const LAST_RESORT_ADDED: u32 = (1 << 31) - 16;

/// One route. The kernel distinguishes the routes of a table by prefix and metric, so there is one
/// next hop for each pair. Routes are sorted by side, then IPv4 before IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The side whose switch learns it.
    pub side: RouteSide,
    /// Destination; no bits beyond the prefix length.
    pub prefix: IpNet,
    /// Linux metric, which BIRD exports as the MED: the lower one wins. Not 0 for an IPv6 prefix:
    /// the kernel takes that for its default, 1024.
    pub metric: u32,
    /// The worker's address on that side, of the prefix's family.
    pub next_hop: IpAddr,
}

impl RouteTables {
    /// Returns the table of a side.
    pub fn of(&self, side: RouteSide) -> u32 {
        match side {
            RouteSide::Access => self.access,
            RouteSide::Internet => self.internet,
        }
    }
}

impl Default for RouteTables {
    fn default() -> Self {
        Self { access: 4242, internet: 4243 }
    }
}

impl Route {
    /// Returns the same route with a metric that is worse than any role's: a switch takes it only
    /// while no other worker announces the prefix. The order of two routes stays the same as routes
    /// of last resort. A route of last resort is returned unchanged.
    #[must_use]
    pub fn last_resort(self) -> Self {
        if self.metric >= LAST_RESORT_MIN {
            return self;
        }
        let metric = self.metric.saturating_add(LAST_RESORT_ADDED).max(LAST_RESORT_MIN);
        Self { metric, ..self }
    }

    /// Returns the fields by which the kernel distinguishes routes.
    pub fn key(&self) -> (RouteSide, IpNet, u32) {
        (self.side, self.prefix, self.metric)
    }

    /// True if the kernel can hold the route as it is: its prefix has no bits beyond its length,
    /// its next hop is of the same family, and an IPv6 route has a metric.
    pub fn is_valid(&self) -> bool {
        let is_of_family = match self.next_hop {
            IpAddr::V4(_) => matches!(self.prefix, IpNet::V4(_)),
            IpAddr::V6(_) => matches!(self.prefix, IpNet::V6(_)) && self.metric != 0,
        };
        is_of_family && self.prefix == self.prefix.trunc()
    }
}

impl fmt::Display for RouteSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RouteSide::Access => "access",
            RouteSide::Internet => "internet",
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, prefix, metric, next_hop } = self;
        write!(f, "{side}: {prefix} via {next_hop} metric {metric}")
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn routes_of_last_resort_are_worse_than_all_others_and_keep_their_order() {
        const MIDDLE: u32 = 1 << 31;
        // Metrics of primaries and acting primaries of old and new terms, of replicas, and of one
        // that leaves.
        let metrics = [24, 8_000, MIDDLE - 16, MIDDLE - 13, MIDDLE - 8, MIDDLE + 1, MIDDLE + 7];
        let route = |metric| Route {
            side: RouteSide::Access,
            prefix: IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            metric,
            next_hop: Ipv6Addr::LOCALHOST.into(),
        };
        let last: Vec<u32> = metrics.map(|metric| route(metric).last_resort().metric).into();
        assert!(last.is_sorted_by(|better, worse| better < worse), "{last:?}");
        assert!(last[0] > MIDDLE + 7);
        assert_eq!(last, last.iter().map(|&it| route(it).last_resort().metric).collect::<Vec<_>>());
        assert_eq!(route(0).last_resort().metric, MIDDLE + 8, "no role has this metric");
    }

    #[test]
    fn a_route_of_mixed_families_with_stray_bits_or_an_ipv6_route_without_a_metric_is_invalid() {
        let is_valid = |prefix: &str, next_hop: &str, metric| {
            let (prefix, next_hop) = (prefix.parse().unwrap(), next_hop.parse().unwrap());
            Route { side: RouteSide::Internet, prefix, metric, next_hop }.is_valid()
        };
        assert!(is_valid("203.0.113.0/24", "10.10.0.1", 0));
        assert!(is_valid("2001:db8::/32", "fd0a::1", 1));
        assert!(!is_valid("2001:db8::/32", "fd0a::1", 0));
        assert!(!is_valid("2001:db8::/32", "10.10.0.1", 1));
        assert!(!is_valid("203.0.113.0/24", "fd0a::1", 1));
        assert!(!is_valid("203.0.113.1/24", "10.10.0.1", 1));
        assert!(!is_valid("2001:db8::1/32", "fd0a::1", 1));
    }
}
