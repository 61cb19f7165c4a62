//! The files of the cluster, as an operator would write them.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::ipv6;
use super::public::PublicSpace;
use crate::steering::Network;

/// Number of homes; they are assigned to the shards in turn.
pub const HOMES: u8 = 12;
/// Default number of shards.
pub const SHARDS: u16 = 8;
/// Default number of flows in each node's tables.
pub(super) const FLOWS_MAX: u32 = 100_000;
/// Memory of a node in bytes, from `docs/config.md`: for each flow, each shard with its eight
/// lanes, each public address, and for its packets.
const FLOW_BYTES: u64 = 100;
const SHARD_BYTES: u64 = 8 * (96 << 10);
const ADDRESS_BYTES: u64 = 108 << 10;
const PACKET_BYTES: u64 = 256 << 20;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Default number of homes of a shard.
pub(super) const SUBSCRIBERS_MAX: u16 = 64;
/// Prefix of all tunnel endpoints.
pub(super) const ENDPOINTS: &str = "10.100.0.0/16";
/// Name of the cluster.
pub(super) const CLUSTER: &str = "lab";
/// Client URL of etcd.
pub(super) const ETCD: &str = "http://10.8.0.254:2379";
/// Port of `/metrics` on the management address of a node.
const METRICS_PORT: u16 = 9477;

/// How packets wait for copies: `commit = "replicated"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputCommit {
    /// Longest wait, milliseconds.
    pub timeout_ms: u32,
    /// What happens to packets that cannot be committed.
    pub on_timeout: OnTimeout,
}

/// `commit_on_timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnTimeout {
    /// They leave.
    Release,
    /// They are dropped, and what they began ends.
    Drop,
}

impl Default for OutputCommit {
    /// The shipped values.
    fn default() -> Self {
        Self { timeout_ms: 100, on_timeout: OnTimeout::Release }
    }
}

/// The settings that go into the files.
#[derive(Clone, Copy, Debug)]
pub struct ClusterFiles {
    /// Replicas of each shard besides the primary.
    pub replicas: u8,
    /// Whether new flows wait for replicas, and how.
    pub commit: Option<OutputCommit>,
    /// Number of shards in the pool, at least one.
    pub shards: u16,
    /// Flows that each node's tables have room for.
    pub flows_max: u32,
    /// Whether nodes use huge pages when some are reserved.
    pub has_huge_pages: bool,
    /// `[nat] quarantine_sec`. None: the shipped value.
    pub quarantine_sec: Option<u32>,
    /// `[timeouts] udp_sec`. None: the shipped value.
    pub udp_sec: Option<u32>,
    /// Homes of a shard (`subscribers_max`).
    pub subscribers_max: u16,
    /// Length of a shard's public prefix. None: 28 for few shards, 32 for many.
    pub per_shard: Option<u8>,
    /// Whether homes have IPv6 beside IPv4.
    pub has_ipv6: bool,
}

impl Default for ClusterFiles {
    fn default() -> Self {
        Self {
            replicas: 1,
            commit: None,
            shards: SHARDS,
            flows_max: FLOWS_MAX,
            has_huge_pages: false,
            quarantine_sec: None,
            udp_sec: None,
            subscribers_max: SUBSCRIBERS_MAX,
            per_shard: None,
            has_ipv6: true,
        }
    }
}

impl OutputCommit {
    /// Output commit with the shipped time-out.
    pub fn ending_in(on_timeout: OnTimeout) -> Self {
        Self { on_timeout, ..Self::default() }
    }

    /// Returns the keys, one a line.
    fn keys(self) -> String {
        let policy = match self.on_timeout {
            OnTimeout::Release => "release",
            OnTimeout::Drop => "drop",
        };
        format!(
            "commit = \"replicated\"\ncommit_timeout_ms = {}\ncommit_on_timeout = \"{policy}\"\n",
            self.timeout_ms
        )
    }
}

impl ClusterFiles {
    /// Returns the tunnel endpoint of shard `number` (from 1).
    pub fn endpoint(number: u16) -> Ipv4Addr {
        Ipv4Addr::from_bits(Ipv4Addr::new(10, 100, 0, 0).to_bits() + u32::from(number))
    }

    /// Returns the number of the shard of home `home` (from 1). With many shards the few homes are
    /// spread over all of them.
    pub fn shard_of_home(self, home: u8) -> u16 {
        let (position, shards) = (u32::from(home - 1), u32::from(self.shards));
        let shard = match shards > u32::from(HOMES) {
            true => position * shards / u32::from(HOMES),
            false => position % shards,
        };
        1 + shard as u16
    }

