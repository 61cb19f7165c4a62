//! Unknown keys, missing sections, syntax errors, and the counting of positions.

use crate::base::{BASE, assert_found, changed, check_errors, plain};

#[test]
fn the_base_file_is_valid() {
    for text in [BASE.to_owned(), plain()] {
        let (_, warnings) = weir_config::parse(&text, "t.toml").expect("valid");
        assert_found("base", &warnings, &[]);
    }
}

#[test]
fn sections_and_unknown_keys() {
    check_errors(
        BASE,
        &[
            (
                "port_block = 256",
                "port_blok = 256",
                &["18:1: nat.port_blok: unknown key (did you mean port_block?)"],
            ),
            (
                "port_block = 256",
                "ports = 256",
                &["18:1: nat.ports: unknown key (did you mean ports_per_subscriber?)"],
            ),
            ("port_block = 256", "zzz = 256", &["18:1: nat.zzz: unknown key (remove it)"]),
            ("[nat]", "[nta]", &["17:2: nta: unknown key (did you mean nat?)"]),
            (
                "mtu = 1524",
                "gatway = 1",
                &["6:94: worker[0].access.gatway: unknown key (did you mean gateway?)"],
            ),
            (
                "[access]\nsubscribers = [\"10.200.0.0/16\"]\n",
                "",
                &["1:1: access: missing (write a section [access])"],
            ),
            ("[nat]\nport_block = 256", "", &[]),
            (
                "[node]\nname = \"n1\"\n",
                "node = 5\n",
                &["1:8: node: an integer is not valid here (must be a table)"],
            ),
        ],
    );
    let errors = weir_config::parse("", "t.toml").expect_err("empty");
    let expected = [
        "1:1: worker: missing (must be at least one [[worker]])",
        "1:1: access: missing (write a section [access])",
        "1:1: shard: missing (must be at least one [[shard]])",
    ];
    assert_found("an empty file", &errors, &expected);
    let errors = weir_config::parse("worker = []\nshard = [1]\naccess = {}\n", "t.toml")
        .expect_err("empty lists");
    let expected = [
        "1:10: worker: an array is not valid here (must be at least one [[worker]])",
        "2:10: shard[0]: not a table (write [[shard]] above its keys)",
        "3:10: access.subscribers: missing (must be a list of strings: IPv4 prefixes",
    ];
    assert_found("empty lists", &errors, &expected);
}

#[test]
fn syntax_errors_are_reported_alone() {
    check_errors(
        BASE,
        &[
            ("core = 1", "core = ", &["5:8: string values must be quoted"]),
            ("[nat]", "[node]", &["17:2: duplicate key"]),
            ("port_block = 256", "port_block = 256\nport_block = 512", &["19:1: duplicate key"]),
        ],
    );
}

#[test]
fn columns_count_characters() {
    let text = changed(BASE, "name = \"n1\"", "name = \"n1\"\nx = { \"ü\" = 1, y = 2 }\n\"é\" = 1");
    let errors = weir_config::parse(&text, "t.toml").expect_err("unknown keys");
    assert_found("columns", &errors, &["3:1: node.x: unknown key", "4:1: node.é: unknown key"]);
    let text = changed(BASE, "{ device", "{ vlan = \"é\", mtv = 1, device");
    let errors = weir_config::parse(&text, "t.toml").expect_err("wrong");
    assert_found(
        "columns",
        &errors,
        &["6:19: worker[0].access.vlan", "6:24: worker[0].access.mtv"],
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = BASE
        .replace("core = 2", "core = 1")
        .replace("port_block = 256", "port_block = 300\nfoo = 1")
        .replace("10.200.0.0/16", "10.200.0.0")
        .replace("203.0.113.16/28", "203.0.113.0/28")
        .replace("name = \"n1\"", "poll = \"often\"");
    let errors = weir_config::parse(&text, "t.toml").expect_err("wrong");
    let expected = [
        "2:8: node.poll: \"often\" is not valid (must be one of \"adaptive\", \"busy\")",
        "10:8: worker[1].core: core 1 is already at worker[0].core (each may be used once)",
        "15:16: access.subscribers[0]: \"10.200.0.0\" is not an IPv4 prefix",
        "18:14: nat.port_block: 300 is not a power of two",
        "19:1: nat.foo: unknown key",
        "32:11: shard[1].public[0]: 203.0.113.0/28 overlaps 203.0.113.0/28 of shard[0].public[0]",
    ];
    assert_found("all", &errors, &expected);
}
