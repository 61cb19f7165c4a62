//! `[ipv6]` and `[[delegation]]`: the right of homes to IPv6 addresses.

use std::fmt::Write;
use std::net::Ipv4Addr;

use weir_config::{DelegatedHome, DelegationMode, Desired, difference};

use crate::base::{Case, assert_found, changed, check_errors};
use crate::cluster_file::desired;
use crate::ipv6::{config, gre6, plain6};
use crate::ipv6_cluster::CLUSTER6;

pub(crate) const STATIC: &str = r#"[ipv6]
delegation = "static"
[[delegation]]
home = "10.200.1.6"
prefix = "2001:db8:1003:5::/64"
[[delegation]]
home = "10.200.1.5"
prefix = "2001:db8:1000:100::/56"
[[delegation]]
home = "10.200.1.5"
prefix = "2001:db8:1001::/48"
"#;

/// Returns a file whose `[ipv6]` is on line 1.
fn with(settings: &str) -> String {
    format!("{settings}{}", gre6())
}

#[test]
fn delegations_are_read_in_the_order_of_their_prefixes() {
    let ipv6 = config(&with(STATIC)).ipv6;
    assert_eq!((ipv6.delegation, ipv6.claim_hold_sec), (DelegationMode::Static, 600));
    let lines: Vec<String> = ipv6.delegations.iter().map(ToString::to_string).collect();
    let expected = [
        "2001:db8:1000:100::/56 of home 10.200.1.5",
        "2001:db8:1001::/48 of home 10.200.1.5",
        "2001:db8:1003:5::/64 of home 10.200.1.6",
    ];
    assert_eq!(lines, expected);
    let by_key = changed(&with(STATIC), "[access]", "[access]\ngre_key = \"subscriber\"")
        .replace("\"10.200.1.5\"", "\"10.200.1.5,7\"")
        .replace("\"10.200.1.6\"", "\"10.200.1.6,7\"")
        .replace("mtu = 1524", "mtu = 1528");
    let home = DelegatedHome { address: [10, 200, 1, 5].into(), gre_key: Some(7) };
    assert_eq!(config(&by_key).ipv6.delegations[0].home, home);
}

const FIRST: &str = "\"2001:db8:1003:5::/64\"";
const HOME: &str = "\"10.200.1.6\"";
const DELEGATION_CASES: &[Case] = &[
    (
        FIRST,
        "\"2001:db8:1002::/64\"",
        &[
            "5:10: delegation[0].prefix: 2001:db8:1002::/64 is in no shard's public6 (delegate a prefix inside the public6 of one shard)",
        ],
    ),
    (
        FIRST,
        "\"2001:db8:1003:5::/47\"",
        &[
            "5:10: delegation[0].prefix: 2001:db8:1003:5::/47 has host bits; its prefix is 2001:db8:1002::/47 (write a unicast prefix as \"2001:db8:1000:100::/56\")",
        ],
    ),
    (
        FIRST,
        "\"2001:db8:1003:5::/65\"",
        &[
            "5:10: delegation[0].prefix: 2001:db8:1003:5::/65 has a length of 65, not 48 to 64 (write a unicast prefix as \"2001:db8:1000:100::/56\")",
        ],
    ),
    (
        FIRST,
        "\"2001:db8:1003:5::1/64\"",
        &[
            "5:10: delegation[0].prefix: 2001:db8:1003:5::1/64 has host bits; its prefix is 2001:db8:1003:5::/64 (write a unicast prefix as \"2001:db8:1000:100::/56\")",
        ],
    ),
    (
        FIRST,
        "\"10.0.0.0/24\"",
        &[
            "5:10: delegation[0].prefix: \"10.0.0.0/24\" is not an IPv6 prefix (write a unicast prefix as \"2001:db8:1000:100::/56\")",
        ],
    ),
    (
        FIRST,
        "56",
        &[
            "5:10: delegation[0].prefix: not a string (write a unicast prefix as \"2001:db8:1000:100::/56\")",
        ],
    ),
    (
        FIRST,
        "\"2001:db8:1000:1ff::/64\"",
        &[
            "8:10: delegation[1].prefix: 2001:db8:1000:100::/56 overlaps 2001:db8:1000:1ff::/64 of home 10.200.1.6 (delegation[0].prefix) (a prefix has one home)",
        ],
    ),
    (
        FIRST,
        "\"2001:db8:1001::/48\"",
        &[
            "11:10: delegation[2].prefix: 2001:db8:1001::/48 overlaps 2001:db8:1001::/48 of home 10.200.1.6 (delegation[0].prefix) (a prefix has one home)",
        ],
    ),
    (
        HOME,
        "\"10.201.1.6\"",
        &[
            "4:8: delegation[0].home: no home has the address 10.201.1.6 (name a home inside access.subscribers)",
        ],
    ),
    (
        HOME,
        "\"10.200.1.6,7\"",
        &["4:8: delegation[0].home: 10.200.1.6,7: GRE keys tell no homes apart (remove the key)"],
    ),
    (
        HOME,
        "\"10.200.1.0/24\"",
        &[
            "4:8: delegation[0].home: \"10.200.1.0/24\" is not valid (must be a string: the home's outer address; with access.gre_key = \"subscriber\" as ADDRESS,KEY)",
        ],
    ),
    (
        HOME,
        "7",
        &[
            "4:8: delegation[0].home: an integer is not valid here (must be a string: the home's outer address; with access.gre_key = \"subscriber\" as ADDRESS,KEY)",
        ],
    ),
    (
        "home = \"10.200.1.6\"\n",
        "",
        &[
            "3:1: delegation[0].home: missing (must be a string: the home's outer address; with access.gre_key = \"subscriber\" as ADDRESS,KEY)",
        ],
    ),
    (
        "prefix = \"2001:db8:1003:5::/64\"\n",
        "",
        &[
            "3:1: delegation[0].prefix: missing (must be a string: an IPv6 prefix \"2001:db8::/length\", length 48..=64, without host bits)",
        ],
    ),
    (HOME, "\"10.200.1.6\"\nlength = 56", &["5:1: delegation[0].length: unknown key (remove it)"]),
    (
        "\"static\"",
        "\"dynamic\"",
        &["2:14: ipv6.delegation: \"dynamic\" is not valid (must be one of \"claim\", \"static\")"],
    ),
    (
        "\"static\"",
        "\"claim\"",
        &[
            "3:1: delegation: has no effect: ipv6.delegation is \"claim\" (write delegation = \"static\" in [ipv6], or remove it)",
        ],
    ),
    (
        "\"static\"",
        "\"static\"\nclaim_hold_sec = 60",
        &["3:18: ipv6.claim_hold_sec: has no effect: ipv6.delegation is \"static\" (remove it)"],
    ),
    (
        "\"static\"",
        "\"static\"\nhome_length6 = 56",
        &["3:16: ipv6.home_length6: has no meaning in access mode \"gre\" (remove it)"],
    ),
    ("\"static\"", "\"static\"\nhold = 56", &["3:1: ipv6.hold: unknown key (remove it)"]),
];

