//! The desired state of a cluster: the checked cluster file, with every shard listed.
//!
//! ```text
//!   cluster file --parse_cluster--> Desired --serde--> JSON in etcd --serde--> Desired
//!                                      |               on every node (the same checks again)
//!                                      +-- fingerprint: settings two replicating workers share
//!                                      +-- difference:  changes of a new one, and their effect
//!                                                       on live flows
//! ```
//!
//! Invariants: the value has passed the checks of the file, also when it is read from etcd; shards
//! are in order of their numbers, prefixes in order of their addresses, so that equal states are
//! equal values. It does not state which worker serves a shard.

pub(crate) mod delegation_difference;
pub(crate) mod difference;
mod fingerprint;
pub(crate) mod json;
mod long_list;
pub(crate) mod policy_difference;
pub(crate) mod public_difference;

use ipnet::Ipv4Net;
use serde::Serialize;

use crate::check::{self, LANES};
use crate::cluster_types::{ClusterFile, ClusterSettings, ClusterShard, Commit, MemberFile};
use crate::ipv6_types::Ipv6Settings;
use crate::policy_types::PolicySettings;
use crate::port_share::PortShare;
use crate::public_types::PublicSettings;
use crate::types::{
    Access, Config, Fragments, LimitSettings, NatSettings, ShardSettings, TimeoutSettings,
    WorkerSettings,
};

pub use fingerprint::DesiredFingerprint;
pub use json::{DESIRED_FORMAT, DesiredError};

/// Number of shards that a worker has room for, unless its file sets another number.
const SHARD_ROOM_MAX: usize = 1024;

/// The cluster-wide settings. Their JSON has the keys of the cluster file, a `format` number and no
/// pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "json::Stored")]
pub struct Desired {
    pub cluster: ClusterSettings,
    pub access: Access,
    pub nat: NatSettings,
    pub timeouts: TimeoutSettings,
    pub fragments: Fragments,
    pub limits: LimitSettings,
    pub policy: PolicySettings,
    pub public: PublicSettings,
    pub ipv6: Ipv6Settings,
    /// The shards, at least one, including those of the pools; by number.
    pub shards: Vec<ClusterShard>,
}

impl Desired {
    /// Cuts the pools of a file without errors.
    pub(crate) fn of(file: ClusterFile) -> Self {
        let mut shards = file.shards;
        shards.extend(file.pools.iter().flat_map(|pool| pool.shards()));
        for shard in &mut shards {
            if shard.public.is_empty() {
                shard.public.clone_from(&shard.subscribers);
            }
            shard.public.sort_unstable();
            shard.public6.sort_unstable();
            shard.subscribers.sort_unstable();
        }
        shards.sort_unstable_by_key(|shard| shard.id);
        let ClusterFile {
            cluster,
            mut access,
            nat,
            timeouts,
            fragments,
            limits,
            policy,
            public,
            ipv6,
            ..
        } = file;
        access.subscribers.sort_unstable();
        access.subscribers6.sort_unstable();
        let (policy, public, ipv6) = (policy.sorted(), public.sorted(), ipv6.sorted());
        Self { cluster, access, nat, timeouts, fragments, limits, policy, public, ipv6, shards }
    }

    /// Returns the shard with a number.
    pub fn shard(&self, id: u32) -> Option<&ClusterShard> {
        let position = self.shards.binary_search_by_key(&id, |shard| shard.id).ok()?;
        self.shards.get(position)
    }

    /// Whether packets of the shard wait for copies.
    pub fn is_committed(&self, shard: &ClusterShard) -> bool {
        shard.commit.unwrap_or(self.cluster.commit) == Commit::Replicated
    }

    /// Whether packets of any shard wait for copies: by the cluster's setting or by a shard's own.
    pub fn is_any_committed(&self) -> bool {
        self.cluster.commit == Commit::Replicated
            || self.shards.iter().any(|shard| self.is_committed(shard))
    }

    /// Number of copies that packets wait for.
    pub fn commit_replicas(&self) -> u8 {
        self.cluster.commit_replicas.unwrap_or(self.cluster.replicas)
    }

    /// Number of public addresses of all shards.
    pub fn public_addresses(&self) -> u64 {
        addresses(self.shards.iter().flat_map(|shard| &shard.public))
    }

