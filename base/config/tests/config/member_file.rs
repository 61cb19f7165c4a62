//! The file of a cluster's node: its local facts, and its agreement with the cluster.

use weir_config::{ConfigFile, MemberFile};

use crate::base::{BASE, Case, assert_found, changed};
use crate::cluster_file::{CLUSTER, desired};

/// Line numbers count from 1 at `[node]`.
const MEMBER: &str = r#"[node]
name = "n1"
rack = "r1"

[cluster]
name = "edge"
etcd = ["https://e1:2379", "https://[2001:db8::1]:2379"]
tls_ca = "/ca.pem"
key_file = "/etc/weir/cluster.key"

[[worker]]
core = 1
weight = 50
access = { device = "net_af_xdp0,iface=acc0", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1592 }
internet = { device = "net_af_xdp1,iface=net0", address = "10.2.0.1/24", gateway = "10.2.0.2" }
"#;

fn member(text: &str) -> MemberFile {
    match weir_config::parse_file(text, "t.toml") {
        Ok((ConfigFile::Member(member), warnings)) => {
            assert_found("member", &warnings, &[]);
            *member
        }
        other => panic!("{other:#?}"),
    }
}

fn check_errors(cases: &[Case]) {
    for (from, to, expected) in cases {
        let text = changed(MEMBER, from, to);
        let errors = weir_config::parse_file(&text, "t.toml").err().unwrap_or_default();
        assert_found(&format!("{from:?} -> {to:?}"), &errors, expected);
    }
}

#[test]
fn local_facts() {
    let member = member(MEMBER);
    assert_eq!((member.node.rack.as_deref(), member.node.drain), (Some("r1"), false));
    assert_eq!((member.cluster.name.as_str(), member.cluster.etcd.len()), ("edge", 2));
    let tls = member.cluster.tls.expect("https");
    assert_eq!((tls.ca.to_str(), tls.client), (Some("/ca.pem"), None));
    let worker = &member.workers[0];
    assert_eq!((worker.weight, worker.replication_address), (50, [10, 1, 0, 1].into()));
    assert_eq!(worker.shards_max, 0);
}

#[test]
fn a_node_has_no_shards_of_its_own() {
    check_errors(&[
        (
            "[cluster]",
            "[access]\nsubscribers = [\"10.200.0.0/16\"]\n[nat]\n[timeouts]\n[fragments]\n[limits]\n[[shard]]\n[cluster]",
            &[
                "5:2: access: the same for the whole cluster (write it in the cluster file)",
                "7:2: nat: the same for the whole cluster",
                "8:2: timeouts: the same for the whole cluster",
                "9:2: fragments: the same for the whole cluster",
                "10:2: limits: the same for the whole cluster",
                "11:3: shard: the same for the whole cluster",
            ],
        ),
        (
            "key_file",
            "replicas = 1\nkey_file",
            &[
                "9:1: cluster.replicas: the same for the whole cluster (write it in the cluster file)",
            ],
        ),
        ("name = \"n1\"\n", "", &["1:1: node.name: missing"]),
        ("key_file = \"/etc/weir/cluster.key\"\n", "", &["5:1: cluster.key_file: missing"]),
    ]);
    let without = changed(MEMBER, "[node]\nname = \"n1\"\nrack = \"r1\"\n", "");
    let errors = weir_config::parse_file(&without, "t.toml").expect_err("no name");
    assert_found("no [node]", &errors, &["1:1: node: missing (write a section [node])"]);
    let errors = weir_config::parse(MEMBER, "t.toml").expect_err("no single node");
    assert_found("single", &errors, &["5:2: cluster: this is not the file of a single node"]);
}

