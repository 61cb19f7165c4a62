//! The desired state in etcd: division into shards, writing, reading and fingerprints.

use std::fmt::Write;

use bolero::TypeGenerator;
use serde_json::{Value, json};
use weir_config::{Desired, DesiredError};

use crate::base::changed;
use crate::cluster_file::{CLUSTER, desired, plain};

/// Lists of a pool: prefixes of 198.18.0.0, 198.19.0.0, ... with these lengths.
#[derive(Clone, Debug, TypeGenerator)]
struct Lists {
    /// 22..=28
    public: Vec<u8>,
    /// 24..=31
    endpoints: Vec<u8>,
    first_id: u16,
}

/// The growth of a pool.
#[derive(Clone, Debug, TypeGenerator)]
struct Growth {
    public: Vec<u8>,
    endpoints: Vec<u8>,
    widen_public: bool,
    widen_endpoints: bool,
}

impl Lists {
    fn lengths(bytes: &[u8], least: u8, count: u8) -> Vec<u8> {
        bytes.iter().take(3).map(|byte| least + byte % count).collect()
    }

    /// Returns the lengths of both lists, without or with the growth.
    fn grown(&self, growth: Option<&Growth>) -> (Vec<u8>, Vec<u8>) {
        let mut public = Self::lengths(&self.public, 22, 7);
        let mut endpoints = Self::lengths(&self.endpoints, 24, 8);
        if let Some(growth) = growth {
            let last = public.last_mut().filter(|_| growth.widen_public);
            last.into_iter().for_each(|length| *length -= 1);
            let last = endpoints.last_mut().filter(|_| growth.widen_endpoints);
            last.into_iter().for_each(|length| *length -= 1);
            public.extend(Self::lengths(&growth.public, 22, 7));
            endpoints.extend(Self::lengths(&growth.endpoints, 24, 8));
        }
        (public, endpoints)
    }

    fn text(&self, growth: Option<&Growth>, more: &str) -> String {
        let (public, endpoints) = self.grown(growth);
        let list = |lengths: &[u8], first: u8, second: u8| {
            let nets = lengths.iter().enumerate();
            let nets = nets.map(|(index, length)| {
                format!("\"{first}.{}.0.0/{length}\"", usize::from(second) + index)
            });
            nets.collect::<Vec<_>>().join(", ")
        };
        format!(
            "[cluster]\nname = \"edge\"\n[access]\nsubscribers = [\"10.200.0.0/16\"]\n{more}\
             [[pool]]\nfirst_id = {}\npublic = [{}]\nendpoints = [\"10.99.0.0/27\", {}]\n",
            u32::from(self.first_id) + 1000,
            list(&public, 198, 18),
            list(&endpoints, 10, 100),
        )
    }
}

fn parse(text: &str) -> Option<Desired> {
    weir_config::parse_cluster(text, "t.toml").ok().map(|(desired, _)| desired)
}

#[test]
fn a_pool_that_grows_at_its_end_keeps_its_shards() {
    bolero::check!().with_type::<(Lists, Growth, bool)>().for_each(|(lists, growth, is_new_pool)| {
        let before = parse(&lists.text(None, ""));
        let another = "[[pool]]\nfirst_id = 1\npublic = \"203.0.113.0/25\"\nendpoints = \"10.98.0.0/24\"\n";
        let after = parse(&lists.text(Some(growth), if *is_new_pool { another } else { "" }));
        let (Some(before), Some(after)) = (before, after) else { return };
        for shard in &before.shards {
            assert_eq!(after.shard(shard.id), Some(shard));
        }
        for change in weir_config::difference(&before, &after) {
            assert!(!change.effect.is_stranding(), "{change}");
        }
        let only_more = after.shards.len() - before.shards.len();
        assert!(!is_new_pool || only_more >= 8);
    });
}

#[test]
fn no_two_shards_share_an_address() {
    bolero::check!().with_type::<(Lists, Growth)>().for_each(|(lists, growth)| {
        let Some(desired) = parse(&lists.text(Some(growth), "")) else { return };
        let mut nets: Vec<_> = desired.shards.iter().flat_map(|shard| &shard.public).collect();
        nets.sort();
        assert!(nets.windows(2).all(|pair| pair[0].broadcast() < pair[1].network()), "{nets:?}");
        let mut endpoints: Vec<_> = desired.shards.iter().map(|shard| shard.endpoint).collect();
        endpoints.sort();
        assert!(endpoints.windows(2).all(|pair| pair[0] < pair[1]), "{endpoints:?}");
        assert!(endpoints.iter().all(Option::is_some));
        assert!(desired.shards.windows(2).all(|pair| pair[0].id < pair[1].id));
        let (public, _) = lists.grown(Some(growth));
        let held: u64 = public.iter().map(|length| 1 << (32 - length)).sum();
        assert_eq!(desired.public_addresses(), held, "no address is lost");
        assert_eq!(Desired::from_json(&desired.to_json()).expect("it is valid"), desired);
    });
}

