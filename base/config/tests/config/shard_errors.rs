//! Shards that conflict with the access mode, each other, or their homes.

use crate::base::{BASE, assert_found, changed, check_errors, plain};

#[test]
fn shards() {
    check_errors(
        BASE,
        &[
            (
                "203.0.113.16/28",
                "203.0.113.0/24",
                &[
                    "31:11: shard[1].public[0]: 203.0.113.0/24 overlaps 203.0.113.0/28 of shard[0].public[0]",
                ],
            ),
            (
                "203.0.113.16/28",
                "10.200.4.0/28",
                &[
                    "31:11: shard[1].public[0]: 10.200.4.0/28 overlaps the homes' 10.200.0.0/16 (access.subscribers[0])",
                ],
            ),
            (
                "203.0.113.16/28",
                "10.2.0.128/28",
                &[
                    "31:11: shard[1].public[0]: 10.2.0.128/28 overlaps the connected prefix 10.2.0.0/24 (worker[0].internet.address)",
                ],
            ),
            (
                "10.100.0.2",
                "203.0.113.3",
                &[
                    "30:12: shard[1].endpoint: 203.0.113.3 lies in the public prefix 203.0.113.0/28 (shard[0].public[0])",
                ],
            ),
            (
                "endpoint = \"10.100.0.1\"\n",
                "",
                &["23:1: shard[0].endpoint: missing: access mode \"gre\" needs it"],
            ),
            (
                "endpoint = \"10.100.0.1\"",
                "endpoint = \"10.100.0.1\"\nsubscribers = [\"10.200.1.0/24\"]",
                &["26:15: shard[0].subscribers: has no meaning in access mode \"gre\" (remove it)"],
            ),
            (
                "id = 2",
                "id = 2\nworker = 9",
                &["30:10: shard[1].worker: no worker has core 9 (cores with a worker: 1, 2)"],
            ),
            ("id = 2", "id = 0", &["29:6: shard[1].id: 0 is out of range"]),
        ],
    );
    check_errors(
        &plain(),
        &[
            (
                "subscribers = [\"10.200.1.0/24\"]\n",
                "",
                &["24:1: shard[0].subscribers: missing: access mode \"plain\" needs it"],
            ),
            (
                "subscribers = [\"10.200.1.0/24\"]",
                "subscribers = [\"10.201.1.0/24\"]",
                &[
                    "26:16: shard[0].subscribers[0]: 10.201.1.0/24 is not inside access.subscribers (10.200.0.0/16)",
                ],
            ),
            (
                "subscribers = [\"10.200.1.0/24\"]",
                "subscribers = [\"10.200.0.0/15\"]",
                &["26:16: shard[0].subscribers[0]: 10.200.0.0/15 is only in part inside"],
            ),
            (
                "subscribers = [\"10.200.2.0/24\"]",
                "subscribers = [\"10.200.1.128/25\"]",
                &[
                    "31:16: shard[1].subscribers[0]: 10.200.1.128/25 overlaps 10.200.1.0/24 of shard[0].subscribers[0]",
                ],
            ),
            (
                "subscribers = [\"10.200.1.0/24\"]",
                "subscribers = [\"10.200.1.0/24\"]\nendpoint = \"10.100.0.1\"",
                &["27:12: shard[0].endpoint: has no meaning in access mode \"plain\" (remove it)"],
            ),
            (
                "mode = \"plain\"",
                "mode = \"plain\"\ngre_key = \"subscriber\"",
                &["16:11: access.gre_key: there are no GRE keys in plain mode"],
            ),
        ],
    );
}

#[test]
fn public_addresses_too_few_for_the_homes_are_refused() {
    check_errors(
        BASE,
        &[
            (
                "[\"203.0.113.0/28\"]",
                "[\"203.0.113.0/32\"]",
                &[
                    "26:10: shard[0].public: 256 homes do not fit: 1 addresses have 252 blocks of 256 ports, each home needs one (add addresses (2 are enough), or lower subscribers_max to 252)",
                ],
            ),
            (
                "[\"203.0.113.0/28\"]",
                "[\"11.0.0.0/8\"]",
                &["26:10: shard[0].public: 16777216 addresses in one shard"],
            ),
            (
                "port_block = 256",
                "ports_per_subscriber = 1000",
                &[
                    "18:24: nat.ports_per_subscriber: 1000 is not a multiple of nat.port_block = 256 (write 768 or 1024)",
                ],
            ),
            (
                "port_block = 256",
                "port_block = 8192",
                &[
                    "17:1: nat.ports_per_subscriber: 2048 is not a multiple of nat.port_block = 8192 (write 8192)",
                ],
            ),
            (
                "port_block = 256",
                "port_block = 8192\nports_per_subscriber = 65000",
                &[
                    "19:24: nat.ports_per_subscriber: 65000 is not a multiple of nat.port_block = 8192 (write 57344 or 65536)",
                ],
            ),
            (
                "port_block = 256",
                "ports_per_subscriber = 65536",
                &[
                    "18:24: nat.ports_per_subscriber: 65536 ports are more than an address has in blocks of 256: 64512 (write at most 64512)",
                ],
            ),
        ],
    );
}

#[test]
fn more_shards_than_one_worker_can_keep_are_refused() {
    let text = BASE.replace("id = 1", "id = 1\nworker = 1").replace("id = 2", "id = 2\nworker = 1");
    check_errors(
        &text,
        &[(
            "[\"203.0.113.0/28\"]",
            "[\"11.0.0.0/16\"]",
            &["4:1: worker[0]: its shards have 65552 public addresses, a worker at most 65536"],
        )],
    );
}

#[test]
fn a_firewall_needs_no_pools_and_homes_keep_their_addresses() {
    let firewall = changed(&plain(), "[nat]", "[nat]\nenabled = false")
        .replace("203.0.113.0/28", "10.200.1.0/24")
        .replace("203.0.113.16/28", "10.200.2.0/24");
    let found = weir_config::parse(&firewall, "t.toml").err().unwrap_or_default();
    assert_found("firewall", &found, &[]);
}
