//! Homes with tunnels over IPv6: their prefixes, the shards' endpoints, the workers that serve
//! them.

use weir_config::{difference, node_difference};

use crate::base::{Case, changed};
use crate::cluster_file;
use crate::ipv6::{config, gre6};
use crate::ipv6_cluster::CLUSTER6;

/// Returns the base file with IPv6 on both sides and an IPv6 endpoint of the first shard.
fn over_ipv6() -> String {
    gre6()
        .replace(
            "address = \"10.1.0.1/24\"",
            "address6 = \"2001:db8:2::1:1/64\", gateways6 = \"2001:db8:2::1\", address = \"10.1.0.1/24\"",
        )
        .replace("[access]\n", "[access]\nsubscribers6 = [\"2001:db8:e::/48\"]\n")
        .replace("endpoint = \"10.100.0.1\"", "endpoint = \"10.100.0.1\"\nendpoint6 = \"2001:db8:64::1\"")
}

fn clustered() -> String {
    CLUSTER6
        .replace("[access]\n", "[access]\nsubscribers6 = [\"2001:db8:e::/48\"]\n")
        .replace("per_shard = 28\n", "per_shard = 28\nendpoints6 = \"2001:db8:64::/112\"\n")
        .replace("id = 1000\n", "id = 1000\nendpoint6 = \"2001:db8:65::1\"\n")
}

#[test]
fn endpoints_and_homes_are_read_and_the_tunnel_is_longer() {
    let single = config(&over_ipv6());
    assert_eq!(single.shards[0].endpoint6, Some("2001:db8:64::1".parse().unwrap()));
    assert_eq!(single.shards[1].endpoint6, None);
    assert_eq!(single.access.subscribers6, ["2001:db8:e::/48".parse().unwrap()]);
    assert_eq!((single.access.tunnel_bytes(), config(&gre6()).access.tunnel_bytes()), (44, 24));
}

#[test]
fn pool_deals_out_endpoints_of_both_families() {
    let cluster = cluster_file::desired(&clustered());
    let endpoint6 = |id| cluster.shard(id).expect("it exists").endpoint6;
    assert_eq!(endpoint6(1), Some("2001:db8:64::1".parse().unwrap()));
    assert_eq!(endpoint6(8), Some("2001:db8:64::8".parse().unwrap()));
    assert_eq!(endpoint6(1000), Some("2001:db8:65::1".parse().unwrap()));
    assert_eq!((cluster.access_routes(), cluster.internet_routes()), (18, 18));
    let json = cluster.to_json();
    assert!(json.starts_with("{\"format\":4,"));
    assert!(json.contains("\"endpoint6\":\"2001:db8:64::1\"") && json.contains("subscribers6"));
    assert_eq!(weir_config::Desired::from_json(&json).expect("its own JSON"), cluster);
    let without = cluster_file::desired(CLUSTER6);
    assert!(
        !without.to_json().contains("endpoint6") && !without.to_json().contains("subscribers6")
    );
    assert_ne!(without.fingerprint().shards, cluster.fingerprint().shards);
}

const CASES: &[Case] = &[
    (
        "endpoint6 = \"2001:db8:64::1\"",
        "endpoint6 = \"10.100.0.9\"",
        &[
            "shard[0].endpoint6: \"10.100.0.9\" is not valid (must be a string: a global or unique local IPv6 address)",
        ],
    ),
    (
        "endpoint6 = \"2001:db8:64::1\"",
        "endpoint6 = \"fe80::1\"",
        &[
            "shard[0].endpoint6: fe80::1 is link-local (fe80::/10) (use a global or unique local address)",
        ],
    ),
    (
        "subscribers6 = [\"2001:db8:e::/48\"]\n",
        "",
        &[
            "shard[0].endpoint6: access.subscribers6 is missing: no home could use it (write access.subscribers6, the prefixes of the homes' outer IPv6 addresses)",
        ],
    ),
    (
        "address6 = \"2001:db8:2::1:1/64\", gateways6 = \"2001:db8:2::1\", ",
        "",
        &[
            "worker[0].access.address6: missing: shard[0] has endpoint6 (write address6 and gateways6, or remove endpoint6)",
        ],
    ),
    (
        "2001:db8:64::1",
        "2001:db8:2::9",
        &[
            "shard[0].endpoint6: 2001:db8:2::9 lies in the connected prefix 2001:db8:2::/64 (no host solicits it: take an address outside and route it to the worker)",
        ],
    ),
    (
        "2001:db8:64::1",
        "2001:db8:1000::1",
        &[
            "shard[0].endpoint6: 2001:db8:1000::1 lies in the public prefix 2001:db8:1000::/48 (shard[0].public6[0]) (an endpoint is an address of the access network)",
        ],
    ),
    (
        "subscribers6 = [\"2001:db8:e::/48\"]",
        "subscribers6 = [\"2001:db8:1000::/44\"]",
        &[
            "shard[0].public6[0]: 2001:db8:1000::/48 overlaps the homes' 2001:db8:1000::/44 (access.subscribers6[0]) (public prefixes are routed to the worker and used by nothing else)",
            "shard[1].public6[0]: 2001:db8:1001::/48 overlaps the homes' 2001:db8:1000::/44 (access.subscribers6[0]) (public prefixes are routed to the worker and used by nothing else)",
            "shard[1].public6[1]: 2001:db8:1003::/48 overlaps the homes' 2001:db8:1000::/44 (access.subscribers6[0]) (public prefixes are routed to the worker and used by nothing else)",
        ],
    ),
];

