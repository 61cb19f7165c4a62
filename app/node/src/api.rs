//! What the admin API says, as JSON. The server fills these; the commands print them.
//!
//! | request | answer |
//! |---|---|
//! | `GET /status` | [`Status`] |
//! | `GET /shards` | `[ShardStatus]` |
//! | `GET /member` | [`MemberStatus`]: the node's part in its cluster; 404 on a node of its own |
//! | `GET /drops` | `[DropCount]`, every reason of every worker |
//! | `GET /sessions?subscriber=&inside=&public=&remote=&protocol=&state=&older=&younger=&limit=` | one [`Session`] per line, as the reader takes them; an empty line is a sign of life |
//! | `GET /subscribers?shard=` | one [`SubscriberStatus`] without blocks per line, as `/sessions` |
//! | `GET /subscriber/ADDRESS` | `[SubscriberStatus]`, one per shard or key the home is seated in |
//! | `POST /subscriber/ADDRESS/flush` | [`Flushed`]; root only |
//! | `GET /capture?worker=&side=&inner=&filter=&count=` | a pcapng file that grows until the reader goes away |
//! | `GET /metrics` | OpenMetrics text for a scraper that asks for it, else Prometheus' text format 0.0.4 |
//! | `GET /report` | what the controller of a cluster asks a node for |
//!
//! While the node starts, `/status` says what it waits for, and all but `/metrics` is refused with 503.
//!
//! Anything else than 200 carries a [`Problem`]; but what is no HTTP at all gets a 400 without a body.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};
/// All values of [`Session::state`].
pub use weir_nat::SESSION_STATES;

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
    /// Those that do not forward: admin API, roles, routes, etcd, the logs.
    #[serde(default)]
    pub threads: Vec<ThreadStatus>,
    /// Its part in its cluster; none on a node of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub membership: Option<MembershipStatus>,
    /// While the node starts, what it waits for; its workers are not there yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<WaitingStatus>,
}

/// The wait of a node that starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingStatus {
    /// etcd, cluster-file, controller, or start: its own tables, devices and threads.
    #[serde(rename = "for")]
    pub awaited: String,
    pub why: String,
    pub waited_ms: u64,
    /// Seconds since 1970.
    pub since_unix_sec: u64,
}

/// A node's part in its cluster in short, as [`MemberStatus`] tells it in full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MembershipStatus {
    pub cluster: String,
    /// What could end flows at the next failure, or sets the node apart; empty: it is OK.
    pub risks: Vec<String>,
    pub is_registered: bool,
    /// Milliseconds since etcd was last known to answer.
    pub etcd_silent_ms: u64,
    /// What etcd tells of the map is complete and of now.
    pub is_map_fresh: bool,
    /// Shards by the role that a worker here has for them; roles that none has are left out.
    pub shards: Vec<(String, u64)>,
    /// Lanes of shards whose copy at other workers is not complete.
    pub copies_missing: u64,
    /// Lanes of shards whose copy here is not complete.
    pub copies_awaited: u64,
    pub peers: u64,
    pub peers_silent: u64,
    pub routes: u64,
    pub routes_not_set: u64,
    /// By side; empty: BIRD is not watched, or was not looked at yet.
    #[serde(default)]
    pub bird: Vec<BirdSideStatus>,
}

/// Whether BIRD announces the routes of a side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BirdSideStatus {
    /// access or internet.
    pub side: String,
    /// up, down (it does not answer, or no session is established), not-exporting, unknown or not-watched.
    pub state: String,
    pub sessions_established: u64,
    /// BGP protocols that are watched.
    pub sessions: u64,
    /// What is wrong; empty when nothing is.
    pub why: String,
    /// Milliseconds that the state has been counted.
    pub since_ms: u64,
}

