//! What a cluster's two kinds of files say once they are parsed: plain values, defaults filled in, no spans.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use serde::Serialize;

use crate::types::{Access, Fragments, Limits, Nat, Node, Timeouts, Worker};

/// `[cluster]` of the cluster file: what all nodes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {
    pub name: String,
    /// Copies of each shard beside its primary, at most 4. Each has a reserve lane.
    pub replicas: u8,
    pub balance: Balance,
    pub commit: Commit,
    /// Copies that are to have a change before packets that depend on it leave, 1 to `replicas`. `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_replicas: Option<u8>,
    /// Longest time that a packet waits for that, milliseconds.
    pub commit_timeout_ms: u32,
    pub commit_on_timeout: CommitOnTimeout,
    /// UDP port of every worker for copies of flows, on its replication address.
    pub replication_port: u16,
    /// Prefixes a switch can forward. `None`: not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_routes: Option<u32>,
    /// Next hops a switch can hold. `None`: not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_next_hops: Option<u32>,
}

/// What the controller spreads over the workers by their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// The number of shards.
    Shards,
    /// The public ports in use.
    Load,
}

/// When a packet that makes or changes a flow leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Commit {
    /// At once: a flow younger than the replication lag can be lost with its worker.
    Async,
    /// When `commit_replicas` copies have it.
    Replicated,
}

/// What becomes of a packet that cannot be committed: in time, or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitOnTimeout {
    /// It leaves.
    Release,
    /// It is dropped, and what it began is ended.
    Drop,
}

/// A shard of a cluster. Which worker serves it is the controller's to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterShard {
    pub id: u32,
    /// The tunnel endpoint; `Some` in gre mode only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Ipv4Addr>,
    /// The next hop of the access network for the homes' packets; `Some` in plain mode only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steer: Option<Ipv4Addr>,
    /// The homes' prefixes; plain mode only, empty in gre mode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<Ipv4Net>,
    /// Never empty: a firewall in plain mode has the homes' prefixes here, too.
    pub public: Vec<Ipv4Net>,
    pub subscribers_max: u32,
    /// `None`: as `[cluster]` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
}

/// `[[pool]]`: prefixes that are cut into shards of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) first_id: u32,
    pub(crate) endpoints: Vec<Ipv4Net>,
    pub(crate) steer: Vec<Ipv4Net>,
    pub(crate) subscribers: Vec<Ipv4Net>,
    /// Prefix length.
    pub(crate) subscribers_per_shard: u8,
    pub(crate) public: Vec<Ipv4Net>,
    /// Prefix length.
    pub(crate) per_shard: u8,
    pub(crate) subscribers_max: u32,
    pub(crate) commit: Option<Commit>,
}

/// The cluster file as it is written, pools not yet cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterFile {
    pub(crate) cluster: Cluster,
    pub(crate) access: Access,
    pub(crate) nat: Nat,
    pub(crate) timeouts: Timeouts,
    pub(crate) fragments: Fragments,
    pub(crate) limits: Limits,
    pub(crate) pools: Vec<Pool>,
    pub(crate) shards: Vec<ClusterShard>,
}

/// The file of a cluster's node: local facts only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub node: Node,
    pub cluster: Membership,
    /// At least one; in file order.
    pub workers: Vec<Worker>,
}

/// `[cluster]` of a node's file: which cluster, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub name: String,
    /// At least one, `http://host:port` or `https://host:port`, all with the same scheme.
    pub etcd: Vec<String>,
    /// `Some` exactly with `https`.
    pub tls: Option<TlsFiles>,
    pub user: Option<User>,
    /// File of the key that authenticates copies of flows.
    pub key_file: PathBuf,
    /// The BIRD that announces the routes; none: it is not watched.
    pub bird: Option<Bird>,
}

/// Which BIRD is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bird {
    /// Its control socket.
    pub socket: PathBuf,
    /// Its BGP protocols to the access switches; none: the side is not watched.
    pub access: Vec<String>,
    /// Its BGP protocols to the internet switches; none: the side is not watched.
    pub internet: Vec<String>,
}

/// Files of a connection with TLS, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that the server's certificate is checked against.
    pub ca: PathBuf,
    /// Our certificate and its key, if the server asks for one.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, if it is not the host of the address.
    pub server_name: Option<String>,
}

/// User of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub password_file: PathBuf,
}
