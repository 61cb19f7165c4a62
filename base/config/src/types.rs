//! The configuration once it is parsed and valid: plain values, defaults filled in, no spans.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Serialize, Serializer};

use crate::cluster_types::TlsSettings;
use crate::ipv6_types::{Interface6, Ipv6Settings};
use crate::policy_types::PolicySettings;
use crate::public_types::PublicSettings;

/// The configuration of a single node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub node: NodeSettings,
    /// The workers, at least one; in file order. `ShardSettings::worker` is an index into this
    /// list.
    pub workers: Vec<WorkerSettings>,
    pub access: Access,
    pub nat: NatSettings,
    pub timeouts: TimeoutSettings,
    pub fragments: Fragments,
    pub limits: LimitSettings,
    pub policy: PolicySettings,
    pub public: PublicSettings,
    pub ipv6: Ipv6Settings,
    /// The shards, at least one; in file order.
    pub shards: Vec<ShardSettings>,
}

/// `[node]`: the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeSettings {
    pub name: String,
    /// Failure domain of the node. `None`: racks are unknown, as on a single node.
    pub rack: Option<String>,
    /// Whether the node gives up its shards and gets none. False on a single node.
    pub drain: bool,
    pub poll: Poll,
    /// Cores of every thread that is not a worker. `None`: all cores no worker uses, or core 0 when
    /// there are none.
    pub control_cores: Option<Vec<usize>>,
    pub hugepages: HugePagesSetting,
    /// Memory for packet buffers given to the EAL, in MiB. `None`: computed from the workers.
    pub memory_mb: Option<u32>,
    /// Extra EAL arguments, appended to those weir builds.
    pub eal: Vec<String>,
    pub admin_socket: PathBuf,
    /// Group that may read the admin socket. `None`: "weir" where that group exists, else the
    /// process's own group.
    pub admin_group: Option<String>,
    /// Address that serves `/metrics`. `None`: metrics are not served.
    pub metrics: Option<SocketAddr>,
    pub log_level: LogLevel,
    pub log_format: LogFormat,
    /// File of the NAT block log. `None`: no block log.
    pub block_log: Option<PathBuf>,
    /// Sessions that are sent to the collectors.
    pub session_log: SessionLogSetting,
    /// The collectors, in file order.
    pub collectors: Vec<CollectorSettings>,
}

/// Sessions that are logged, each at its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionLogSetting {
    None,
    /// All sessions, without their remotes.
    Mappings,
    /// All sessions, with their remotes.
    Destinations,
}

/// `[[collector]]`: a destination of the NAT log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CollectorSettings {
    /// Name, unique in the node.
    pub name: String,
    /// `host:port`
    pub address: String,
    pub format: CollectorFormat,
    /// Private enterprise number for values without a name in the standards. `None`: they are left
    /// out.
    pub enterprise: Option<u32>,
    /// Whether it gets records about IPv6 prefixes of homes.
    pub has_prefixes: bool,
    /// Storage for records while the collector is away. `None`: they are lost.
    pub spool: Option<SpoolSettings>,
}

/// Format and transport of a collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectorFormat {
    /// RFC 7011 and RFC 8158, in packets of at most this size.
    IpfixUdp {
        mtu: u16,
    },
    IpfixTcp,
    /// RFC 5424 with this facility, over RFC 6587.
    SyslogTcp {
        facility: u8,
    },
    /// RFC 5425.
    SyslogTls {
        facility: u8,
        tls: TlsSettings,
    },
}

/// Storage on disk for the records of a collector that is away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpoolSettings {
    /// Absolute path.
    pub folder: PathBuf,
    pub megabytes_max: u64,
}

/// The way a worker waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poll {
    /// Sleeps in steps when idle.
    Adaptive,
    /// Never sleeps.
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePagesSetting {
    /// Used when the machine has some; large tables must lie on some.
    Auto,
    /// Used when the machine has some.
    Prefer,
    /// Not used for packet buffers.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    Text,
    Json,
}

