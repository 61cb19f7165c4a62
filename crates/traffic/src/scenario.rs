//! Who talks to whom: the address plan of the generated traffic.
//!
//! | what | addresses |
//! |---|---|
//! | homes (outer sources) | 10.128.0.0/9, one each |
//! | tunnel endpoints | 10.64.0.0/16, one a shard |
//! | hosts in a home | 192.168.1.10 to .13, the same in every home |
//! | public prefixes | 198.18.0.0/16, eight addresses a shard (RFC 2544 appendix C.2.2: reserved for benchmarks) |
//! | remote hosts | 198.19.0.0/20, port 443 |

use std::net::Ipv4Addr;

use crate::permutation::shuffled;

const HOMES: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const ENDPOINTS: u32 = u32::from_be_bytes([10, 64, 0, 1]);
const HOSTS: u32 = u32::from_be_bytes([192, 168, 1, 10]);
const PUBLIC: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const REMOTES: u32 = u32::from_be_bytes([198, 19, 0, 0]);
const REMOTE_PORT: u16 = 443;
const FIRST_INSIDE_PORT: u16 = 20_000;
const HOSTS_PER_HOME: u32 = 4;
const PUBLIC_PER_SHARD: u32 = 8;

/// Homes in 10.128.0.0/9 that this plan uses at most: what the public /16 can seat.
const SUBSCRIBERS_MAX: u32 = 65_536 / PUBLIC_PER_SHARD * SUBSCRIBERS_PER_SHARD;

/// weir's default size of a shard.
pub const SUBSCRIBERS_PER_SHARD: u32 = 256;

/// An address (host order) and a UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: u32,
    pub port: u16,
}

/// The addresses of one flow. Host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Outer source: the home.
    pub home: u32,
    /// Outer destination: the tunnel endpoint of the home's shard.
    pub tunnel: u32,
    pub inside: Endpoint,
    pub remote: Endpoint,
}

/// How many flows, spread over how many homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    flows: u32,
    flows_per_subscriber: u32,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    #[error("a scenario has at least one flow and 1 to 20,000 flows per subscriber")]
    Empty,
    #[error(
        "{subscribers} subscribers do not fit the address plan ({SUBSCRIBERS_MAX} at most): more flows per subscriber are needed"
    )]
    Subscribers { subscribers: u32 },
}

impl Scenario {
    /// `seed` draws the order in which flows are flooded.
    pub fn new(flows: u32, flows_per_subscriber: u32, seed: u64) -> Result<Self, ScenarioError> {
        if flows == 0 || !(1..=20_000).contains(&flows_per_subscriber) {
            return Err(ScenarioError::Empty);
        }
        let scenario = Scenario { flows, flows_per_subscriber, seed };
        let subscribers = scenario.subscribers();
        if subscribers > SUBSCRIBERS_MAX {
            return Err(ScenarioError::Subscribers { subscribers });
        }
        Ok(scenario)
    }

    pub fn flows(&self) -> u32 {
        self.flows
    }

    pub fn flows_per_subscriber(&self) -> u32 {
        self.flows_per_subscriber
    }

    pub fn subscribers(&self) -> u32 {
        self.flows.div_ceil(self.flows_per_subscriber)
    }

    pub fn shards(&self) -> u32 {
        self.subscribers().div_ceil(SUBSCRIBERS_PER_SHARD)
    }

    /// The tunnel endpoint of a shard, counted from 0.
    pub fn tunnel_endpoint(shard: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(ENDPOINTS + shard)
    }

    /// The public prefix of a shard, counted from 0: network address and prefix length.
    pub fn public_prefix(shard: u32) -> (Ipv4Addr, u8) {
        (Ipv4Addr::from_bits(PUBLIC + shard * PUBLIC_PER_SHARD), 29)
    }

    /// `order[i]` is the flow number (its place in the flood) of the flow that is created as `i`-th.
    pub fn creation_order(&self) -> Vec<u32> {
        shuffled(self.flows, self.seed)
    }

    /// The addresses of the flow that is created as `created`-th.
    pub fn addresses(&self, created: u32) -> Addresses {
        let subscriber = created / self.flows_per_subscriber;
        let within = created % self.flows_per_subscriber;
        let shard = subscriber / SUBSCRIBERS_PER_SHARD;
        Addresses {
            home: HOMES + subscriber,
            tunnel: ENDPOINTS + shard,
            inside: Endpoint {
                address: HOSTS + within % HOSTS_PER_HOME,
                port: FIRST_INSIDE_PORT + within as u16,
            },
            // An odd factor spreads neighbouring flows over all 4,096 remote hosts.
            remote: Endpoint {
                address: REMOTES + created.wrapping_mul(2_654_435_761) % 4096,
                port: REMOTE_PORT,
            },
        }
    }

    /// A public endpoint for a flow where nobody translates (raw forwarding): inside its shard's prefix, no two the same
    /// within one home.
    pub fn assumed_public(&self, created: u32) -> Endpoint {
        let subscriber = created / self.flows_per_subscriber;
        let shard = subscriber / SUBSCRIBERS_PER_SHARD;
        Endpoint {
            address: PUBLIC + shard * PUBLIC_PER_SHARD + subscriber % PUBLIC_PER_SHARD,
            port: FIRST_INSIDE_PORT + (created % self.flows_per_subscriber) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_flows_share_home_and_inside_endpoint() {
        let scenario = Scenario::new(50_000, 64, 1).unwrap();
        let seen: HashSet<_> = (0..50_000)
            .map(|created| scenario.addresses(created))
            .map(|a| (a.home, a.inside.address, a.inside.port))
            .collect();
        assert_eq!(seen.len(), 50_000);
    }

    #[test]
    fn homes_use_the_same_private_addresses() {
        let scenario = Scenario::new(128, 64, 1).unwrap();
        assert_eq!(scenario.addresses(0).inside, scenario.addresses(64).inside);
        assert_ne!(scenario.addresses(0).home, scenario.addresses(64).home);
    }

    #[test]
    fn a_million_flows_need_sixty_two_shards() {
        let scenario = Scenario::new(1_000_000, 64, 1).unwrap();
        assert_eq!((scenario.subscribers(), scenario.shards()), (15_625, 62));
        let last = scenario.addresses(999_999);
        assert_eq!(Ipv4Addr::from_bits(last.tunnel), Scenario::tunnel_endpoint(61));
        let public = scenario.assumed_public(999_999).address;
        assert_eq!(public & !7, Scenario::public_prefix(61).0.to_bits());
    }

    #[test]
    fn a_plan_that_cannot_seat_its_homes_is_refused() {
        assert_eq!(Scenario::new(0, 64, 1), Err(ScenarioError::Empty));
        assert_eq!(Scenario::new(1, 0, 1), Err(ScenarioError::Empty));
        assert!(matches!(Scenario::new(4_000_000, 1, 1), Err(ScenarioError::Subscribers { .. })));
    }
}