/// Returns a file in which every key has a value that is not its default.
fn unusual() -> String {
    let mut text = CLUSTER.replace("replicas = 1", "replicas = 2\nbalance = \"load\"\ncommit = \"replicated\"\ncommit_replicas = 1\ncommit_timeout_ms = 20\ncommit_on_timeout = \"drop\"\nreplication_port = 7000\nmax_routes = 100\nmax_next_hops = 8")
        .replace("[access]\n", "[access]\ngre_key = \"subscriber\"\n")
        .replace("port_block = 256", "filtering = \"endpoint-independent\"\nport_block = 128\nports_per_subscriber = 1024\nflows_max = 5000\nsessions_max = 2000\nflows_per_subscriber = 100\nquarantine_sec = 0\npooling = \"soft\"\nudp_inbound_refresh = true\ninbound_sessions_max = 7\nforward_source_routes = true\nmss_clamp = 1300");
    text.push_str("[[shard]]\nid = 2000\nendpoint = \"10.101.0.2\"\npublic = [\"198.51.100.16/28\"]\ncommit = \"async\"\n");
    text.push_str("[timeouts]\nprofile = \"carrier\"\nudp_sec = 77\n");
    text.push_str("[fragments]\ndatagrams_max = 64\nheld_max = 0\nheld_per_datagram_max = 1\ntimeout_sec = 3\n");
    text.push_str("[limits]\nsessions = 100\nnew_flows_per_sec = 7\nnew_flows_burst = 8\nnew_homes_per_sec = 9\nfragments_percent = 3\nicmp_errors_per_sec = 4\nicmp_errors_to_homes = false\nicmp_errors_to_internet = false\nworker_icmp_errors_per_sec = 5\nredirects_per_sec = 6\nslow_path_packets_per_sec = 1001\n");
    text
}

#[test]
fn what_is_written_is_read() {
    for text in [
        CLUSTER.to_owned(),
        plain(),
        unusual(),
        unusual().replace("= 1300", "= false"),
        unusual()
            .replace("flows_per_subscriber = 100\n", "")
            .replace("[limits]\n", "[limits]\nflows = 100\n"),
    ] {
        let desired = desired(&text);
        assert_eq!(Desired::from_json(&desired.to_json()).expect("it is valid"), desired);
        let value = serde_json::to_value(&desired).expect("serde");
        assert_eq!(serde_json::from_value::<Desired>(value).expect("serde"), desired);
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(&desired(text).to_json()).expect("JSON")
}

#[test]
fn the_json_is_the_file_without_pools() {
    let value = json_of(CLUSTER);
    assert_eq!(value["format"], 1);
    let cluster = json!({
        "name": "edge", "replicas": 1, "balance": "shards", "commit": "async", "commit_timeout_ms": 100,
        "commit_on_timeout": "release", "replication_port": 7473
    });
    assert_eq!(value["cluster"], cluster);
    assert_eq!(value["nat"]["filtering"], "address-and-port-dependent");
    assert_eq!(value["nat"]["mss_clamp"], true);
    let second = json!({"id": 2, "endpoint": "10.100.0.2", "public": ["203.0.113.16/28"], "subscribers_max": 256});
    assert_eq!(value["shard"][1], second);
    assert_eq!(value.get("pool"), None);
}

#[test]
fn json_of_other_versions_is_read() {
    let mut value = json_of(CLUSTER);
    let same = Desired::from_json(&value.to_string()).expect("valid");
    value["new"] = json!({"a\u{7f}b \"c\"": [1.5e300, null, {"d": {}}], "none": null});
    value["nat"]["new"] = json!("\u{0}\n\\é\u{10ffff}");
    value["shard"][0]["new"] = json!([[], [[]]]);
    assert_eq!(Desired::from_json(&value.to_string()).expect("more keys"), same);
    let keys = value["nat"].as_object_mut().expect("a section");
    keys.remove("quarantine_sec").expect("it is written");
    assert_eq!(Desired::from_json(&value.to_string()).expect("a default"), same);
    value["format"] = json!(2);
    assert_eq!(Desired::from_json(&value.to_string()).expect("of this version"), same);
    value["format"] = json!(4);
    assert_eq!(Desired::from_json(&value.to_string()).expect("of this version"), same);
    value["format"] = json!(5);
    assert!(matches!(Desired::from_json(&value.to_string()), Err(DesiredError::Format(5))));
    value["format"] = Value::Null;
    assert!(matches!(Desired::from_json(&value.to_string()), Err(DesiredError::NoFormat)));
    assert!(matches!(Desired::from_json("[1"), Err(DesiredError::Json(_))));
}

#[test]
fn json_that_the_file_checks_would_refuse_is_refused() {
    let refused = |change: fn(&mut Value)| {
        let mut value = json_of(CLUSTER);
        change(&mut value);
        Desired::from_json(&value.to_string()).expect_err("refused").to_string()
    };
    let error = refused(|value| value["nat"]["port_block"] = json!(0));
    assert_eq!(error, "not valid: nat.port_block: 0 is out of range");
    let error = refused(|value| value["shard"][1]["id"] = json!(1));
    assert_eq!(error, "not valid: shard[1].id: shard 1 is also the number of shard[0].id");
    let error = refused(|value| value["shard"][1]["public"] = json!(["203.0.113.0/28"]));
    assert_eq!(
        error,
        "not valid: shard[1].public[0]: 203.0.113.0/28 overlaps 203.0.113.0/28 of shard[0].public[0]"
    );
    let error = refused(|value| value["shard"] = json!([{}, {}, {}]));
    assert!(error.contains("; and "), "{error}");
    refused(|value| value["shard"] = json!([]));
    refused(|value| value["shard"] = json!(["x", null, 18446744073709551615u64]));
    refused(|value| value["access"] = json!(null));
}

#[test]
fn hostile_json_is_refused_without_a_panic() {
    let text = desired(&plain()).to_json();
    bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|edits| {
        let mut bytes = text.clone().into_bytes();
        for (at, byte) in edits.iter().take(4) {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *byte;
        }
        if let Ok(read) = Desired::from_json(&String::from_utf8_lossy(&bytes)) {
            assert_eq!(Desired::from_json(&read.to_json()).expect("it is valid"), read);
        }
    });
}

