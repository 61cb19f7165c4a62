//! Rules that let packets pass as they are.

use weir_config::ActionSetting;

use crate::base::{BASE, assert_found, plain};

const RULE: &str =
    "[[rule]]\nname = \"cdn\"\nfrom = \"any\"\nremote = \"100.127.0.0/16\"\naction = \"bypass\"\n";

#[test]
fn rule_with_bypass_is_taken_without_tunnels_and_refused_with_them() {
    let (config, _) = weir_config::parse(&format!("{RULE}{}", plain()), "t.toml").unwrap();
    assert_eq!(config.policy.rules[0].action, ActionSetting::Bypass);
    let errors = weir_config::parse(&format!("{RULE}{BASE}"), "t.toml").unwrap_err();
    let expected = "5:10: rule[0].action: bypass needs access.mode = \"plain\": behind tunnels the addresses of homes are not unique";
    assert_found("with tunnels", &errors, &[expected]);
}

#[test]
fn bypass_ends_no_flow_and_gives_no_class() {
    for (key, expected) in [
        ("rematch = true", "6:11: rule[0].rematch: beside an action that ends no flow"),
        ("class = \"voice\"", "6:9: rule[0].class: beside an action that lets no flow begin"),
    ] {
        let class = "[[class]]\nid = 1\nname = \"voice\"\ndscp = 1\n";
        let text = format!("{RULE}{key}\n{class}{}", plain());
        let errors = weir_config::parse(&text, "t.toml").unwrap_err();
        assert_found(key, &errors, &[expected]);
    }
}
