//! IPv6 of a single node: addresses and gateways of the workers, prefixes of the shards.

use weir_config::{Config, DelegationMode, Interface6, Ipv6Settings, node_difference};

use crate::base::{BASE, Case, assert_found, changed, check_errors};

/// Returns the base file with IPv6 on the internet side and in both shards. Only the second shard's
/// lines move, by one.
pub(crate) fn gre6() -> String {
    BASE.replace(
        "address = \"10.2.0.1/24\"",
        "address6 = \"2001:db8:1::1:1/64\", gateways6 = [\"2001:db8:1::1\", \"fe80::1\"], address = \"10.2.0.1/24\"",
    )
    .replace(
        "address = \"10.2.0.3/24\"",
        "address6 = \"2001:db8:1::1:3/64\", gateways6 = \"2001:db8:1::1\", address = \"10.2.0.3/24\"",
    )
    .replace("[\"203.0.113.0/28\"]\n", "[\"203.0.113.0/28\"]\npublic6 = [\"2001:db8:1000::/48\"]\n")
    .replace(
        "[\"203.0.113.16/28\"]\n",
        "[\"203.0.113.16/28\"]\npublic6 = [\"2001:db8:1001::/48\", \"2001:db8:1003::/48\"]\n",
    )
}

/// As [`gre6`], without tunnels.
pub(crate) fn plain6() -> String {
    gre6()
        .replace("[access]\n", "[access]\nmode = \"plain\"\n")
        .replace("endpoint = \"10.100.0.1\"", "subscribers = [\"10.200.1.0/24\"]")
        .replace("endpoint = \"10.100.0.2\"", "subscribers = [\"10.200.2.0/24\"]")
        .replace(
            "address = \"10.1.0.1/24\"",
            "address6 = \"2001:db8:2::1:1/64\", gateways6 = \"2001:db8:2::1\", address = \"10.1.0.1/24\"",
        )
        .replace(
            "address = \"10.1.0.3/24\"",
            "address6 = \"2001:db8:2::1:3/64\", gateways6 = \"2001:db8:2::1\", address = \"10.1.0.3/24\"",
        )
}

pub(crate) fn config(text: &str) -> Config {
    weir_config::parse(text, "t.toml").unwrap_or_else(|errors| panic!("{errors:#?}")).0
}

#[test]
fn ipv6_of_workers_and_shards_is_read() {
    let gre = config(&gre6());
    assert_eq!(gre.workers[0].access.ipv6, None);
    let first = Interface6 {
        address: "2001:db8:1::1:1/64".parse().unwrap(),
        gateways: vec!["2001:db8:1::1".parse().unwrap(), "fe80::1".parse().unwrap()],
    };
    assert_eq!(gre.workers[0].internet.ipv6, Some(first));
    assert_eq!(gre.shards[0].public6, ["2001:db8:1000::/48".parse().unwrap()]);
    assert_eq!(gre.shards[1].public6.len(), 2);
    assert_eq!(gre.ipv6, Ipv6Settings::default());
    let plain = config(&changed(&plain6(), "[nat]", "[ipv6]\nhome_length6 = 56\n[nat]"));
    assert!(plain.workers.iter().all(|worker| worker.access.ipv6.is_some()));
    assert_eq!((plain.ipv6.home_length6, plain.ipv6.delegation), (56, DelegationMode::Claim));
    for text in [BASE.to_owned(), crate::base::plain()] {
        let without = config(&text);
        assert_eq!(without.ipv6, Ipv6Settings::default());
        assert!(without.shards.iter().all(|shard| shard.public6.is_empty()));
    }
}

