//! Limits of groups, and rules that end live flows.

use weir_config::{Config, Desired, difference};

use crate::base::{BASE, assert_found, assert_refused};
use crate::cluster_file::{CLUSTER, desired};

/// Line numbers count from 1 at the `[[group]]`.
const POLICY: &str = r#"[[group]]
name = "business"
subscribers = ["10.200.16.0/20"]
limits = { ports_per_subscriber = 4096, new_flows_per_sec = 5000 }

[[rule]]
name = "court-orders"
remote = "198.51.100.0/24"
action = "drop"
rematch = true
"#;

fn config(policy: &str) -> Config {
    weir_config::parse(&format!("{policy}{BASE}"), "t.toml").unwrap().0
}

#[test]
fn limits_of_a_group_and_a_rule_with_rematch_are_read_back_from_etcd() {
    let policy = config(POLICY).policy;
    let limits = policy.groups[0].limits;
    let given = (limits.ports_per_subscriber, limits.new_flows_per_sec, limits.flows);
    assert_eq!(given, (Some(4096), Some(5000), None));
    assert!(policy.rules[0].rematch);
    let file = desired(&format!("{CLUSTER}{POLICY}"));
    assert_eq!(file.policy, policy);
    assert_eq!(Desired::from_json(&file.to_json()).unwrap(), file);
    let without = POLICY.replace("rematch = true\n", "");
    let without = without.lines().filter(|line| !line.starts_with("limits"));
    let without = desired(&format!("{CLUSTER}{}", without.collect::<Vec<_>>().join("\n")));
    for key in ["rematch", "\"limits\":{\"ports"] {
        assert!(!without.to_json().contains(key), "earlier versions do not know {key}");
    }
}

#[test]
fn wrong_limits_and_a_rule_that_could_end_no_flow_are_refused_with_place_and_fix() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "4096",
            "4000",
            &[
                "4:35: group[0].limits.ports_per_subscriber: 4000 is not a multiple of nat.port_block",
            ],
        ),
        ("4096", "100000", &["4:35: group[0].limits.ports_per_subscriber: 100000 is out of range"]),
        ("5000", "0", &["4:61: group[0].limits.new_flows_per_sec: 0 is out of range"]),
        (
            "new_flows_per_sec",
            "new_flows",
            &["4:41: group[0].limits.new_flows: unknown key (did you mean"],
        ),
        ("limits = {", "limits = 5 # {", &["4:10: group[0].limits: an integer is not valid here"]),
        (
            "action = \"drop\"",
            "action = \"accept\"",
            &["10:11: rule[0].rematch: beside an action that ends no flow (remove it"],
        ),
        (
            "rematch = true",
            "rematch = 1",
            &["10:11: rule[0].rematch: an integer is not valid here"],
        ),
    ];
    assert_refused(POLICY, cases);
}

#[test]
fn limit_of_a_group_that_is_as_large_as_the_table_is_warned_of() {
    let text = POLICY.replace("new_flows_per_sec = 5000", "flows = 200_000_000");
    let (_, warnings) = weir_config::parse(&format!("{text}{BASE}"), "t.toml").unwrap();
    let expected = "4:49: group[0].limits.flows: one home may fill the table of all: nat.flows_max";
    assert_found("warnings", &warnings, &[expected]);
}

#[test]
fn changes_of_limits_and_of_rules_with_rematch_say_what_ends() {
    let of = |text: &str| {
        let old = desired(&format!("{CLUSTER}{POLICY}"));
        let changes = difference(&old, &desired(&format!("{CLUSTER}{text}")));
        changes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let ends = "(for new flows, and ends those that a rule with rematch refuses)";
    let cases: &[(&str, &str, &[String])] = &[
        (
            "ports_per_subscriber = 4096, new_flows_per_sec = 5000",
            "flows = 99, new_flows_per_sec = 6000",
            &[
                "group business: limits.flows as all homes -> 99 (for new flows)".to_owned(),
                "group business: limits.new_flows_per_sec 5000 -> 6000 (for new flows)".to_owned(),
                "group business: limits.ports_per_subscriber 4096 -> as all homes (for new flows)"
                    .to_owned(),
            ],
        ),
        (
            "198.51.100.0/24",
            "198.51.101.0/24",
            &[format!(
                "rule court-orders: remote: 198.51.101.0/24 added, 198.51.100.0/24 removed {ends}"
            )],
        ),
        (
            "rematch = true\n",
            "",
            &["rule court-orders: rematch true -> false (for new flows)".to_owned()],
        ),
        (
            "subscribers = [\"10.200.16.0/20\"]",
            "subscribers = [\"10.200.32.0/20\"]",
            &[format!("group business: 10.200.32.0/20 added, 10.200.16.0/20 removed {ends}")],
        ),
    ];
    for (from, to, expected) in cases {
        assert!(POLICY.contains(from), "{from:?}");
        assert_eq!(of(&POLICY.replacen(from, to, 1)), *expected, "{from:?} -> {to:?}");
    }
}