#[test]
fn a_worker_keeps_room_for_shards() {
    let desired = desired(CLUSTER);
    let room = |text: &str| desired.shard_room(&member(text).workers[0]);
    assert_eq!((room(MEMBER), desired.shards.len()), (9, 9));
    assert_eq!(room(&changed(MEMBER, "weight = 50", "shards_max = 4000")), 4000);
    let many = CLUSTER
        .replace("203.0.113.0/25", "203.0.112.0/20")
        .replace("10.100.0.0/24", "10.100.0.0/20")
        .replace("per_shard = 28", "per_shard = 31\nsubscribers_max = 30")
        .replace("id = 1000", "id = 9000");
    let many = self::desired(&many);
    assert_eq!(many.shards.len(), 2049);
    assert_eq!(many.shard_room(&member(MEMBER).workers[0]), 1024);
    check_errors(&[(
        "weight = 50",
        "shards_max = 8193",
        &["13:14: worker[0].shards_max: 8193 is out of range"],
    )]);
}

#[test]
fn a_worker_states_the_load_that_it_can_carry() {
    let load_max = |text: &str| member(text).workers[0].load_max;
    assert_eq!(load_max(MEMBER), None);
    assert_eq!(load_max(&changed(MEMBER, "weight = 50", "load_max = 2_000_000")), Some(2_000_000));
    check_errors(&[
        (
            "weight = 50",
            "load_max = 0",
            &[
                "13:12: worker[0].load_max: 0 is out of range (must be an integer 1..=1000000000 ports)",
            ],
        ),
        (
            "weight = 50",
            "load_max = \"2M\"",
            &["13:12: worker[0].load_max: a string is not valid here (must be an integer"],
        ),
    ]);
}

#[test]
fn keys_of_a_cluster_are_refused_on_a_single_node() {
    let cases: [Case; 5] = [
        (
            "core = 1",
            "core = 1\nweight = 3",
            &[
                "6:1: worker[0].weight: has a meaning in a cluster only (remove it, or write a section [cluster])",
            ],
        ),
        (
            "id = 2",
            "id = 2\nsteer = \"10.9.0.1\"",
            &["30:1: shard[1].steer: has a meaning in the cluster file only (remove it)"],
        ),
        (
            "core = 1",
            "shards_max = 1\ncore = 1",
            &["5:1: worker[0].shards_max: has a meaning in a cluster only"],
        ),
        (
            "core = 1",
            "load_max = 1\ncore = 1",
            &["5:1: worker[0].load_max: has a meaning in a cluster only"],
        ),
        (
            "[access]",
            "[[pool]]\n[access]",
            &["14:3: pool: has a meaning in the cluster file only (remove it)"],
        ),
    ];
    crate::base::check_errors(BASE, &cases);
}

#[test]
fn invalid_endpoints_and_credentials_of_etcd_are_refused() {
    check_errors(&[
        (
            "https://e1:2379",
            "http://e1:2379",
            &["7:27: cluster.etcd[1]: http://e1:2379 before it has another scheme"],
        ),
        ("https://e1:2379", "e1:2379", &["7:9: cluster.etcd[0]: not an address of etcd"]),
        ("https://e1:2379", "https://e1", &["7:9: cluster.etcd[0]: not an address of etcd"]),
        ("https://e1:2379", "https://u@e1:2379", &["7:9: cluster.etcd[0]: not an address of etcd"]),
        (
            "[\"https://e1:2379\", \"https://[2001:db8::1]:2379\"]",
            "[]",
            &["7:8: cluster.etcd: an array is not valid here (must be a list of strings: 1 to 32"],
        ),
        (
            "[2001:db8::1]",
            "e1",
            &["7:28: cluster.etcd[1]: https://e1:2379 is listed twice (remove one)"],
        ),
        ("tls_ca = \"/ca.pem\"\n", "", &["5:1: cluster.tls_ca: missing: etcd is reached with TLS"]),
        (
            "tls_ca = ",
            "tls_cert = \"/c.pem\"\ntls_ca = ",
            &["8:12: cluster.tls_cert: tls_key is missing (write tls_key, or remove it)"],
        ),
        (
            "[\"https://e1:2379\", \"https://[2001:db8::1]:2379\"]",
            "[\"http://e1:2379\"]",
            &["8:10: cluster.tls_ca: etcd is reached without TLS"],
        ),
        (
            "tls_ca = ",
            "user = \"weir\"\ntls_ca = ",
            &["8:8: cluster.user: password_file is missing"],
        ),
        (
            "weight = 50",
            "replication_address = \"10.9.0.1\"",
            &[
                "13:23: worker[0].replication_address: 10.9.0.1 is no host of the connected prefix 10.1.0.0/24",
            ],
        ),
        (
            "weight = 50",
            "replication_address = \"10.1.0.2\"",
            &[
                "14:82: worker[0].access.gateway: 10.1.0.2 is weir's own (worker[0].replication_address)",
            ],
        ),
        ("weight = 50", "replication_address = \"10.1.0.9\"", &[]),
    ]);
}