/// A thread of the control side at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatus {
    pub thread: String,
    /// Milliseconds since it last went round its loop; of a thread that writes, since its reader or disk took nothing.
    pub turn_age_ms: u64,
    /// It stands still.
    pub is_late: bool,
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
    /// How full its bounded tables are; none in the answer of an older node.
    #[serde(default)]
    pub tables: Vec<TableStatus>,
    /// In the last second or so.
    #[serde(default)]
    pub rates: WorkerRates,
    pub access: SideStatus,
    pub internet: SideStatus,
}

/// Rates of a worker, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerRates {
    pub access_rx_packets: f64,
    pub access_tx_packets: f64,
    pub internet_rx_packets: f64,
    pub internet_tx_packets: f64,
    pub new_flows: f64,
    /// Packets dropped, for whatever reason.
    pub drops: f64,
}

/// How full a bounded table of a worker is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    pub table: String,
    pub used: u64,
    pub max: u64,
}

/// One port of a worker at one moment. Totals are since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideStatus {
    pub device: String,
    pub mac: String,
    /// The worker's address with its prefix length.
    pub address: String,
    pub gateways: Vec<String>,
    /// Advice for the other end of a virtual link (veth, virtio), where packets get lost without it; empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    pub is_link_up: bool,
    pub is_gateway_up: bool,
    /// ARP messages that claimed a gateway's or another worker's address for a MAC that it does not have, and the last such MAC.
    #[serde(default)]
    pub arp_claims_refused_total: u64,
    #[serde(default)]
    pub arp_claimant: String,
    /// How often a gateway was found at another MAC than before, and the last of these.
    #[serde(default)]
    pub gateway_moves_total: u64,
    #[serde(default)]
    pub gateway_moved_to: String,
    /// TCP SYNs from this side with a wrong checksum, of those that were looked at, one in 64.
    #[serde(default)]
    pub checksums_wrong_total: u64,
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
    /// The worker's role for the shard: primary, acting, or one of those that have a copy; none on a node of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<String>,
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
    /// Further sessions.
    #[serde(default)]
    pub sessions: u32,
    /// Also where they are not listed.
    #[serde(default)]
    pub blocks_held: u32,
    /// Flows that it may still begin in this second.
    #[serde(default)]
    pub new_flows_left: u32,
    #[serde(default)]
    pub limits: SubscriberLimits,
    /// As of [`Session`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<String>,
}

/// Limits of a home on its worker; none: as much as there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberLimits {
    pub blocks: Option<u32>,
    pub flows: Option<u32>,
    pub sessions: Option<u32>,
    pub new_flows_per_sec: Option<u32>,
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

/// A node's part in its cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub cluster: String,
    /// Copies wanted of each shard beside the primary's.
    pub replicas: u64,
    /// Whether etcd has this node's key, as far as the node can know.
    pub is_registered: bool,
    /// It was started without etcd and has not joined yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub without_etcd: Option<OutsideStatus>,
    /// Why etcd does not answer; none: it does.
    pub etcd_error: Option<String>,
    /// Milliseconds since etcd was last known to answer.
    pub etcd_silent_ms: u64,
    pub etcd_errors_total: u64,
    /// Names of the cluster keys in use, the one to send with first; a name gives nothing of its key away.
    #[serde(default)]
    pub cluster_keys: Vec<String>,
    /// Why the key file was refused when it was read last; the former keys are in use.
    #[serde(default)]
    pub key_file_error: Option<String>,
    /// What etcd tells of the map is complete and of now.
    pub is_map_fresh: bool,
    /// It hands its shards over and will end.
    pub is_stopping: bool,
    pub map_epoch_max: u64,
    /// Entries that were older than what this node had seen.
    pub map_rejected_total: u64,
    pub guard_restarts_total: u64,
    /// What is wrong with the guard of the routes; none: it works.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guard_trouble: Option<String>,
    /// Milliseconds since the oldest epoch that is not on disk was seen; 0: all are.
    #[serde(default)]
    pub epochs_unsaved_ms: u64,
    /// Why the epochs could not be written; none: they could.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub epochs_error: Option<String>,
    pub watchdog_trips_total: u64,
    /// Events that the roles thread never read, since it stood still or was far behind.
    #[serde(default)]
    pub events_lost_total: u64,
    /// Workers whose routes are held off.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub held_off: Vec<HeldOffStatus>,
    /// Times that the routes of a worker were held off.
    #[serde(default)]
    pub hold_offs_total: u64,
    /// By cause.
    pub failovers_total: Vec<(String, u64)>,
    pub shards: Vec<RoleStatus>,
    pub peers: Vec<PeerStatus>,
    /// By worker.
    pub replication: Vec<ReplicationStatus>,
    /// As the guard was last told, by worker.
    pub routes: Vec<RouteStatus>,
    /// By side; empty: BIRD is not watched, or was not looked at yet.
    #[serde(default)]
    pub bird: Vec<BirdSideStatus>,
}

