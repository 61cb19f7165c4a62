//! The configuration once it is parsed and valid: plain values, defaults filled in, no spans.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::Ipv4Net;
use serde::{Serialize, Serializer};

use crate::cluster_types::TlsFiles;

/// A node that is all there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub node: Node,
    /// At least one; in file order. `Shard::worker` is an index into it.
    pub workers: Vec<Worker>,
    pub access: Access,
    pub nat: Nat,
    pub timeouts: Timeouts,
    pub fragments: Fragments,
    pub limits: Limits,
    /// At least one; in file order.
    pub shards: Vec<Shard>,
}

/// `[node]`: the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// What fails together with it. `None`: nothing is known of racks, as on a single node.
    pub rack: Option<String>,
    /// Whether it gives up its shards and gets none. False on a single node.
    pub drain: bool,
    pub poll: Poll,
    /// Cores of every thread that is not a worker. `None`: all cores no worker uses, or core 0 when there are none.
    pub control_cores: Option<Vec<usize>>,
    pub hugepages: HugePages,
    /// Memory for packet buffers given to the EAL, in MiB. `None`: computed from the workers.
    pub memory_mb: Option<u32>,
    /// Extra EAL arguments, appended to those weir builds.
    pub eal: Vec<String>,
    pub admin_socket: PathBuf,
    /// Group that may read the admin socket. `None`: "weir" where that group exists, else the process's own.
    pub admin_group: Option<String>,
    /// Where `/metrics` is served. `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    pub log_level: LogLevel,
    pub log_format: LogFormat,
    /// File of the NAT block log. `None`: no block log.
    pub block_log: Option<PathBuf>,
    /// Sessions that the collectors get.
    pub session_log: SessionLog,
    /// In file order.
    pub collectors: Vec<Collector>,
}

/// Which sessions are logged, each when it begins and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionLog {
    None,
    /// Without their remotes.
    Mappings,
    /// With their remotes.
    Destinations,
}

/// `[[collector]]`: where the NAT log is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// No two of a node have the same.
    pub name: String,
    /// `host:port`
    pub address: String,
    pub format: CollectorFormat,
    /// Private enterprise number of what the standards have no name for. `None`: it is left out.
    pub enterprise: Option<u32>,
    /// `None`: what the collector cannot take is lost while it is away.
    pub spool: Option<Spool>,
}

/// What a collector gets, and over what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorFormat {
    /// RFC 7011 and RFC 8158, in packets of at most this size.
    IpfixUdp {
        mtu: u16,
    },
    IpfixTcp,
    /// RFC 5424 with this facility, RFC 6587.
    SyslogTcp {
        facility: u8,
    },
    /// RFC 5425.
    SyslogTls {
        facility: u8,
        tls: TlsFiles,
    },
}

/// Where records wait on disk for a collector that is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// Absolute.
    pub folder: PathBuf,
    pub megabytes_max: u64,
}

/// How a worker waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Sleeps in steps when idle.
    Adaptive,
    /// Never sleeps.
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Used when the machine has some.
    Auto,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// `[[worker]]`: a pinned thread with a port on each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub core: usize,
    pub access: Interface,
    pub internet: Interface,
    /// Receive descriptors of each port; a power of two.
    pub rx_descriptors: u16,
    /// Transmit descriptors of each port; a power of two.
    pub tx_descriptors: u16,
    /// Its share of the cluster's shards, relative to other workers; 0: none. Without meaning on a single node.
    pub weight: u32,
    /// Most shards that it keeps room for; 0: see [`Desired::shard_room`](crate::Desired::shard_room). Without meaning on
    /// a single node.
    pub shards_max: u16,
    /// Public ports in use that the shards that it is primary of may have together. `None`: not checked. Without meaning
    /// on a single node.
    pub load_max: Option<u64>,
    /// Where copies of flows are sent to and from; inside the access side's connected prefix.
    pub replication_address: Ipv4Addr,
}

/// One side of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// DPDK devargs or a PCI address.
    pub device: String,
    /// The worker's own address and the length of the connected prefix.
    pub address: Ipv4Net,
    /// At least one, each inside `address`'s prefix.
    pub gateways: Vec<Ipv4Addr>,
    /// The only MAC address of each gateway, in their order; empty: any.
    pub gateway_macs: Vec<[u8; 6]>,
    pub vlan: Option<u16>,
    /// Largest IPv4 packet in bytes, without Ethernet and VLAN headers.
    pub mtu: u16,
    /// MAC address to set. `None`: the device's own.
    pub mac: Option<[u8; 6]>,
}

/// `[access]`: how homes reach weir.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    pub mode: AccessMode,
    /// Only homes inside these are served: outer sources in gre mode, inside addresses in plain mode.
    pub subscribers: Vec<Ipv4Net>,
    pub gre_key: GreKey,
}

impl Access {
    /// IPv4 and GRE header (RFC 2784).
    const TUNNEL_BYTES: u16 = 24;
    /// The key field (RFC 2890).
    const KEY_BYTES: u16 = 4;

