//! A route as the switches shall learn it.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// Which switch learns a route; each side has a kernel table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Tunnel endpoints, for the access switch. The next hop is the worker's access address.
    Access,
    /// Public prefixes, for the internet switch. The next hop is the worker's internet address.
    Internet,
}

/// The kernel tables of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Table of the tunnel endpoints.
    pub access: u32,
    /// Table of the public prefixes.
    pub internet: u32,
}

/// Number of a worker on its node, from 0, below [`WORKERS_MAX`].
pub type WorkerIndex = u16;

/// Workers of one node at most: more than a server has cores.
pub const WORKERS_MAX: usize = 1024;

/// Routes of one worker at most: more than a switch holds of them.
pub const ROUTES_MAX: usize = 1 << 16;

/// One route. The kernel tells routes of a table apart by prefix and metric, so there is one next hop for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Whose switch learns it.
    pub side: Side,
    /// Where to; no bits beyond the prefix length.
    pub prefix: Ipv4Net,
    /// Linux metric, which becomes the MED on the way: the lower one wins.
    pub metric: u32,
    /// The worker's address on that side.
    pub next_hop: Ipv4Addr,
}

impl Tables {
    /// The table of a side.
    pub fn of(&self, side: Side) -> u32 {
        match side {
            Side::Access => self.access,
            Side::Internet => self.internet,
        }
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self { access: 4242, internet: 4243 }
    }
}

impl Route {
    /// What the kernel tells routes apart by.
    pub fn key(&self) -> (Side, Ipv4Net, u32) {
        (self.side, self.prefix, self.metric)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Access => "access",
            Side::Internet => "internet",
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, prefix, metric, next_hop } = self;
        write!(f, "{side}: {prefix} via {next_hop} metric {metric}")
    }
}