const HOLD_CASES: &[Case] = &[
    (
        "600",
        "0",
        &["2:18: ipv6.claim_hold_sec: 0 is out of range (must be an integer 1..=86400 s)"],
    ),
    (
        "600",
        "86_401",
        &["2:18: ipv6.claim_hold_sec: 86401 is out of range (must be an integer 1..=86400 s)"],
    ),
    (
        "600",
        "\"600\"",
        &["2:18: ipv6.claim_hold_sec: a string is not valid here (must be an integer 1..=86400 s)"],
    ),
    ("claim_hold_sec = 600", "claim_hold_sec = 600\nclaim_hold_sec = 600", &["3:1: duplicate key"]),
];

#[test]
fn delegations_that_cannot_work_are_refused_with_place_and_fix() {
    check_errors(&with(STATIC), DELEGATION_CASES);
    check_errors(&with("[ipv6]\nclaim_hold_sec = 600\n"), HOLD_CASES);
    let keyed = changed(&with(STATIC), "[access]", "[access]\ngre_key = \"subscriber\"")
        .replace("\"10.200.1.5\"", "\"10.200.1.5,7\"")
        .replace("mtu = 1524", "mtu = 1528");
    check_errors(
        &keyed,
        &[(
            "10.200.1.6",
            "10.200.1.6",
            &[
                "4:8: delegation[0].home: 10.200.1.6: the home's GRE key is missing (write ADDRESS,KEY: access.gre_key is \"subscriber\")",
            ],
        )],
    );
    let wide = with(STATIC).replace("2001:db8:1000::/48", "2001:db8:1000::/52");
    check_errors(
        &wide,
        &[(
            "2001:db8:1000:100::/56",
            "2001:db8:1000::/48",
            &[
                "8:10: delegation[1].prefix: 2001:db8:1000::/48 is larger than 2001:db8:1000::/52 of a shard's public6 (delegate a prefix inside the public6 of one shard)",
            ],
        )],
    );
}

