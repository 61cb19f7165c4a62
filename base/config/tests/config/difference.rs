//! The effects of a changed cluster file on live flows.

use bolero::TypeGenerator;
use ipnet::Ipv4Net;
use weir_config::{Desired, Effect, difference};

use crate::base::changed;
use crate::cluster_file::{CLUSTER, desired, plain};

fn lines(old: &str, new: &str) -> Vec<String> {
    difference(&desired(old), &desired(new)).iter().map(ToString::to_string).collect()
}

fn change(from: &str, to: &str) -> Vec<String> {
    lines(CLUSTER, &changed(CLUSTER, from, to))
}

#[test]
fn keys() {
    let cases = [
        ("port_block = 256", "port_block = 128", "nat.port_block: 256 -> 128 (ends all flows)"),
        (
            "port_block",
            "sessions_max = 5000\nport_block",
            "nat.sessions_max: not set -> 5000 (for new flows; each node takes it when it restarts)",
        ),
        (
            "port_block",
            "udp_inbound_refresh = true\nport_block",
            "nat.udp_inbound_refresh: false -> true (flows go on)",
        ),
        (
            "[nat]",
            "[timeouts]\nudp_sec = 130\n[nat]",
            "timeouts.udp_sec: 300 -> 130 (ends flows that are idle for longer)",
        ),
        ("[nat]", "[timeouts]\nudp_sec = 400\n[nat]", "timeouts.udp_sec: 300 -> 400 (flows go on)"),
        (
            "port_block",
            "flows_max = 5_000_000\nport_block",
            "nat.flows_max: 4000000 -> 5000000 (for new flows; each node takes it when it restarts)",
        ),
        (
            "port_block",
            "flows_max = 3_000_000\nport_block",
            "nat.flows_max: 4000000 -> 3000000 (for new flows)",
        ),
        (
            "port_block",
            "filtering = \"address-dependent\"\nport_block",
            "nat.filtering: \"address-and-port-dependent\" -> \"address-dependent\" (for new flows; each node takes it \
             when it restarts)",
        ),
        (
            "port_block",
            "filtering = \"endpoint-independent\"\nport_block",
            "nat.filtering: \"address-and-port-dependent\" -> \"endpoint-independent\" (for new flows)",
        ),
        ("replicas = 1", "replicas = 2", "cluster.replicas: 1 -> 2 (flows go on)"),
        (
            "replicas = 1",
            "balance = \"load\"",
            "cluster.balance: \"shards\" -> \"load\" (flows go on)",
        ),
        (
            "replicas = 1",
            "commit = \"replicated\"",
            "cluster.commit: \"async\" -> \"replicated\" (for new flows; each node takes it when it restarts)",
        ),
        (
            "id = 1000",
            "id = 1000\ncommit = \"replicated\"",
            "shard 1000: commit as the cluster -> replicated (for new flows; each node takes it when it restarts)",
        ),
        (
            "id = 1000",
            "id = 1000\ncommit = \"async\"",
            "shard 1000: commit as the cluster -> async (for new flows; each node takes it when it restarts)",
        ),
        (
            "replicas = 1",
            "commit_replicas = 1",
            "cluster.commit_replicas: not set -> 1 (for new flows; each node takes it when it restarts)",
        ),
        (
            "replicas = 1",
            "commit_timeout_ms = 20",
            "cluster.commit_timeout_ms: 100 -> 20 (flows go on; each node takes it when it restarts)",
        ),
        (
            "replicas = 1",
            "commit_on_timeout = \"drop\"",
            "cluster.commit_on_timeout: \"release\" -> \"drop\" (flows go on; each node takes it when it restarts)",
        ),
        (
            "replicas = 1",
            "replication_port = 7000",
            "cluster.replication_port: 7473 -> 7000 (taken by each node when it restarts, and its flows end then)",
        ),
        ("\"edge\"", "\"core\"", "cluster.name: \"edge\" -> \"core\" (ends all flows)"),
        (
            "[nat]\n",
            "[fragments]\nheld_max = 0\n[nat]\n",
            "fragments.held_max: 512 -> 0 (flows go on; each node takes it when it restarts)",
        ),
        (
            "[nat]\n",
            "[limits]\nsessions = 100\n[nat]\n",
            "limits.sessions: not set -> 100 (for new flows)",
        ),
        (
            "[nat]\n",
            "[limits]\nicmp_errors_to_homes = false\n[nat]\n",
            "limits.icmp_errors_to_homes: true -> false (flows go on)",
        ),
        (
            "port_block = 256",
            "forward_source_routes = true\nport_block = 256",
            "nat.forward_source_routes: not set -> true (flows go on)",
        ),
    ];
    for (from, to, expected) in cases {
        assert_eq!(change(from, to), [expected]);
    }
    assert_eq!(
        change("port_block = 256", "enabled = false")[0],
        "nat.enabled: true -> false (ends all flows)"
    );
}

#[test]
fn commit_of_a_pool_is_that_of_each_of_its_shards() {
    let changes = change(
        "public = \"203.0.113.0/25\"",
        "public = \"203.0.113.0/25\"\ncommit = \"replicated\"",
    );
    let expected = (1..=8)
        .map(|shard| format!("shard {shard}: commit as the cluster -> replicated (for new flows; each node takes it when it restarts)"));
    assert!(changes.iter().cloned().eq(expected), "{changes:?}");
    let back = lines(
        &changed(CLUSTER, "id = 1000", "id = 1000\ncommit = \"replicated\""),
        &changed(CLUSTER, "id = 1000", "id = 1000\ncommit = \"async\""),
    );
    assert_eq!(
        back,
        [
            "shard 1000: commit replicated -> async (for new flows; each node takes it when it restarts)"
        ]
    );
}

