//! `[[source_pool]]`, and rules that name one.

use weir_config::{Config, Desired, difference, node_difference};

use crate::base::{BASE, assert_found, assert_refused, changed};
use crate::cluster_file::{CLUSTER, check_errors, desired};

/// Line numbers count from 1 at the first `[[source_pool]]`.
const POLICY: &str = r#"[[source_pool]]
name = "mail"
public = ["203.0.113.24/31", "203.0.113.8/31"]

[[source_pool]]
name = "dns"
public = "203.0.113.0/31"

[[rule]]
name = "servers"
protocol = "tcp"
remote_port = 25
action = "accept"
source_pool = "mail"
"#;

fn config(policy: &str) -> Config {
    weir_config::parse(&format!("{policy}{BASE}"), "t.toml").unwrap().0
}

#[test]
fn source_pools_are_read_in_the_order_of_their_names_and_read_back_from_etcd() {
    let policy = config(POLICY).policy;
    let read = policy.source_pools.iter().map(|it| {
        let nets: Vec<String> = it.public.iter().map(ToString::to_string).collect();
        format!("{} {}", it.name, nets.join(" "))
    });
    let expected = ["dns 203.0.113.0/31", "mail 203.0.113.8/31 203.0.113.24/31"];
    assert_eq!(read.collect::<Vec<_>>(), expected);
    assert_eq!(policy.rules[0].source_pool.as_deref(), Some("mail"));
    let file = desired(&format!("{CLUSTER}{POLICY}"));
    assert_eq!(file.policy, policy);
    assert_eq!(Desired::from_json(&file.to_json()).unwrap(), file);
    assert_eq!(file.fingerprint(), desired(CLUSTER).fingerprint(), "a change is taken at once");
}

#[test]
fn state_that_older_versions_would_misread_has_format_2() {
    let format = |policy: &str| {
        let json = desired(&format!("{CLUSTER}{policy}")).to_json();
        json.split(',').next().unwrap().to_owned()
    };
    let redirect = "[[rule]]\nname = \"r\"\naction = \"redirect\"\nto = \"192.0.2.53\"\n";
    let unused = "[[source_pool]]\nname = \"mail\"\npublic = \"203.0.113.8/30\"\n";
    for policy in [POLICY, redirect, unused] {
        assert_eq!(format(policy), "{\"format\":2", "{policy}");
    }
    for policy in ["", "[[rule]]\nname = \"r\"\naction = \"accept\"\n"] {
        assert_eq!(format(policy), "{\"format\":1", "{policy}");
    }
    let json = desired(&format!("{CLUSTER}[[rule]]\nname = \"r\"\naction = \"drop\"\n")).to_json();
    for key in ["source_pool", "\"to\""] {
        assert!(!json.contains(key), "earlier versions do not know {key}");
    }
}

#[test]
fn wrong_source_pools_are_refused_with_place_and_fix() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("name = \"dns\"\n", "", &["5:1: source_pool[1].name: missing"]),
        (
            "\"dns\"",
            "\"mail\"",
            &["6:8: source_pool[1].name: the name mail is already at source_pool[0].name (each"],
        ),
        (
            "\"dns\"",
            "\"DNS\"",
            &["6:8: source_pool[1].name: \"DNS\" is not valid (must be a string"],
        ),
        ("public = \"203.0.113.0/31\"", "", &["5:1: source_pool[1].public: missing (must be a"]),
        ("\"203.0.113.0/31\"", "[]", &["7:10: source_pool[1].public: an empty list"]),
        (
            "203.0.113.0/31",
            "203.0.113.1/31",
            &["7:10: source_pool[1].public: 203.0.113.1/31 has host bits; its prefix is"],
        ),
        (
            "public = \"",
            "publc = \"",
            &[
                "5:1: source_pool[1].public: missing",
                "7:1: source_pool[1].publc: unknown key (did you mean public?)",
            ],
        ),
        (
            "203.0.113.0/31",
            "203.0.113.9/32",
            &[
                "7:10: source_pool[1].public: 203.0.113.9 overlaps 203.0.113.8/31 of source_pool[0].public[1] (a public address is in one source pool at most)",
            ],
        ),
        (
            "source_pool = \"mail\"",
            "source_pool = \"web\"",
            &[
                "14:15: rule[0].source_pool: there is no source pool web (write a [[source_pool]]; there are dns, mail)",
            ],
        ),
        (
            "action = \"accept\"",
            "action = \"drop\"",
            &["14:15: rule[0].source_pool: beside an action that lets no flow begin (remove it"],
        ),
        (
            "action = \"accept\"",
            "from = \"internet\"\naction = \"accept\"",
            &["15:15: rule[0].source_pool: beside from = \"internet\": such a flow has the public"],
        ),
    ];
    assert_refused(POLICY, cases);
}