/// `[[worker]]`: a pinned thread with a port on each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerSettings {
    pub core: usize,
    pub access: InterfaceSettings,
    pub internet: InterfaceSettings,
    /// Receive descriptors of each port; a power of two.
    pub rx_descriptors: u16,
    /// Transmit descriptors of each port; a power of two.
    pub tx_descriptors: u16,
    /// Its share of the cluster's shards, relative to other workers; 0: none. No effect on a single
    /// node.
    pub weight: u32,
    /// Most shards that it has room for; 0: see
    /// [`Desired::shard_room`](crate::Desired::shard_room). No effect on a single node.
    pub shards_max: u16,
    /// Most public ports in use, in total, of the shards that it is primary of. `None`: not
    /// checked. No effect on a single node.
    pub load_max: Option<u64>,
    /// Address for sending and receiving copies of flows; inside the access side's connected
    /// prefix.
    pub replication_address: Ipv4Addr,
}

/// One side of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterfaceSettings {
    /// DPDK devargs or a PCI address.
    pub device: String,
    /// The worker's own address and the length of the connected prefix.
    pub address: Ipv4Net,
    /// The gateways, at least one, each inside `address`'s prefix.
    pub gateways: Vec<Ipv4Addr>,
    /// The only permitted MAC address of each gateway, in their order; empty: any.
    pub gateway_macs: Vec<[u8; 6]>,
    pub vlan: Option<u16>,
    /// Largest packet in bytes, without Ethernet and VLAN headers; with IPv6 at least 1280.
    pub mtu: u16,
    /// MAC address to set. `None`: the device's own.
    pub mac: Option<[u8; 6]>,
    /// `None`: the side has no IPv6.
    pub ipv6: Option<Interface6>,
}

/// `[access]`: the connection of homes to weir.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    pub mode: AccessSetting,
    /// Prefixes of the served homes: outer sources in gre mode, inside addresses in plain mode.
    pub subscribers: Vec<Ipv4Net>,
    /// Prefixes of the outer IPv6 sources of the served homes; gre mode only. Written only if there
    /// are some: earlier versions do not know them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscribers6: Vec<Ipv6Net>,
    pub gre_key: GreKey,
}

impl Access {
    /// IPv4 and GRE header (RFC 2784).
    const TUNNEL_BYTES: u16 = 24;
    /// By how much an IPv6 header is longer than one of IPv4.
    const LONGER_BYTES: u16 = 20;
    /// The key field (RFC 2890).
    const KEY_BYTES: u16 = 4;

    /// Number of bytes that the longest tunnel header takes from a packet on the access side.
    pub fn tunnel_bytes(&self) -> u16 {
        let outer = if self.subscribers6.is_empty() { 0 } else { Self::LONGER_BYTES };
        match (self.mode, self.gre_key) {
            (AccessSetting::Plain, _) => 0,
            (AccessSetting::Gre, GreKey::Ignore) => Self::TUNNEL_BYTES + outer,
            (AccessSetting::Gre, GreKey::Subscriber) => {
                Self::TUNNEL_BYTES + outer + Self::KEY_BYTES
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessSetting {
    /// A subscriber is an outer source, a shard an outer destination.
    Gre,
    /// A subscriber is an inside address, a shard its prefixes.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GreKey {
    /// The key is only remembered and returned.
    Ignore,
    /// The key is part of the subscriber's identity, with the outer source.
    Subscriber,
}

/// `[nat]`: translation and filtering, the same for every shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NatSettings {
    /// False: a firewall without translation.
    pub enabled: bool,
    pub filtering: FilteringSetting,
    /// Ports per block; a power of two.
    pub port_block: u16,
    /// Quota of a subscriber, in ports of its public address; a multiple of `port_block`.
    pub ports_per_subscriber: u32,
    /// Sessions per worker.
    pub flows_max: u32,
    /// Sessions per worker that may share a port with an older one. `None`: a share of `flows_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_max: Option<u32>,
    /// Alias of [`LimitSettings::flows`] in older files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows_per_subscriber: Option<u32>,
    /// Time that a released block stays unused, in seconds (RFC 6888 REQ-8).
    pub quarantine_sec: u32,
    pub pooling: PoolingSetting,
    /// Whether an inbound packet refreshes a UDP or ICMP session (RFC 4787 REQ-6).
    pub udp_inbound_refresh: bool,
    /// TCP sessions of a mapping that remotes may open (RFC 7857 section 5).
    pub inbound_sessions_max: u16,
    /// Whether packets with a source route pass (RFC 7126 section 4.3). Written only if set:
    /// earlier versions do not know it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forward_source_routes: bool,
    pub mss_clamp: MssClampSetting,
}

/// The outside hosts that may answer a mapping (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilteringSetting {
    AddressAndPortDependent,
    AddressDependent,
    EndpointIndependent,
}

/// Behavior when a subscriber's public address has no block left (RFC 7857 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolingSetting {
    /// The flow is refused: one public address per subscriber.
    Hard,
    /// Another public address of the shard is used.
    Soft,
}

/// Lowering of the maximum segment size in TCP SYN segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MssClampSetting {
    Off,
    /// To the size that the MTUs and the tunnel permit.
    Auto,
    /// To this many bytes.
    Max(u16),
}

