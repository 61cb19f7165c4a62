//! Configuration of an engine. It is checked once at the start; the code behind relies on it.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use weir_nat::{GROUPS, NatConfig, NatError, ShardId};
use weir_wire::ethernet::Mac;

/// How homes reach the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// GRE tunnels: subscriber = outer source, shard = outer destination (the tunnel endpoint).
    Gre,
    /// Plain IPv4: subscriber = inner source, shard = the prefix it lies in.
    Plain,
}

/// Clamping of the TCP maximum segment size in SYN segments, both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MssClamp {
    Off,
    /// The value that fits the smaller of the two sides: min(access MTU - tunnel overhead, internet
    /// MTU) - 40. The overhead includes a GRE key once a home has sent one.
    Auto,
    /// A fixed maximum, in bytes.
    Max(u16),
}

/// One side (port) of a worker.
#[derive(Clone, Debug)]
pub struct SideConfig {
    /// The port's address; [`crate::EngineSetup::set_mac`] sets it when it is known only later.
    pub mac: Mac,
    /// The worker's own address with the length of its subnet.
    pub address: Ipv4Net,
    /// Next hops on this side, at least one; live ones share the flows by hash.
    pub gateways: Vec<Ipv4Addr>,
    /// The MACs of the gateways, in the order of `gateways`; a gateway without an entry may have
    /// any MAC.
    pub gateway_macs: Vec<Mac>,
    /// IPv6 on this side; `None`: its packets are dropped.
    pub ipv6: Option<Side6Config>,
    /// 802.1Q VLAN id; frames without it are dropped.
    pub vlan: Option<u16>,
    /// Largest IP packet on this side, bytes (on the access side: the outer packet).
    pub mtu: u16,
}

/// The IPv6 of one side of a worker.
#[derive(Clone, Debug)]
pub struct Side6Config {
    /// The worker's own address, global or unique local, with the length of its subnet. A
    /// link-local address, made of the MAC, is added.
    pub address: Ipv6Net,
    /// Next hops on this side, at least one, global or link-local; live ones share the flows by
    /// hash. Each may have any MAC: pins are for IPv4.
    pub gateways: Vec<Ipv6Addr>,
}

/// One shard as the data path sees it.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    pub id: ShardId,
    /// Tunnel endpoint, host order ([`AccessMode::Gre`]).
    pub endpoint: Option<u32>,
    /// Tunnel endpoint of homes with tunnels over IPv6, host order ([`AccessMode::Gre`]).
    pub endpoint6: Option<u128>,
    /// The prefixes of its homes ([`AccessMode::Plain`]).
    pub subscribers: Vec<Ipv4Net>,
}

/// Limits of what inner fragments may hold.
#[derive(Clone, Copy, Debug)]
pub struct FragmentLimits {
    /// Datagrams remembered at once, half of them in each direction. A quarter of the half toward
    /// homes is reserved for datagrams that another worker delivers.
    pub datagrams_max: usize,
    /// Fragments held until their first fragment comes, in total; half of them in each direction.
    pub held_max: usize,
    /// Fragments held for one datagram.
    pub held_per_datagram_max: usize,
    /// How long a datagram is remembered, milliseconds (RFC 6146 section 3.4: at least 2 s).
    pub timeout_ms: u64,
    /// Largest share of one party in the datagrams and in the held fragments of a direction, in
    /// percent, 1 to 100. A party is a home, or a remote whose fragments are for a home that is not
    /// known yet.
    ///
    /// A party beyond its share, or the party with the most entries in a full table, is not refused
    /// but loses its oldest datagram. So a share limits how far apart the fragments of a datagram
    /// may be, and not how many datagrams pass. A quarter is some hundred datagrams, more than a
    /// network reorders, and leaves room for three further floods before any other party has to
    /// wait until the largest one gives way.
    pub percent: u8,
}

impl Default for FragmentLimits {
    fn default() -> Self {
        Self {
            datagrams_max: 4096,
            held_max: 512,
            held_per_datagram_max: 16,
            timeout_ms: 5000,
            percent: 25,
        }
    }
}