const OWN: &str = "2001:db8:1::1:1/64";
const ADDRESS_CASES: &[Case] = &[
    (
        OWN,
        "2001:db8:1::1:1",
        &[
            "7:60: worker[0].internet.address6: \"2001:db8:1::1:1\" is not valid (must be a string: a global or unique local address \"2001:db8::1/length\", length 64..=127)",
        ],
    ),
    (
        OWN,
        "2001:db8:1::1:1/63",
        &[
            "7:60: worker[0].internet.address6: \"2001:db8:1::1:1/63\" is not valid (must be a string: a global or unique local address \"2001:db8::1/length\", length 64..=127)",
        ],
    ),
    (
        OWN,
        "2001:db8:1::1:1/128",
        &[
            "7:60: worker[0].internet.address6: \"2001:db8:1::1:1/128\" is not valid (must be a string: a global or unique local address \"2001:db8::1/length\", length 64..=127)",
        ],
    ),
    (
        OWN,
        "fe80::5/64",
        &[
            "7:60: worker[0].internet.address6: fe80::5 is link-local (fe80::/10) (use a global or unique local address)",
        ],
    ),
    (
        OWN,
        "ff02::5/64",
        &[
            "7:60: worker[0].internet.address6: ff02::5 is multicast (ff00::/8) (use a global or unique local address)",
        ],
    ),
    (
        OWN,
        "::ffff:10.2.0.1/112",
        &[
            "7:60: worker[0].internet.address6: ::ffff:10.2.0.1 is IPv4-mapped (::ffff:0:0/96) (use a global or unique local address)",
        ],
    ),
    (
        OWN,
        "2001:db8:1::/64",
        &[
            "7:60: worker[0].internet.address6: 2001:db8:1:: is the subnet-router anycast address of 2001:db8:1::/64 (use another address of it)",
        ],
    ),
    (
        "address6 = \"2001:db8:1::1:1/64\", ",
        "",
        &["7:61: worker[0].internet.gateways6: address6 is missing (write address6, or remove it)"],
    ),
    (
        "gateways6 = [\"2001:db8:1::1\", \"fe80::1\"], ",
        "",
        &[
            "7:60: worker[0].internet.address6: gateways6 is missing (write gateways6, or remove it)",
        ],
    ),
    (
        "[\"2001:db8:1::1\", \"fe80::1\"]",
        "[]",
        &[
            "7:94: worker[0].internet.gateways6: an array is not valid here (must be a string or list of strings: 1 to 16 IPv6 addresses, in the connected prefix or link-local)",
        ],
    ),
    (
        "\"fe80::1\"",
        "\"10.2.0.2\"",
        &[
            "7:112: worker[0].internet.gateways6[1]: not an IPv6 address (write it as \"2001:db8::1\")",
        ],
    ),
    (
        "\"fe80::1\"",
        "\"2001:db8:1::1\"",
        &["7:112: worker[0].internet.gateways6[1]: 2001:db8:1::1 is listed twice (remove one)"],
    ),
    (
        "\"fe80::1\"",
        "\"2001:db8:1::1:1\"",
        &[
            "7:112: worker[0].internet.gateways6[1]: 2001:db8:1::1:1 is the worker's own address (name the router)",
        ],
    ),
    (
        "\"fe80::1\"",
        "\"2001:db8:1::1:3\"",
        &[
            "7:112: worker[0].internet.gateways6[1]: 2001:db8:1::1:3 is weir's own (worker[1].internet.address6) (name the router)",
        ],
    ),
    (
        "\"fe80::1\"",
        "\"2001:db8:9::1\"",
        &[
            "7:112: worker[0].internet.gateways6[1]: 2001:db8:9::1 is neither in the connected prefix 2001:db8:1::/64 nor link-local (fe80::/10) (a gateway is a neighbour on the link)",
        ],
    ),
    (
        "2001:db8:1::1:3/64",
        "2001:db8:1::1:1/64",
        &[
            "12:60: worker[1].internet.address6: address 2001:db8:1::1:1 is already at worker[0].internet.address6 (each may be used once)",
        ],
    ),
    (
        "address6",
        "adress6",
        &[
            "7:49: worker[0].internet.adress6: unknown key (did you mean address6?)",
            "7:93: worker[0].internet.gateways6: address6 is missing (write address6, or remove it)",
        ],
    ),
    (
        "gateways6",
        "gateway6",
        &[
            "7:60: worker[0].internet.address6: gateways6 is missing (write gateways6, or remove it)",
            "7:82: worker[0].internet.gateway6: unknown key (did you mean gateway?)",
        ],
    ),
    (
        "gateway = \"10.2.0.2\" }",
        "gateway = \"10.2.0.2\", mtu = 1279 }",
        &[
            "7:177: worker[0].internet.mtu: 1279 bytes: a link with IPv6 carries at least 1280 (RFC 8200 section 5) (write mtu = 1280 or more, or remove address6 and gateways6)",
        ],
    ),
];

#[test]
fn addresses_and_gateways_of_ipv6_that_cannot_work_are_refused() {
    check_errors(&gre6(), ADDRESS_CASES);
    check_errors(
        &plain6(),
        &[(
            "\"2001:db8:2::1:1/64\", gateways6 = \"2001:db8:2::1\"",
            "\"2001:db8:1::5/64\", gateways6 = \"fe80::1\"",
            &[
                "7:60: worker[0].internet.address6: the connected prefixes of both sides overlap: 2001:db8:1::/64 and 2001:db8:1::/64 (give each side its own prefix)",
            ],
        )],
    );
    let point_to_point = changed(&gre6(), "2001:db8:1::1:1/64", "2001:db8:1::/127");
    config(&point_to_point);
}

