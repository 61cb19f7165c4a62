//! The cluster file: pools, shards, lanes, and the kinds of files that a key belongs to.

use ipnet::Ipv4Net;
use weir_config::{BalanceSetting, ConfigFile, Desired};

use crate::base::{Case, assert_found, changed};

/// Line numbers count from 1 at `[cluster]`.
pub(crate) const CLUSTER: &str = r#"[cluster]
name = "edge"
replicas = 1

[access]
subscribers = ["10.200.0.0/16"]

[nat]
port_block = 256

[[pool]]
first_id = 1
endpoints = "10.100.0.0/24"
public = "203.0.113.0/25"
per_shard = 28

[[shard]]
id = 1000
endpoint = "10.101.0.1"
public = ["198.51.100.0/28"]
"#;

/// Returns a file with the same homes without tunnels.
pub(crate) fn plain() -> String {
    CLUSTER
        .replace("[access]\n", "[access]\nmode = \"plain\"\n")
        .replace(
            "endpoints = \"10.100.0.0/24\"",
            "steer = \"10.100.0.0/24\"\nsubscribers = \"10.200.0.0/21\"",
        )
        .replace(
            "endpoint = \"10.101.0.1\"",
            "steer = \"10.101.0.1\"\nsubscribers = [\"10.200.8.0/24\"]",
        )
}

pub(crate) fn desired(text: &str) -> Desired {
    match weir_config::parse_cluster(text, "t.toml") {
        Ok((desired, _)) => desired,
        Err(errors) => panic!("{errors:#?}"),
    }
}

pub(crate) fn check_errors(base: &str, cases: &[Case]) {
    for (from, to, expected) in cases {
        let text = changed(base, from, to);
        let errors = weir_config::parse_cluster(&text, "t.toml").err().unwrap_or_default();
        assert_found(&format!("{from:?} -> {to:?}"), &errors, expected);
    }
}

fn nets(texts: &[&str]) -> Vec<Ipv4Net> {
    texts.iter().map(|text| text.parse().expect("a prefix")).collect()
}

#[test]
fn the_base_files_are_valid() {
    for text in [CLUSTER.to_owned(), plain()] {
        let (file, warnings) = weir_config::parse_file(&text, "t.toml").expect("valid");
        assert!(matches!(file, ConfigFile::Cluster(_)));
        assert_found("base", &warnings, &[]);
    }
}

#[test]
fn a_pool_is_cut_into_shards() {
    let desired = desired(CLUSTER);
    let ids: Vec<u32> = desired.shards.iter().map(|shard| shard.id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8, 1000]);
    let second = desired.shard(2).expect("the shard exists");
    assert_eq!(second.endpoint, Some([10, 100, 0, 2].into()));
    assert_eq!(second.public, nets(&["203.0.113.16/28"]));
    assert_eq!((second.steer, second.subscribers_max), (None, 256));
    assert_eq!(desired.public_addresses(), 9 * 16);
    assert_eq!(desired.reserved_addresses(), 9 * 16 / 8);
    assert_eq!((desired.homes(), desired.internet_routes()), (9 * 256, 9));
}

#[test]
fn a_pool_in_plain_mode_is_cut_by_homes_too() {
    let desired = desired(&plain());
    let last = desired.shard(8).expect("the shard exists");
    assert_eq!((last.steer, last.endpoint), (Some([10, 100, 0, 8].into()), None));
    assert_eq!(last.subscribers, nets(&["10.200.7.0/24"]));
    assert_eq!(last.public, nets(&["203.0.113.112/28"]));
}

#[test]
fn a_plain_firewall_is_cut_by_homes_alone() {
    let firewall = plain()
        .replace("[nat]\n", "[nat]\nenabled = false\n")
        .replace("public = \"203.0.113.0/25\"\nper_shard = 28\n", "")
        .replace("public = [\"198.51.100.0/28\"]\n", "");
    let named = changed(&firewall, "id = 1000", "id = 1000\npublic = [\"10.200.1.0/24\"]");
    let errors = weir_config::parse_cluster(&named, "t.toml").expect_err("a home's address");
    let expected =
        ["20:11: shard[0].public[0]: 10.200.1.0/24 overlaps 10.200.0.0/21 of pool[0].subscribers"];
    assert_found("named", &errors, &expected);
    let desired = desired(&firewall);
    assert_eq!(desired.shards.len(), 9);
    assert!(desired.shards.iter().all(|shard| shard.public == shard.subscribers));
    assert_eq!(desired.reserved_addresses(), 0);
}

