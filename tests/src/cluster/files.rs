//! The files of the cluster, as an operator would write them.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::steering::Network;

/// Shards of the pool.
pub const SHARDS: u8 = 8;
/// Homes, which take their turns on the shards.
pub const HOMES: u8 = 12;
/// Name of the cluster.
pub(super) const CLUSTER: &str = "lab";
/// Where etcd listens for clients.
pub(super) const ETCD: &str = "http://10.8.0.254:2379";
/// Port of `/metrics` on the management address of a node.
const METRICS_PORT: u16 = 9477;

/// What the files say.
#[derive(Clone, Copy, Debug)]
pub struct ClusterFiles {
    /// Copies of each shard beside the primary's.
    pub replicas: u8,
}

impl ClusterFiles {
    /// Tunnel endpoint of home `number` (from 1).
    pub fn endpoint(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 100, 0, 1 + (number - 1) % SHARDS)
    }

    /// Public prefix of shard `number` (from 1).
    pub fn public(number: u8) -> String {
        format!("203.0.113.{}/28", 16 * (number - 1))
    }

    /// The cluster file.
    pub fn cluster(self) -> String {
        format!(
            r#"[cluster]
name = "{CLUSTER}"
replicas = {replicas}

{shared}
[[pool]]
first_id = 1
endpoints = "10.100.0.0/28"
public = "203.0.113.0/25"
per_shard = 28
subscribers_max = 64
"#,
            replicas = self.replicas,
            shared = shared(),
        )
    }

    /// The file of node `number` of the cluster. Sockets and logs go to `directory`.
    pub fn node(number: u8, directory: &Path) -> String {
        format!(
            r#"{node}
[cluster]
name = "{CLUSTER}"
etcd = ["{ETCD}"]
key_file = "{directory}/cluster.key"
"#,
            node = node(number, directory),
            directory = directory.display(),
        )
    }

    /// The file of node `number` as if it were alone, with all shards.
    pub fn alone(number: u8, directory: &Path) -> String {
        let mut text = node(number, directory) + "\n" + &shared();
        for shard in 1..=SHARDS {
            let (endpoint, public) = (Self::endpoint(shard), Self::public(shard));
            let _ = write!(
                text,
                "\n[[shard]]\nid = {shard}\nendpoint = \"{endpoint}\"\npublic = [\"{public}\"]\nsubscribers_max = 64\n",
            );
        }
        text
    }
}

/// The machine: workers of neighbouring nodes are on different cores as far as there are some.
fn node(number: u8, directory: &Path) -> String {
    let [access, internet] = [Network::Access, Network::Internet]
        .map(|side| (side.worker(number, 0), side.address(254)));
    format!(
        r#"[node]
name = "node{number}"
poll = "adaptive"
hugepages = "never"
admin_socket = "{directory}/node{number}.sock"
block_log = "{directory}/node{number}-blocks.jsonl"
metrics = "10.8.0.{number}:{METRICS_PORT}"

[[worker]]
core = {core}
access   = {{ device = "net_af_xdp0,iface=acc1", address = "{}/24", gateway = "{}" }}
internet = {{ device = "net_af_xdp1,iface=net1", address = "{}/24", gateway = "{}" }}
"#,
        access.0,
        access.1,
        internet.0,
        internet.1,
        directory = directory.display(),
        core = number % 2,
    )
}

/// What holds for all shards.
fn shared() -> String {
    r#"[access]
mode = "gre"
subscribers = ["10.200.0.0/16"]

[nat]
port_block = 64
ports_per_subscriber = 1024
flows_max = 100_000
"#
    .to_owned()
}

#[cfg(test)]
mod tests {
    use weir_config::{File, parse_cluster, parse_file};

    use super::*;

    #[test]
    fn the_files_are_valid_and_mean_the_same_shards() {
        let directory = Path::new("/run/lab");
        let (desired, warnings) =
            parse_cluster(&ClusterFiles { replicas: 1 }.cluster(), "c").unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let (alone, _) = weir_config::parse(&ClusterFiles::alone(1, directory), "n").unwrap();
        assert_eq!(desired.shards.len(), usize::from(SHARDS));
        for (shard, number) in desired.shards.iter().zip(1..) {
            assert_eq!(shard.endpoint, Some(ClusterFiles::endpoint(number)));
            assert_eq!(shard.public[0].to_string(), ClusterFiles::public(number));
        }
        let of_single = alone.shards.iter().map(|it| (it.id, it.endpoint, &it.public));
        assert!(of_single.eq(desired.shards.iter().map(|it| (it.id, it.endpoint, &it.public))));
        let file = parse_file(&ClusterFiles::node(2, directory), "n");
        assert!(matches!(file, Ok((File::Member(_), _))), "{file:?}");
    }
}