#[test]
fn a_bird_is_watched_as_packaged_or_as_named() {
    assert_eq!(member(MEMBER).cluster.bird, None);
    let with = |keys: &str| {
        let text = MEMBER.replace("tls_ca = ", &format!("{keys}\ntls_ca = "));
        let bird = member(&text).cluster.bird.expect("the file has the key");
        (bird.socket, bird.access, bird.internet)
    };
    let names = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect::<Vec<String>>();
    assert_eq!(
        with("bird_socket = \"/run/bird/bird.ctl\""),
        ("/run/bird/bird.ctl".into(), names(&["access_switch"]), names(&["internet_switch"]))
    );
    assert_eq!(
        with("bird_socket = \"/b\"\nbird_access = [\"leaf_1\", \"leaf_2\"]\nbird_internet = []"),
        ("/b".into(), names(&["leaf_1", "leaf_2"]), names(&[]))
    );
    check_errors(&[
        (
            "tls_ca = ",
            "bird_access = [\"a\"]\ntls_ca = ",
            &[
                "8:15: cluster.bird_access: bird_socket is missing (write bird_socket, or remove it)",
            ],
        ),
        (
            "tls_ca = ",
            "bird_socket = \"/b\"\nbird_access = [\"a b\", 7]\ntls_ca = ",
            &[
                "9:16: cluster.bird_access[0]: not the name of a BGP protocol",
                "9:23: cluster.bird_access[1]: not the name of a BGP protocol",
            ],
        ),
        (
            "tls_ca = ",
            "bird_socket = \"/b\"\nbird_access = [\"a\", \"a\"]\ntls_ca = ",
            &["9:21: cluster.bird_access[1]: a is listed twice (remove one)"],
        ),
        (
            "tls_ca = ",
            "bird_socket = \"/b\"\nbird_internet = [\"access_switch\"]\ntls_ca = ",
            &["9:17: cluster.bird_internet: access_switch is also in bird_access"],
        ),
        ("tls_ca = ", "bird_socket = 1\ntls_ca = ", &["8:15: cluster.bird_socket: "]),
    ]);
}

#[test]
fn a_password_in_clear_is_warned_of() {
    let text = MEMBER
        .replace("https://e1:2379\", \"https://[2001:db8::1]:2379", "http://e1:2379")
        .replace("tls_ca = \"/ca.pem\"", "user = \"weir\"\npassword_file = \"/p\"");
    let (file, warnings) = weir_config::parse_file(&text, "t.toml").expect("valid");
    let ConfigFile::Member(member) = file else { panic!("{file:?}") };
    assert_eq!(member.cluster.user.expect("the file has the key").name, "weir");
    assert_found(
        "user",
        &warnings,
        &[
            "8:8: cluster.user: the password goes over the network as it is (reach etcd with https://)",
        ],
    );
}

