//! Rules that send packets to another destination.

use weir_config::{
    ActionSetting, Config, Desired, RedirectSetting, difference, parse_cluster, parse_member,
};

use crate::base::{BASE, assert_found, assert_refused, changed, plain};
use crate::cluster_file::{CLUSTER, desired};

/// Line numbers count from 1 at `[[rule]]`.
const RULE: &str = r#"[[rule]]
name = "dns"
protocol = ["tcp", "udp"]
remote_port = 53
action = "redirect"
to = "192.0.2.53:5353"
log = true
"#;

fn config(policy: &str) -> Config {
    weir_config::parse(&format!("{policy}{BASE}"), "t.toml").unwrap().0
}

#[test]
fn destination_is_read_with_and_without_port_and_read_back_from_etcd() {
    let rule = &config(RULE).policy.rules[0];
    let address = [192, 0, 2, 53].into();
    assert_eq!(rule.action, ActionSetting::Redirect);
    assert_eq!(rule.to, Some(RedirectSetting { address, port: Some(5353) }));
    let without = config(&RULE.replace(":5353", "")).policy.rules[0].to;
    assert_eq!(without, Some(RedirectSetting { address, port: None }));
    for (to, text) in [(rule.to, "192.0.2.53:5353"), (without, "192.0.2.53")] {
        assert_eq!(to.map(|to| to.to_string()).as_deref(), Some(text));
        assert_eq!(text.parse().ok(), to);
    }
    for policy in [RULE.to_owned(), RULE.replace(":5353", "")] {
        let file = desired(&format!("{CLUSTER}{policy}"));
        assert_eq!(file.policy, config(&policy).policy);
        assert_eq!(Desired::from_json(&file.to_json()).unwrap(), file);
    }
    let given = "class = \"bulk\"\nsource_pool = \"mail\"\n[[class]]\nid = 1\nname = \"bulk\"\n\
        dscp = 1\n[[source_pool]]\nname = \"mail\"\npublic = \"203.0.113.8/30\"\n";
    let rule = &config(&format!("{RULE}{given}")).policy.rules[0];
    let given = (rule.class.as_deref(), rule.source_pool.as_deref(), rule.log);
    assert_eq!(given, (Some("bulk"), Some("mail"), true));
}

#[test]
fn wrong_redirects_are_refused_with_place_and_fix() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "to = \"192.0.2.53:5353\"\n",
            "",
            &[
                "1:1: rule[0].to: missing: action = \"redirect\" needs it (write the address of a host",
            ],
        ),
        (
            "action = \"redirect\"",
            "action = \"accept\"",
            &[
                "6:6: rule[0].to: beside an action that changes no destination (remove it, or write action = \"redirect\")",
            ],
        ),
        (
            "action = \"redirect\"",
            "action = \"redirect\"\nfrom = \"internet\"",
            &[
                "6:8: rule[0].from: beside action = \"redirect\", which is for flows from homes only (write",
            ],
        ),
        (
            "action = \"redirect\"",
            "action = \"redirect\"\nfrom = \"any\"",
            &[
                "6:8: rule[0].from: beside action = \"redirect\", which is for flows from homes only",
            ],
        ),
        (
            "log = true",
            "rematch = true",
            &["7:11: rule[0].rematch: beside an action that ends no flow (remove it"],
        ),
        (
            "protocol = [\"tcp\", \"udp\"]\nremote_port = 53",
            "",
            &[
                "5:6: rule[0].to: a port without a protocol: ICMP has no ports (write protocol = \"tcp\"",
            ],
        ),
        (
            "protocol = [\"tcp\", \"udp\"]\nremote_port = 53",
            "protocol = \"icmp\"",
            &["5:6: rule[0].to: a port beside protocol = \"icmp\", which has no ports (write"],
        ),
        ("\"192.0.2.53:5353\"", "53", &["6:6: rule[0].to: not a string (write the address of a"]),
        (
            "192.0.2.53:5353",
            "resolver:53",
            &[
                "6:6: rule[0].to: \"resolver\" is no IPv4 address (write the address of a host, \"192",
            ],
        ),
        ("192.0.2.53:5353", "::1", &["6:6: rule[0].to: \"\" is no IPv4 address"]),
        ("192.0.2.53:5353", "192.0.2.53:", &["6:6: rule[0].to: \"\" is not a port"]),
        ("192.0.2.53:5353", "192.0.2.53:70000", &["6:6: rule[0].to: \"70000\" is not a port"]),
        ("192.0.2.53:5353", "192.0.2.53:0", &["6:6: rule[0].to: there is no port 0"]),
        ("192.0.2.53", "0.1.2.3", &["6:6: rule[0].to: 0.1.2.3 is \"this network\" (0.0.0.0/8)"]),
        ("192.0.2.53", "127.0.0.1", &["6:6: rule[0].to: 127.0.0.1 is loopback"]),
        ("192.0.2.53", "224.0.0.251", &["6:6: rule[0].to: 224.0.0.251 is multicast"]),
        ("192.0.2.53", "240.0.0.1", &["6:6: rule[0].to: 240.0.0.1 is class E"]),
        ("192.0.2.53", "255.255.255.255", &["6:6: rule[0].to: 255.255.255.255 is class E"]),
    ];
    assert_refused(RULE, cases);
}

