//! IPv6 of a cluster: pools, steering, the nodes' files, the state in etcd, changes.

use serde_json::{Value, json};
use weir_config::{Checked, Desired, DesiredError, difference};

use crate::base::{Case, assert_found, changed};
use crate::cluster_file::{CLUSTER, check_errors, desired};
use crate::nodes_together;

/// The cluster file with IPv6. Line numbers count from 1 at `[cluster]`.
pub(crate) const CLUSTER6: &str = r#"[cluster]
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
public6 = "2001:db8:1000::/44"

[[shard]]
id = 1000
endpoint = "10.101.0.1"
public = ["198.51.100.0/28"]
public6 = ["2001:db8:2000::/48"]
"#;

fn plain6() -> String {
    CLUSTER6
        .replace("[access]\n", "[access]\nmode = \"plain\"\n")
        .replace(
            "endpoints = \"10.100.0.0/24\"",
            "steer = \"10.100.0.0/24\"\nsubscribers = \"10.200.0.0/21\"\nsteer6 = \"2001:db8:2::/112\"",
        )
        .replace(
            "endpoint = \"10.101.0.1\"",
            "steer = \"10.101.0.1\"\nsubscribers = [\"10.200.8.0/24\"]\nsteer6 = \"2001:db8:3::1\"",
        )
}

/// A node's file with IPv6. Line numbers count from 1 at `[node]`.
fn node(number: u8) -> String {
    const GATEWAY: &str = "gateway = \"10.2.0.200\"";
    let ipv6 = format!("address6 = \"2001:db8:1::a:{number}/64\", gateways6 = [\"fe80::1\"]");
    nodes_together::node(number).replace(GATEWAY, &format!("{GATEWAY}, {ipv6}"))
}

#[test]
fn pool_with_ipv6_is_cut_into_shards_and_keeps_them_when_it_grows() {
    let gre = desired(CLUSTER6);
    let public6 = |desired: &Desired, id| desired.shard(id).expect("it exists").public6.clone();
    assert_eq!(public6(&gre, 8), ["2001:db8:1007::/48".parse().unwrap()]);
    assert_eq!(public6(&gre, 1000), ["2001:db8:2000::/48".parse().unwrap()]);
    assert!(gre.shards.iter().all(|shard| shard.steer6.is_none()));
    assert_eq!((gre.access_routes(), gre.internet_routes()), (9, 18));
    let plain = desired(&plain6());
    let last = plain.shard(8).expect("it exists");
    assert_eq!(last.steer6, Some("2001:db8:2::8".parse().unwrap()));
    assert_eq!((plain.access_routes(), plain.internet_routes()), (18, 18));
    for (from, to) in [
        ("public = \"203.0.113.0/25\"", "public = \"203.0.113.0/24\""),
        ("\"2001:db8:1000::/44\"", "[\"2001:db8:1000::/44\", \"2001:db8:4000::/48\"]"),
        ("2001:db8:1000::/44", "2001:db8:1000::/43"),
    ] {
        let grown = desired(&changed(CLUSTER6, from, to));
        assert!(gre.shards.iter().all(|shard| grown.shard(shard.id) == Some(shard)), "{to}");
    }
}

const GRE_CASES: &[Case] = &[
    (
        "1000::/44\"",
        "1000::/46\"",
        &[
            "16:11: pool[0].public6: 8 shards need 8 prefixes of /48, these are 4 (add a prefix at the end, or write a larger one, or a larger per_shard6)",
        ],
    ),
    (
        "1000::/44\"",
        "1000::/52\"",
        &[
            "16:11: pool[0].public6: 2001:db8:1000::/52 is smaller than the /48 of a shard (write a larger prefix, or per_shard6 = 52)",
        ],
    ),
    (
        "1000::/44\"",
        "1000::/44\"\nper_shard6 = 65",
        &["17:14: pool[0].per_shard6: 65 is out of range (must be an integer 16..=64 bits)"],
    ),
    (
        "1000::/44\"",
        "1000::/44\"\nper_shard6 = 44",
        &[
            "16:11: pool[0].public6: 8 shards need 8 prefixes of /44, these are 1 (add a prefix at the end, or write a larger one, or a larger per_shard6)",
        ],
    ),
    (
        "1000::/44\"",
        "1000::/44\"\nsteer6 = \"2001:db8:2::/112\"",
        &["17:10: pool[0].steer6: has no meaning in access mode \"gre\" (remove it)"],
    ),
    (
        "public6 = \"2001:db8:1000::/44\"",
        "per_shard6 = 48",
        &["16:14: pool[0].per_shard6: public6 is missing (write public6, or remove it)"],
    ),
    (
        "2001:db8:2000::/48",
        "2001:db8:1001::/48",
        &[
            "22:12: shard[0].public6[0]: 2001:db8:1001::/48 overlaps 2001:db8:1000::/44 of pool[0].public6 (a prefix belongs to one shard)",
        ],
    ),
    (
        "id = 1000",
        "id = 1000\nsteer6 = \"2001:db8:2::10\"",
        &["20:10: shard[0].steer6: has no meaning in access mode \"gre\" (remove it)"],
    ),
    (
        "replicas = 1",
        "replicas = 1\nmax_routes = 17",
        &[
            "4:14: cluster.max_routes: the internet switch gets 18 routes, to the shards' public prefixes (make shards larger, or use a larger switch)",
        ],
    ),
    ("replicas = 1", "replicas = 1\nmax_routes = 18", &[]),
];

