//! Sets, groups and rules with prefixes of IPv6 and of both families.

use weir_config::{Desired, RuleAddress, difference, load_sets, parse_set};

use crate::base::{assert_found, assert_refused, plain};
use crate::cluster_file::{CLUSTER, desired};

/// Line numbers count from 1 at `[[set]]`.
const POLICY: &str = r#"[[set]]
name = "blocked"
prefixes = ["2001:db8:bad::/48", "192.0.2.7", "2001:db8::7"]
[[group]]
name = "business"
subscribers = ["10.200.16.0/20"]
[[rule]]
name = "court-orders"
from = "any"
remote = ["@blocked", "2001:db8:666::/48", "198.51.100.0/24"]
action = "drop"
[[rule]]
name = "server"
from = "internet"
subscribers = "2001:db8:1:2::80"
protocol = "tcp"
inside_port = 443
action = "accept"
"#;

#[test]
fn rules_and_sets_of_both_families_are_read_and_read_back_from_etcd() {
    let file = desired(&format!("{CLUSTER}{POLICY}"));
    let nets = |texts: &[&str]| -> Vec<RuleAddress> {
        texts.iter().map(|text| RuleAddress::Net(text.parse().unwrap())).collect()
    };
    let [court_orders, server] = &file.policy.rules[..] else { panic!("{:?}", file.policy) };
    let mut expected = nets(&["198.51.100.0/24", "2001:db8:666::/48"]);
    expected.push(RuleAddress::Set("blocked".to_owned()));
    assert_eq!(court_orders.remote, expected);
    assert_eq!(server.subscribers, nets(&["2001:db8:1:2::80/128"]));
    let sets = load_sets(&file.policy, |_| unreachable!("no set has a file")).unwrap();
    let entries: Vec<String> = sets[0].prefixes().map(|net| net.to_string()).collect();
    assert_eq!(entries, ["192.0.2.7/32", "2001:db8::7/128", "2001:db8:bad::/48"]);
    assert_eq!(Desired::from_json(&file.to_json()).unwrap(), file);
}

#[test]
fn wrong_prefixes_of_ipv6_are_refused_with_place_and_fix() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "\"2001:db8:666::/48\"",
            "\"2001:db8:666::1/48\"",
            &[
                "10:23: rule[0].remote[1]: 2001:db8:666::1/48 has host bits; its prefix is 2001:db8:666::/48 (write an address, a prefix",
            ],
        ),
        (
            "\"2001:db8:666::/48\"",
            "\"2001:db8:666:/48\"",
            &[
                "10:23: rule[0].remote[1]: \"2001:db8:666:/48\" is not an address or a prefix (write",
            ],
        ),
        (
            "\"2001:db8:666::/48\"",
            "\"2001:db8:666::/129\"",
            &["10:23: rule[0].remote[1]: \"2001:db8:666::/129\" is not an address or a prefix"],
        ),
        (
            "\"2001:db8:666::/48\"",
            "\"fe80::1%eth0\"",
            &["10:23: rule[0].remote[1]: \"fe80::1%eth0\" is not an address or a prefix"],
        ),
        (
            "\"2001:db8:666::/48\"",
            "\"::ffff:203.0.113.0/120\"",
            &[
                "10:23: rule[0].remote[1]: ::ffff:203.0.113.0/120 is of IPv4-mapped addresses, which no packet has; the prefix of IPv4 is 203.0.113.0/24 (write",
            ],
        ),
        (
            "\"2001:db8::7\"",
            "\"::ffff:192.0.2.7\"",
            &[
                "3:47: set[0].prefixes[2]: ::ffff:192.0.2.7/128 is of IPv4-mapped addresses, which no packet has; the prefix of IPv4 is 192.0.2.7/32 (write an address or a prefix, \"a.b.c.d/length\" or \"x:y::/length\")",
            ],
        ),
        (
            "[\"10.200.16.0/20\"]",
            "[\"10.200.16.0/20\", \"2001:db8:1::/48\"]",
            &[
                "6:34: group[0].subscribers[1]: 2001:db8:1::/48: with access.mode = \"gre\" the outer address of its tunnel decides on the group of a home (write IPv4 prefixes of outer addresses",
            ],
        ),
    ];
    assert_refused(POLICY, cases);
}