#[test]
fn mistakes_are_named_with_their_place_and_a_fix() {
    for (from, to, expected) in CASES {
        let text = changed(&over_ipv6(), from, to);
        let found = weir_config::parse(&text, "t.toml").expect_err("it has a mistake");
        let found: Vec<String> =
            found.iter().map(|it| format!("{}: {} ({})", it.key, it.message, it.fix)).collect();
        assert_eq!(found, *expected, "{to}");
    }
}

#[test]
fn plain_mode_has_no_tunnels_over_ipv6() {
    let text = crate::ipv6::plain6()
        .replace("[access]\n", "[access]\nsubscribers6 = [\"2001:db8:e::/48\"]\n")
        .replace("[[shard]]\nid = 1\n", "[[shard]]\nid = 1\nendpoint6 = \"2001:db8:64::1\"\n");
    let errors = weir_config::parse(&text, "t.toml").expect_err("it has mistakes");
    let keys: Vec<&str> = errors.iter().map(|it| &*it.key).collect();
    assert!(
        keys.contains(&"access.subscribers6") && keys.contains(&"shard[0].endpoint6"),
        "{keys:?}"
    );
}

#[test]
fn collectors_beside_homes_over_ipv6_are_taken() {
    let collector =
        "\n[[collector]]\nname = \"one\"\nformat = \"syslog-tcp\"\naddress = \"192.0.2.9:514\"\n";
    assert_eq!(config(&(over_ipv6() + collector)).node.collectors.len(), 1);
}

#[test]
fn endpoint_of_two_shards_is_refused() {
    let text = over_ipv6()
        .replace("endpoint = \"10.100.0.2\"", "endpoint = \"10.100.0.2\"\nendpoint6 = \"2001:db8:64::1\"")
        .replace(
            "address = \"10.1.0.3/24\"",
            "address6 = \"2001:db8:2::1:3/64\", gateways6 = \"2001:db8:2::1\", address = \"10.1.0.3/24\"",
        );
    let errors = weir_config::parse(&text, "t.toml").expect_err("one address, two shards");
    assert!(errors.iter().all(|it| it.key == "shard[1].endpoint6"), "{errors:#?}");
}

#[test]
fn prefix_may_be_delegated_to_a_home_behind_a_tunnel_over_ipv6() {
    let delegated = |home: &str| {
        let text = over_ipv6().replace("[nat]", "[ipv6]\ndelegation = \"static\"\n[nat]");
        let table =
            format!("\n[[delegation]]\nhome = \"{home}\"\nprefix = \"2001:db8:1000:100::/56\"\n");
        weir_config::parse(&(text + &table), "t.toml")
    };
    let (good, _) = delegated("2001:db8:e::1").expect("a home of subscribers6");
    assert_eq!(good.ipv6.delegations[0].home.to_string(), "2001:db8:e::1");
    let error = &delegated("2001:db8:f::1").expect_err("no home")[0];
    assert_eq!(error.message, "no home has the address 2001:db8:f::1");
    assert_eq!(error.fix, "name a home inside access.subscribers6");
}

