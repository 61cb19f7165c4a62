//! The operator's decisions about the translation.

use std::collections::BTreeMap;

use ipnet::{Ipv4Net, Ipv6Net};
use weir_ids::ShardId;
use weir_rules::FlowClass;

use crate::ipv6::Delegation;
use crate::logs::session_log::SessionLog;
use crate::sessions::class_timeouts::ClassSettings;
use crate::sessions::timeouts::Timeouts;
use crate::subscribers::allowance::HomeAllowance;

/// Which remotes may send to a mapping (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filtering {
    EndpointIndependent,
    AddressDependent,
    #[default]
    AddressAndPortDependent,
}

/// Behaviour when a home's public address has no free block left (RFC 7857 section 4, paired
/// pooling).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// New mappings are refused: one home, one public address, always.
    #[default]
    Hard,
    /// Further blocks come from other addresses of the shard.
    Soft,
}

/// One shard: its public addresses and how many homes it may serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatShardConfig {
    pub id: ShardId,
    /// Public prefixes; without translation the inside addresses of the shard. Every address of a
    /// prefix is used, the first and the last too: they are routed to weir, not on a link.
    pub public: Vec<Ipv4Net>,
    /// The prefixes of its homes' inside IPv6 addresses, which are not translated; 16 to 64 bits.
    pub public6: Vec<Ipv6Net>,
    pub subscribers_max: u32,
}

impl NatShardConfig {
    /// Returns the number of its public addresses.
    pub(crate) fn addresses(&self) -> u64 {
        self.public.iter().map(|net| 1_u64 << (32 - net.prefix_len())).sum()
    }
}

/// The room of a worker for shards of all times, those of its start included. What those need is
/// there in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardRoom {
    pub shards: u16,
    /// With translation.
    pub public_addresses: u32,
    /// Sum of `subscribers_max`.
    pub subscribers: u32,
}

/// The policy of one worker. [`Nat::new`](crate::Nat::new) checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatConfig {
    /// Translate; false gives the stateful firewall alone, public endpoint = inside endpoint.
    pub enabled: bool,
    pub filtering: Filtering,
    /// Ports per block: a power of two from 64 to 8,192, so that a block is whole words of a bitmap
    /// and each of the 8 lanes has a block on every address.
    pub port_block: u16,
    /// See [`HomeAllowance::ports`].
    pub ports_per_subscriber: u32,
    /// Mappings plus further sessions, of all shards. As many mappings have a record, those in
    /// quarantine included.
    pub flows_max: u32,
    /// Further sessions, of all shards; `None`: see [`NatConfig::sessions_max`].
    pub sessions_max: Option<u32>,
    /// See [`HomeAllowance::flows`].
    pub flows_per_subscriber: u32,
    /// See [`HomeAllowance::sessions`].
    pub sessions_per_subscriber: u32,
    /// See [`HomeAllowance::new_flows_per_sec`].
    pub new_flows_per_sec: u32,
    /// See [`HomeAllowance::new_flows_burst`].
    pub new_flows_burst: u16,
    /// What the homes of a group may have instead, by the number of the group.
    pub group_allowances: BTreeMap<u8, HomeAllowance>,
    /// Homes without state that a shard admits in a second; `None`: an eighth of its
    /// `subscribers_max`, at least 16; `u32::MAX`: no limit.
    pub new_homes_per_sec: Option<u32>,
    pub timeouts: Timeouts,
    /// What the flows of a class get; those of a class that is not here get what the flows of none
    /// do.
    pub classes: BTreeMap<FlowClass, ClassSettings>,
    /// How long a port rests before it is given again.
    pub quarantine_sec: u32,
    /// Ports below this one are never given.
    pub port_min: u16,
    /// Whether inbound packets keep UDP and ICMP sessions alive (RFC 4787 REQ-6a).
    pub udp_inbound_refresh: bool,
    /// TCP sessions per mapping that remotes may open (RFC 7857 section 13); needs a filtering that
    /// lets them.
    pub inbound_sessions_max: u16,
    pub pooling: Pooling,
    /// How homes get their inside IPv6 addresses; `None`: the worker has no IPv6.
    pub delegation: Option<Delegation>,
    /// Whether a home is identified by (outer source, GRE key), not by the outer source alone.
    pub gre_key_identifies_home: bool,
    /// Prefixes of the homes' outer addresses. No other address becomes a subscriber.
    pub subscribers: Vec<Ipv4Net>,
    /// Prefixes of the homes' outer IPv6 addresses, of tunnels over IPv6; empty: there are none.
    pub subscribers6: Vec<Ipv6Net>,
    pub shards: Vec<NatShardConfig>,
    /// Room for shards that are added at run time ([`crate::ReplicaMut::add_shard`]); by default
    /// there is none.
    pub room: ShardRoom,
    /// Other workers that have a copy of each shard, 0 to 4. Not 0: room for their lanes' blocks in
    /// the lists of the homes, a journal of changes, 1 MiB. The lanes that this worker owns and
    /// those that are replicated are set at run time.
    pub replicas: u8,
    /// Sessions that are sent to collectors.
    pub session_log: SessionLog,
    /// Secret randomness for hashes and ports: fresh at every start, except in tests.
    pub seed: [u64; 4],
}

