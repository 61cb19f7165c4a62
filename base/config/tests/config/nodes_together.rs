//! All nodes' files together with their cluster file.

use weir_config::{Checked, ConfigFile, Desired, MemberFile};

use crate::base::changed;
use crate::cluster_file::{CLUSTER, desired};

/// Line numbers count from 1 at `[node]`.
pub(crate) fn node(number: u8) -> String {
    format!(
        r#"[node]
name = "n{number}"
metrics = "172.16.0.{number}:9105"

[cluster]
name = "edge"
etcd = ["http://e1:2379"]
key_file = "/etc/weir/cluster.key"

[[worker]]
core = 1
access = {{ device = "net_af_xdp0,iface=acc0", address = "10.1.0.{number}/24", gateway = "10.1.0.200", vlan = 100, mtu = 1592 }}
internet = {{ device = "net_af_xdp1,iface=net0", address = "10.2.0.{number}/24", gateway = "10.2.0.200" }}
"#
    )
}

/// Returns the warnings about the nodes of these files, which are n1.toml, n2.toml, ...
fn found(cluster: &str, texts: &[String]) -> Vec<String> {
    let desired: Desired = desired(cluster);
    let names: Vec<String> = (1..=texts.len()).map(|number| format!("n{number}.toml")).collect();
    let mut members: Vec<(String, MemberFile)> = Vec::new();
    for (text, name) in texts.iter().zip(&names) {
        let (member, _) =
            weir_config::parse_member(text, name, &desired, &members).expect("they fit");
        members.push((name.clone(), member));
    }
    let nodes = members.iter().zip(texts);
    let nodes = nodes.map(|((name, value), text)| Checked { name, text, value });
    let cluster = Checked { name: "cluster.toml", text: cluster, value: &desired };
    let warnings = weir_config::check_nodes(cluster, &nodes.collect::<Vec<_>>());
    warnings.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_starts(found: &[String], expected: &[&str]) {
    let is_as_expected = found.len() == expected.len()
        && found.iter().zip(expected).all(|(line, start)| line.starts_with(start));
    assert!(
        is_as_expected,
        "expected:\n  {}\nfound:\n  {}",
        expected.join("\n  "),
        found.join("\n  ")
    );
}

/// Returns the warnings about three nodes, of which the one of this number is changed.
fn with(number: usize, from: &str, to: &str) -> Vec<String> {
    let mut texts = [1, 2, 3].map(node).to_vec();
    texts[number - 1] = changed(&texts[number - 1], from, to);
    texts
}

#[test]
fn nodes_that_fit_give_no_warning() {
    assert_starts(&found(CLUSTER, &[1, 2, 3].map(node)), &[]);
    assert_starts(&found(CLUSTER, &[]), &[]);
}

#[test]
fn a_worker_in_another_network_than_most_is_named() {
    let odd = |from: &str, to: &str, expected: &[&str]| {
        assert_starts(&found(CLUSTER, &with(1, from, to)), expected);
    };
    odd(
        "address = \"10.1.0.1/24\", gateway = \"10.1.0.200\"",
        "address = \"10.9.0.1/24\", gateway = \"10.9.0.200\"",
        &[
            "n1.toml:12:57: worker[0].access.address: 10.9.0.0/24 is another subnet than 10.1.0.0/24 (n2.toml, worker[0].access) (write an address of 10.1.0.0/24",
        ],
    );
    odd(
        "address = \"10.2.0.1/24\"",
        "address = \"10.2.0.1/16\"",
        &[
            "n1.toml:13:59: worker[0].internet.address: 10.2.0.0/16 is another subnet than 10.2.0.0/24",
        ],
    );
    odd(
        "vlan = 100",
        "vlan = 101",
        &[
            "n1.toml:12:103: worker[0].access.vlan: VLAN 101, others are VLAN 100 (n2.toml, worker[0].access) (write vlan = 100",
        ],
    );
    odd(
        ", vlan = 100",
        "",
        &["n1.toml:12:10: worker[0].access.vlan: untagged, others are VLAN 100 (n2.toml"],
    );
    odd(
        "gateway = \"10.2.0.200\"",
        "gateway = \"10.2.0.200\", vlan = 7",
        &["n1.toml:13:105: worker[0].internet.vlan: VLAN 7, others are untagged (n2.toml"],
    );
    odd(
        "gateway = \"10.1.0.200\"",
        "gateway = [\"10.1.0.200\", \"10.1.0.201\"]",
        &[
            "n1.toml:12:82: worker[0].access.gateway: 10.1.0.200, 10.1.0.201, others have 10.1.0.200 (n2.toml, worker[0].access) (write the same gateways",
        ],
    );
}

#[test]
fn gateways_may_stand_in_any_order_and_workers_that_are_alike_give_one_warning() {
    let pair = |order: &str| format!("gateway = [{order}]");
    let texts = [1, 2, 3].map(|number| {
        let order = if number == 2 {
            "\"10.1.0.200\", \"10.1.0.201\""
        } else {
            "\"10.1.0.201\", \"10.1.0.200\""
        };
        changed(&node(number), "gateway = \"10.1.0.200\"", &pair(order))
    });
    assert_starts(&found(CLUSTER, &texts), &[]);

    let mut texts = with(2, "vlan = 100", "vlan = 9");
    let second =
        node(9).replace("acc0", "acc1").replace("net0", "net1").replace("vlan = 100", "vlan = 9");
    let second =
        second.replace("xdp0", "xdp2").replace("xdp1", "xdp3").replace("core = 1", "core = 2");
    texts[1].push_str(second.split_once("key\"\n").expect("workers follow").1);
    texts.push(node(4));
    let expected = ["n2.toml:12:103: worker[0].access.vlan: VLAN 9, others are VLAN 100 (n1.toml"];
    assert_starts(&found(CLUSTER, &texts), &expected);
}

#[test]
fn one_metrics_address_of_two_nodes_is_named() {
    let twice = with(3, "172.16.0.3:9105", "172.16.0.1:9105");
    let expected = [
        "n3.toml:3:11: node.metrics: 172.16.0.1:9105 is also node.metrics in n1.toml (write an address of this node's machine",
    ];
    assert_starts(&found(CLUSTER, &twice), &expected);
    let other_port = with(3, "172.16.0.3:9105", "172.16.0.1:9106");
    assert_starts(&found(CLUSTER, &other_port), &[]);
    let loopback =
        [1, 2].map(|number| node(number).replace(&format!("172.16.0.{number}"), "127.0.0.1"));
    let expected = [
        "n2.toml:3:11: node.metrics: 127.0.0.1:9105 is also node.metrics in n1.toml (give nodes of one machine a port each",
    ];
    assert_starts(&found(CLUSTER, &loopback), &expected);
}

#[test]
fn copies_that_the_nodes_cannot_hold_are_named() {
    let two = changed(CLUSTER, "replicas = 1", "replicas = 3");
    let expected = [
        "cluster.toml:3:12: cluster.replicas: a primary and 3 copies need 4 nodes that take shards, these files are of 3: shards stay short of copies (add nodes",
    ];
    assert_starts(&found(&two, &[1, 2, 3].map(node)), &expected);
    for (from, to) in
        [("name = \"n2\"", "name = \"n2\"\ndrain = true"), ("core = 1", "core = 1\nweight = 0")]
    {
        let mut texts = with(2, from, to);
        texts.pop();
        let expected = [
            "cluster.toml:3:12: cluster.replicas: a primary and 1 copy need 2 nodes that take shards, these files are of 1",
        ];
        assert_starts(&found(CLUSTER, &texts), &expected);
    }
}

#[test]
fn room_for_too_few_shards_or_sessions_is_named() {
    let small = with(2, "core = 1", "core = 1\nshards_max = 5");
    let expected = [
        "n2.toml:12:14: worker[0].shards_max: room for 5 shards, fewer than its share of about 6, copies included (write at least 6",
    ];
    assert_starts(&found(CLUSTER, &small), &expected);
    let enough = with(2, "core = 1", "core = 1\nshards_max = 6");
    assert_starts(&found(CLUSTER, &enough), &[]);

    // The share is 6 of 9 shards with 256 homes each.
    let flows = |flows: &str| changed(CLUSTER, "port_block = 256", &format!("flows_max = {flows}"));
    let expected = [
        "cluster.toml:9:13: nat.flows_max: 24575 sessions of a worker for the 1536 homes of its share, about 6 shards with the copies: fewer than 16 for each (write at least 24576, or add workers",
    ];
    assert_starts(&found(&flows("24575"), &[1, 2, 3].map(node)), &expected);
    assert_starts(&found(&flows("24576"), &[1, 2, 3].map(node)), &[]);
}

#[test]
fn homes_share_addresses_and_ports_as_configured() {
    let desired = desired(CLUSTER);
    let share = desired.port_share(desired.shard(1).expect("it exists")).expect("translated");
    assert_eq!((share.homes_of_address(), share.blocks_of_home()), (16, 13));
    assert_eq!(
        share.to_string(),
        "256 homes on 16 public addresses, 16 on each; an address has 220 blocks of 256 ports beside the reserve lane: \
         when all homes are busy 13 blocks (3328 ports) for each, at most its quota of 8 (2048 ports)"
    );
    let firewall = changed(CLUSTER, "port_block = 256", "enabled = false");
    let firewall = self::desired(&firewall);
    assert_eq!(firewall.port_share(&firewall.shards[0]), None);

    let (file, _) = weir_config::parse_file(&crate::base::plain(), "t.toml").expect("valid");
    let ConfigFile::Single(config) = file else { panic!("{file:?}") };
    let few = weir_config::Config {
        shards: vec![weir_config::ShardSettings {
            subscribers_max: 40,
            ..config.shards[0].clone()
        }],
        ..*config
    };
    let share = few.port_share(&few.shards[0]).expect("translated");
    assert_eq!((share.homes, share.homes_of_address(), share.blocks_of_home()), (40, 3, 84));
    assert!(share.to_string().contains("252 blocks of 256 ports: when"), "{share}");
}
