//! Settings that work but cause problems.

use crate::base::{BASE, assert_found, changed, plain};

fn check(base: &str, cases: &[(&str, &str, &[&str])]) {
    for (from, to, expected) in cases {
        let text = changed(base, from, to);
        let (_, warnings) = weir_config::parse(&text, "t.toml").expect(to);
        assert_found(&format!("{from:?} -> {to:?}"), &warnings, expected);
    }
}

#[test]
fn mtu() {
    let tunnel = BASE.replace("mtu = 1524", "mtu = 1500");
    check(
        &tunnel,
        &[
            (
                "port_block = 256",
                "",
                &[
                    "6:100: worker[0].access.mtu: homes get an MTU of 1476 bytes (1500 - 24 of GRE), not 1500 (write mtu = 1524 where",
                ],
            ),
            (
                "port_block = 256",
                "mss_clamp = false",
                &[
                    "6:100: worker[0].access.mtu: homes get",
                    "18:13: nat.mss_clamp: off, and full-size packets do not fit the 1476 bytes of worker[0]",
                ],
            ),
            (
                "port_block = 256",
                "mss_clamp = 1460",
                &[
                    "6:100: worker[0].access.mtu: homes get",
                    "18:13: nat.mss_clamp: 1460 bytes do not fit the MTU of 1476 bytes (worker[0]): 1436 do",
                ],
            ),
            ("port_block = 256", "mss_clamp = 1400", &["6:100: worker[0].access.mtu: homes get"]),
        ],
    );
    check(
        BASE,
        &[
            (
                "[access]",
                "[access]\ngre_key = \"subscriber\"",
                &[
                    "6:100: worker[0].access.mtu: homes get an MTU of 1496 bytes (1524 - 28 of GRE), not 1500 (write mtu = 1528",
                ],
            ),
            (
                "gateway = \"10.2.0.2\"",
                "gateway = \"10.2.0.2\", mtu = 1400",
                &[
                    "7:102: worker[0].internet.mtu: homes get an MTU of 1400 bytes, not 1500 (write mtu = 1500 where the internet network carries it)",
                ],
            ),
            ("port_block = 256", "mss_clamp = false", &[]),
        ],
    );
    check(&plain(), &[("mtu = 1524", "mtu = 1500", &[])]);
}

#[test]
fn pools() {
    check(
        BASE,
        &[
            (
                "[\"203.0.113.0/28\"]",
                "[\"203.0.113.0/30\"]",
                &[
                    "26:10: shard[0].public: only 124 of 256 homes can have their 2048 ports at once (9 addresses would do; it has 4)",
                ],
            ),
            ("[\"203.0.113.0/28\"]", "[\"203.0.113.0/30\"]\nsubscribers_max = 124", &[]),
        ],
    );
    let few_homes = plain().replace("10.200.1.0/24", "10.200.1.0/26");
    check(&few_homes, &[("[\"203.0.113.0/28\"]", "[\"203.0.113.0/30\"]", &[])]);
}

#[test]
fn timers() {
    check(
        BASE,
        &[
            (
                "profile = \"rfc\"",
                "udp_sec = 100",
                &[
                    "21:11: timeouts.udp_sec: 100 s is below the minimum of RFC 4787 REQ-5 (120 s or more)",
                ],
            ),
            (
                "profile = \"rfc\"",
                "tcp_established_sec = 600",
                &[
                    "21:23: timeouts.tcp_established_sec: 600 s is below the minimum of RFC 5382 REQ-5 (7440 s or more)",
                ],
            ),
            (
                "profile = \"rfc\"",
                "icmp_sec = 10\ntcp_close_sec = 10\ntcp_reset_sec = 239",
                &[
                    "21:12: timeouts.icmp_sec",
                    "22:17: timeouts.tcp_close_sec: 10 s is below the minimum of RFC 7857",
                    "23:17: timeouts.tcp_reset_sec: 239 s is below the minimum of RFC 7857",
                ],
            ),
            (
                "profile = \"rfc\"",
                "profile = \"carrier\"\nudp_sec = 10",
                &["21:11: timeouts.profile: the profile \"carrier\" is below the minima"],
            ),
            ("profile = \"rfc\"", "udp_sec = 120", &[]),
        ],
    );
}

#[test]
fn workers() {
    check(
        BASE,
        &[
            (
                "name = \"n1\"",
                "control_cores = [0, 2]",
                &["2:21: node.control_cores[1]: core 2 belongs to a worker (worker[1].core)"],
            ),
            ("id = 2", "id = 2\nworker = 1", &["9:1: worker[1]: serves no shard"]),
            (
                "10.100.0.1",
                "10.1.0.77",
                &["25:12: shard[0].endpoint: 10.1.0.77 lies in the connected prefix 10.1.0.0/24"],
            ),
        ],
    );
}

#[test]
fn a_limit_that_lets_one_home_fill_a_table() {
    check(
        BASE,
        &[
            (
                "port_block = 256",
                "flows_max = 5000\nsessions_max = 2000\n[limits]\nflows = 5000\nsessions = 2000",
                &[
                    "21:9: limits.flows: one home may fill the table of all: nat.flows_max = 5000 (write a small share of it",
                    "22:12: limits.sessions: one home may fill the table of all: nat.sessions_max = 2000 (write",
                ],
            ),
            (
                "port_block = 256",
                "port_block = 256\n[limits]\nicmp_errors_per_sec = 2000",
                &[
                    "20:23: limits.icmp_errors_per_sec: one home may take all that a worker makes: limits.worker_icmp_errors_per_sec = 1000",
                ],
            ),
            ("port_block = 256", "port_block = 256\n[limits]\nflows = 5000\nsessions = 900", &[]),
        ],
    );
}