const PLAIN_CASES: &[Case] = &[
    (
        "steer6 = \"2001:db8:2::/112\"\n",
        "",
        &[
            "12:1: pool[0].steer6: missing: public6 in access mode \"plain\" needs it (write what the access network sends IPv6 to as next hop, e.g. \"2001:db8:2::1\", in a pool \"2001:db8:2::/112\")",
        ],
    ),
    (
        "steer6 = \"2001:db8:3::1\"\n",
        "",
        &[
            "21:1: shard[0].steer6: missing: public6 in access mode \"plain\" needs it (write what the access network sends IPv6 to as next hop, e.g. \"2001:db8:2::1\", in a pool \"2001:db8:2::/112\")",
        ],
    ),
    (
        "public6 = [\"2001:db8:2000::/48\"]\n",
        "",
        &["25:10: shard[0].steer6: public6 is missing (write public6, or remove it)"],
    ),
    (
        "2001:db8:2::/112",
        "2001:db8:2::/125",
        &[
            "16:10: pool[0].steer6: 8 shards need 8 steering addresses, these are 7 without the first of each prefix (add a prefix at the end, or write a larger one)",
        ],
    ),
    (
        "2001:db8:2::/112",
        "2001:db8:2::/128",
        &[
            "16:10: pool[0].steer6: 2001:db8:2::/128 has a length of 128, not 16 to 127 (write a unicast prefix as \"2001:db8::/length\")",
        ],
    ),
    (
        "2001:db8:3::1",
        "2001:db8:2::1",
        &[
            "25:10: shard[0].steer6: 2001:db8:2::1 overlaps 2001:db8:2::/112 of pool[0].steer6 (an address belongs to one shard)",
        ],
    ),
    (
        "2001:db8:3::1",
        "2001:db8:1001::1",
        &[
            "25:10: shard[0].steer6: 2001:db8:1001::1 lies in the public prefix 2001:db8:1000::/44 (pool[0].public6) (an endpoint is an address of the access network)",
        ],
    ),
    (
        "2001:db8:3::1",
        "fe80::1",
        &[
            "25:10: shard[0].steer6: fe80::1 is link-local (fe80::/10) (use a global or unique local address)",
        ],
    ),
    (
        "2001:db8:3::1",
        "10.0.0.1",
        &[
            "25:10: shard[0].steer6: \"10.0.0.1\" is not valid (must be a string: a global or unique local IPv6 address)",
        ],
    ),
    ("[nat]", "[ipv6]\nhome_length6 = 56\n[nat]", &[]),
    (
        "\"2001:db8:1000::/44\"",
        "\"2001:db8:1000::/44\"\nper_shard6 = 60\n[ipv6]\nhome_length6 = 56",
        &[
            "22:16: ipv6.home_length6: homes of /56 are larger than the /60 of pool[0] (write at least 60, or a smaller per_shard6)",
        ],
    ),
    (
        "replicas = 1",
        "replicas = 1\nmax_routes = 17",
        &[
            "4:14: cluster.max_routes: the access switch gets 18 routes, to the shards' endpoints (make shards larger, or use a larger switch)",
        ],
    ),
];

#[test]
fn pools_and_shards_whose_ipv6_cannot_work_are_refused() {
    check_errors(CLUSTER6, GRE_CASES);
    check_errors(&plain6(), PLAIN_CASES);
}

