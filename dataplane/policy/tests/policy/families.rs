//! Rules about flows of IPv6, and of both families.

use std::net::IpAddr;

use ipnet::IpNet;
use weir_config::LoadedSet;
use weir_policy::{ComparedHomes, FlowAddresses, PolicyError, compare, compile, warnings};

use super::{HOME_NETS, HOMES, NODE, ask, compiled, flow, read, read_plain};

const POLICY: &str = r#"
[[set]]
name = "blocked"
prefixes = ["192.0.2.0/24", "2001:db8:bad::/48", "2001:db8:bae::/48"]
[[group]]
name = "business"
subscribers = ["10.200.16.0/20"]
[[rule]]
name = "no-smtp"
groups = "business"
protocol = "tcp"
remote_port = 25
action = "reject"
[[rule]]
name = "court-orders"
from = "any"
remote = "@blocked"
action = "drop"
[[rule]]
name = "server"
from = "internet"
subscribers = ["2001:db8:1:2::80", "10.200.1.5"]
remote = ["2001:db8:2::/48", "198.51.100.0/24"]
protocol = "tcp"
inside_port = 443
action = "accept"
[[rule]]
name = "no-pings"
from = "internet"
protocol = "icmp"
action = "drop"
[[rule]]
name = "resolver"
protocol = "udp"
remote_port = 53
action = "redirect"
to = "192.0.2.53"
"#;

#[test]
fn rule_fits_each_family_with_its_prefixes_of_that_family() {
    let policy = compiled(POLICY);
    for (question, expected) in [
        ("home 2001:db8:1::1 udp 1000 [2001:db8:bad::7]:443", "drop court-orders"),
        ("home 2001:db8:1::1 udp 1000 [2001:db8:baf::7]:443", "accept"),
        ("home 10.200.1.5 udp 1000 192.0.2.7:443", "drop court-orders"),
        ("internet 2001:db8:1:2::80 tcp 443 [2001:db8:2::9]:1000", "accept server"),
        ("internet 10.200.1.5 tcp 443 198.51.100.9:1000", "accept server"),
        ("internet 2001:db8:1:2::81 tcp 443 [2001:db8:2::9]:1000", "filtering"),
        ("internet 2001:db8:1:2::80 tcp 443 [2001:db8:3::9]:1000", "filtering"),
        // ICMP and ICMPv6.
        ("internet 10.200.1.5 icmp 198.51.100.9", "drop no-pings"),
        ("internet 2001:db8:1::1 icmp 2001:db8:9::9", "drop no-pings"),
        // IPv6 is not translated.
        ("home 10.200.1.5 udp 1000 198.51.100.9:53", "redirect resolver"),
        ("home 2001:db8:1::1 udp 1000 [2001:db8:9::9]:53", "accept"),
        // The outer address of the tunnel decides on the group.
        ("home 2001:db8:1::1@10.200.16.1 tcp 1000 [2001:db8:9::9]:25", "reject no-smtp"),
        ("home 2001:db8:1::1@10.200.32.1 tcp 1000 [2001:db8:9::9]:25", "accept"),
        ("home 2001:db8:1::1 tcp 1000 [2001:db8:9::9]:25", "accept"),
    ] {
        assert_eq!(ask(&policy, question), expected, "{question}");
    }
    assert_eq!(policy.filters_by_rule(), [2, 3, 2, 2, 1]);
    assert!(policy.rules.has_ipv6());
}

#[test]
fn group_of_homes_without_tunnels_is_that_of_their_prefix() {
    let text = "[[group]]\nname = \"a\"\nsubscribers = [\"10.200.16.0/20\", \"2001:db8:1:100::/56\"]\n\
        [[rule]]\nname = \"r\"\ngroups = \"a\"\naction = \"drop\"\n";
    let (policy, sets) = read_plain(text).unwrap();
    let policy = compile(&policy, &sets).unwrap();
    for (question, expected) in [
        ("home 2001:db8:1:1ff::1 tcp 1000 [2001:db8:9::9]:25", "drop r"),
        ("home 2001:db8:1:200::1 tcp 1000 [2001:db8:9::9]:25", "accept"),
        ("home 10.200.16.1 tcp 1000 198.51.100.9:25", "drop r"),
    ] {
        assert_eq!(ask(&policy, question), expected, "{question}");
    }
    let group = policy.group_of(&flow("home 2001:db8:1:1ff::1 icmp 2001:db8:9::9"));
    assert_eq!(policy.group_name(group), Some("a"));
}

