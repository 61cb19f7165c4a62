//! Sets, groups and rules.

use std::path::Path;

use weir_config::{
    ActionSetting, Desired, OriginSetting, PolicyLines, PolicySettings, PortSpan, ProtocolSetting,
    RuleAddress, SetSource, difference, load_sets, parse_set, policy_difference,
};

use crate::base::{BASE, assert_found, assert_refused};
use crate::cluster_file::{CLUSTER, desired};

/// Line numbers count from 1 at the first `[[set]]`.
const POLICY: &str = r#"
[[set]]
name = "blocked"
file = "/etc/weir/sets/blocked.txt"

[[set]]
name = "own"
prefixes = ["192.0.2.7", "192.0.2.0/30"]

[[group]]
name = "business"
subscribers = ["10.200.16.0/20"]

[[rule]]
name = "no-smtp"
groups = ["business"]
protocol = "tcp"
remote_port = [25, "465-587"]
action = "reject"

[[rule]]
name = "cameras"
from = "internet"
subscribers = ["10.200.1.5", "@own"]
protocol = ["udp", "tcp"]
inside_port = 80
action = "accept"

[[rule]]
name = "court-orders"
from = "any"
remote = ["@blocked", "198.51.100.0/24"]
action = "drop"
"#;

fn single(policy: &str) -> String {
    format!("{BASE}{policy}")
}

fn policy(policy: &str) -> PolicySettings {
    weir_config::parse(&single(policy), "t.toml").unwrap().0.policy
}

fn net(text: &str) -> RuleAddress {
    RuleAddress::Net(text.parse().unwrap())
}

#[test]
fn policy_is_read_from_the_file_of_a_single_node() {
    let policy = policy(POLICY);
    assert_eq!(policy.sets[0].source, SetSource::File("/etc/weir/sets/blocked.txt".into()));
    let own = ["192.0.2.0/30", "192.0.2.7/32"].map(|text| text.parse().unwrap());
    assert_eq!(policy.sets[1].source, SetSource::Prefixes(own.to_vec()));
    assert_eq!(policy.groups[0].name, "business");
    let [smtp, cameras, orders] = &policy.rules[..] else { panic!("{policy:#?}") };
    assert_eq!((smtp.from, smtp.action), (OriginSetting::Home, ActionSetting::Reject));
    let ports = [PortSpan { first: 25, last: 25 }, PortSpan { first: 465, last: 587 }];
    assert_eq!(smtp.remote_port, ports);
    assert_eq!(cameras.protocol, [ProtocolSetting::Tcp, ProtocolSetting::Udp]);
    assert_eq!(cameras.inside_port, [PortSpan { first: 80, last: 80 }]);
    assert_eq!(cameras.subscribers, [net("10.200.1.5/32"), RuleAddress::Set("own".into())]);
    assert_eq!((orders.from, orders.action), (OriginSetting::Any, ActionSetting::Drop));
    let lines = PolicyLines::of(&single(POLICY));
    let before = BASE.lines().count();
    let line = |name| lines.rule(name).map(|line| line - before);
    assert_eq!([line("no-smtp"), line("court-orders")], [Some(14), Some(29)]);
    assert_eq!((lines.set("own").map(|line| line - before), lines.rule("x")), (Some(6), None));
}

#[test]
fn policy_of_a_cluster_is_read_back_from_etcd() {
    let file = desired(&format!("{CLUSTER}{POLICY}"));
    assert_eq!(file.policy, policy(POLICY));
    assert_eq!(Desired::from_json(&file.to_json()).unwrap(), file);
    let filled = file.with_files(|_| Ok("198.51.100.1\n2001:db8::/32\n".into())).unwrap();
    let SetSource::Prefixes(entries) = &filled.policy.sets[0].source else { panic!("{filled:#?}") };
    assert_eq!(entries.len(), 2);
    assert_eq!(Desired::from_json(&filled.to_json()).unwrap(), filled);
    for key in ["\"set\"", "\"group\"", "\"rule\""] {
        assert!(!desired(CLUSTER).to_json().contains(key), "earlier versions do not know {key}");
    }
}

#[test]
fn sets_of_files_with_the_same_entries_are_equal() {
    let one = parse_set("s", "198.51.100.7 # seven\n\n192.0.2.0/24\n", "s.txt").unwrap();
    let other = parse_set("s", "192.0.2.0/24\r\n198.51.100.7/32\r\n192.0.2.0/24\r\n", "s").unwrap();
    assert_eq!(one, other);
    assert_eq!(one.entries(), 2);
}