#[test]
fn pools_that_cannot_be_cut_into_shards_are_refused() {
    check_errors(
        CLUSTER,
        &[
            (
                "per_shard = 28",
                "per_shard = 24",
                &[
                    "14:10: pool[0].public: 203.0.113.0/25 is smaller than the /24 of a shard (write a larger prefix, or per_shard = 25)",
                ],
            ),
            ("per_shard = 28", "per_shard = 33", &["15:13: pool[0].per_shard: 33 is out of range"]),
            (
                "10.100.0.0/24",
                "10.100.0.0/29",
                &[
                    "13:13: pool[0].endpoints: 8 shards need 8 tunnel endpoints, these are 7 without the first of each prefix",
                ],
            ),
            ("\"10.100.0.0/24\"", "[\"10.100.0.0/30\", \"10.100.1.0/30\", \"10.100.2.0/30\"]", &[]),
            (
                "endpoints = \"10.100.0.0/24\"\n",
                "",
                &["11:1: pool[0].endpoints: missing: access mode \"gre\" needs it"],
            ),
            (
                "per_shard = 28",
                "per_shard = 28\nsteer = \"10.102.0.0/24\"",
                &["16:9: pool[0].steer: has no meaning in access mode \"gre\" (remove it)"],
            ),
            (
                "\"203.0.113.0/25\"",
                "[\"203.0.113.0/25\", \"203.0.113.64/26\"]",
                &["14:29: pool[0].public[1]: 203.0.113.64/26 overlaps 203.0.113.0/25 before it"],
            ),
            (
                "\"203.0.113.0/25\"\nper_shard = 28",
                "\"11.0.0.0/8\"\nper_shard = 32",
                &[
                    "13:13: pool[0].endpoints: 16777216 shards need 16777216 tunnel endpoints",
                    "15:13: pool[0].per_shard: a replica's reserve lane has 31 blocks",
                ],
            ),
            (
                "\"10.100.0.0/24\"\npublic = \"203.0.113.0/25\"\nper_shard = 28",
                "\"10.96.0.0/14\"\npublic = \"11.0.0.0/16\"\nper_shard = 30\nsubscribers_max = 64",
                &["11:1: pool[0]: 16385 shards in the cluster, at most 8192 can be"],
            ),
        ],
    );
    check_errors(
        &plain(),
        &[
            (
                "10.200.0.0/21",
                "10.200.0.0/22",
                &["15:15: pool[0].subscribers: they make 4 shards of /24, public makes 8 of /28"],
            ),
            (
                "10.200.0.0/21",
                "10.200.0.0/25",
                &["15:15: pool[0].subscribers: 10.200.0.0/25 is smaller than the /24 of a shard"],
            ),
            (
                "10.200.0.0/21",
                "10.201.0.0/21",
                &["15:15: pool[0].subscribers: 10.201.0.0/21 is not inside access.subscribers"],
            ),
            (
                "steer = \"10.101.0.1\"\n",
                "",
                &["19:1: shard[0].steer: missing: access mode \"plain\" needs it"],
            ),
        ],
    );
}