#[test]
fn more_than_7_source_pools_are_refused() {
    let pool =
        |n: usize| format!("[[source_pool]]\nname = \"p{n}\"\npublic = \"203.0.113.{n}/32\"\n");
    let text = |count: usize| (8..8 + count).map(pool).collect::<String>() + BASE;
    let errors = weir_config::parse(&text(8), "t.toml").unwrap_err();
    let expected = "22:1: source_pool[7]: 8 source pools, at most 7 fit (use fewer source pools";
    assert_found("8", &errors, &[expected]);
    let config = weir_config::parse(&text(7), "t.toml").unwrap().0;
    assert_eq!(config.policy.source_pools.len(), 7);
}

#[test]
fn shard_whose_addresses_are_all_in_source_pools_is_refused() {
    let cases: &[(&str, &str, &[&str])] = &[(
        "\"203.0.113.0/31\"",
        "[\"203.0.113.0/29\", \"203.0.113.10/31\", \"203.0.113.12/30\"]",
        &[
            "40:10: shard[0].public: all 16 public addresses of shard 1 are in source pools: its homes need one that is in none (take an address of it out of a [[source_pool]], or give it a further one)",
        ],
    )];
    assert_refused(POLICY, cases);
    let pool = "[[source_pool]]\nname = \"mail\"\npublic = [\"203.0.113.32/28\"]\n[[pool]]";
    let cases = &[(
        "[[pool]]",
        pool,
        &["17:10: pool[0].public: all 16 public addresses of shard 3 are in source pools"][..],
    )];
    check_errors(CLUSTER, cases);
}

#[test]
fn homes_share_what_source_pools_leave_of_the_public_addresses() {
    let most = POLICY.replace(
        "\"203.0.113.24/31\"",
        "\"203.0.113.2/31\", \"203.0.113.4/30\", \"203.0.113.10/31\", \"203.0.113.12/31\"",
    );
    let (config, warnings) = weir_config::parse(&format!("{most}{BASE}"), "t.toml").unwrap();
    let share = config.port_share(&config.shards[0]).unwrap();
    assert_eq!((share.addresses, share.homes), (2, 256));
    let expected = [
        "3:10: source_pool[0].public: shard 2 has no address of it",
        "6:8: source_pool[1].name: no rule names it",
        "40:10: shard[0].public: only 62 of 256 homes can have their 2048 ports at once (9 addresses would do; it has 2)",
    ];
    assert_found("warnings", &warnings, &expected);
    let all_but_one =
        most.replace("\"203.0.113.12/31\"", "\"203.0.113.12/31\", \"203.0.113.14/32\"");
    let errors = weir_config::parse(&format!("{all_but_one}{BASE}"), "t.toml").unwrap_err();
    let expected = "40:10: shard[0].public: 256 homes do not fit: 1 addresses have 252 blocks of";
    assert_found("errors", &errors, &[expected]);
    let nets = "\"203.0.113.32/30\", \"203.0.113.36/31\", \"203.0.113.38/32\"";
    let file = format!("{CLUSTER}[[source_pool]]\nname = \"mail\"\npublic = [{nets}]\n");
    let (file, warnings) = weir_config::parse_cluster(&file, "t.toml").unwrap();
    let of = |shard| file.port_share(file.shard(shard).unwrap()).unwrap().addresses;
    assert_eq!([1, 3].map(of), [16, 9]);
    let expected = [
        "15:13: pool[0].per_shard: only 243 of 256 homes can have",
        "22:8: source_pool[0].name: no rule names it",
    ];
    assert_found("cluster", &warnings, &expected);
}

