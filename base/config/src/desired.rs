//! What the operator wants of a cluster: the cluster file, checked, every shard by itself.
//!
//! ```text
//!   cluster file --parse_cluster--> Desired --serde--> JSON in etcd --serde--> Desired on every node
//!                                      |                   (the same checks again)
//!                                      +-- fingerprint: what two workers must agree on to replicate
//!                                      +-- difference:  what a new one changes, and for which live flows
//! ```
//!
//! Invariants: it has passed the checks of the file, also when it comes out of etcd; shards stand in order of their
//! numbers, prefixes in order of their addresses, so equal wishes are equal values. It does not say who serves a shard.

pub(crate) mod difference;
mod fingerprint;
pub(crate) mod json;

use ipnet::Ipv4Net;
use serde::Serialize;

use crate::check::{self, LANES};
use crate::cluster_types::{Cluster, ClusterFile, ClusterShard, Commit, Member};
use crate::port_share::PortShare;
use crate::types::{Access, Config, Fragments, Limits, Nat, Shard, Timeouts, Worker};

pub use fingerprint::Fingerprint;
pub use json::DesiredError;

/// Shards that a worker keeps room for, unless its file says more.
const SHARD_ROOM_MAX: usize = 1024;

/// The cluster-wide facts. Its JSON has the keys of the cluster file, a `format` number and no pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "json::Stored")]
pub struct Desired {
    pub cluster: Cluster,
    pub access: Access,
    pub nat: Nat,
    pub timeouts: Timeouts,
    pub fragments: Fragments,
    pub limits: Limits,
    /// At least one, those of the pools among them; by number.
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
            shard.subscribers.sort_unstable();
        }
        shards.sort_unstable_by_key(|shard| shard.id);
        let ClusterFile { cluster, mut access, nat, timeouts, fragments, limits, .. } = file;
        access.subscribers.sort_unstable();
        Self { cluster, access, nat, timeouts, fragments, limits, shards }
    }

    /// The shard of a number.
    pub fn shard(&self, id: u32) -> Option<&ClusterShard> {
        let position = self.shards.binary_search_by_key(&id, |shard| shard.id).ok()?;
        self.shards.get(position)
    }

    /// Whether packets of the shard wait for copies.
    pub fn is_committed(&self, shard: &ClusterShard) -> bool {
        shard.commit.unwrap_or(self.cluster.commit) == Commit::Replicated
    }

    /// Whether those of any shard may. Where the cluster's own word is `async`, only those that say otherwise.
    pub fn is_any_committed(&self) -> bool {
        self.cluster.commit == Commit::Replicated
            || self.shards.iter().any(|shard| self.is_committed(shard))
    }

    /// Copies that packets wait for.
    pub fn commit_replicas(&self) -> u8 {
        self.cluster.commit_replicas.unwrap_or(self.cluster.replicas)
    }

    /// Public addresses of all shards.
    pub fn public_addresses(&self) -> u64 {
        addresses(self.shards.iter().flat_map(|shard| &shard.public))
    }

    /// How many of them the reserve lanes cost: their share of the ports, in whole addresses. 0 without translation.
    pub fn reserved_addresses(&self) -> u64 {
        let lanes = if self.nat.enabled { u64::from(self.cluster.replicas) } else { 0 };
        (self.public_addresses() * lanes).div_ceil(u64::from(LANES))
    }

    /// Homes that all shards serve at once: in plain mode no more than their prefixes have addresses.
    pub fn homes(&self) -> u64 {
        self.shards.iter().map(homes_of).sum()
    }

    /// Addresses that weir answers for on the access side, one a shard: endpoints or steering addresses.
    pub fn access_routes(&self) -> usize {
        self.shards.len()
    }

    /// Public prefixes, as many routes for the internet switch.
    pub fn internet_routes(&self) -> usize {
        self.shards.iter().map(|shard| shard.public.len()).sum()
    }

    /// Shards that `worker` keeps room for.
    pub fn shard_room(&self, worker: &Worker) -> usize {
        match worker.shards_max {
            0 => self.shards.len().min(SHARD_ROOM_MAX),
            shards_max => usize::from(shards_max),
        }
    }

    /// Shards, copies included, that `worker` gets when all are shared out by weight to the workers of `members`.
    pub fn share(&self, worker: &Worker, members: &[&Member]) -> usize {
        let workers = members.iter().flat_map(|member| &member.workers);
        let sum: u64 = workers.map(|worker| u64::from(worker.weight)).sum();
        let all = self.shards.len() as u64;
        let copies = 1 + u64::from(self.cluster.replicas);
        (all * copies * u64::from(worker.weight)).div_ceil(sum.max(1)).min(all) as usize
    }

    /// How the homes of a shard share its public addresses. `None` without translation.
    pub fn port_share(&self, shard: &ClusterShard) -> Option<PortShare> {
        PortShare::of(&self.nat, self.cluster.replicas, homes_of(shard), addresses(&shard.public))
    }

    /// The configuration of `member` as if it were alone with some of the shards: pairs of a shard's number and the
    /// index of its worker. Numbers that there are not are passed over.
    pub fn config_of(
        &self,
        member: &Member,
        shards: impl IntoIterator<Item = (u32, usize)>,
    ) -> Config {
        let shards = shards.into_iter().filter_map(|(id, worker)| {
            let shard = self.shard(id)?;
            Some(Shard {
                id,
                endpoint: shard.endpoint,
                subscribers: shard.subscribers.clone(),
                public: shard.public.clone(),
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
            shards: shards.collect(),
        }
    }
}

/// Without a tunnel no more than its prefixes have addresses.
fn homes_of(shard: &ClusterShard) -> u64 {
    check::homes(shard.subscribers_max, &shard.subscribers)
}

fn addresses<'n>(nets: impl IntoIterator<Item = &'n Ipv4Net>) -> u64 {
    nets.into_iter().map(|net| 1_u64 << (32 - net.prefix_len())).sum()
}