#[test]
fn a_node_that_conflicts_with_its_cluster_is_refused() {
    let desired = desired(&changed(CLUSTER, "replicas = 1", "max_next_hops = 1"));
    let other = changed(MEMBER, "\"n1\"", "\"n2\"").replace("0.1/24", "0.9/24");
    let others = [("other.toml".to_owned(), member(&other))];
    let cases: &[Case] = &[
        ("\"n1\"", "\"n1\"", &[]),
        ("\"edge\"", "\"core\"", &["6:8: cluster.name: \"core\" is another cluster than \"edge\""]),
        (
            "10.1.0.1/24\", gateway = \"10.1.0.2\"",
            "10.100.0.1/24\", gateway = \"10.100.0.2\"",
            &["14:57: worker[0].access.address: 10.100.0.1 is also the endpoint of shard 1"],
        ),
        (
            "10.2.0.1/24\", gateway = \"10.2.0.2\"",
            "203.0.113.130/24\", gateway = \"203.0.113.131\"",
            &[
                "15:59: worker[0].internet.address: the connected prefix 203.0.113.0/24 overlaps the public prefix 203.0.113.0/28 of shard 1",
            ],
        ),
    ];
    for (from, to, expected) in cases {
        let text = changed(MEMBER, from, to);
        let found = weir_config::parse_member(&text, "t.toml", &desired, &[]);
        assert_found(from, &found.err().unwrap_or_default(), expected);
    }
    let twin = MEMBER.replace("n1", "n2").replace("10.1.0.1/24", "10.1.0.9/24");
    let errors = weir_config::parse_member(&twin, "t.toml", &desired, &others).expect_err("twice");
    let expected = [
        "2:8: node.name: n2 is also the name in other.toml",
        "11:1: worker: with these the cluster has 2 workers, so many next hops (cluster.max_next_hops is 1)",
        "14:57: worker[0].access.address: 10.1.0.9 is also in other.toml (worker[0].access.address)",
    ];
    assert_found("twice", &errors, &expected);
    let narrow = changed(MEMBER, ", mtu = 1592", "");
    let (_, warnings) = weir_config::parse_member(&narrow, "t.toml", &desired, &[]).expect("valid");
    assert_found(
        "mtu",
        &warnings,
        &[
            "1:1: node.metrics: not set, so controllers cannot ask this node whom it hears",
            "14:10: worker[0].access.mtu: homes get an MTU of 1476 bytes (1500 - 24 of GRE), not 1500 (write mtu = 1592 where",
        ],
    );
    let metrics = "metrics = \"192.168.0.1:9105\"";
    for (keys, expected) in [
        (["mtu = 1592", "mtu = 1592"], ""),
        (
            ["mtu = 1592", "mtu = 1524"],
            "14:100: worker[0].access.mtu: of the homes' packets of up to 1500 bytes, those above 1432 (1524 - 92 of headers and seal) are cut or refused when they go on to another worker, as in a hand-over (write mtu = 1592 where",
        ),
        (
            ["gateway = \"10.2.0.2\"", "gateway = \"10.2.0.2\", mtu = 1400"],
            "15:102: worker[0].internet.mtu: homes get an MTU of 1400 bytes, not 1500 (write mtu = 1500 where",
        ),
    ] {
        let text = changed(MEMBER, "rack = \"r1\"", metrics).replace(keys[0], keys[1]);
        let found = weir_config::parse_member(&text, "t.toml", &desired, &[]).expect("valid");
        let expected: &[&str] = if expected.is_empty() { &[] } else { &[expected] };
        assert_found(keys[1], &found.1, expected);
    }
    for (address, expected) in [
        ("127.0.0.1", "3:11: node.metrics: controllers on other machines cannot ask there"),
        ("0.0.0.0", "3:11: node.metrics: controllers on other machines cannot ask there"),
        ("192.168.0.1", ""),
    ] {
        let metrics = format!("metrics = \"{address}:9105\"");
        let text = changed(MEMBER, "rack = \"r1\"", &metrics);
        let found = weir_config::parse_member(&text, "t.toml", &desired, &[]).expect("valid");
        let expected: &[&str] = if expected.is_empty() { &[] } else { &[expected] };
        assert_found(address, &found.1, expected);
    }
}