#[test]
fn set_that_leaves_a_rule_no_common_family_is_refused_with_the_rule_and_the_fix() {
    let text = "[[set]]\nname = \"s\"\nprefixes = \"2001:db8:bad::/48\"\n\
        [[rule]]\nname = \"two\"\nsubscribers = \"10.200.1.0/24\"\nremote = \"@s\"\n\
        action = \"drop\"\n";
    let (policy, sets) = read(text);
    let error = compile(&policy, &sets).unwrap_err();
    assert!(matches!(error, PolicyError::TwoFamilies { .. }));
    assert_eq!(error.rule(), "two");
    assert_eq!(
        error.to_string(),
        "rule two has subscribers of IPv4 alone and remotes of IPv6 alone, so no flow fits it; \
         write both in one family, or a rule of its own for each"
    );
    let empty = LoadedSet { name: "s".to_owned(), ..LoadedSet::default() };
    assert_eq!(compile(&policy, &[empty]).unwrap().filters_by_rule(), [0]);
}

#[test]
fn rules_that_a_family_does_not_reach_are_warned_of_with_it() {
    let (policy, sets) = read(&format!(
        "{POLICY}
[[rule]]\nname = \"late\"\nremote = [\"2001:db8:bad:1::/64\", \"198.51.100.7\"]\naction = \"accept\"
[[rule]]\nname = \"all-ipv4\"\nremote = \"0.0.0.0/0\"\naction = \"accept\"
[[rule]]\nname = \"web\"\nprotocol = \"tcp\"\nremote_port = 80\naction = \"drop\"
[[rule]]\nname = \"mail\"\nremote = \"@blocked\"\naction = \"redirect\"\nto = \"192.0.2.25\"\n"
    ));
    let compiled = compile(&policy, &sets).unwrap();
    let found: Vec<String> =
        warnings(&policy, &sets, &compiled).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "rule mail: is about IPv4 alone, as IPv6 is not translated: 2 IPv6 entries of set \
             blocked have no effect here",
            "rule late: never reached by flows of IPv6: court-orders before it fits all of these; \
             move it up, or remove its IPv6 addresses",
            "rule mail: never reached: all-ipv4 before it fits all its flows; move it up, or \
             remove it",
        ]
    );
    let ipv6 = LoadedSet { ipv4: Vec::new(), ..sets[0].clone() };
    let compiled = compile(&policy, std::slice::from_ref(&ipv6)).unwrap();
    let found: Vec<String> =
        warnings(&policy, &[ipv6], &compiled).iter().map(ToString::to_string).collect();
    let expected = "rule mail: fits nothing: the sets that it names have no IPv4 entry";
    assert!(found.iter().any(|it| it == expected), "{found:?}");
}

#[test]
fn changed_decisions_about_ipv6_are_found_with_a_flow_each() {
    let old = compiled(POLICY);
    let same = compare(&old, &old, &HOMES);
    assert!(same.asked > 50 && same.changes.is_empty(), "{same:?}");
    let homes = ["2001:db8:1::/48".parse().unwrap()];
    let in_tunnels = ComparedHomes { ipv6: &homes, ..HOMES };
    for (from, to, homes) in [
        ("2001:db8:bad::/48", "2001:db8:bad::/49", HOMES),
        ("2001:db8:1:2::80", "2001:db8:1:2::81", HOMES),
        ("2001:db8:1:2::80", "2001:db8:1:2::81", in_tunnels),
    ] {
        let new = compiled(&POLICY.replace(from, to));
        let changes = compare(&old, &new, &homes).changes;
        let of_ipv6 = |it: &weir_policy::DecisionChange<'_>| {
            matches!(it.flow.addresses, FlowAddresses::Ipv6 { .. })
        };
        assert!(!changes.is_empty() && changes.iter().all(of_ipv6), "{from} -> {to}: {changes:#?}");
    }
    // Flows of homes whose group changes are found in both families, by their tunnels in IPv6.
    let new = compiled(&POLICY.replace("10.200.16.0/20", "10.200.32.0/20"));
    let changes = compare(&old, &new, &in_tunnels).changes;
    let tunnels = changes.iter().filter_map(|it| match it.flow.addresses {
        FlowAddresses::Ipv6 { tunnel, .. } => Some(tunnel.unwrap()),
        FlowAddresses::Ipv4 { .. } => None,
    });
    let tunnels: Vec<_> = tunnels.collect();
    assert!(!tunnels.is_empty() && tunnels.len() < changes.len(), "{changes:#?}");
    assert!(tunnels.iter().all(|&outer| IpNet::V4(HOME_NETS[0]).contains(&outer)), "{tunnels:?}");
}