#[test]
fn rules_that_fit_no_flow_or_translate_ipv6_are_refused_with_place_and_fix() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "inside_port = 443",
            "inside_port = 443\nremote = [\"192.0.2.0/24\", \"198.51.100.7\"]",
            &[
                "18:10: rule[1].remote: IPv4 alone beside subscribers of IPv6 alone: no flow fits (write both in one family",
            ],
        ),
        (
            "subscribers = \"2001:db8:1:2::80\"",
            "subscribers = \"10.200.1.5\"\nremote = \"2001:db8::/32\"",
            &["16:10: rule[1].remote: IPv6 alone beside subscribers of IPv4 alone: no flow fits"],
        ),
        (
            "from = \"any\"\nremote = [\"@blocked\", \"2001:db8:666::/48\", \"198.51.100.0/24\"]\naction = \"drop\"",
            "remote = [\"198.51.100.0/24\", \"2001:db8:666::/48\"]\naction = \"redirect\"\nto = \"192.0.2.53\"",
            &[
                "9:30: rule[0].remote[1]: 2001:db8:666::/48 beside action = \"redirect\", which is for flows of IPv4: IPv6 is not translated (remove it; write a rule of its own about IPv6)",
            ],
        ),
        (
            "from = \"any\"\nremote = [\"@blocked\", \"2001:db8:666::/48\", \"198.51.100.0/24\"]\naction = \"drop\"",
            "subscribers = \"2001:db8:1::/48\"\naction = \"accept\"\nsource_pool = \"mail\"\n[[source_pool]]\nname = \"mail\"\npublic = \"203.0.113.8/31\"",
            &[
                "9:15: rule[0].subscribers: 2001:db8:1::/48 beside a source pool, which is for flows of IPv4",
            ],
        ),
    ];
    assert_refused(POLICY, cases);
}

#[test]
fn groups_of_ipv6_homes_are_for_plain_access_and_do_not_overlap() {
    let groups = |second: &str| {
        format!(
            "[[group]]\nname = \"a\"\nsubscribers = [\"2001:db8:1::/48\", \"10.200.1.0/25\"]\n\
             [[group]]\nname = \"b\"\nsubscribers = [\"10.200.1.128/25\", \"{second}\"]\n{}",
            plain()
        )
    };
    let (config, warnings) = weir_config::parse(&groups("2001:db8:2::/48"), "t.toml").unwrap();
    assert_found("warnings", &warnings, &[]);
    let subscribers = config.policy.groups[0].subscribers.iter().map(ToString::to_string);
    assert_eq!(subscribers.collect::<Vec<_>>(), ["10.200.1.0/25", "2001:db8:1::/48"]);
    for (second, expected) in [
        (
            "2001:db8:1:ff00::/56",
            "6:35: group[1].subscribers[1]: 2001:db8:1:ff00::/56 overlaps 2001:db8:1::/48 of group[0].subscribers[0] (a home is in one group at most)",
        ),
        (
            "2001:db8::/32",
            "6:35: group[1].subscribers[1]: 2001:db8::/32 overlaps 2001:db8:1::/48 of group[0]",
        ),
        (
            "2001:db8:1::5",
            "6:35: group[1].subscribers[1]: 2001:db8:1::5 overlaps 2001:db8:1::/48 of group[0]",
        ),
        ("::/0", "6:35: group[1].subscribers[1]: ::/0 overlaps 2001:db8:1::/48 of group[0]"),
    ] {
        let errors = weir_config::parse(&groups(second), "t.toml").unwrap_err();
        assert_found(second, &errors, &[expected]);
    }
}

#[test]
fn lines_of_a_set_file_of_both_families_are_read_or_named() {
    let set = parse_set("s", "2001:db8::/32\n192.0.2.1 # both\n2001:DB8:0::/32\n", "s.txt");
    let set = set.unwrap();
    assert_eq!((set.ipv4.len(), set.ipv6.len(), set.entries()), (1, 1, 2));
    let errors =
        parse_set("s", "2001:db8::1/32\n::ffff:10.0.0.0/104\n::/0\n", "s.txt").unwrap_err();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let fix = "(write an address or a prefix, or # before a comment)";
    assert_eq!(
        errors,
        [
            format!(
                "s.txt:1:1: set s: 2001:db8::1/32 has host bits; its prefix is 2001:db8::/32 {fix}"
            ),
            format!(
                "s.txt:2:1: set s: ::ffff:10.0.0.0/104 is of IPv4-mapped addresses, which no packet has; the prefix of IPv4 is 10.0.0.0/8 {fix}"
            ),
        ]
    );
}

#[test]
fn changes_of_ipv6_prefixes_are_said_in_an_operators_words() {
    let of = |from: &str, to: &str| {
        let changed = POLICY.replacen(from, to, 1);
        assert_ne!(changed, POLICY);
        let changes = difference(
            &desired(&format!("{CLUSTER}{POLICY}")),
            &desired(&format!("{CLUSTER}{changed}")),
        );
        changes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        of("\"2001:db8::7\"", "\"2001:db8::8\""),
        [
            "set blocked: 1 entry added (2001:db8::8/128), 1 entry removed (2001:db8::7/128) (for new flows)"
        ]
    );
    assert_eq!(
        of("\"2001:db8:666::/48\"", "\"2001:db8:667::/48\""),
        [
            "rule court-orders: remote: 2001:db8:667::/48 added, 2001:db8:666::/48 removed (for new flows)"
        ]
    );
    assert_eq!(
        of("subscribers = \"2001:db8:1:2::80\"\n", ""),
        ["rule server: subscribers [\"2001:db8:1:2::80/128\"] -> all (for new flows)"]
    );
}