#[test]
fn overlapping_prefixes_and_endpoints_are_refused() {
    check_errors(
        CLUSTER,
        &[
            (
                "198.51.100.0/28",
                "203.0.113.32/28",
                &[
                    "20:11: shard[0].public[0]: 203.0.113.32/28 overlaps 203.0.113.0/25 of pool[0].public",
                ],
            ),
            (
                "10.101.0.1",
                "10.100.0.200",
                &[
                    "19:12: shard[0].endpoint: 10.100.0.200 overlaps 10.100.0.0/24 of pool[0].endpoints",
                ],
            ),
            (
                "10.101.0.1",
                "203.0.113.1",
                &[
                    "19:12: shard[0].endpoint: 203.0.113.1 lies in the public prefix 203.0.113.0/25 (pool[0].public)",
                ],
            ),
            (
                "10.100.0.0/24",
                "10.200.3.0/24",
                &[
                    "13:13: pool[0].endpoints: 10.200.3.0/24 overlaps the homes' 10.200.0.0/16 (access.subscribers[0])",
                ],
            ),
            (
                "203.0.113.0/25",
                "10.200.0.0/25",
                &["14:10: pool[0].public: 10.200.0.0/25 overlaps the homes' 10.200.0.0/16"],
            ),
            (
                "[[shard]]",
                "[[pool]]\nfirst_id = 50\nendpoints = \"10.102.0.0/24\"\npublic = \"203.0.112.0/23\"\n[[shard]]",
                &[
                    "20:10: pool[1].public: 203.0.112.0/23 overlaps 203.0.113.0/25 of pool[0].public",
                ],
            ),
        ],
    );
}

#[test]
fn numbers() {
    let second =
        "[[pool]]\nendpoints = \"10.102.0.0/24\"\npublic = \"203.0.114.0/25\"\nfirst_id = ";
    let with = |first_id: &str| {
        let text = changed(CLUSTER, "[[shard]]", &format!("{second}{first_id}\n[[shard]]"));
        weir_config::parse_cluster(&text, "t.toml").err().unwrap_or_default()
    };
    assert_found("room", &with("9"), &[]);
    let expected = [
        "20:12: pool[1].first_id: shards 8..=15 overlaps shards 1..=8 of pool[0].first_id (a number is permanent: give the newer one 1001)",
    ];
    assert_found("no room", &with("8"), &expected);
    let expected = [
        "22:6: shard[0].id: shard 1000 overlaps shards 993..=1000 of pool[1].first_id (a number is permanent: give the newer one 1001)",
    ];
    assert_found("a shard within", &with("993"), &expected);
    let expected = ["20:12: pool[1].first_id: its last shard would have the number 4294967302"];
    assert_found("no numbers left", &with("4294967295"), &expected);
    let shard =
        "[[shard]]\nid = 1000\nendpoint = \"10.101.0.2\"\npublic = [\"198.51.100.16/28\"]\n";
    let errors = weir_config::parse_cluster(&format!("{CLUSTER}{shard}"), "t.toml");
    let expected = ["22:6: shard[1].id: shard 1000 is also the number of shard[0].id"];
    assert_found("twice", &errors.err().unwrap_or_default(), &expected);
}

#[test]
fn reserve_lanes_need_a_block_for_every_home_of_an_address() {
    check_errors(
        CLUSTER,
        &[
            (
                "per_shard = 28",
                "per_shard = 30\nsubscribers_max = 128",
                &[
                    "15:13: pool[0].per_shard: a replica's reserve lane has 31 blocks of 256 ports on an address that 32 homes share: when it takes over, some of them would get no port (write per_shard = 29, lower subscribers_max to 124, or write smaller blocks in nat.port_block)",
                ],
            ),
            ("per_shard = 28", "per_shard = 30\nsubscribers_max = 124", &[]),
            (
                "[\"198.51.100.0/28\"]",
                "[\"198.51.100.0/30\"]",
                &[
                    "20:10: shard[0].public: a replica's reserve lane has 31 blocks of 256 ports on an address that 64 homes share: when it takes over, some of them would get no port (add addresses (9 are enough), lower subscribers_max to 124",
                ],
            ),
            ("replicas = 1", "replicas = 5", &["3:12: cluster.replicas: 5 is out of range"]),
            ("replicas = 1", "replicas = 4", &[]),
        ],
    );
    let alone = changed(CLUSTER, "replicas = 1", "replicas = 0")
        .replace("per_shard = 28", "per_shard = 30\nsubscribers_max = 128");
    let (_, warnings) = weir_config::parse_cluster(&alone, "t.toml").expect("no lane is reserved");
    let expected = [
        "3:12: cluster.replicas: no copies: the loss of a worker ends its flows",
        "15:13: pool[0].per_shard: only 124 of 128 homes can have their 2048 ports at once",
    ];
    assert_found("alone", &warnings, &expected);
    let four = changed(CLUSTER, "replicas = 1", "replicas = 4");
    let (_, warnings) = weir_config::parse_cluster(&four, "t.toml").expect("valid");
    let expected = [
        "15:13: pool[0].per_shard: only 240 of 256 homes can have their 2048 ports at once beside the reserve lanes (18 addresses would do",
        "20:10: shard[0].public: only 240 of 256 homes",
    ];
    assert_found("half of the lanes", &warnings, &expected);
}