#[test]
fn wrong_policies_are_refused_with_place_and_fix() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "name = \"own\"",
            "name = \"blocked\"",
            &["7:8: set[1].name: the name blocked is already at set[0].name"],
        ),
        (
            "name = \"own\"",
            "name = \"Blocked\"",
            &[
                "7:8: set[1].name: \"Blocked\" is not valid (must be a string: 1 to 32 of a to z, digits, -",
            ],
        ),
        (
            "name = \"cameras\"",
            "name = \"no-smtp\"",
            &["22:8: rule[1].name: the name no-smtp is already"],
        ),
        (
            "file = \"/etc/weir/sets/blocked.txt\"",
            "file = \"blocked.txt\"",
            &[
                "4:8: set[0].file: \"blocked.txt\" is not valid (must be a string: an absolute path)",
            ],
        ),
        (
            "file = \"/etc/weir/sets/blocked.txt\"",
            "",
            &["2:1: set[0].file: missing, as are prefixes (write file"],
        ),
        ("prefixes = [", "file = \"/x\"\nprefixes = [", &["8:8: set[1].file: beside prefixes"]),
        (
            "\"192.0.2.0/30\"",
            "\"192.0.2.1/30\"",
            &["8:26: set[1].prefixes[1]: 192.0.2.1/30 has host bits; its prefix is 192.0.2.0/30"],
        ),
        (
            "[\"192.0.2.7\", \"192.0.2.0/30\"]",
            "[]",
            &["8:12: set[1].prefixes: an empty list (name at least one"],
        ),
        (
            "groups = [\"business\"]",
            "groups = \"home\"",
            &[
                "16:10: rule[0].groups: there is no group home (write a [[group]]; there are business)",
            ],
        ),
        ("groups = [\"business\"]", "groups = []", &["16:10: rule[0].groups: an empty list"]),
        (
            "\"465-587\"",
            "\"587-465\"",
            &["18:20: rule[0].remote_port[1]: the range 587-465 is reversed (write \"465-587\")"],
        ),
        (
            "\"465-587\"",
            "65536",
            &["18:20: rule[0].remote_port[1]: not a port (write a port 0..=65535"],
        ),
        (
            "protocol = \"tcp\"",
            "protocol = \"icmp\"",
            &["18:15: rule[0].remote_port: beside protocol = \"icmp\""],
        ),
        ("protocol = \"tcp\"", "", &["18:15: rule[0].remote_port: without a protocol"]),
        ("protocol = \"tcp\"", "protocol = \"sctp\"", &["17:12: rule[0].protocol: not a protocol"]),
        ("\"@own\"", "\"@other\"", &["24:30: rule[1].subscribers[1]: there is no set other"]),
        (
            "action = \"drop\"",
            "action = \"deny\"",
            &["33:10: rule[2].action: \"deny\" is not valid (must be one of"],
        ),
        ("action = \"drop\"", "", &["29:1: rule[2].action: missing"]),
        (
            "[[rule]]",
            "[[group]]\nname = \"branch\"\nsubscribers = \"10.200.17.0/24\"\n[[rule]]",
            &[
                "16:15: group[1].subscribers: 10.200.17.0/24 overlaps 10.200.16.0/20 of group[0].subscribers[0]",
            ],
        ),
        (
            "[[set]]\nname = \"own\"",
            "[[set]]\nnme = \"own\"",
            &["6:1: set[1].name: missing", "7:1: set[1].nme: unknown key"],
        ),
        (
            "[[set]]\nname = \"own\"",
            "[[set]]\ncontent = {}\nname = \"own\"",
            &["7:1: set[1].content: unknown key (remove it)"],
        ),
    ];
    assert_refused(POLICY, cases);
}

#[test]
fn more_than_15_groups_are_refused() {
    let group = |index: usize| {
        format!("[[group]]\nname = \"g{index}\"\nsubscribers = \"10.200.{index}.0/24\"\n")
    };
    let groups = |count| BASE.to_owned() + &(0..count).map(group).collect::<String>();
    assert!(weir_config::parse(&groups(15), "t.toml").is_ok());
    let errors = weir_config::parse(&groups(17), "t.toml").unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().contains("group[15]: 17 groups, at most 15 fit"), "{errors:?}");
}

#[test]
fn subscribers_without_homes_are_warned_of() {
    let text = POLICY
        .replace("10.200.16.0/20", "10.201.16.0/20")
        .replace("\"10.200.1.5\"", "\"10.200.0.0/15\"");
    let (_, warnings) = weir_config::parse(&format!("{text}{BASE}"), "t.toml").unwrap();
    assert_found(
        "warnings",
        &warnings,
        &[
            "12:16: group[0].subscribers[0]: 10.201.16.0/20 is outside access.subscribers: no home",
            "24:16: rule[1].subscribers[0]: 10.200.0.0/15 reaches beyond access.subscribers",
        ],
    );
}

#[test]
fn policy_of_a_node_of_a_cluster_belongs_in_the_cluster_file() {
    let text = "[cluster]\nname = \"c\"\n[node]\n[[rule]]\nname = \"x\"\n";
    let errors = weir_config::parse_file(text, "t.toml").unwrap_err();
    let found = errors.iter().any(|error| {
        error.to_string().contains("rule: the same for the whole cluster (write it in the cluster")
    });
    assert!(found, "{errors:?}");
}