    /// Returns the inside IPv6 address of home `home` (from 1), if homes have any.
    pub fn address6(self, home: u8) -> Option<Ipv6Addr> {
        self.has_ipv6.then(|| ipv6::home(self.shard_of_home(home), home))
    }

    /// Returns the number of 2 MiB huge pages that the tables and packets of a node need, rounded
    /// up generously.
    pub fn huge_pages(self) -> u64 {
        let flows = FLOW_BYTES * u64::from(self.flows_max);
        let addresses = 1 << (32 - self.public().per_shard());
        let shard = SHARD_BYTES + ADDRESS_BYTES * addresses;
        (flows + shard * u64::from(self.shards) + PACKET_BYTES).div_ceil(HUGE_PAGE_BYTES)
    }

    /// Returns the cluster file.
    pub fn cluster(self) -> String {
        format!(
            r#"[cluster]
name = "{CLUSTER}"
replicas = {replicas}
{commit}
{shared}
[[pool]]
first_id = 1
endpoints = "{ENDPOINTS}"
public = ["{public}"]
per_shard = {per_shard}
subscribers_max = {subscribers_max}
{public6}"#,
            public6 = match self.has_ipv6 {
                true =>
                    format!("public6 = \"{}\"\nper_shard6 = {}\n", ipv6::PUBLIC6, ipv6::PER_SHARD6),
                false => String::new(),
            },
            subscribers_max = self.subscribers_max,
            replicas = self.replicas,
            commit = self.commit.map_or_else(String::new, OutputCommit::keys),
            shared = self.shared(),
            public = self.public().prefixes().join("\", \""),
            per_shard = self.public().per_shard(),
        )
    }

    /// Returns the file of node `number` of the cluster. Sockets and logs go to `directory`.
    pub fn node(self, number: u8, directory: &Path) -> String {
        format!(
            r#"{node}shards_max = {shards}

[cluster]
name = "{CLUSTER}"
etcd = ["{ETCD}"]
key_file = "{directory}/cluster.key"
bird_socket = "{directory}/bird{number}.ctl"
{sessions}"#,
            sessions = match self.has_ipv6 {
                true => format!("bird_internet = [{}]\n", ipv6::SESSIONS),
                false => String::new(),
            },
            node = self.machine(number, directory),
            shards = self.shards,
            directory = directory.display(),
        )
    }

    /// Returns the file of node `number` as a stand-alone node with all shards.
    pub fn alone(self, number: u8, directory: &Path) -> String {
        let mut text = self.machine(number, directory) + "\n" + &self.shared();
        for shard in 1..=self.shards {
            let (endpoint, public) = (Self::endpoint(shard), self.public().of(shard));
            let _ = write!(
                text,
                "\n[[shard]]\nid = {shard}\nendpoint = \"{endpoint}\"\npublic = [\"{public}\"]\n\
                 subscribers_max = {}\n",
                self.subscribers_max,
            );
            if self.has_ipv6 {
                let (public6, length) = (ipv6::prefix(shard), ipv6::PER_SHARD6);
                let _ = writeln!(text, "public6 = [\"{public6}/{length}\"]");
            }
        }
        text
    }

    fn public(self) -> PublicSpace {
        PublicSpace { shards: self.shards, per_shard: self.per_shard }
    }

    /// Returns the machine's part of a file, which ends in the worker. Workers of neighbouring
    /// nodes are on different cores as far as there are enough.
    fn machine(self, number: u8, directory: &Path) -> String {
        let [access, internet] = [Network::Access, Network::Internet]
            .map(|side| (side.worker(number, 0), side.address(254)));
        format!(
            r#"[node]
name = "node{number}"
poll = "adaptive"
hugepages = "{huge_pages}"
admin_socket = "{directory}/node{number}.sock"
block_log = "{directory}/node{number}-blocks.jsonl"
metrics = "10.8.0.{number}:{METRICS_PORT}"

[[worker]]
core = {core}
access   = {{ device = "net_af_xdp0,iface=acc1", address = "{}/24", gateway = "{}" }}
internet = {{ device = "net_af_xdp1,iface=net1", address = "{}/24", gateway = "{}"{ipv6} }}
"#,
            access.0,
            access.1,
            internet.0,
            internet.1,
            ipv6 = match self.has_ipv6 {
                true => format!(
                    ", address6 = \"{}/64\", gateways6 = \"{}\"",
                    ipv6::worker(number),
                    ipv6::SWITCH
                ),
                false => String::new(),
            },
            directory = directory.display(),
            huge_pages = if self.has_huge_pages { "auto" } else { "never" },
            core = number % 2,
        )
    }