/// Limits on resources of a worker that its parties share: homes, and remotes on the internet.
#[derive(Clone, Copy, Debug)]
pub struct ResourceLimits {
    /// ICMP errors of the worker a second about packets of one home or of one remote, or to packets
    /// to one home; the burst is as large. "Fragmentation needed" is counted apart from the others.
    /// Default 20: several computers of a home may each run a traceroute.
    pub icmp_errors_per_sec: u32,
    /// ICMP errors of the worker a second in total (RFC 1812 section 4.3.2.8). Half of them are
    /// reserved for "fragmentation needed", and half of what remains of each kind for parties that
    /// cause few errors.
    pub worker_icmp_errors_per_sec: u32,
    /// Whether the worker sends ICMP errors to homes, and to senders on the internet.
    pub icmp_errors_to_homes: bool,
    pub icmp_errors_to_internet: bool,
    /// Packets of one home, or of one remote, that are redirected to other workers a second; the
    /// burst is as large. Default 10,000: a hand-over redirects all that a home sends at 100
    /// Mbit/s.
    pub redirects_per_sec: u32,
    /// Packets of one home that take the slow path a second, each way; the burst is a tenth of
    /// them. Default 200,000: a home with 1 Gbit/s sends and receives as many packets of 600 bytes,
    /// and they take some percent of a core.
    pub slow_path_packets_per_sec: u32,
    /// What is different for the homes of a group, by its number; group 0 has the homes that are in
    /// no other.
    pub groups: [GroupLimits; GROUPS as usize],
}

/// Limits of the homes of a group, where they are not those of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupLimits {
    /// See [`ResourceLimits::icmp_errors_per_sec`].
    pub icmp_errors_per_sec: Option<u32>,
    /// See [`ResourceLimits::slow_path_packets_per_sec`].
    pub slow_path_packets_per_sec: Option<u32>,
    /// See [`FragmentLimits::percent`].
    pub fragments_percent: Option<u8>,
}

impl ResourceLimits {
    /// Returns [`icmp_errors_per_sec`](Self::icmp_errors_per_sec) of each group.
    pub(crate) fn icmp_errors_of_groups(&self) -> [u32; GROUPS as usize] {
        self.groups.map(|it| it.icmp_errors_per_sec.unwrap_or(self.icmp_errors_per_sec))
    }

    /// Returns [`slow_path_packets_per_sec`](Self::slow_path_packets_per_sec) of each group.
    pub(crate) fn slow_path_of_groups(&self) -> [u32; GROUPS as usize] {
        self.groups.map(|it| it.slow_path_packets_per_sec.unwrap_or(self.slow_path_packets_per_sec))
    }

    /// Returns [`FragmentLimits::percent`] of each group; `percent` is that of all.
    pub(crate) fn fragments_of_groups(&self, percent: u8) -> [u8; GROUPS as usize] {
        self.groups.map(|it| it.fragments_percent.unwrap_or(percent))
    }
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            icmp_errors_per_sec: 20,
            worker_icmp_errors_per_sec: 1000,
            icmp_errors_to_homes: true,
            icmp_errors_to_internet: true,
            redirects_per_sec: 10_000,
            slow_path_packets_per_sec: 200_000,
            groups: [GroupLimits::default(); GROUPS as usize],
        }
    }
}

/// The whole configuration of an engine; `nat.shards` and `shards` are in the same order, and
/// `nat.room` is for both.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    pub mode: AccessMode,
    pub access: SideConfig,
    pub internet: SideConfig,
    pub mss_clamp: MssClamp,
    pub shards: Vec<ShardConfig>,
    pub nat: NatConfig,
    pub fragments: FragmentLimits,
    pub limits: ResourceLimits,
    /// Whether packets with a source route (RFC 791) pass, either way. RFC 7126 sections 4.3 and
    /// 4.4: source routes lead around firewalls, so the default should be to drop these packets.
    pub forward_source_routes: bool,
    /// Largest number of other workers known at once ([`crate::EngineSetup::add_peer`]); 0: no
    /// cluster.
    pub peers_max: usize,
    /// UDP port of replication, on both ends; `None`: its datagrams are handled like any other
    /// packet to the worker.
    pub replication_port: Option<u16>,
}

/// Reasons why an engine cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Nat(#[from] NatError),
    #[error("shard {0:?} has no tunnel endpoint, which access mode \"gre\" needs")]
    NoEndpoint(ShardId),
    #[error("tunnel endpoint {endpoint} belongs to two shards, {first:?} and {second:?}")]
    EndpointTwice { endpoint: Ipv4Addr, first: ShardId, second: ShardId },
    #[error("tunnel endpoint {endpoint} belongs to two shards, {first:?} and {second:?}")]
    Endpoint6Twice { endpoint: Ipv6Addr, first: ShardId, second: ShardId },
    #[error("shard {0:?} has an IPv6 tunnel endpoint, and the access side has no IPv6 address")]
    NoAccess6(ShardId),
    #[error(
        "prefix {net} of the homes of {second:?} overlaps one of {first:?}: a home is of one shard"
    )]
    SourceOverlap { net: Ipv4Net, first: ShardId, second: ShardId },
    #[error("the {0} side has no gateway")]
    NoGateway(&'static str),
    #[error("the {0} side has an IPv6 address, but no IPv6 gateway")]
    NoGateway6(&'static str),
    #[error("{engine} shards for the data path, {nat} for the NAT: the lists must match")]
    ShardCount { engine: usize, nat: usize },
}