#[test]
fn wrong_lines_of_a_set_are_named_and_the_rest_is_counted() {
    let text: String =
        (0..50).map(|line| format!("# {line}\n10.0.0.1/8\n192.0.2.{line}\n")).collect();
    let errors = parse_set("blocked", &text, "b.txt").unwrap_err();
    assert_eq!(errors.len(), 21);
    assert_eq!(
        errors[0].to_string(),
        "b.txt:2:1: set blocked: 10.0.0.1/8 has host bits; its prefix is 10.0.0.0/8 (write an address or a prefix, or # before a comment)"
    );
    assert_eq!(errors[20].message, "30 more lines are wrong");
    let long = "x".repeat(10_000);
    assert!(parse_set("s", &long, "s").unwrap_err()[0].to_string().len() < 200);
    let column = &parse_set("s", "\n  300.1.1.1", "s").unwrap_err()[0];
    assert_eq!((column.line, column.column), (2, 3));
}

#[test]
fn missing_set_file_is_an_error_that_names_file_and_set() {
    let missing = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let errors = load_sets(&policy(POLICY), missing).unwrap_err();
    assert_eq!(errors.len(), 1);
    let start = "/etc/weir/sets/blocked.txt:1:1: set blocked: cannot be read: entity not found";
    assert!(errors[0].to_string().starts_with(start), "{}", errors[0]);
}

#[test]
fn set_of_100_000_lines_is_read_with_all_its_entries() {
    let line = |at: u32| format!("{}/32 # {at}\n", std::net::Ipv4Addr::from(0x0b00_0000 + at * 7));
    let text: String = (0..100_000).map(line).collect();
    let set = parse_set("s", &text, "s").unwrap();
    assert_eq!(set.entries(), 100_000);
}

#[test]
fn changes_of_a_policy_are_said_in_an_operators_words() {
    let of = |text: &str| {
        let changes = difference(
            &desired(&format!("{CLUSTER}{POLICY}")),
            &desired(&format!("{CLUSTER}{text}")),
        );
        changes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "\"192.0.2.7\"",
            "\"192.0.2.8\"",
            &[
                "set own: 1 entry added (192.0.2.8/32), 1 entry removed (192.0.2.7/32) (for new flows)",
            ],
        ),
        (
            "blocked.txt",
            "b.txt",
            &[
                "set blocked: the entries of /etc/weir/sets/blocked.txt -> the entries of /etc/weir/sets/b.txt (for new flows)",
            ],
        ),
        (
            "10.200.16.0/20",
            "10.200.32.0/20",
            &["group business: 10.200.32.0/20 added, 10.200.16.0/20 removed (for new flows)"],
        ),
        (
            "action = \"drop\"",
            "action = \"reject\"",
            &["rule court-orders: action \"drop\" -> \"reject\" (for new flows)"],
        ),
        ("from = \"any\"", "", &["rule court-orders: from \"any\" -> \"home\" (for new flows)"]),
        (
            "[25, \"465-587\"]",
            "[26, \"465-587\"]",
            &["rule no-smtp: remote_port: 26 added, 25 removed (for new flows)"],
        ),
        ("inside_port = 80\n", "", &["rule cameras: inside_port [80] -> all (for new flows)"]),
        (
            "name = \"cameras\"",
            "name = \"doors\"",
            &[
                "rule cameras: removed (for new flows)",
                "rule doors: added after no-smtp (for new flows)",
            ],
        ),
    ];
    for (from, to, expected) in cases {
        assert_eq!(of(&POLICY.replacen(from, to, 1)), *expected, "{from:?} -> {to:?}");
    }
    let last = &POLICY[POLICY.rfind("[[rule]]").unwrap()..];
    let moved = POLICY.replace(last, "").replacen("[[rule]]", &format!("{last}[[rule]]"), 1);
    assert_eq!(of(&moved), ["rule court-orders: moved, now as the first (for new flows)"]);
    let resorted = POLICY.replace("[\"udp\", \"tcp\"]", "[\"tcp\", \"udp\", \"udp\"]");
    assert_eq!(of(&resorted), [] as [&str; 0]);
}

#[test]
fn change_of_a_sets_file_is_counted_by_its_entries() {
    let policy = policy(POLICY);
    let with = |text: &str| {
        let sets = load_sets(&policy, |_| Ok(text.to_owned())).unwrap();
        policy.clone().with_entries(&sets)
    };
    let (old, new) = (with("192.0.2.1\n192.0.2.2\n"), with("192.0.2.2\n192.0.2.4\n192.0.2.5\n"));
    let changes = policy_difference(&old, &new);
    assert_eq!(
        changes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "set blocked: 2 entries added (192.0.2.4/32, 192.0.2.5/32), 1 entry removed (192.0.2.1/32) (for new flows)"
        ]
    );
}