const FIRST: &str = "\"2001:db8:1000::/48\"";
const PREFIX_CASES: &[Case] = &[
    (
        FIRST,
        "\"2001:db8:1000::1/48\"",
        &[
            "27:12: shard[0].public6[0]: 2001:db8:1000::1/48 has host bits; its prefix is 2001:db8:1000::/48 (write a unicast prefix as \"2001:db8::/length\")",
        ],
    ),
    (
        FIRST,
        "\"2001:db8:1000::/65\"",
        &[
            "27:12: shard[0].public6[0]: 2001:db8:1000::/65 has a length of 65, not 16 to 64 (write a unicast prefix as \"2001:db8::/length\")",
        ],
    ),
    (
        FIRST,
        "\"2000::/15\"",
        &[
            "27:12: shard[0].public6[0]: 2000::/15 has a length of 15, not 16 to 64 (write a unicast prefix as \"2001:db8::/length\")",
        ],
    ),
    (
        FIRST,
        "\"fe80::/16\"",
        &[
            "27:12: shard[0].public6[0]: fe80::/16 is link-local (fe80::/10) (write a unicast prefix as \"2001:db8::/length\")",
        ],
    ),
    (
        FIRST,
        "\"198.51.100.0/24\"",
        &[
            "27:12: shard[0].public6[0]: \"198.51.100.0/24\" is not an IPv6 prefix (write a unicast prefix as \"2001:db8::/length\")",
        ],
    ),
    (
        FIRST,
        "7",
        &[
            "27:12: shard[0].public6[0]: not a string (write a unicast prefix as \"2001:db8::/length\")",
        ],
    ),
    (FIRST, "", &["27:11: shard[0].public6: an empty list (name at least one prefix)"]),
    (
        FIRST,
        "\"2001:db8:1001:5::/64\"",
        &[
            "33:12: shard[1].public6[0]: 2001:db8:1001::/48 overlaps 2001:db8:1001:5::/64 of shard[0].public6[0] (a prefix belongs to one shard)",
        ],
    ),
    (
        FIRST,
        "\"2001:db8:1000::/48\", \"2001:db8:1000:1::/64\"",
        &[
            "27:34: shard[0].public6[1]: 2001:db8:1000:1::/64 overlaps 2001:db8:1000::/48 before it (remove one)",
        ],
    ),
    (
        FIRST,
        "\"2001:db8::/47\"",
        &[
            "27:12: shard[0].public6[0]: 2001:db8::/47 overlaps the connected prefix 2001:db8:1::/64 (worker[0].internet.address6) (public prefixes are routed to the worker and used by nothing else)",
        ],
    ),
    (
        FIRST,
        "\"2001:db8:1::/64\"",
        &[
            "27:12: shard[0].public6[0]: 2001:db8:1::/64 overlaps the connected prefix 2001:db8:1::/64 (worker[0].internet.address6) (public prefixes are routed to the worker and used by nothing else)",
        ],
    ),
    (
        "public6 = [",
        "public6 = \"2001:db8:1000::/48\" #",
        &[
            "27:11: shard[0].public6: a string is not valid here (must be a list of strings: IPv6 prefixes \"2001:db8::/length\", length 16..=64, without host bits, none twice)",
        ],
    ),
    (
        "id = 1\n",
        "id = 1\nsteer6 = \"2001:db8:2::10\"\n",
        &["25:1: shard[0].steer6: has a meaning in the cluster file only (remove it)"],
    ),
    (
        "id = 1\n",
        "id = 1\nper_shard6 = 48\n",
        &["25:1: shard[0].per_shard6: unknown key (remove it)"],
    ),
];

#[test]
fn prefixes_of_shards_that_cannot_work_are_refused() {
    check_errors(&gre6(), PREFIX_CASES);
}