#[test]
fn the_largest_number_of_shards_fits_one_value_of_etcd() {
    let pool = |first: u32, public: &str, homes: &str, steer: &str| {
        format!(
            "[[pool]]\nfirst_id = {first}\npublic = \"{public}\"\nsubscribers = \"{homes}\"\nsteer = \"{steer}\"\n"
        )
    };
    let mut text = String::from(
        "[cluster]\nname = \"edge\"\n[access]\nmode = \"plain\"\nsubscribers = [\"100.64.0.0/10\"]\n",
    );
    let _ =
        write!(text, "{}", pool(4_000_000_000, "198.128.0.0/16", "100.64.0.0/12", "172.16.0.0/19"));
    let _ = write!(
        text,
        "{}",
        pool(4_100_000_000, "198.192.0.0/16", "100.112.0.0/12", "172.31.0.0/19")
    );
    let desired = desired(&text);
    assert_eq!(desired.shards.len(), 8192);
    assert!(desired.to_json().len() <= 1_400_000, "{}", desired.to_json().len());
    assert_eq!(Desired::from_json(&desired.to_json()).expect("it is valid"), desired);
}

#[test]
fn a_fingerprint_names_what_differs() {
    let differing = |from: &str, to: &str| {
        let (old, new) = (desired(CLUSTER), desired(&changed(CLUSTER, from, to)));
        let parts = old.fingerprint().parts().into_iter().zip(new.fingerprint().parts());
        parts.filter(|(old, new)| old != new).map(|(old, _)| old.0).collect::<Vec<_>>()
    };
    assert_eq!(differing("198.51.100.0/28", "198.51.100.16/28"), ["prefixes"]);
    assert_eq!(differing("port_block = 256", "port_block = 128"), ["block size"]);
    assert_eq!(differing("port_block = 256", "enabled = false"), ["block size"]);
    assert_eq!(differing("10.101.0.1", "10.101.0.2"), ["shards"]);
    assert_eq!(differing("id = 1000", "id = 1001"), ["prefixes", "shards"]);
    assert_eq!(differing("[access]", "[access]\ngre_key = \"subscriber\""), ["shards"]);
    assert_eq!(differing("replicas = 1", "replicas = 2\ncommit = \"replicated\""), [""; 0]);
    assert_eq!(differing("port_block", "flows_max = 5000\nport_block"), [""; 0]);
    let fingerprint = desired(CLUSTER).fingerprint();
    assert_eq!(
        fingerprint,
        Desired::from_json(&desired(CLUSTER).to_json()).expect("valid").fingerprint()
    );
}

/// Workers of different versions compare fingerprints: those of a file must never change.
#[test]
fn the_fingerprint_of_a_file_never_changes() {
    let parts = desired(CLUSTER).fingerprint().parts();
    let expected = [
        ("prefixes", 0xa131_4498_c281_4eb3),
        ("block size", 0xec96_610b_1cb8_dff8),
        ("lanes", 0x894f_3ef1_1c58_a530),
        ("shards", 0x3900_b19f_afc4_e8aa),
    ];
    assert_eq!(parts, expected, "{parts:#x?}");
}