#[test]
fn homes() {
    let homes = "[\"10.200.0.0/16\"]";
    assert_eq!(
        change(homes, "[\"10.200.0.0/16\", \"10.202.0.0/16\"]"),
        ["access.subscribers: 10.202.0.0/16 added (flows go on)"]
    );
    assert_eq!(
        change(homes, "[\"10.200.0.0/17\", \"10.200.128.0/17\"]"),
        [
            "access.subscribers: 10.200.0.0/16 removed, its homes stay (flows go on)",
            "access.subscribers: 10.200.0.0/17 added (flows go on)",
            "access.subscribers: 10.200.128.0/17 added (flows go on)",
        ]
    );
    assert_eq!(
        change(homes, "[\"10.200.0.0/17\"]"),
        [
            "access.subscribers: 10.200.0.0/16 removed (strands the flows of the homes in 10.200.0.0/16)",
            "access.subscribers: 10.200.0.0/17 added (flows go on)",
        ]
    );
}

#[test]
fn shards_of_a_file() {
    let public = "[\"198.51.100.0/28\"]";
    assert_eq!(
        change(public, "[\"198.51.100.0/28\", \"198.51.100.64/28\"]"),
        ["shard 1000: public prefix 198.51.100.64/28 added (flows go on)"]
    );
    assert_eq!(
        change(public, "[\"198.51.100.64/28\"]"),
        [
            "shard 1000: public prefix 198.51.100.0/28 removed (strands the flows of 198.51.100.0/28 in shard 1000)",
            "shard 1000: public prefix 198.51.100.64/28 added (flows go on)",
        ]
    );
    assert_eq!(
        change("10.101.0.1", "10.101.0.2"),
        ["shard 1000: endpoint 10.101.0.1 -> 10.101.0.2 (strands all flows of shard 1000)"]
    );
    assert_eq!(
        change("id = 1000", "id = 2000"),
        [
            "shard 1000: removed, 198.51.100.0/28 is in shard 2000 now (strands all flows of shard 1000)",
            "shard 2000: added with 198.51.100.0/28 (flows go on)",
        ]
    );
    assert_eq!(
        change("id = 1000", "id = 1000\nsubscribers_max = 100"),
        ["shard 1000: subscribers_max 256 -> 100 (for new flows)"]
    );
    let homes = plain();
    assert_eq!(
        lines(&homes, &changed(&homes, "10.101.0.1", "10.101.0.7")),
        ["shard 1000: steer 10.101.0.1 -> 10.101.0.7 (strands all flows of shard 1000)"]
    );
}

#[test]
fn pools() {
    let grown = "[\"203.0.113.0/25\", \"203.0.112.0/26\"]";
    assert_eq!(
        change("\"203.0.113.0/25\"", grown),
        ["shards 9..=12: added with 4 public prefixes (flows go on)"]
    );
    let slip = change("\"203.0.113.0/25\"", "[\"203.0.112.0/28\", \"203.0.113.0/25\"]");
    assert_eq!(
        slip[0],
        "shard 1: public prefix 203.0.113.0/28 removed, 203.0.113.0/28 is in shard 2 now (strands the flows of 203.0.113.0/28 in shard 1)"
    );
    assert_eq!(slip.len(), 2 * 8 + 1);
}

/// Some shards, each with a few of sixteen prefixes.
#[derive(Clone, Debug, TypeGenerator)]
struct Shards([Option<(u8, u8)>; 6]);

impl Shards {
    fn desired(&self) -> Option<Desired> {
        let mut text = String::from(
            "[cluster]\nname = \"edge\"\nreplicas = 0\n[access]\nsubscribers = [\"10.200.0.0/16\"]\n",
        );
        for (index, shard) in self.0.iter().enumerate() {
            let Some((first, count)) = shard else { continue };
            let nets = (first % 16..16).take(usize::from(count % 4 + 1));
            let nets: Vec<_> = nets.map(|net| format!("\"198.51.100.{}/28\"", 16 * net)).collect();
            text.push_str(&format!(
                "[[shard]]\nid = {}\nendpoint = \"10.100.0.{index}\"\npublic = [{}]\n",
                index + 1,
                nets.join(", ")
            ));
        }
        weir_config::parse_cluster(&text, "t.toml").ok().map(|(desired, _)| desired)
    }
}

/// A flow survives with its shard and its address; every other loss must be reported.
#[test]
fn every_lost_prefix_is_reported_and_no_other() {
    bolero::check!().with_type::<(Shards, Shards)>().for_each(|(old, new)| {
        let (Some(old), Some(new)) = (old.desired(), new.desired()) else { return };
        assert_eq!(difference(&old, &old), []);
        let changes = difference(&old, &new);
        assert_eq!(changes.is_empty(), old == new);
        let holds = |desired: &Desired, id: u32, net: &Ipv4Net| {
            desired.shard(id).is_some_and(|shard| shard.public.contains(net))
        };
        for shard in &old.shards {
            for net in &shard.public {
                let is_stranded = changes.iter().any(|change| match change.effect {
                    Effect::StrandsPrefix { shard: id, prefix } => {
                        id == shard.id && prefix == (*net).into()
                    }
                    Effect::StrandsShard { shard: id } => id == shard.id,
                    _ => false,
                });
                assert_eq!(is_stranded, !holds(&new, shard.id, net), "{net} of {}", shard.id);
            }
        }
    });
}