    /// Bytes that the tunnel takes from a packet on the access side.
    pub fn tunnel_bytes(&self) -> u16 {
        match (self.mode, self.gre_key) {
            (AccessMode::Plain, _) => 0,
            (AccessMode::Gre, GreKey::Ignore) => Self::TUNNEL_BYTES,
            (AccessMode::Gre, GreKey::Subscriber) => Self::TUNNEL_BYTES + Self::KEY_BYTES,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// A subscriber is an outer source, a shard an outer destination.
    Gre,
    /// A subscriber is an inside address, a shard its prefixes.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GreKey {
    /// Remembered and echoed only.
    Ignore,
    /// Part of the subscriber's identity, with the outer source.
    Subscriber,
}

/// `[nat]`: translation and filtering, the same for every shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nat {
    /// False: a firewall without translation.
    pub enabled: bool,
    pub filtering: Filtering,
    /// Ports per block; a power of two.
    pub port_block: u16,
    /// Quota of a subscriber, in ports of its public address; a multiple of `port_block`.
    pub ports_per_subscriber: u32,
    /// Sessions per worker.
    pub flows_max: u32,
    /// `None`: a share of `flows_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_max: Option<u32>,
    /// The former name of [`Limits::flows`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows_per_subscriber: Option<u32>,
    /// How long a released block stays unused, in seconds (RFC 6888 REQ-8).
    pub quarantine_sec: u32,
    pub pooling: Pooling,
    /// Whether an inbound packet refreshes a UDP or ICMP session (RFC 4787 REQ-6).
    pub udp_inbound_refresh: bool,
    /// TCP sessions of a mapping that remotes may open (RFC 7857 section 5).
    pub inbound_sessions_max: u16,
    /// Whether packets with a source route pass (RFC 7126 section 4.3). Unsaid if not: earlier versions do not know it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forward_source_routes: bool,
    pub mss_clamp: MssClamp,
}

/// Who outside may answer a mapping (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filtering {
    AddressAndPortDependent,
    AddressDependent,
    EndpointIndependent,
}

/// What happens when a subscriber's public address has no block left (RFC 7857 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The flow is refused: one public address per subscriber.
    Hard,
    /// Another public address of the shard is used.
    Soft,
}

/// Lowering of the maximum segment size in TCP SYN segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MssClamp {
    Off,
    /// To what the MTUs and the tunnel leave.
    Auto,
    /// To this many bytes.
    Max(u16),
}

/// As the file writes it: `false`, `true`, a number.
impl Serialize for MssClamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::Auto => serializer.serialize_bool(true),
            Self::Max(bytes) => serializer.serialize_u16(*bytes),
        }
    }
}

/// `[timeouts]`: idle time of a session until it is removed, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    pub profile: TimeoutProfile,
    pub tcp_syn_sent_sec: u32,
    pub tcp_syn_received_sec: u32,
    pub tcp_established_sec: u32,
    pub tcp_fin_wait_sec: u32,
    pub tcp_close_wait_sec: u32,
    pub tcp_last_ack_sec: u32,
    pub tcp_time_wait_sec: u32,
    /// After an RST that nothing speaks against.
    pub tcp_close_sec: u32,
    /// After an RST of the remote alone in an open connection.
    pub tcp_reset_sec: u32,
    /// Until the first answer.
    pub udp_sec: u32,
    /// After an answer.
    pub udp_stream_sec: u32,
    pub icmp_sec: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeoutProfile {
    /// The values of RFC 4787, 5382, 5508.
    Rfc,
    /// The short values mobile carriers run with.
    Carrier,
}

/// `[fragments]`: limits of a worker for packets that arrive in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fragments {
    /// Datagrams followed at once.
    pub datagrams_max: u32,
    /// Fragments held, in all, while their first one is missing.
    pub held_max: u32,
    /// Fragments held for one datagram.
    pub held_per_datagram_max: u32,
    pub timeout_sec: u32,
}

/// `[limits]`: what one home may take of what all homes of a worker share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Sessions of a home (RFC 6888 REQ-5). `None`: `Nat::flows_per_subscriber`, or a share of `Nat::flows_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// Sessions of a home that share a port with an older one. `None`: a share of `Nat::sessions_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Of a home.
    pub new_flows_per_sec: u32,
    /// Of a home, at once after a rest.
    pub new_flows_burst: u16,
    /// Of a shard. `None`: a share of its `subscribers_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_homes_per_sec: Option<u32>,
    /// Share of the room for fragments that a home may hold.
    pub fragments_percent: u8,
    /// For a home.
    pub icmp_errors_per_sec: u32,
    /// Whether any are made for homes.
    pub icmp_errors_to_homes: bool,
    /// Whether any are made for senders on the internet side.
    pub icmp_errors_to_internet: bool,
    /// Of a worker, in all.
    pub worker_icmp_errors_per_sec: u32,
    /// Packets of a home that are sent to another worker.
    pub redirects_per_sec: u32,
    /// Of a home, each way.
    pub slow_path_packets_per_sec: u32,
}

/// `[[shard]]`: a fixed group of subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    pub id: u32,
    /// The tunnel endpoint; `Some` in gre mode only.
    pub endpoint: Option<Ipv4Addr>,
    /// The homes' prefixes; plain mode only, empty in gre mode.
    pub subscribers: Vec<Ipv4Net>,
    /// Never empty: a firewall in plain mode has the homes' prefixes here, too.
    pub public: Vec<Ipv4Net>,
    pub subscribers_max: u32,
    /// Index into `Config::workers` of the worker that owns the shard.
    pub worker: usize,
}