#[test]
fn nodes_of_a_cluster_with_ipv6_need_it_and_its_mtu() {
    let first =
        weir_config::parse_member(&node(1), "n1.toml", &desired(CLUSTER6), &[]).expect("valid").0;
    let others = [("n1.toml".to_owned(), first)];
    let check = |cluster: &str, from: &str, to: &str, expected: &[&str]| {
        let text = changed(&node(2), from, to);
        let found = weir_config::parse_member(&text, "t.toml", &desired(cluster), &others);
        assert_found(to, &found.err().unwrap_or_default(), expected);
    };
    const IPV6: &str = ", address6 = \"2001:db8:1::a:2/64\", gateways6 = [\"fe80::1\"]";
    check(
        CLUSTER6,
        IPV6,
        "",
        &[
            "13:12: worker[0].internet.address6: missing: shard 1 of the cluster has public6 (write address6 and gateways6, or remove public6)",
        ],
    );
    check(CLUSTER, IPV6, "", &[]);
    let idle = node(2).replace("core = 1", "core = 1\nweight = 0").replace(IPV6, "");
    weir_config::parse_member(&idle, "t.toml", &desired(CLUSTER6), &others).expect("no shards");
    check(
        CLUSTER6,
        "mtu = 1592",
        "mtu = 1303",
        &[
            "12:114: worker[0].access.mtu: 1303 bytes leave 1279 beside 24 of GRE for a home's IPv6 packet, which may have 1280 (RFC 8200 section 5) (write mtu = 1304 or more, or remove the shards' public6)",
        ],
    );
    check(CLUSTER, "mtu = 1592", "mtu = 1303", &[]);
    check(
        &plain6(),
        "core = 1",
        "core = 2",
        &[
            "12:10: worker[0].access.address6: missing: shard 1 of the cluster has public6 (write address6 and gateways6, or remove public6)",
        ],
    );
    check(
        CLUSTER6,
        "2001:db8:1::a:2/64",
        "2001:db8:1::a:1/64",
        &[
            "13:109: worker[0].internet.address6: 2001:db8:1::a:1 is also in n1.toml (worker[0].internet.address6) (each address may be used once)",
        ],
    );
    check(
        CLUSTER6,
        "2001:db8:1::a:2/64",
        "2001:db8:2000::a:2/64",
        &[
            "13:109: worker[0].internet.address6: the connected prefix 2001:db8:2000::/64 overlaps the public prefix 2001:db8:2000::/48 of shard 1000 (public prefixes are routed to the worker and used by nothing else)",
        ],
    );
    let access = "mtu = 1592, address6 = \"2001:db8:2::3/64\", gateways6 = \"fe80::2\"";
    check(
        &plain6(),
        "mtu = 1592",
        access,
        &[
            "12:131: worker[0].access.address6: 2001:db8:2::3 is also the steering address of shard 3 (each address may be used once)",
        ],
    );
}

#[test]
fn worker_in_another_ipv6_network_than_most_is_named() {
    let cluster = desired(CLUSTER6);
    let found = |from: &str, to: &str, expected: &[&str]| {
        let texts = [changed(&node(1), from, to), node(2), node(3)];
        let members = texts.each_ref().map(|text| {
            weir_config::parse_member(text, "t.toml", &cluster, &[]).expect("it fits").0
        });
        let nodes = members.iter().zip(&texts);
        let nodes = nodes.map(|(value, text)| Checked { name: "t.toml", text, value });
        let file = Checked { name: "cluster.toml", text: CLUSTER6, value: &cluster };
        let found = weir_config::check_nodes(file, &nodes.collect::<Vec<_>>());
        let found: Vec<_> = found.into_iter().filter(|it| it.key != "node.metrics").collect();
        assert_found(to, &found, expected);
    };
    found("2001:db8:1::a:1/64", "2001:db8:1::a:1/64", &[]);
    found(
        "2001:db8:1::a:1/64",
        "2001:db8:9::a:1/64",
        &[
            "13:109: worker[0].internet.address6: 2001:db8:9::/64 is another subnet than 2001:db8:1::/64 (t.toml, worker[0].internet) (write an address of 2001:db8:1::/64: workers and switch share one subnet on each side)",
        ],
    );
    found(
        "[\"fe80::1\"]",
        "[\"fe80::2\"]",
        &[
            "13:143: worker[0].internet.gateways6: fe80::2, others have fe80::1 (t.toml, worker[0].internet) (write the same gateways; right as it is only where each switch of a pair is the gateway of its own nodes)",
        ],
    );
    found(
        "mtu = 1592",
        "mtu = 1592, address6 = \"2001:db8:2::1/64\", gateways6 = \"fe80::2\"",
        &[
            "12:131: worker[0].access.address6: 2001:db8:2::/64, others have no IPv6 (t.toml, worker[0].access) (give the others address6 and gateways6, too)",
        ],
    );
}