#[test]
fn static_mapping_may_be_of_a_home_behind_a_tunnel_over_ipv6() {
    let with = |text: String, home: &str| {
        let line = format!("{home} tcp 192.168.1.20:443 203.0.113.1:8443");
        weir_config::parse(&format!("{text}\n[public]\nstatic = [\"{line}\"]\n"), "t.toml")
    };
    let (good, _) = with(over_ipv6(), "2001:db8:e::1").expect("a home of subscribers6");
    let text = good.public.statics[0].to_string();
    assert_eq!(text, "2001:db8:e::1 tcp 192.168.1.20:443 203.0.113.1:8443");
    let keyed = || over_ipv6().replace("[access]\n", "[access]\ngre_key = \"subscriber\"\n");
    assert!(with(keyed(), "2001:db8:e::1,7").is_ok());
    for (text, home, message, fix) in [
        (
            over_ipv6(),
            "2001:db8:f::1",
            "no home has the address 2001:db8:f::1",
            "name a home inside access.subscribers6",
        ),
        (
            gre6(),
            "2001:db8:e::1",
            "no home has the address 2001:db8:e::1",
            "name a home inside access.subscribers6",
        ),
        (keyed(), "2001:db8:e::1", "the home's GRE key is missing", "write SUBSCRIBER,KEY: access"),
    ] {
        let error = &with(text, home).expect_err(message)[0];
        assert_eq!(error.key, "public.static[0]");
        assert!(error.message.contains(message) && error.fix.starts_with(fix), "{error:?}");
    }
    let json = cluster_file::desired(
        &(clustered() + "\n[public]\nstatic = [\"2001:db8:e::1 all 192.168.1.20 203.0.113.1\"]\n"),
    );
    assert_eq!(weir_config::Desired::from_json(&json.to_json()).expect("its own JSON"), json);
}

#[test]
fn group_names_homes_by_outer_addresses_of_either_family() {
    let grouped = |text: String, nets: &str| {
        let table = format!("\n[[group]]\nname = \"a\"\nsubscribers = [{nets}]\n");
        weir_config::parse(&(text + &table), "t.toml")
    };
    let nets = "\"10.200.0.0/24\", \"2001:db8:e:1::/64\"";
    let (good, warnings) = grouped(over_ipv6(), nets).expect("homes of both families");
    assert_eq!(good.policy.groups[0].subscribers.len(), 2);
    assert!(warnings.iter().all(|it| !it.key.starts_with("group")), "{warnings:#?}");
    let nets = "\"2001:db8:e::/47\", \"2001:db8:1000::/64\"";
    let (_, warnings) = grouped(over_ipv6(), nets).expect("homes that may come");
    let found: Vec<_> = warnings.iter().filter(|it| it.key.starts_with("group")).collect();
    let found: Vec<_> = found.iter().map(|it| format!("{}: {}", it.key, it.message)).collect();
    let expected = [
        "group[0].subscribers[0]: 2001:db8:e::/47 reaches beyond access.subscribers6",
        "group[0].subscribers[1]: 2001:db8:1000::/64 is outside access.subscribers6: no home is in it",
    ];
    assert_eq!(found, expected);
    let refused = &grouped(gre6(), "\"2001:db8:e::/64\"").expect_err("no home is over IPv6")[0];
    assert_eq!(refused.key, "group[0].subscribers[0]");
    assert!(refused.fix.contains("or access.subscribers6"), "{}", refused.fix);
}

#[test]
fn change_of_an_endpoint_strands_the_shard_and_a_first_one_does_not() {
    let cluster = cluster_file::desired(&clustered());
    let changes = |from: &str, to: &str| -> Vec<String> {
        let changed = cluster_file::desired(&changed(&clustered(), from, to));
        difference(&cluster, &changed).iter().map(ToString::to_string).collect()
    };
    let moved = changes("2001:db8:65::1", "2001:db8:65::2");
    assert_eq!(moved.len(), 1);
    assert!(
        moved[0].starts_with("shard 1000: endpoint6 2001:db8:65::1 -> 2001:db8:65::2 (strands"),
        "{moved:?}"
    );
    let added = cluster_file::desired(CLUSTER6);
    let added = difference(&added, &cluster);
    assert!(added.iter().all(|it| !it.to_string().contains("strands")), "{added:#?}");
    let fewer = changes("[\"2001:db8:e::/48\"]", "[\"2001:db8:e::/49\"]");
    assert!(
        fewer.iter().any(|it| it.contains("access.subscribers6: 2001:db8:e::/48 removed")),
        "{fewer:?}"
    );
    let (old, new) = (config(&gre6()), config(&over_ipv6()));
    let of_node = node_difference(&old, &old, &new);
    assert!(of_node.iter().any(|it| it.to_string().contains("endpoint6")), "{of_node:#?}");
}