#[test]
fn destination_from_which_packets_come_back_is_refused() {
    let back = "its packets would come back to weir (name a host";
    let cases: [(&str, &str); 5] = [
        ("203.0.113.7", "is in the public prefix 203.0.113.0/28 (shard[0].public[0])"),
        ("10.100.0.2", "is weir's own (shard[1].endpoint)"),
        ("10.1.0.1", "is weir's own (worker[0].access.address)"),
        ("10.2.0.3", "is weir's own (worker[1].internet.address)"),
        ("10.200.7.1", ""),
    ];
    for (to, what) in cases {
        let text = format!("{}{BASE}", RULE.replace("192.0.2.53", to));
        let errors = weir_config::parse(&text, "t.toml").err().unwrap_or_default();
        let expected = format!("6:6: rule[0].to: {to} {what}: {back}");
        let expected = [expected.as_str()];
        assert_found(to, &errors, if what.is_empty() { &[] } else { &expected });
    }
    let text = format!("{}{}", RULE.replace("192.0.2.53", "10.200.7.1"), plain());
    let errors = weir_config::parse(&text, "t.toml").unwrap_err();
    let expected = format!(
        "6:6: rule[0].to: 10.200.7.1 is a home of 10.200.0.0/16 (access.subscribers): {back}"
    );
    assert_found("a home without a tunnel", &errors, &[&expected]);
    let redirect = |to: &str| format!("{}[[pool]]", RULE.replace("192.0.2.53", to));
    let cases = [
        ("203.0.113.77", "is in the public prefix 203.0.113.0/25 (pool[0].public)"),
        ("10.100.0.9", "is weir's own (pool[0].endpoints)"),
        ("10.101.0.1", "is weir's own (shard[0].endpoint)"),
    ];
    for (to, what) in cases {
        let text = changed(CLUSTER, "[[pool]]", &redirect(to));
        let errors = parse_cluster(&text, "t.toml").unwrap_err();
        assert_found(to, &errors, &[&format!("16:6: rule[0].to: {to} {what}: {back}")]);
    }
    let text = changed(CLUSTER, "[[pool]]", &redirect("10.2.0.1"));
    assert!(parse_cluster(&text, "t.toml").is_ok(), "the nodes' addresses are not known here");
}

const MEMBER: &str = r#"[node]
name = "n1"
metrics = "192.0.2.9:9105"

[cluster]
name = "edge"
etcd = ["http://e1:2379"]
key_file = "/etc/weir/cluster.key"

[[worker]]
core = 1
access = { device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1592 }
internet = { device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }
"#;

#[test]
fn node_whose_address_is_the_destination_of_a_rule_is_refused() {
    let of = |to: &str| desired(&format!("{CLUSTER}{}", RULE.replace("192.0.2.53", to)));
    assert!(parse_member(MEMBER, "t.toml", &of("192.0.2.53"), &[]).is_ok());
    let errors = parse_member(MEMBER, "t.toml", &of("10.2.0.1"), &[]).unwrap_err();
    let expected =
        "13:46: worker[0].internet.address: 10.2.0.1 is also where rule dns redirects packets to";
    assert_found("own", &errors, &[expected]);
}

#[test]
fn redirects_without_translation_are_refused() {
    let text = format!("{RULE}{}", changed(BASE, "port_block = 256", "enabled = false"));
    let errors = weir_config::parse(&text, "t.toml").unwrap_err();
    let expected = "5:10: rule[0].action: redirect needs translation (write nat.enabled = true";
    assert_found("errors", &errors, &[expected]);
}

#[test]
fn change_of_a_destination_is_for_new_flows() {
    let of = |from: &str, to: &str| {
        let [old, new] = [RULE.to_owned(), changed(RULE, from, to)]
            .map(|rule| desired(&format!("{CLUSTER}{rule}")));
        difference(&old, &new).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let expected = ["rule dns: to \"192.0.2.53:5353\" -> \"192.0.2.53:53\" (for new flows)"];
    assert_eq!(of(":5353", ":53"), expected);
    let expected = [
        "rule dns: action \"redirect\" -> \"accept\" (for new flows)",
        "rule dns: to \"192.0.2.53:5353\" -> none (for new flows)",
    ];
    assert_eq!(of("\"redirect\"\nto = \"192.0.2.53:5353\"", "\"accept\""), expected);
}
