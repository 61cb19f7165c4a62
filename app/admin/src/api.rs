//! Requests and answers of the admin API, as JSON. The server fills these types; the commands print
//! them.
//!
//! | request | answer |
//! |---|---|
//! | `GET /status` | [`Status`] |
//! | `GET /shards` | `[ShardStatus]` |
//! | `GET /member` | [`MemberStatus`]: the node as a member; 404 on a standalone node |
//! | `GET /drops` | `[DropCount]`, every reason of every worker |
//! | `GET /sessions?FILTERS` | one [`Session`] per line; an empty line is a heartbeat |
//! | `GET /subscribers?shard=` | one [`SubscriberStatus`] without blocks per line |
//! | `GET /subscriber/ADDRESS` | `[SubscriberStatus]`, one per shard or key that has the home |
//! | `POST /subscriber/ADDRESS/flush` | [`Flushed`]; root only |
//! | `GET /reload?force=` | [`Reload`]: what a reload would do; 409 in a cluster |
//! | `POST /reload?force=` | [`Reload`]; root only |
//! | `GET /capture?OPTIONS` | a pcapng file that grows until the reader disconnects |
//! | `GET /trace?CHOICE` | one [`TracedPacket`](crate::TracedPacket) per line |
//! | `GET /metrics` | OpenMetrics text if asked for, else Prometheus' text format 0.0.4 |
//! | `GET /report` | the node's answer to the controller of its cluster |
//!
//! FILTERS are
//! `family=&subscriber=&inside=&public=&remote=&protocol=&state=&older=&younger=&limit=`, OPTIONS
//! `worker=&side=&inner=&filter=&count=`. ADDRESS, and the subscriber of a filter, is a
//! [`HomeName`](crate::HomeName); the slash of a prefix is `%2F`. The lines of `/sessions` and
//! `/subscribers` come as the reader takes them.
//! While the node starts, `/status` reports what it waits for, and any other path but `/metrics` is
//! refused with 503.
//!
//! Every status but 200 carries a [`Problem`], except that bytes that are not HTTP get a 400
//! without a body.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::reload::{
    GenerationStatus, Reload, ReloadChange, ReloadOutcome, RuleCount, RunningSettings,
    SettingsSource, SettingsTexts,
};
pub use crate::session::Session;
pub use crate::subscriber::{Block, ClaimedPrefix, Flushed, SubscriberLimits, SubscriberStatus};
/// All values of [`Session::state`].
pub use weir_nat::SESSION_STATES;

/// State of the node in one word. The exit code of `weir status` is the discriminant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
pub enum Verdict {
    /// Everything forwards.
    Ok = 0,
    /// Packets are forwarded, but something needs attention.
    Degraded = 1,
    /// No worker forwards.
    Down = 2,
}

impl Verdict {
    /// Returns the word that is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Degraded => "DEGRADED",
            Self::Down => "DOWN",
        }
    }
}

/// State of the node at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub verdict: Verdict,
    /// Why the verdict is not OK; empty otherwise.
    pub reasons: Vec<String>,
    pub node: String,
    pub version: String,
    /// Whether all ports were up and all gateways answered at least once.
    pub has_been_ready: bool,
    pub uptime_sec: u64,
    pub has_huge_pages: bool,
    /// Path of the block log, when there is one.
    pub block_log: Option<String>,
    pub workers: Vec<WorkerStatus>,
    /// Threads that do not forward: admin API, roles, routes, etcd, the logs.
    #[serde(default)]
    pub threads: Vec<ThreadStatus>,
    /// The node's membership in its cluster; none on a standalone node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub membership: Option<MembershipStatus>,
    /// The settings that change while the node runs; none while it starts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generation: Option<GenerationStatus>,
    /// What the node waits for while it starts; it has no workers then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<WaitingStatus>,
}

/// The wait of a node that starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingStatus {
    /// `etcd`, `cluster-file`, `controller` or `start`, which stands for the node's own tables,
    /// devices and threads.
    #[serde(rename = "for")]
    pub awaited: String,
    pub why: String,
    pub waited_ms: u64,
    /// Seconds since 1970.
    pub since_unix_sec: u64,
}

/// Summary of a node's membership in its cluster; [`MemberStatus`] has the details.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MembershipStatus {
    pub cluster: String,
    /// Conditions that could end flows at the next failure, or that set the node apart from its
    /// cluster; empty if there are none.
    pub risks: Vec<String>,
    pub is_registered: bool,
    /// Milliseconds since etcd was last known to answer.
    pub etcd_silent_ms: u64,
    /// Whether the node's copy of the map in etcd is complete and current.
    pub is_map_fresh: bool,
    /// Number of shards by the role that a worker here has for them; unused roles are left out.
    pub shards: Vec<(String, u64)>,
    /// Lanes of shards whose copy at other workers is not complete.
    pub copies_missing: u64,
    /// Lanes of shards whose copy here is not complete.
    pub copies_awaited: u64,
    pub peers: u64,
    pub peers_silent: u64,
    pub routes: u64,
    pub routes_not_set: u64,
    /// By side; empty if BIRD is not watched, or was not polled yet.
    #[serde(default)]
    pub bird: Vec<BirdSideStatus>,
}

