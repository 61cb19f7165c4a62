//! The address plan of the generated traffic.
//!
//! | what | addresses |
//! |---|---|
//! | homes | 10.128.0.0/9, one each: outer source (GRE mode) or inside address (plain mode) |
//! | tunnel endpoints | 10.64.0.0/10, one a shard |
//! | both, tunnels over IPv6 | 3fff::/32, then the 32 bits of IPv4: 10.128.0.5 is 3fff:0:a80:5::1 |
//! | hosts in a home, GRE mode | 192.168.1.10 to .13, the same in every home |
//! | public prefixes | 198.18.0.0/16, eight addresses a shard or more (RFC 2544 appendix C.2.2) |
//! | remote hosts | 198.19.0.0/20, port 443 |
//! | homes, IPv6 | 2001:db8::/33, a prefix of 56 bits each, the hosts in its first /64 |
//! | remote hosts, IPv6 | 2001:db8:8000::1 to ::1000, port 443 |
//!
//! RFC 2544 reserves 198.18.0.0/15 for benchmarks. The prefix that RFC 5180 reserves for them has
//! room for 65,536 networks, fewer than a run has homes, so IPv6 has those of documents (RFC 3849,
//! RFC 9637). Outer IPv6 addresses are made from IPv4 ones as by 6rd (RFC 5969 section 4): each
//! home has a /64, and each address of one family stands for exactly one of the other.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::attack::{AttackHome, FORGED_HOMES};
use crate::families::Families;
use crate::packet::{GRE, GRE6, PLAIN};
use crate::permutation::shuffled_in_pieces;

pub(crate) const HOMES: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const HOMES_MAX: u32 = 1 << 23;
pub(crate) const ENDPOINTS: u32 = u32::from_be_bytes([10, 64, 0, 1]);
const HOSTS: u32 = u32::from_be_bytes([192, 168, 1, 10]);
const PUBLIC: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const PUBLIC_MAX: u64 = 1 << 16;
pub(crate) const REMOTES: u32 = u32::from_be_bytes([198, 19, 0, 0]);
pub(crate) const REMOTE_PORT: u16 = 443;
pub(crate) const FIRST_INSIDE_PORT: u16 = 20_000;
const HOSTS_PER_HOME: u32 = 4;
const HOMES6: u128 = 0x2001_0db8 << 96;
/// Bits of an address behind the prefix of its home.
const HOME6_SHIFT: u32 = 72;
/// Last octets of a host's IPv6 address in a home.
const HOSTS6: u32 = 0x10;
const REMOTES6: u128 = 0x2001_0db8_8000 << 80 | 1;
/// Outer IPv6 addresses, without octets 4 to 8, the IPv4 address that each stands for.
pub(crate) const OUTER6: u128 = 0x3fff << 112 | 1;
const OUTER6_SHIFT: u32 = 64;
/// Length of the IPv6 prefix of a home.
pub const HOME_LENGTH6: u8 = 128 - HOME6_SHIFT as u8;
/// Remote hosts of each family.
const REMOTE_HOSTS: u32 = 4096;
const PUBLIC_PER_SHARD_MIN: u32 = 8;
/// Ports of an address that a translator assigns, and the block in which it assigns them.
const PORTS_PER_ADDRESS: u32 = 64_512;
const PORT_BLOCK: u32 = 256;
const FLOWS_MAX: u32 = 1 << 30;
const FLOWS_PER_SUBSCRIBER_MAX: u32 = 20_000;

/// weir's default size of a shard.
pub const SUBSCRIBERS_PER_SHARD: u32 = 256;

/// The access mode: how homes reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Each home through its own GRE tunnel over IPv4.
    Gre,
    /// Each home through its own GRE tunnel over IPv6 (RFC 7676). [`outer6`] gives its addresses.
    GreOverIpv6,
    /// By plain IPv4: the home is the inside address.
    Plain,
}

/// The transport protocol of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Udp,
    Tcp,
}

/// An address (host order) and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: u32,
    pub port: u16,
}

