//! What the admin API says, as JSON. The server fills these; the commands print them.
//!
//! | request | answer |
//! |---|---|
//! | `GET /status` | [`Status`] |
//! | `GET /shards` | `[ShardStatus]` |
//! | `GET /drops` | `[DropCount]`, every reason of every worker |
//! | `GET /sessions?subscriber=&public=&remote=&limit=` | one [`Session`] per line, as the reader takes them |
//! | `GET /subscriber/ADDRESS` | `[SubscriberStatus]`, one per shard or key the home is seated in |
//! | `POST /subscriber/ADDRESS/flush` | [`Flushed`]; root only |
//! | `GET /capture?worker=&side=&inner=&filter=&count=` | a pcapng file that grows until the reader goes away |
//! | `GET /metrics` | OpenMetrics text |
//!
//! Anything else than 200 carries a [`Problem`].

use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

/// How the node is, in one word. The exit code of `weir status` is the discriminant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
pub enum Verdict {
    /// Everything forwards.
    Ok = 0,
    /// Packets are forwarded, but something needs a look.
    Degraded = 1,
    /// No worker forwards.
    Down = 2,
}

impl Verdict {
    /// As it is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Degraded => "DEGRADED",
            Self::Down => "DOWN",
        }
    }
}

/// The node at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub verdict: Verdict,
    /// Why the verdict is not OK; empty otherwise.
    pub reasons: Vec<String>,
    pub node: String,
    pub version: String,
    /// All ports were up and all gateways answered at least once.
    pub has_been_ready: bool,
    pub uptime_sec: u64,
    pub has_huge_pages: bool,
    /// Path of the block log, when there is one.
    pub block_log: Option<String>,
    pub workers: Vec<WorkerStatus>,
}

/// One worker at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub worker: usize,
    pub core: usize,
    /// Milliseconds since the worker last went round its loop.
    pub silent_ms: u64,
    /// Share of the last second spent on packets, 0 to 1.
    pub busy_ratio: f64,
    pub flows: u64,
    pub flows_max: u64,
    pub subscribers: u64,
    /// Of its tables and indexes.
    pub memory_bytes: u64,
    pub access: SideStatus,
    pub internet: SideStatus,
}

/// One port of a worker at one moment. Totals are since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideStatus {
    pub device: String,
    pub mac: String,
    /// The worker's address with its prefix length.
    pub address: String,
    pub gateways: Vec<String>,
    pub is_link_up: bool,
    pub is_gateway_up: bool,
    pub rx_packets_total: u64,
    pub tx_packets_total: u64,
    pub rx_missed_total: u64,
    pub tx_dropped_total: u64,
}

/// One shard at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardStatus {
    pub shard: u32,
    pub worker: usize,
    /// Tunnel endpoint; none with plain access.
    pub endpoint: Option<Ipv4Addr>,
    pub public: Vec<String>,
    pub subscribers: u64,
    pub subscribers_max: u64,
    pub ports_used: u64,
    pub blocks_free: u64,
    pub blocks_total: u64,
}

/// Packets a worker dropped for one reason since start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    pub worker: usize,
    pub reason: String,
    pub help: String,
    pub packets_total: u64,
}

/// A mapping and one remote endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub worker: usize,
    pub shard: u32,
    /// The home: outer source of its tunnel, or its address with plain access.
    pub subscriber: Ipv4Addr,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gre_key: Option<u32>,
    pub protocol: String,
    pub inside: SocketAddrV4,
    pub public: SocketAddrV4,
    pub remote: SocketAddrV4,
    /// TCP state, or how a datagram session stands.
    pub state: String,
    /// Since the mapping was made.
    pub age_sec: u32,
    pub idle_sec: u32,
    /// Idle time at which the session ends.
    pub timeout_sec: u32,
}

/// A seated subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberStatus {
    pub worker: usize,
    pub shard: u32,
    pub subscriber: Ipv4Addr,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gre_key: Option<u32>,
    /// None without translation.
    pub public_address: Option<Ipv4Addr>,
    pub blocks: Vec<Block>,
    /// Of all protocols, those in quarantine included.
    pub ports_used: u32,
    /// Live mappings and ports in quarantine.
    pub mappings: u32,
    /// Mappings plus further sessions.
    pub flows: u32,
}

/// A block of public ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub public_address: Ipv4Addr,
    pub port_first: u16,
    /// Inclusive.
    pub port_last: u16,
}

/// What a flush removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    pub mappings: usize,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub error: String,
}