impl Default for NatConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            filtering: Filtering::default(),
            port_block: 256,
            ports_per_subscriber: 2048,
            flows_max: 1_000_000,
            sessions_max: None,
            flows_per_subscriber: u32::MAX,
            sessions_per_subscriber: u32::MAX,
            new_flows_per_sec: u32::MAX,
            new_flows_burst: u16::MAX,
            group_allowances: BTreeMap::new(),
            new_homes_per_sec: Some(u32::MAX),
            timeouts: Timeouts::default(),
            classes: BTreeMap::new(),
            // RFC 6888 REQ-8: "it SHOULD NOT be reallocated to a new mapping until at least 120
            // seconds have passed".
            quarantine_sec: 120,
            port_min: 1024,
            udp_inbound_refresh: false,
            inbound_sessions_max: 256,
            pooling: Pooling::default(),
            delegation: None,
            gre_key_identifies_home: false,
            subscribers: Vec::new(),
            subscribers6: Vec::new(),
            shards: Vec::new(),
            room: ShardRoom::default(),
            replicas: 0,
            session_log: SessionLog::None,
            seed: [0; 4],
        }
    }
}

impl NatConfig {
    /// Returns what the flows of this class get.
    pub(crate) fn class(&self, class: FlowClass) -> ClassSettings {
        let none = ClassSettings { timeouts: self.timeouts, dscp: None };
        self.classes.get(&class).copied().unwrap_or(none)
    }

    /// Returns what a home of this group may have; group 0 has the homes that are in no other.
    pub(crate) fn allowance(&self, group: u8) -> HomeAllowance {
        self.group_allowances.get(&group).copied().unwrap_or(HomeAllowance {
            ports: self.ports_per_subscriber,
            flows: self.flows_per_subscriber,
            sessions: self.sessions_per_subscriber,
            new_flows_per_sec: self.new_flows_per_sec,
            new_flows_burst: self.new_flows_burst,
        })
    }

    /// Whether the second word of a home's identity counts: a GRE key, or half of the prefix that a
    /// home without a tunnel is.
    pub(crate) fn tells_homes_by_key(&self) -> bool {
        self.gre_key_identifies_home || self.home_mask() != 0
    }

    /// Returns the bits of the first half of an IPv6 address that name its home
    /// ([`Delegation::Prefix`]); else 0.
    pub(crate) fn home_mask(&self) -> u64 {
        match self.delegation {
            Some(Delegation::Prefix { home_length }) => u64::MAX << (64 - home_length.clamp(1, 64)),
            _ => 0,
        }
    }

    /// Returns the whole quotas that a home's list has room for: each worker that may own lanes of
    /// a shard may give it one.
    pub(crate) fn lists_per_home(&self) -> u32 {
        1 + u32::from(self.replicas)
    }

    /// Returns the number of shards that there is room for.
    pub fn shards_max(&self) -> usize {
        self.shards.len().max(self.room.shards.into())
    }

    /// Returns the number of public addresses that there is room for; without translation they need
    /// none.
    pub(crate) fn public_addresses_max(&self) -> u64 {
        let given: u64 = self.shards.iter().map(NatShardConfig::addresses).sum();
        given.max(self.room.public_addresses.into())
    }

    /// Returns the number of subscribers that there is room for.
    pub(crate) fn subscribers_max(&self) -> u64 {
        let given: u64 = self.shards.iter().map(|shard| u64::from(shard.subscribers_max)).sum();
        given.max(self.room.subscribers.into())
    }
}