#[test]
fn in_plain_mode_the_prefix_itself_names_the_home() {
    let text = format!("[ipv6]\nhome_length6 = 56\n{}", plain6());
    check_errors(
        &text,
        &[
            (
                "home_length6 = 56",
                "home_length6 = 47",
                &["2:16: ipv6.home_length6: 47 is out of range (must be an integer 48..=64 bits)"],
            ),
            (
                "home_length6 = 56",
                "delegation = \"static\"\nclaim_hold_sec = 5",
                &[
                    "2:14: ipv6.delegation: has no meaning in access mode \"plain\": the prefix itself names the home (remove it; ipv6.home_length6 is the length of a home's prefix)",
                    "3:18: ipv6.claim_hold_sec: has no meaning in access mode \"plain\": the prefix itself names the home (remove it; ipv6.home_length6 is the length of a home's prefix)",
                ],
            ),
            (
                "home_length6 = 56",
                "home_length6 = 56\n[[delegation]]\nhome = \"10.200.1.5\"\nprefix = \"2001:db8:1000:100::/56\"",
                &[
                    "3:1: delegation: has no meaning in access mode \"plain\": the prefix itself names the home (remove it; ipv6.home_length6 is the length of a home's prefix)",
                ],
            ),
            (
                "2001:db8:1000::/48",
                "2001:db8:1000::/60",
                &[
                    "2:16: ipv6.home_length6: homes of /56 are larger than 2001:db8:1000::/60 (shard[0].public6[0]) (write at least 60)",
                ],
            ),
            ("2001:db8:1000::/48", "2001:db8:1000::/56", &[]),
        ],
    );
}

#[test]
fn static_delegation_without_a_table_is_warned_of() {
    let text = with("[ipv6]\ndelegation = \"static\"\n");
    let (_, warnings) = weir_config::parse(&text, "t.toml").expect("valid");
    let found: Vec<_> = warnings.into_iter().filter(|it| it.key.starts_with("ipv6")).collect();
    assert_found(
        "static",
        &found,
        &[
            "2:14: ipv6.delegation: there is no [[delegation]]: no home may send IPv6 packets (write a [[delegation]] for each home's prefix)",
        ],
    );
}

/// Returns a cluster file with so many delegations, in turn from the eight shards of the pool.
fn many(count: u32) -> String {
    with_homes(count, |index| index)
}

/// Returns a cluster file with so many delegations, each to the home with a number.
fn with_homes(count: u32, home: impl Fn(u32) -> u32) -> String {
    let mut text = changed(CLUSTER6, "[nat]", "[ipv6]\ndelegation = \"static\"\n[nat]");
    for index in 0..count {
        let home = Ipv4Addr::from(0x0ac8_0000 + (home(index) & 0xffff));
        let (shard, subnet) = (0x1000 + (index & 7), index >> 3);
        let _ = write!(
            text,
            "[[delegation]]\nhome = \"{home}\"\nprefix = \"2001:db8:{shard:x}:{subnet:x}::/64\"\n"
        );
    }
    text
}

/// Long lists are compressed on their way through etcd.
#[test]
fn a_hundred_thousand_delegations_fit_etcd_and_what_does_not_is_refused() {
    let all = desired(&many(100_000));
    assert_eq!(all.ipv6.delegations.len(), 100_000);
    assert_eq!(Desired::from_json(&all.to_json()).expect("it is valid"), all);
    // Homes without a pattern that would make them easy to compress.
    let scattered = with_homes(200_000, |index| index.wrapping_mul(0x9e37_79b1) >> 16);
    let errors = weir_config::parse_cluster(&scattered, "t.toml").expect_err("too many");
    assert_eq!((errors.len(), errors[0].key.as_str()), (1, "delegation"), "{errors:?}");
    assert!(errors[0].message.contains("at most 1400000 fit"), "{errors:?}");
}

#[test]
fn prefix_that_is_delegated_twice_in_a_long_list_is_refused_once() {
    let twice = many(2_000).replacen("2001:db8:1001:0::/64", "2001:db8:1007:f9::/64", 1);
    let errors = weir_config::parse_cluster(&twice, "t.toml").expect_err("a prefix twice");
    assert_eq!((errors.len(), errors[0].key.as_str()), (1, "delegation[1999].prefix"));
    let message = "2001:db8:1007:f9::/64 overlaps 2001:db8:1007:f9::/64 of home 10.200.0.1 (delegation[1].prefix)";
    assert_eq!(errors[0].message, message);
}

#[test]
fn changes_of_delegations_are_for_new_flows() {
    let lines = |old: &str, new: &str| -> Vec<String> {
        difference(&desired(old), &desired(new)).iter().map(ToString::to_string).collect()
    };
    let moved = many(2).replacen("10.200.0.1\"", "10.200.0.9\"", 1);
    assert_eq!(
        lines(&many(2), &moved),
        [
            "delegation: 2001:db8:1001::/64 of home 10.200.0.1 removed (for new flows)",
            "delegation: 2001:db8:1001::/64 of home 10.200.0.9 added (for new flows)"
        ]
    );
    assert_eq!(lines(&many(2), &many(40)), ["delegation: 38 prefixes added (for new flows)"]);
    assert!(lines(&many(2), &many(2)).is_empty());
}