#[test]
fn source_pools_that_some_homes_cannot_use_are_warned_of() {
    let warned = |from: &str, to: &str| {
        let text = format!("{}{BASE}", changed(POLICY, from, to));
        weir_config::parse(&text, "t.toml").unwrap().1
    };
    let unused =
        "6:8: source_pool[1].name: no rule names it: no flow gets its addresses (remove it";
    assert_found("the policy", &warned("", ""), &[unused]);
    let expected = [
        "3:11: source_pool[0].public[0]: 203.0.114.0/31 is in no shard's public prefixes (write",
        "3:10: source_pool[0].public: shard 2 has no address of it: homes there are refused the flows of rule servers (ports-exhausted) (add an address of each",
    ];
    let found = warned("203.0.113.24/31", "203.0.114.0/31");
    assert_found("elsewhere", &found, &[expected[1], expected[0], unused]);
    let found = warned("203.0.113.24/31", "203.0.113.128/25");
    let expected =
        "3:11: source_pool[0].public[0]: 203.0.113.128/25 is in no shard's public prefixes";
    assert_eq!(found.iter().filter(|it| it.to_string().contains(&expected[6..])).count(), 1);
    let wide = warned("203.0.113.24/31", "203.0.113.24/30");
    assert_found("inside", &wide, &[unused]);
    let text = "[[source_pool]]\nname = \"mail\"\npublic = \"203.0.113.128/30\"\n\
        [[rule]]\nname = \"r\"\naction = \"accept\"\nsource_pool = \"mail\"\n";
    let (_, warnings) = weir_config::parse_cluster(&format!("{CLUSTER}{text}"), "t.toml").unwrap();
    let expected = [
        "23:10: source_pool[0].public: 203.0.113.128/30 is in no shard's public prefixes",
        "23:10: source_pool[0].public: shards 1, 2, 3 and 6 more have no address of it: homes there",
    ];
    assert_found("cluster", &warnings, &expected);
    let beyond = text.replace("203.0.113.128/30", "203.0.112.0/23");
    let errors = weir_config::parse_cluster(&format!("{CLUSTER}{beyond}"), "t.toml").unwrap_err();
    assert!(errors[0].message.contains("are in source pools"), "{errors:?}");
}

#[test]
fn source_pools_without_translation_are_refused() {
    let text = POLICY.to_owned() + &changed(BASE, "port_block = 256", "enabled = false");
    let errors = weir_config::parse(&text, "t.toml").unwrap_err();
    let expected = [
        "1:1: source_pool[0]: there are no public addresses without translation (remove it, or",
        "5:1: source_pool[1]: there are no public addresses without translation",
        "14:15: rule[0].source_pool: there are no public addresses without translation",
    ];
    assert_found("errors", &errors, &expected);
}

#[test]
fn changes_of_source_pools_are_for_new_flows() {
    let of = |from: &str, to: &str| {
        assert!(POLICY.contains(from), "{from:?}");
        let new = POLICY.replacen(from, to, 1);
        let (old, changed) = (config(POLICY), config(&new));
        let of_node = node_difference(&old, &old, &changed);
        let of_cluster = difference(
            &desired(&format!("{CLUSTER}{POLICY}")),
            &desired(&format!("{CLUSTER}{new}")),
        );
        assert_eq!(of_node, of_cluster);
        of_node.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of("", ""), [""; 0]);
    let expected =
        ["source_pool mail: 203.0.113.16/31 added, 203.0.113.24/31 removed (for new flows)"];
    assert_eq!(of("203.0.113.24/31", "203.0.113.16/31"), expected);
    let expected = [
        "source_pool dns: removed (for new flows)",
        "source_pool names: added with 203.0.113.0/31 (for new flows)",
    ];
    assert_eq!(of("\"dns\"", "\"names\""), expected);
    let expected = ["rule servers: source_pool \"mail\" -> \"dns\" (for new flows)"];
    assert_eq!(of("source_pool = \"mail\"", "source_pool = \"dns\""), expected);
    let expected = ["rule servers: source_pool \"mail\" -> none (for new flows)"];
    assert_eq!(of("source_pool = \"mail\"\n", ""), expected);
    let many = "203.0.113.24/32\", \"203.0.113.25/32\", \"203.0.113.26/32";
    let pool =
        format!("[[source_pool]]\nname = \"new\"\npublic = [\"{many}\", \"203.0.113.27/32\"]\n");
    let added = of(
        "\n[[rule]]",
        &format!("\n{pool}[[rule]]")
            .replace("113.24/32\", \"203.0.113.25/32", "113.28/32\", \"203.0.113.29/32"),
    );
    assert_eq!(added, ["source_pool new: added with 4 prefixes (for new flows)"]);
}
