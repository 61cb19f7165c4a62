//! The parsed values of a cluster's two kinds of files: plain values, defaults filled in, no spans.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::Serialize;

use crate::ipv6_types::Ipv6Settings;
use crate::policy_types::PolicySettings;
use crate::public_types::PublicSettings;
use crate::types::{
    Access, Fragments, LimitSettings, NatSettings, NodeSettings, TimeoutSettings, WorkerSettings,
};

/// `[cluster]` of the cluster file: the settings that all nodes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterSettings {
    pub name: String,
    /// Number of copies of each shard beside its primary, at most 4. Each has a reserve lane.
    pub replicas: u8,
    pub balance: BalanceSetting,
    pub commit: Commit,
    /// Number of copies that must have a change before packets that depend on it leave, 1 to
    /// `replicas`. `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_replicas: Option<u8>,
    /// Longest time that a packet waits for these copies, milliseconds.
    pub commit_timeout_ms: u32,
    pub commit_on_timeout: CommitOnTimeout,
    /// UDP port of every worker for copies of flows, on its replication address.
    pub replication_port: u16,
    /// Number of prefixes a switch can forward. `None`: not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_routes: Option<u32>,
    /// Number of next hops a switch can hold. `None`: not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_next_hops: Option<u32>,
}

/// Quantity that the controller spreads over the workers in proportion to their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceSetting {
    /// The number of shards.
    Shards,
    /// The public ports in use.
    Load,
}

/// Time at which a packet that creates or changes a flow leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Commit {
    /// At once: the loss of a worker can lose flows younger than the replication lag.
    Async,
    /// When `commit_replicas` copies have the change.
    Replicated,
}

/// Treatment of a packet whose change cannot be committed, in time or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitOnTimeout {
    /// The packet leaves.
    Release,
    /// The packet is dropped, and the flow that it began is ended.
    Drop,
}

/// A shard of a cluster. The controller decides which worker serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterShard {
    pub id: u32,
    /// The tunnel endpoint; `Some` in gre mode only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Ipv4Addr>,
    /// The tunnel endpoint of homes with tunnels over IPv6; in gre mode only. Written only if there
    /// is one: earlier versions do not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint6: Option<Ipv6Addr>,
    /// The next hop of the access network for the homes' packets; `Some` in plain mode only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steer: Option<Ipv4Addr>,
    /// The homes' prefixes; plain mode only, empty in gre mode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<Ipv4Net>,
    /// Public prefixes, never empty: for a firewall in plain mode they are the homes' prefixes.
    pub public: Vec<Ipv4Net>,
    /// The next hop of the access network for the homes' IPv6 packets; `Some` exactly in plain mode
    /// with `public6`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steer6: Option<Ipv6Addr>,
    /// Prefixes of the homes' IPv6 addresses, 16 to 64 bits, which are not translated. Empty: the
    /// shard has no IPv6. Written only if there are some, as `steer6`: earlier versions do not know
    /// them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub public6: Vec<Ipv6Net>,
    pub subscribers_max: u32,
    /// `None`: as set in `[cluster]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
}

impl ClusterShard {
    /// Returns the IPv6 address that the access network sends the homes' packets to: the tunnel
    /// endpoint or the steering address.
    pub fn access6(&self) -> Option<Ipv6Addr> {
        self.endpoint6.or(self.steer6)
    }
}

/// `[[pool]]`: prefixes that are cut into shards of equal size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolSettings {
    pub(crate) first_id: u32,
    pub(crate) endpoints: Vec<Ipv4Net>,
    pub(crate) endpoints6: Vec<Ipv6Net>,
    pub(crate) steer: Vec<Ipv4Net>,
    pub(crate) subscribers: Vec<Ipv4Net>,
    /// Prefix length of a shard's subscribers.
    pub(crate) subscribers_per_shard: u8,
    pub(crate) public: Vec<Ipv4Net>,
    /// Prefix length of a shard's public prefix.
    pub(crate) per_shard: u8,
    pub(crate) steer6: Vec<Ipv6Net>,
    pub(crate) public6: Vec<Ipv6Net>,
    /// Prefix length of a shard's IPv6 prefix.
    pub(crate) per_shard6: u8,
    pub(crate) subscribers_max: u32,
    pub(crate) commit: Option<Commit>,
}

/// The cluster file as written, with pools that are not cut yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterFile {
    pub(crate) cluster: ClusterSettings,
    pub(crate) access: Access,
    pub(crate) nat: NatSettings,
    pub(crate) timeouts: TimeoutSettings,
    pub(crate) fragments: Fragments,
    pub(crate) limits: LimitSettings,
    pub(crate) policy: PolicySettings,
    pub(crate) public: PublicSettings,
    pub(crate) ipv6: Ipv6Settings,
    pub(crate) pools: Vec<PoolSettings>,
    pub(crate) shards: Vec<ClusterShard>,
}

/// The file of a cluster's node: local facts only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFile {
    pub node: NodeSettings,
    pub cluster: MembershipSettings,
    /// The workers, at least one; in file order.
    pub workers: Vec<WorkerSettings>,
}

/// `[cluster]` of a node's file: the name of the cluster, and the access to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipSettings {
    pub name: String,
    /// Endpoints of etcd, at least one, `http://host:port` or `https://host:port`, all with the
    /// same scheme.
    pub etcd: Vec<String>,
    /// `Some` exactly with `https`.
    pub tls: Option<TlsSettings>,
    pub user: Option<UserSettings>,
    /// File of the key that authenticates copies of flows.
    pub key_file: PathBuf,
    /// The BIRD that announces the routes; none: no BIRD is watched.
    pub bird: Option<Bird>,
}

/// The BIRD to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bird {
    /// BIRD's control socket.
    pub socket: PathBuf,
    /// BIRD's BGP protocols to the access switches; empty: the side is not watched.
    pub access: Vec<String>,
    /// BIRD's BGP protocols to the internet switches; empty: the side is not watched.
    pub internet: Vec<String>,
}

/// PEM files of a TLS connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlsSettings {
    /// Authorities that the server's certificate is checked against.
    pub ca: PathBuf,
    /// This node's certificate and its key, if the server requires one.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Name in the server's certificate, if it is not the host of the address.
    pub server_name: Option<String>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSettings {
    pub name: String,
    pub password_file: PathBuf,
}