/// Serializes as the file does: `false`, `true`, or a number.
impl Serialize for MssClampSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_bool(false),
            Self::Auto => serializer.serialize_bool(true),
            Self::Max(bytes) => serializer.serialize_u16(*bytes),
        }
    }
}

/// `[timeouts]`: idle time after which a session is removed, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TimeoutSettings {
    pub profile: TimeoutProfile,
    pub tcp_syn_sent_sec: u32,
    pub tcp_syn_received_sec: u32,
    pub tcp_established_sec: u32,
    pub tcp_fin_wait_sec: u32,
    pub tcp_close_wait_sec: u32,
    pub tcp_last_ack_sec: u32,
    pub tcp_time_wait_sec: u32,
    /// After an RST that nothing contradicts.
    pub tcp_close_sec: u32,
    /// After an RST of only the remote in an open connection.
    pub tcp_reset_sec: u32,
    /// Before the first answer.
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
    /// Short values that mobile carriers use.
    Carrier,
}

/// `[fragments]`: limits of a worker for packets that arrive in fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fragments {
    /// Datagrams tracked at once.
    pub datagrams_max: u32,
    /// Fragments held in total while their first one is missing.
    pub held_max: u32,
    /// Fragments held for one datagram.
    pub held_per_datagram_max: u32,
    pub timeout_sec: u32,
}

/// `[limits]`: the most that one home may take of the resources that all homes of a worker share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LimitSettings {
    /// Sessions of a home (RFC 6888 REQ-5). `None`: `NatSettings::flows_per_subscriber`, or a share
    /// of `NatSettings::flows_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// Sessions of a home that share a port with an older one. `None`: a share of
    /// `NatSettings::sessions_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// New flows of a home per second.
    pub new_flows_per_sec: u32,
    /// New flows of a home at once, after a pause.
    pub new_flows_burst: u16,
    /// New homes of a shard per second. `None`: a share of its `subscribers_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_homes_per_sec: Option<u32>,
    /// Percentage of the fragment store that a home may hold.
    pub fragments_percent: u8,
    /// ICMP errors for a home per second.
    pub icmp_errors_per_sec: u32,
    /// Whether ICMP errors are sent to homes.
    pub icmp_errors_to_homes: bool,
    /// Whether ICMP errors are sent to senders on the internet side.
    pub icmp_errors_to_internet: bool,
    /// ICMP errors of a worker per second, in total.
    pub worker_icmp_errors_per_sec: u32,
    /// Packets of a home per second that are redirected to another worker.
    pub redirects_per_sec: u32,
    /// Slow-path packets of a home per second, in each direction.
    pub slow_path_packets_per_sec: u32,
}

/// `[[shard]]`: a fixed group of subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardSettings {
    pub id: u32,
    /// The tunnel endpoint; `Some` in gre mode only.
    pub endpoint: Option<Ipv4Addr>,
    /// The tunnel endpoint of homes with tunnels over IPv6; in gre mode only. `None`: it has none.
    pub endpoint6: Option<Ipv6Addr>,
    /// The homes' prefixes; plain mode only, empty in gre mode.
    pub subscribers: Vec<Ipv4Net>,
    /// Public prefixes, never empty: for a firewall in plain mode they are the homes' prefixes.
    pub public: Vec<Ipv4Net>,
    /// Prefixes of the homes' IPv6 addresses, 16 to 64 bits, which are not translated. Empty: the
    /// shard has no IPv6.
    pub public6: Vec<Ipv6Net>,
    pub subscribers_max: u32,
    /// Index into `Config::workers` of the worker that owns the shard.
    pub worker: usize,
}