#[test]
fn state_with_ipv6_has_format_3_and_one_without_it_stays_as_it_was() {
    let with = desired(&changed(CLUSTER6, "[nat]", "[ipv6]\nclaim_hold_sec = 5\n[nat]"));
    let value: Value = serde_json::from_str(&with.to_json()).expect("JSON");
    assert_eq!(value["format"], 3);
    assert_eq!(value["ipv6"], json!({"claim_hold_sec": 5}));
    assert_eq!(value["shard"][1]["public6"], json!(["2001:db8:1001::/48"]));
    assert_eq!(value.get("delegation"), None);
    for text in [CLUSTER6.to_owned(), plain6()] {
        let desired = desired(&text);
        assert_eq!(Desired::from_json(&desired.to_json()).expect("it is valid"), desired);
    }
    let plain = desired(&changed(&plain6(), "[nat]", "[ipv6]\nhome_length6 = 56\n[nat]"));
    assert_eq!(Desired::from_json(&plain.to_json()).expect("it is valid"), plain);
    let without = desired(CLUSTER).to_json();
    assert!(without.starts_with("{\"format\":1,"), "{without}");
    for key in ["ipv6", "public6", "steer6", "delegation"] {
        assert!(!without.contains(key), "{key}: {without}");
    }
    let newer = with.to_json().replacen("\"format\":3", "\"format\":5", 1);
    let error = Desired::from_json(&newer).expect_err("newer");
    assert!(matches!(error, DesiredError::Format(5)));
    assert_eq!(error.to_string(), "format 5 is of a newer version: this one reads up to 4");
}

#[test]
fn fingerprint_covers_the_ipv6_prefixes_and_the_length_of_a_home() {
    let differing = |old: &str, new: &str| {
        let (old, new) = (desired(old), desired(new));
        let parts = old.fingerprint().parts().into_iter().zip(new.fingerprint().parts());
        parts.filter(|(old, new)| old != new).map(|(old, _)| old.0).collect::<Vec<_>>()
    };
    assert_eq!(differing(CLUSTER, CLUSTER6), ["prefixes"]);
    assert_eq!(
        differing(CLUSTER6, &changed(CLUSTER6, "2001:db8:2000::/48", "2001:db8:2001::/48")),
        ["prefixes"]
    );
    let homes = |length: u8| {
        changed(&plain6(), "[nat]", &format!("[ipv6]\nhome_length6 = {length}\n[nat]"))
    };
    assert_eq!(differing(&homes(64), &homes(56)), ["shards"]);
    assert_eq!(differing(&plain6(), &homes(64)), [""; 0]);
    let held = changed(CLUSTER6, "[nat]", "[ipv6]\nclaim_hold_sec = 5\n[nat]");
    assert_eq!(differing(CLUSTER6, &held), [""; 0]);
}

#[test]
fn changes_of_ipv6_say_what_they_do_to_live_flows() {
    let lines = |old: &str, new: &str| -> Vec<String> {
        difference(&desired(old), &desired(new)).iter().map(ToString::to_string).collect()
    };
    let change = |from: &str, to: &str| lines(CLUSTER6, &changed(CLUSTER6, from, to));
    assert_eq!(
        change("public6 = [\"2001:db8:2000::/48\"]\n", ""),
        [
            "shard 1000: public prefix 2001:db8:2000::/48 removed (strands the flows of 2001:db8:2000::/48 in shard 1000)"
        ]
    );
    assert_eq!(
        change("2001:db8:2000::/48", "2001:db8:2000::/47"),
        [
            "shard 1000: public prefix 2001:db8:2000::/48 removed, its addresses stay (flows go on)",
            "shard 1000: public prefix 2001:db8:2000::/47 added (flows go on)"
        ]
    );
    assert_eq!(
        change("[nat]", "[ipv6]\nclaim_hold_sec = 5\n[nat]"),
        ["ipv6.claim_hold_sec: not set -> 5 (flows go on)"]
    );
    let gone = change("[[shard]]\nid = 1000\n", "[[shard]]\nid = 1001\n");
    assert_eq!(
        gone,
        [
            "shard 1000: removed, 198.51.100.0/28 is in shard 1001 now (strands all flows of shard 1000)",
            "shard 1001: added with 2 public prefixes (flows go on)"
        ]
    );
    let plain = plain6();
    assert_eq!(
        lines(&plain, &changed(&plain, "2001:db8:3::1", "2001:db8:3::2")),
        [
            "shard 1000: steer6 2001:db8:3::1 -> 2001:db8:3::2 (strands the IPv6 flows of shard 1000)"
        ]
    );
    let homes = changed(&plain, "[nat]", "[ipv6]\nhome_length6 = 56\n[nat]");
    assert_eq!(
        lines(&plain, &homes),
        [
            "ipv6.home_length6: not set -> 56 (taken by each node when it restarts, and its flows end then)"
        ]
    );
    let added = lines(CLUSTER, CLUSTER6);
    assert_eq!(added.len(), 9);
    assert!(added.iter().all(|line| line.ends_with("(flows go on)")), "{added:?}");
}