#[test]
fn workers_of_shards_with_ipv6_need_it_and_its_mtu() {
    const SIDE: &str =
        "address6 = \"2001:db8:1::1:1/64\", gateways6 = [\"2001:db8:1::1\", \"fe80::1\"], ";
    check_errors(
        &gre6(),
        &[
            (
                SIDE,
                "",
                &[
                    "7:12: worker[0].internet.address6: missing: shard[0] has public6 (write address6 and gateways6, or remove public6)",
                ],
            ),
            (
                "mtu = 1524",
                "mtu = 1303",
                &[
                    "6:100: worker[0].access.mtu: 1303 bytes leave 1279 beside 24 of GRE for a home's IPv6 packet, which may have 1280 (RFC 8200 section 5) (write mtu = 1304 or more, or remove the shards' public6)",
                ],
            ),
            ("mtu = 1524", "mtu = 1304", &[]),
        ],
    );
    check_errors(
        &changed(&gre6(), "[access]\n", "[access]\ngre_key = \"subscriber\"\n"),
        &[
            (
                "mtu = 1524",
                "mtu = 1304",
                &[
                    "6:100: worker[0].access.mtu: 1304 bytes leave 1276 beside 28 of GRE for a home's IPv6 packet, which may have 1280 (RFC 8200 section 5) (write mtu = 1308 or more, or remove the shards' public6)",
                ],
            ),
            ("mtu = 1524", "mtu = 1308", &[]),
        ],
    );
    const ACCESS: &str = "address6 = \"2001:db8:2::1:3/64\", gateways6 = \"2001:db8:2::1\", ";
    check_errors(
        &plain6(),
        &[
            (
                ACCESS,
                "",
                &[
                    "11:10: worker[1].access.address6: missing: shard[1] has public6 (write address6 and gateways6, or remove public6)",
                ],
            ),
            (
                "mtu = 1524",
                "mtu = 1279",
                &[
                    "6:162: worker[0].access.mtu: 1279 bytes: a link with IPv6 carries at least 1280 (RFC 8200 section 5) (write mtu = 1280 or more, or remove address6 and gateways6)",
                ],
            ),
            ("mtu = 1524", "mtu = 1280", &[]),
        ],
    );
    // A worker without such shards needs nothing.
    let first_only =
        gre6().replace("public6 = [\"2001:db8:1001::/48\", \"2001:db8:1003::/48\"]\n", "");
    let text = changed(
        &first_only,
        "address6 = \"2001:db8:1::1:3/64\", gateways6 = \"2001:db8:1::1\", ",
        "",
    );
    assert_eq!(config(&text).workers[1].internet.ipv6, None);
}

#[test]
fn unique_local_prefixes_are_warned_of_and_so_is_ipv6_that_has_no_effect() {
    let warnings = |text: &str| weir_config::parse(text, "t.toml").expect("valid").1;
    let text = changed(&gre6(), "2001:db8:1000::/48", "fd00:1000::/48");
    let base = warnings(&gre6());
    let new: Vec<_> = warnings(&text).into_iter().filter(|it| !base.contains(it)).collect();
    assert_found(
        "unique local",
        &new,
        &[
            "27:12: shard[0].public6[0]: fd00:1000::/48 is unique local (RFC 4193): the internet does not route it, and it is not translated (write a global prefix; right as it is only in a private network)",
        ],
    );
    let text = changed(BASE, "[nat]", "[ipv6]\nclaim_hold_sec = 5\n[nat]");
    let base = warnings(BASE);
    let new: Vec<_> = warnings(&text).into_iter().filter(|it| it.key.starts_with("ipv6")).collect();
    assert!(base.iter().all(|it| !it.key.starts_with("ipv6")));
    assert_found(
        "without effect",
        &new,
        &[
            "17:1: ipv6: no shard has public6: it has no effect (remove it, or write public6 for the shards)",
        ],
    );
}

#[test]
fn changes_of_a_running_node_say_what_they_do() {
    let lines = |old: &str, new: &str| -> Vec<String> {
        let [old, new] = [old, new].map(config);
        let changes = node_difference(&old, &old, &new);
        let line = |it: &weir_config::SettingChange| {
            let mark = if it.is_for_restarts { "! " } else { "" };
            format!("{mark}{}: {} ({})", it.subject, it.what, it.effect)
        };
        changes.iter().map(line).collect()
    };
    let with = |section: &str| changed(&gre6(), "[nat]", &format!("[ipv6]\n{section}\n[nat]"));
    assert_eq!(
        lines(&with(""), &with("claim_hold_sec = 5")),
        ["ipv6.claim_hold_sec: not set -> 5 (flows go on)"]
    );
    assert_eq!(
        lines(&with("claim_hold_sec = 5"), &with("delegation = \"static\"")),
        [
            "ipv6.claim_hold_sec: 5 -> not set (flows go on)",
            "ipv6.delegation: not set -> \"static\" (for new flows)",
        ]
    );
    let homes = |length: u8| {
        changed(&plain6(), "[nat]", &format!("[ipv6]\nhome_length6 = {length}\n[nat]"))
    };
    assert_eq!(
        lines(&homes(64), &homes(56)),
        [
            "! ipv6.home_length6: not set -> 56 (taken by each node when it restarts, and its flows end then)"
        ]
    );
    assert_eq!(lines(BASE, &gre6()).len(), 4, "two workers and two shards");
    assert!(lines(&gre6(), &gre6()).is_empty());
}