#[test]
fn switches_have_limits() {
    check_errors(
        CLUSTER,
        &[
            (
                "replicas = 1",
                "max_routes = 8",
                &[
                    "3:14: cluster.max_routes: the access switch gets 9 routes, to the shards' endpoints",
                ],
            ),
            ("replicas = 1", "max_routes = 9", &[]),
        ],
    );
}

#[test]
fn copies_have_one_port_for_all_nodes() {
    assert_eq!(desired(CLUSTER).cluster.replication_port, 7473);
    let other = desired(&changed(CLUSTER, "replicas = 1", "replication_port = 65_535"));
    assert_eq!(other.cluster.replication_port, 65_535);
    let none = ("replicas = 1", "replication_port = 0");
    let expected: &[&str] = &["3:20: cluster.replication_port: 0 is out of range"];
    check_errors(CLUSTER, &[(none.0, none.1, expected)]);
}

#[test]
fn keys_of_other_kinds_of_files_are_refused_with_their_place() {
    check_errors(
        CLUSTER,
        &[
            ("replicas = 1", "shards_max = 1", &["3:1: cluster.shards_max: unknown key"]),
            (
                "replicas = 1",
                "etcd = [\"http://e:2379\"]",
                &["3:1: cluster.etcd: belongs to one node (write it in that node's file)"],
            ),
            (
                "[access]",
                "[node]\nname = \"n1\"\n[access]",
                &["5:2: node: belongs to one node (write it in that node's file)"],
            ),
            (
                "id = 1000",
                "id = 1000\nworker = 1",
                &["19:1: shard[0].worker: has a meaning on a single node only (remove it)"],
            ),
            (
                "replicas = 1",
                "replica = 1",
                &["3:1: cluster.replica: unknown key (did you mean replicas?)"],
            ),
            ("name = \"edge\"\n", "", &["1:1: cluster.name: missing"]),
        ],
    );
    let errors = weir_config::parse_cluster("", "t.toml").expect_err("empty");
    let expected = [
        "1:1: no shards (write a [[pool]], or a [[shard]] for each)",
        "1:1: cluster: missing (write a section [cluster])",
        "1:1: access: missing (write a section [access])",
    ];
    let mut lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.sort();
    let mut expected = expected.map(|line| format!("t.toml:{line}"));
    expected.sort();
    assert_eq!(lines, expected);
    let errors = weir_config::parse(CLUSTER, "t.toml").expect_err("no single node");
    assert_found("single", &errors, &["1:2: cluster: this is not the file of a single node"]);
}

#[test]
fn shards_are_balanced_by_number_or_by_load() {
    assert_eq!(desired(CLUSTER).cluster.balance, BalanceSetting::Shards);
    let by_load = changed(CLUSTER, "replicas = 1", "replicas = 1\nbalance = \"load\"");
    assert_eq!(desired(&by_load).cluster.balance, BalanceSetting::Load);
    check_errors(
        CLUSTER,
        &[(
            "replicas = 1",
            "balance = \"flows\"",
            &[
                "3:11: cluster.balance: \"flows\" is not valid (must be one of \"shards\", \"load\")",
            ],
        )],
    );
    check_errors(
        &by_load,
        &[(
            "port_block = 256",
            "enabled = false",
            &[
                "4:11: cluster.balance: \"load\" with nat.enabled = false: no public port is in use, so no load is counted (write balance = \"shards\", or remove it)",
            ],
        )],
    );
}