/// The addresses of one flow, in both families. Host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// Address of the home: outer source in GRE mode, over IPv6 through [`outer6`].
    pub home: u32,
    /// Outer destination: the tunnel endpoint of the home's shard, likewise.
    pub tunnel: u32,
    pub inside: Endpoint,
    pub remote: Endpoint,
    /// The same host with its IPv6 address, and another remote host. The ports are those of IPv4.
    pub inside6: u128,
    pub remote6: u128,
}

/// The number of flows and homes, and their place in the address plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    flows: u32,
    new_flows: u32,
    /// Whether flows opened during the flood belong to homes that have flows before it.
    new_in_known_homes: bool,
    flows_per_subscriber: u32,
    subscribers_per_shard: u32,
    first_shard: u32,
    access: Access,
    families: Families,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    #[error("a scenario has 1 to {FLOWS_MAX} flows and 1 to 20,000 flows per subscriber")]
    Flows,
    #[error("a shard has 1 to 65,536 subscribers")]
    Shard,
    #[error(
        "{homes} homes, shards filled up to a power of two, do not fit 10.128.0.0/9: more flows per subscriber are needed"
    )]
    Homes { homes: u64 },
    #[error(
        "{addresses} public addresses do not fit 198.18.0.0/16: more flows per subscriber or more subscribers per shard are needed"
    )]
    PublicAddresses { addresses: u64 },
}

/// Returns the outer IPv6 address of a home or a shard, whose IPv4 address is `address`.
pub fn outer6(address: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(OUTER6 | u128::from(address) << OUTER6_SHIFT)
}

impl Access {
    /// Returns the bytes that a packet has more on the access side: those of the tunnel header.
    pub fn tunnel_len(self) -> usize {
        match self {
            Access::Gre => GRE,
            Access::GreOverIpv6 => GRE6,
            Access::Plain => PLAIN,
        }
    }

    /// Returns whether the link of the access side has IPv6 if the flows have these families.
    pub fn link_has_ipv6(self, families: Families) -> bool {
        match self {
            Access::Gre => false,
            Access::GreOverIpv6 => true,
            Access::Plain => families.has_ipv6(),
        }
    }
}

impl Scenario {
    /// Makes a scenario with GRE access and shards of 256 homes. `seed` draws the order in which
    /// flows are flooded.
    pub fn new(flows: u32, flows_per_subscriber: u32, seed: u64) -> Result<Self, ScenarioError> {
        Scenario {
            flows,
            new_flows: 0,
            new_in_known_homes: false,
            flows_per_subscriber,
            subscribers_per_shard: SUBSCRIBERS_PER_SHARD,
            first_shard: 0,
            access: Access::Gre,
            families: Families::Ipv4,
            seed,
        }
        .checked()
    }

    /// Returns the same scenario with shards of another size.
    pub fn with_subscribers_per_shard(self, subscribers: u32) -> Result<Self, ScenarioError> {
        Scenario { subscribers_per_shard: subscribers, ..self }.checked()
    }

    /// Returns the same scenario with the shards from the `first_shard`-th of the address plan on,
    /// and so with other homes, tunnel endpoints and public prefixes: parallel generators share
    /// none.
    pub fn with_first_shard(self, first_shard: u32) -> Result<Self, ScenarioError> {
        Scenario { first_shard, ..self }.checked()
    }

    /// Returns the same scenario with flows that are opened during the flood, in addition to those
    /// established before it.
    pub fn with_new_flows(self, new_flows: u32) -> Result<Self, ScenarioError> {
        Scenario { new_flows, ..self }.checked()
    }

    /// Returns the same scenario with the flows opened during the flood assigned in turn to the
    /// homes that have flows before it, instead of further homes.
    pub fn with_new_flows_in_known_homes(self) -> Result<Self, ScenarioError> {
        Scenario { new_in_known_homes: true, ..self }.checked()
    }

    pub fn with_access(self, access: Access) -> Result<Self, ScenarioError> {
        Scenario { access, ..self }.checked()
    }

    pub fn with_families(self, families: Families) -> Result<Self, ScenarioError> {
        Scenario { families, ..self }.checked()
    }