/// Whether BIRD announces the routes of a side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BirdSideStatus {
    /// access or internet.
    pub side: String,
    /// up, down (BIRD does not answer, or no session is established), not-exporting, unknown or
    /// not-watched.
    pub state: String,
    pub sessions_established: u64,
    /// BGP protocols that are watched.
    pub sessions: u64,
    /// Reason for the state; empty if nothing is wrong.
    pub why: String,
    /// Milliseconds for which this state has been in effect.
    pub since_ms: u64,
}

/// BIRD's control socket, and its BGP protocols by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BirdSessions {
    pub socket: PathBuf,
    /// Empty if the side is not watched.
    pub access: Vec<String>,
    /// Empty if the side is not watched.
    pub internet: Vec<String>,
}

/// A thread of the control side at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatus {
    pub thread: String,
    /// Milliseconds since the thread's last loop turn; for a thread that writes, the time for which
    /// its reader or disk has taken nothing.
    pub turn_age_ms: u64,
    /// Whether the thread has stalled.
    pub is_late: bool,
}

/// State of one worker at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub worker: usize,
    pub core: usize,
    /// Milliseconds since the worker's last loop turn.
    pub silent_ms: u64,
    /// Share of the last second spent on packets, 0 to 1.
    pub busy_ratio: f64,
    pub flows: u64,
    /// Part of `flows`: IPv6 flows.
    #[serde(default)]
    pub flows6: u64,
    pub flows_max: u64,
    pub subscribers: u64,
    /// Number of the generation of settings in force; 0: those of the start.
    #[serde(default)]
    pub generation: u64,
    /// Memory of its tables and indexes.
    pub memory_bytes: u64,
    /// Size of the pages that the records of its mappings lie on; 0 in the answer of an older node.
    #[serde(default)]
    pub record_page_bytes: u64,
    /// Size of the pages that the indexes of its mappings lie on, the smaller one if they differ.
    #[serde(default)]
    pub index_page_bytes: u64,
    /// Fill levels of its bounded tables; none in the answer of an older node.
    #[serde(default)]
    pub tables: Vec<TableStatus>,
    /// Rates over the last second or so.
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
    /// Packets dropped, for any reason.
    pub drops: f64,
}

/// Fill level of a bounded table of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    pub table: String,
    pub used: u64,
    pub max: u64,
}

/// State of one port of a worker at one moment. Totals are since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideStatus {
    pub device: String,
    pub mac: String,
    /// The worker's address with its prefix length.
    pub address: String,
    pub gateways: Vec<String>,
    /// Those of IPv6; empty for a side without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways6: Vec<String>,
    /// Advice for the other end of a virtual link (veth, virtio) that loses packets without it;
    /// empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    pub is_link_up: bool,
    /// Whether a gateway of each family of the side answers, and its addresses are its own.
    pub is_gateway_up: bool,
    /// Why it is not; empty while it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fault: String,
    /// Messages of other stations that have, or claim, an IPv6 address of the side;
    /// `address_conflict_mac` is the last such station.
    #[serde(default)]
    pub address_conflicts_total: u64,
    #[serde(default)]
    pub address_conflict_mac: String,
    /// ARP messages that claimed a gateway's or another worker's address for a MAC that it does not
    /// have; `arp_claimant` is the last such MAC.
    #[serde(default)]
    pub arp_claims_refused_total: u64,
    #[serde(default)]
    pub arp_claimant: String,
    /// Times that a gateway was found at another MAC than before; `gateway_moved_to` is the last of
    /// these MACs.
    #[serde(default)]
    pub gateway_moves_total: u64,
    #[serde(default)]
    pub gateway_moved_to: String,
    /// TCP SYNs from this side with a wrong checksum, among those that were checked: one in 64.
    #[serde(default)]
    pub checksums_wrong_total: u64,
    pub rx_packets_total: u64,
    pub tx_packets_total: u64,
    pub rx_missed_total: u64,
    pub tx_dropped_total: u64,
}

/// State of one shard at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardStatus {
    pub shard: u32,
    pub worker: usize,
    /// Tunnel endpoint; none with plain access.
    pub endpoint: Option<Ipv4Addr>,
    pub public: Vec<String>,
    /// IPv6 prefixes of its homes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub public6: Vec<String>,
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

/// Reason why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub error: String,
}