    /// Returns the part that holds for all shards.
    fn shared(self) -> String {
        let quarantine = self.quarantine_sec.map(|sec| format!("quarantine_sec = {sec}\n"));
        let quarantine = quarantine.unwrap_or_default();
        let timeouts = self.udp_sec.map(|sec| format!("\n[timeouts]\nudp_sec = {sec}\n"));
        let timeouts = timeouts.unwrap_or_default();
        format!(
            r#"[access]
mode = "gre"
subscribers = ["10.200.0.0/16"]

[nat]
port_block = 64
{}ports_per_subscriber = 1024
flows_max = {}
{timeouts}
# What is measured is not how homes are paced.
[limits]
new_flows_per_sec = 1_000_000
new_flows_burst = 65_535
new_homes_per_sec = 65_535
"#,
            quarantine, self.flows_max
        )
    }
}

#[cfg(test)]
mod tests {
    use weir_config::{CommitOnTimeout, ConfigFile, parse_cluster, parse_file};

    use super::*;

    #[test]
    fn cluster_and_stand_alone_files_are_valid_and_have_the_same_shards() {
        let directory = Path::new("/run/lab");
        for shards in [3, SHARDS, 300, 8190] {
            let files = ClusterFiles { shards, ..ClusterFiles::default() };
            let (desired, warnings) = parse_cluster(&files.cluster(), "c").unwrap();
            // With one address a shard, not every home can use its full quota of ports at the same
            // time.
            assert_eq!(warnings.is_empty(), shards < 300, "{warnings:?}");
            let (alone, _) = weir_config::parse(&files.alone(1, directory), "n").unwrap();
            assert_eq!(desired.shards.len(), usize::from(shards));
            for (shard, number) in desired.shards.iter().zip(1..) {
                assert_eq!(shard.endpoint, Some(ClusterFiles::endpoint(number)));
                assert_eq!(shard.public[0].to_string(), files.public().of(number));
            }
            for (single, shard) in alone.shards.iter().zip(&desired.shards) {
                assert_eq!((single.id, single.endpoint), (shard.id, shard.endpoint));
                assert_eq!((&single.public, &single.public6), (&shard.public, &shard.public6));
                assert_eq!(shard.public6.len(), 1);
            }
            let file = parse_file(&files.node(2, directory), "n");
            assert!(matches!(file, Ok((ConfigFile::Member(_), _))), "{file:?}");
        }
    }

    #[test]
    fn cluster_file_has_the_wanted_idle_times_homes_and_addresses() {
        let files = ClusterFiles {
            udp_sec: Some(1),
            quarantine_sec: Some(15),
            subscribers_max: 300,
            per_shard: Some(30),
            ..ClusterFiles::default()
        };
        let (desired, _) = parse_cluster(&files.cluster(), "c").unwrap();
        assert_eq!((desired.timeouts.udp_sec, desired.nat.quarantine_sec), (1, 15));
        assert!(desired.shards.iter().all(|shard| shard.subscribers_max == 300));
        assert_eq!(desired.shards[2].public[0].to_string(), "198.18.0.8/30");
    }

    #[test]
    fn output_commit_is_asked_for_in_the_cluster_file_alone() {
        let commit = Some(OutputCommit { timeout_ms: 250, on_timeout: OnTimeout::Drop });
        let files = ClusterFiles { commit, ..ClusterFiles::default() };
        let (desired, _) = parse_cluster(&files.cluster(), "c").unwrap();
        assert!(desired.shards.iter().all(|shard| desired.is_committed(shard)));
        assert_eq!(desired.cluster.commit_timeout_ms, 250);
        assert_eq!(desired.cluster.commit_on_timeout, CommitOnTimeout::Drop);
        let files = ClusterFiles { commit: None, ..files };
        let (desired, _) = parse_cluster(&files.cluster(), "c").unwrap();
        assert!(!desired.is_any_committed());
    }

    #[test]
    fn homes_are_spread_over_all_shards() {
        let shards_of = |shards| {
            let files = ClusterFiles { shards, ..ClusterFiles::default() };
            (1..=HOMES).map(move |home| files.shard_of_home(home)).collect::<Vec<_>>()
        };
        assert_eq!(shards_of(1), [1; 12]);
        assert_eq!(shards_of(8), [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]);
        assert_eq!(shards_of(13)[..4], [1, 2, 3, 4]);
        assert_eq!(shards_of(8190)[10..], [6826, 7508]);
    }
}