    fn checked(self) -> Result<Self, ScenarioError> {
        let flows = u64::from(self.flows) + u64::from(self.new_flows);
        if self.flows == 0
            || flows > u64::from(FLOWS_MAX)
            || !(1..=FLOWS_PER_SUBSCRIBER_MAX).contains(&self.flows_per_subscriber)
            || self.flows_of_a_home() > FLOWS_PER_SUBSCRIBER_MAX
        {
            return Err(ScenarioError::Flows);
        }
        if !(1..=65_536).contains(&self.subscribers_per_shard) {
            return Err(ScenarioError::Shard);
        }
        let shards = u64::from(self.first_shard) + u64::from(self.shards());
        let homes = shards * u64::from(self.homes_per_shard());
        if homes > u64::from(HOMES_MAX) {
            return Err(ScenarioError::Homes { homes });
        }
        let addresses = shards * u64::from(self.public_per_shard());
        if addresses > PUBLIC_MAX {
            return Err(ScenarioError::PublicAddresses { addresses });
        }
        Ok(self)
    }

    /// Returns the number of flows established before the flood.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// Returns the number of flows that are opened during the flood.
    pub fn new_flows(&self) -> u32 {
        self.new_flows
    }

    /// Returns the sum of both: the number of flows that the device's table must hold.
    pub fn flows_total(&self) -> u32 {
        self.flows + self.new_flows
    }

    pub fn flows_per_subscriber(&self) -> u32 {
        self.flows_per_subscriber
    }

    pub fn subscribers_per_shard(&self) -> u32 {
        self.subscribers_per_shard
    }

    /// Returns the first shard in the address plan, counted from 0.
    pub fn first_shard(&self) -> u32 {
        self.first_shard
    }

    pub fn access(&self) -> Access {
        self.access
    }

    pub fn families(&self) -> Families {
        self.families
    }

    pub fn subscribers(&self) -> u32 {
        let flows = if self.new_in_known_homes { self.flows } else { self.flows_total() };
        flows.div_ceil(self.flows_per_subscriber)
    }

    /// Returns the largest number of flows of a home, including those opened during the flood.
    fn flows_of_a_home(&self) -> u32 {
        let new = match self.new_in_known_homes {
            true => self.new_flows.div_ceil(self.subscribers()),
            false => 0,
        };
        self.flows_per_subscriber.saturating_add(new)
    }

    /// Returns the home of the flow that is created as `created`-th, counted from 0, and the flow's
    /// number within it.
    fn position(&self, created: u32) -> (u32, u32) {
        match created.checked_sub(self.flows) {
            Some(new) if self.new_in_known_homes => {
                let homes = self.subscribers();
                (new % homes, self.flows_per_subscriber + new / homes)
            }
            _ => (created / self.flows_per_subscriber, created % self.flows_per_subscriber),
        }
    }

    /// Returns a home without flows in the last shard, for an attacker; `None` if the shards are
    /// full.
    pub fn spare_home(&self) -> Option<AttackHome> {
        let within = self.subscribers() % self.subscribers_per_shard;
        let shard = self.shards() - 1;
        let home = HOMES + (self.first_shard + shard) * self.homes_per_shard() + within;
        (within != 0 && home < FORGED_HOMES).then(|| AttackHome {
            home,
            tunnel: ENDPOINTS + self.first_shard + shard,
            inside: self.inside_address(home, 0),
            public: self.public_prefix(shard).0.to_bits(),
            first_shard: self.first_shard,
            shards: self.shards(),
        })
    }

    fn inside_address(&self, home: u32, within: u32) -> u32 {
        match self.access {
            Access::Gre | Access::GreOverIpv6 => HOSTS + within % HOSTS_PER_HOME,
            Access::Plain => home,
        }
    }

    pub fn shards(&self) -> u32 {
        self.subscribers().div_ceil(self.subscribers_per_shard)
    }

    /// Returns the tunnel endpoint of a shard, counted from 0 at the first shard of the scenario.
    pub fn tunnel_endpoint(&self, shard: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(ENDPOINTS + self.first_shard + shard)
    }

    /// Returns the prefix of a shard's homes, counted likewise: network address and prefix length.
    pub fn source_prefix(&self, shard: u32) -> (Ipv4Addr, u8) {
        let homes = self.homes_per_shard();
        (Ipv4Addr::from_bits(HOMES + (self.first_shard + shard) * homes), prefix_len(homes))
    }