/// A node that was started while etcd did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideStatus {
    /// Shards whose newest entry on its disk names it; it makes no new flows in any of them.
    pub shards: Vec<u32>,
    /// etcd answers, and holds the cluster of this id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub other_cluster: Option<String>,
}

/// A worker that was fenced again and again: its routes are a last resort for a while, where others serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldOffStatus {
    pub worker: usize,
    pub shards: usize,
    /// Milliseconds until its routes are as before, unless it is fenced again.
    pub left_ms: u64,
}

/// What one worker is for one shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleStatus {
    pub shard: u32,
    pub worker: usize,
    /// syncing, out-of-sync, synced, acting, primary or leaving.
    pub role: String,
    pub term: u64,
    pub epoch: u64,
    /// In rank order, each with its state: `n1/0 primary`, `n2/0 synced`.
    pub members: Vec<String>,
    /// Members with a full copy on other nodes.
    pub others_synced: usize,
    /// Of its routes; none: withdrawn.
    pub metric: Option<u32>,
    /// Milliseconds that it has had this role.
    pub since_ms: u64,
    /// The kernel has its routes as they are wanted.
    pub is_route_out: bool,
    /// Packets keep coming to this replica while its primary is heard: a switch has the wrong route.
    pub is_misdirected: bool,
    /// The store has forgotten what was seen of it here.
    pub is_set_back: bool,
    /// Why it is not as it should be.
    pub trouble: Option<String>,
}

/// A worker of another node, as one of ours hears it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    pub worker: usize,
    pub peer: String,
    pub address: SocketAddr,
    /// Version of the replication protocol that both speak; none: there is no session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<u8>,
    pub silent_ms: u64,
    /// What it has not acknowledged.
    pub lag_records: u64,
    /// Age of the oldest of that.
    pub lag_ms: u64,
    pub resyncs_total: u64,
    pub gaps_total: u64,
    pub sent_bytes_total: u64,
    /// Why its sessions are refused: the part of the configuration that differs.
    pub difference: Option<String>,
}

/// What a worker copies, and what it refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicationStatus {
    pub worker: usize,
    /// Lanes of shards at other workers: waiting, copying, synced.
    pub copies: [u64; 3],
    /// Slots walked of the copies under way, and all that they have.
    pub slots_done: u64,
    pub slots_total: u64,
    /// Lanes that others write and whose copy is awaited here, and those of them that are complete and followed.
    pub lanes_awaited: u64,
    pub lanes_followed: u64,
    /// Lanes whose copy lacks flows for want of room.
    pub lanes_full: u64,
    /// Changes that fewer copies than wanted had when packets went on.
    #[serde(default)]
    pub changes_degraded_total: u64,
    /// Shards with fewer copies than packets are to wait for.
    #[serde(default)]
    pub shards_short: Vec<u32>,
    /// Datagrams refused, by reason.
    pub refusals_total: Vec<(String, u64)>,
}

/// A route that the switches shall have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteStatus {
    pub worker: usize,
    /// access or internet.
    pub side: String,
    pub prefix: String,
    pub next_hop: Ipv4Addr,
    pub metric: u32,
    /// The guard has said that the kernel took it.
    pub is_set: bool,
}