/// State of a node's membership in its cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub cluster: String,
    /// Wanted copies of each shard beside the primary's.
    pub replicas: u64,
    /// Whether etcd has this node's key, as far as the node can know.
    pub is_registered: bool,
    /// Present if the node was started without etcd and has not joined yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub without_etcd: Option<OutsideStatus>,
    /// Reason why etcd does not answer; none if it does.
    pub etcd_error: Option<String>,
    /// Milliseconds since etcd was last known to answer.
    pub etcd_silent_ms: u64,
    pub etcd_errors_total: u64,
    /// Names of the cluster keys in use, the sending key first; a name reveals nothing of its key.
    #[serde(default)]
    pub cluster_keys: Vec<String>,
    /// Reason why the last read of the key file was refused; the former keys stay in use.
    #[serde(default)]
    pub key_file_error: Option<String>,
    /// Whether the node's copy of the map in etcd is complete and current.
    pub is_map_fresh: bool,
    /// Whether the node hands its shards over in order to end.
    pub is_stopping: bool,
    pub map_epoch_max: u64,
    /// Map entries rejected because this node had seen a newer one.
    pub map_rejected_total: u64,
    pub guard_restarts_total: u64,
    /// Fault of the route guard; none if it works.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guard_trouble: Option<String>,
    /// Milliseconds since the oldest epoch that is not on disk was seen; 0 if all are on disk.
    #[serde(default)]
    pub epochs_unsaved_ms: u64,
    /// Reason why the epochs could not be written; none if they could.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub epochs_error: Option<String>,
    pub watchdog_trips_total: u64,
    /// Events that the roles thread never read, because it had stalled or was far behind.
    #[serde(default)]
    pub events_lost_total: u64,
    /// Workers whose routes are held off.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub held_off: Vec<HeldOffStatus>,
    /// Times that the routes of a worker were held off.
    #[serde(default)]
    pub hold_offs_total: u64,
    /// Number of failovers by cause.
    pub failovers_total: Vec<(String, u64)>,
    pub shards: Vec<RoleStatus>,
    pub peers: Vec<PeerStatus>,
    /// Replication state by worker.
    pub replication: Vec<ReplicationStatus>,
    /// Routes as last sent to the guard, by worker.
    pub routes: Vec<RouteStatus>,
    /// By side; empty if BIRD is not watched, or was not polled yet.
    #[serde(default)]
    pub bird: Vec<BirdSideStatus>,
    /// The BIRD that is watched, as the node's file names it; none if no BIRD is watched.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bird_sessions: Option<BirdSessions>,
}

/// A node that was started while etcd did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideStatus {
    /// Shards whose newest entry on the node's disk names the node; it opens no flows in any of
    /// them.
    pub shards: Vec<u32>,
    /// Id of the cluster that etcd holds, if etcd answers and holds another cluster than this
    /// node's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub other_cluster: Option<String>,
}

/// A worker that was fenced repeatedly: for a while its routes are a last resort in shards that
/// another worker serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldOffStatus {
    pub worker: usize,
    pub shards: usize,
    /// Milliseconds until its routes are restored, unless it is fenced again.
    pub left_ms: u64,
}

/// Role of one worker for one shard.
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
    /// Number of members with a full copy on other nodes.
    pub others_synced: usize,
    /// Metric of its routes; none if they are withdrawn.
    pub metric: Option<u32>,
    /// Milliseconds since the worker took this role.
    pub since_ms: u64,
    /// Whether the kernel has its routes as wanted.
    pub is_route_out: bool,
    /// Whether packets keep arriving at this replica although its primary is heard: a switch has a
    /// wrong route.
    pub is_misdirected: bool,
    /// Whether etcd has lost the shard's entry, or was set back behind what this node has seen of
    /// it.
    pub is_set_back: bool,
    /// Fault of this role; none if it is as it should be.
    pub trouble: Option<String>,
}

/// A worker of another node, as seen by a worker of this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    pub worker: usize,
    pub peer: String,
    pub address: SocketAddr,
    /// Version of the replication protocol that both speak; none without a session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<u8>,
    pub silent_ms: u64,
    /// Records that the peer has not acknowledged.
    pub lag_records: u64,
    /// Age of the oldest unacknowledged record.
    pub lag_ms: u64,
    pub resyncs_total: u64,
    pub gaps_total: u64,
    pub sent_bytes_total: u64,
    /// Reason why its sessions are refused: the part of the configuration that differs.
    pub difference: Option<String>,
}

/// Copies at other workers and here, and refused datagrams of one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicationStatus {
    pub worker: usize,
    /// Lane copies at other workers: waiting, copying, synced.
    pub copies: [u64; 3],
    /// Table slots walked for the copies under way; `slots_total` counts all their slots.
    pub slots_done: u64,
    pub slots_total: u64,
    /// Lanes written by other workers whose copy is expected here; `lanes_followed` counts those
    /// whose copy is complete and followed.
    pub lanes_awaited: u64,
    pub lanes_followed: u64,
    /// Lanes whose copy lacks flows for want of room.
    pub lanes_full: u64,
    /// Changes that had reached fewer copies than wanted when their packets were released.
    #[serde(default)]
    pub changes_degraded_total: u64,
    /// Shards with fewer copies than their packets should wait for.
    #[serde(default)]
    pub shards_short: Vec<u32>,
    /// Datagrams refused, by reason.
    pub refusals_total: Vec<(String, u64)>,
}

/// A route that the switches should have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteStatus {
    pub worker: usize,
    /// access or internet.
    pub side: String,
    pub prefix: String,
    pub next_hop: IpAddr,
    pub metric: u32,
    /// Whether the guard has confirmed that the kernel took the route.
    pub is_set: bool,
}