    /// Returns the public prefix of a shard, counted likewise: network address and prefix length.
    pub fn public_prefix(&self, shard: u32) -> (Ipv4Addr, u8) {
        let addresses = self.public_per_shard();
        (
            Ipv4Addr::from_bits(PUBLIC + (self.first_shard + shard) * addresses),
            prefix_len(addresses),
        )
    }

    /// Returns the IPv6 prefix of a shard's homes, counted likewise: network address and prefix
    /// length.
    pub fn public6_prefix(&self, shard: u32) -> (Ipv6Addr, u8) {
        let homes = self.homes_per_shard();
        let first = HOMES6 | u128::from((self.first_shard + shard) * homes) << HOME6_SHIFT;
        (Ipv6Addr::from_bits(first), HOME_LENGTH6 - homes.trailing_zeros() as u8)
    }

    /// Returns the number of ports that a home may hold: a translator that draws them at random
    /// from whole blocks needs twice the number in use. Of homes with both families half of the
    /// flows take ports, a few more or less in each.
    pub fn ports_per_subscriber(&self) -> u32 {
        let flows = match self.families {
            Families::Ipv4 => self.flows_of_a_home(),
            Families::Both => self.flows_of_a_home().div_ceil(2),
            Families::Ipv6 => 1,
        };
        (2 * flows).next_multiple_of(PORT_BLOCK)
    }

    /// Returns the order of creation: element `i` is the flow number (its position in the flood) of
    /// the flow that is created as `i`-th. Flows established before the flood come first; new flows
    /// are shuffled in pieces of the same size.
    pub fn creation_order(&self) -> Vec<u32> {
        shuffled_in_pieces(self.flows_total(), self.flows, self.seed)
    }

    /// Returns the addresses of the flow that is created as `created`-th.
    pub fn flow(&self, created: u32) -> FlowPlan {
        let (subscriber, within) = self.position(created);
        let shard = self.first_shard + subscriber / self.subscribers_per_shard;
        let home = HOMES + shard * self.homes_per_shard() + subscriber % self.subscribers_per_shard;
        let inside = self.inside_address(home, within);
        // An odd factor spreads neighbouring flows over all remote hosts.
        let remote = created.wrapping_mul(2_654_435_761) % REMOTE_HOSTS;
        let host6 = u128::from(HOSTS6 + within % HOSTS_PER_HOME);
        FlowPlan {
            home,
            tunnel: ENDPOINTS + shard,
            inside: Endpoint { address: inside, port: FIRST_INSIDE_PORT + within as u16 },
            remote: Endpoint { address: REMOTES + remote, port: REMOTE_PORT },
            inside6: HOMES6 | u128::from(home - HOMES) << HOME6_SHIFT | host6,
            remote6: REMOTES6 + u128::from(remote),
        }
    }

    /// Returns a public endpoint for a flow if the device does not translate (raw forwarding):
    /// inside its shard's prefix, unique within one home.
    pub fn assumed_public(&self, created: u32) -> Endpoint {
        let (subscriber, within) = self.position(created);
        let shard = self.first_shard + subscriber / self.subscribers_per_shard;
        let addresses = self.public_per_shard();
        Endpoint {
            address: PUBLIC + shard * addresses + subscriber % addresses,
            port: FIRST_INSIDE_PORT + within as u16,
        }
    }

    /// Returns a power of two, so that a shard's homes are one prefix.
    fn homes_per_shard(&self) -> u32 {
        self.subscribers_per_shard.next_power_of_two()
    }

    /// Returns a power of two: twice the number of addresses whose ports all homes may hold, so
    /// that the last home finds a block, too.
    fn public_per_shard(&self) -> u32 {
        let ports = u64::from(self.subscribers_per_shard) * u64::from(self.ports_per_subscriber());
        let addresses = (2 * ports).div_ceil(u64::from(PORTS_PER_ADDRESS)) as u32;
        addresses.max(PUBLIC_PER_SHARD_MIN).next_power_of_two()
    }
}

/// Returns the length of a prefix of `addresses` addresses, a power of two.
fn prefix_len(addresses: u32) -> u8 {
    (32 - addresses.trailing_zeros()) as u8
}

#[cfg(test)]
mod tests;