#[test]
fn group_of_homes_with_tunnels_over_ipv6_is_that_of_the_outer_address() {
    let text = "[[group]]\nname = \"a\"\nsubscribers = [\"0.0.0.0/0\"]\n\
        [[group]]\nname = \"b\"\nsubscribers = [\"2001:db8:e::/49\"]\n\
        [[rule]]\nname = \"for-a\"\ngroups = \"a\"\nremote_port = 25\nprotocol = \"tcp\"\naction = \"drop\"\n\
        [[rule]]\nname = \"for-b\"\ngroups = \"b\"\naction = \"reject\"\n\
        [[rule]]\nname = \"of-all\"\nsubscribers = \"10.0.0.0/8\"\naction = \"drop\"\n";
    let compiled = |policy: &str| {
        let node = NODE.replace("[access]\n", "[access]\nsubscribers6 = [\"2001:db8:e::/48\"]\n");
        let (config, _) = weir_config::parse(&format!("{node}{policy}"), "t.toml").unwrap();
        compile(&config.policy, &[]).unwrap()
    };
    let old = compiled(text);
    for (question, expected) in [
        ("home 2001:db8:e::1 tcp 1000 198.51.100.9:25", "reject for-b"),
        ("home 2001:db8:1::1@2001:db8:e::1 tcp 1000 [2001:db8:9::9]:25", "reject for-b"),
        ("home 2001:db8:e:8000::1 tcp 1000 198.51.100.9:25", "accept"),
        ("home 2001:db8:1::1@2001:db8:e:8000::1 tcp 1000 [2001:db8:9::9]:25", "accept"),
        // An inside address is in no group, whatever prefix it is in.
        ("home 2001:db8:e::1@10.200.1.5 tcp 1000 [2001:db8:9::9]:25", "drop for-a"),
        ("home 10.200.1.5 tcp 1000 198.51.100.9:80", "drop of-all"),
    ] {
        assert_eq!(ask(&old, question), expected, "{question}");
        let explained = old.explain(&flow(question));
        let first = explained.candidates.first().copied();
        assert_eq!(explained.deciding.map(|it| it.rule), first, "{question}");
    }
    // Changes are found in the flows of both families.
    let outer6 = ["2001:db8:e::/48".parse().unwrap()];
    let homes = ComparedHomes { outer6: &outer6, ..HOMES };
    let new = compiled(&text.replace("2001:db8:e::/49", "2001:db8:e::/50"));
    let changes = compare(&old, &new, &homes).changes;
    let is_ipv4 = |it: &weir_policy::DecisionChange<'_>| {
        matches!(it.flow.addresses, FlowAddresses::Ipv4 { subscriber: IpAddr::V6(_), .. })
    };
    let of_ipv4 = changes.iter().filter(|it| is_ipv4(it)).count();
    assert!(0 < of_ipv4 && of_ipv4 < changes.len(), "{changes:#?}");
}

#[test]
fn policies_without_prefixes_of_ipv6_are_compared_by_flows_of_ipv4_alone() {
    let rule = |action: &str| {
        compiled(&format!("[[rule]]\nname = \"all\"\nprotocol = \"tcp\"\naction = \"{action}\"\n"))
    };
    let (old, new) = (rule("drop"), rule("accept"));
    let count_ipv6 = |homes: &ComparedHomes<'_>| {
        let changes = compare(&old, &new, homes).changes;
        let of_ipv6 = changes
            .iter()
            .filter(|it| matches!(it.flow.addresses, FlowAddresses::Ipv6 { .. }))
            .count();
        assert!(changes.len() > of_ipv6);
        of_ipv6
    };
    assert_eq!(count_ipv6(&HOMES), 0);
    let homes = ["2001:db8:1::/48".parse().unwrap()];
    assert!(count_ipv6(&ComparedHomes { ipv6: &homes, ..HOMES }) > 0);
}