    /// Number of public addresses that the reserve lanes cost: their share of the ports, in whole
    /// addresses. 0 without translation.
    pub fn reserved_addresses(&self) -> u64 {
        let lanes = if self.nat.enabled { u64::from(self.cluster.replicas) } else { 0 };
        (self.public_addresses() * lanes).div_ceil(u64::from(LANES))
    }

    /// Number of homes that all shards serve at once: in plain mode at most the addresses of their
    /// prefixes.
    pub fn homes(&self) -> u64 {
        self.shards.iter().map(homes_of).sum()
    }

    /// Whether any shard serves IPv6.
    pub fn has_ipv6(&self) -> bool {
        self.shards.iter().any(|shard| !shard.public6.is_empty())
    }

    /// Whether homes may have tunnels over IPv6.
    pub fn has_outer_ipv6(&self) -> bool {
        !self.access.subscribers6.is_empty()
            || self.shards.iter().any(|shard| shard.endpoint6.is_some())
    }

    /// Number of routes for the access switch, of both families: an endpoint or a steering address
    /// of each shard, and those of IPv6.
    pub fn access_routes(&self) -> usize {
        self.shards.len() + self.shards.iter().filter(|shard| shard.access6().is_some()).count()
    }

    /// Number of routes for the internet switch, of both families: the public prefixes.
    pub fn internet_routes(&self) -> usize {
        self.shards.iter().map(|shard| shard.public.len() + shard.public6.len()).sum()
    }

    /// Number of shards that `worker` has room for.
    pub fn shard_room(&self, worker: &WorkerSettings) -> usize {
        match worker.shards_max {
            0 => self.shards.len().min(SHARD_ROOM_MAX),
            shards_max => usize::from(shards_max),
        }
    }

    /// Number of shards, copies included, that `worker` gets when all are distributed by weight to
    /// the workers of `members`.
    pub fn share(&self, worker: &WorkerSettings, members: &[&MemberFile]) -> usize {
        let workers = members.iter().flat_map(|member| &member.workers);
        let sum: u64 = workers.map(|worker| u64::from(worker.weight)).sum();
        let all = self.shards.len() as u64;
        let copies = 1 + u64::from(self.cluster.replicas);
        (all * copies * u64::from(worker.weight)).div_ceil(sum.max(1)).min(all) as usize
    }

    /// Returns how the homes of a shard share its public addresses. `None` without translation.
    pub fn port_share(&self, shard: &ClusterShard) -> Option<PortShare> {
        let (replicas, pools) = (self.cluster.replicas, &self.policy.source_pools);
        PortShare::of(&self.nat, replicas, homes_of(shard), &shard.public, pools)
    }

    /// Returns the configuration of `member` as if it were a single node with some of the shards:
    /// pairs of a shard's number and the index of its worker. Unknown numbers are skipped.
    pub fn config_of(
        &self,
        member: &MemberFile,
        shards: impl IntoIterator<Item = (u32, usize)>,
    ) -> Config {
        let shards = shards.into_iter().filter_map(|(id, worker)| {
            let shard = self.shard(id)?;
            Some(ShardSettings {
                id,
                endpoint: shard.endpoint,
                endpoint6: shard.endpoint6,
                subscribers: shard.subscribers.clone(),
                public: shard.public.clone(),
                public6: shard.public6.clone(),
                subscribers_max: shard.subscribers_max,
                worker,
            })
        });
        Config {
            node: member.node.clone(),
            workers: member.workers.clone(),
            access: self.access.clone(),
            nat: self.nat.clone(),
            timeouts: self.timeouts,
            fragments: self.fragments,
            limits: self.limits,
            policy: self.policy.clone(),
            public: self.public.clone(),
            ipv6: self.ipv6.clone(),
            shards: shards.collect(),
        }
    }
}

/// Number of homes of a shard; without a tunnel at most the addresses of its prefixes.
fn homes_of(shard: &ClusterShard) -> u64 {
    check::homes(shard.subscribers_max, &shard.subscribers)
}

fn addresses<'n>(nets: impl IntoIterator<Item = &'n Ipv4Net>) -> u64 {
    nets.into_iter().map(|net| 1_u64 << (32 - net.prefix_len())).sum()
}
