//! The effects of a changed file of a single node.

use weir_config::{Config, node_difference, parse};

use crate::base::{BASE, changed};

fn config(text: &str) -> Config {
    parse(text, "t.toml").unwrap_or_else(|errors| panic!("{errors:?}")).0
}

/// Returns the lines of the changes, those that need a restart with a `!`.
fn lines(start: &str, old: &str, new: &str) -> Vec<String> {
    let [start, old, new] = [start, old, new].map(config);
    let changes = node_difference(&start, &old, &new);
    let line = |change: &weir_config::SettingChange| {
        let mark = if change.is_for_restarts { "! " } else { "" };
        format!("{mark}{}: {} ({})", change.subject, change.what, change.effect)
    };
    changes.iter().map(line).collect()
}

/// Returns the file with this section in place of its own.
fn with(section: &str) -> String {
    let base = match section {
        nat if nat.starts_with("[nat]") => changed(BASE, "[nat]\nport_block = 256\n", ""),
        timeouts if timeouts.starts_with("[timeouts]") => {
            changed(BASE, "[timeouts]\nprofile = \"rfc\"\n", "")
        }
        _ => BASE.to_owned(),
    };
    format!("{base}\n{section}\n")
}

#[test]
fn equal_files_differ_in_nothing() {
    assert!(lines(BASE, BASE, BASE).is_empty());
}

#[test]
fn settings_of_flows_need_no_restart() {
    let cases = [
        (
            "[timeouts]\nprofile = \"rfc\"\nudp_sec = 130",
            "timeouts.udp_sec: 300 -> 130 (ends flows that are idle for longer)",
        ),
        ("[limits]\nnew_flows_per_sec = 7", "limits.new_flows_per_sec: 500 -> 7 (for new flows)"),
        ("[fragments]\ntimeout_sec = 4", "fragments.timeout_sec: 5 -> 4 (flows go on)"),
        ("[fragments]\nheld_max = 0", "! fragments.held_max: 512 -> 0 (flows go on)"),
    ];
    for (section, expected) in cases {
        assert_eq!(lines(BASE, BASE, &with(section)), [expected]);
    }
}

#[test]
fn what_the_tables_were_built_for_decides_and_not_what_is_in_force() {
    let flows = |max: u32| with(&format!("[nat]\nflows_max = {max}"));
    let (small, middle, large) = (flows(50_000), flows(70_000), flows(90_000));
    let raised = lines(&large, &small, &middle);
    assert_eq!(raised, ["nat.flows_max: 50000 -> 70000 (for new flows)"]);
    let beyond = lines(&middle, &small, &large);
    assert_eq!(beyond, ["! nat.flows_max: 50000 -> 90000 (for new flows)"]);
    let filtering = |value: &str| with(&format!("[nat]\nfiltering = \"{value}\""));
    let dependent = filtering("address-dependent");
    assert!(lines(BASE, BASE, &dependent)[0].starts_with("! nat.filtering"));
    assert!(lines(&dependent, BASE, &dependent)[0].starts_with("nat.filtering"));
}

#[test]
fn process_ports_shards_and_identities_need_a_restart() {
    let cases = [
        (
            "name = \"n1\"",
            "name = \"n1\"\nlog_level = \"debug\"",
            "! node.log_level: \"info\" -> \"debug\"",
        ),
        ("core = 1", "core = 3", "! worker 0.core: 1 -> 3"),
        ("[access]", "[access]\ngre_key = \"subscriber\"", "! access.gre_key: "),
        ("id = 1", "id = 9", "! shard 1: removed"),
    ];
    for (from, to, expected) in cases {
        let found = lines(BASE, BASE, &changed(BASE, from, to));
        assert!(found[0].starts_with(expected), "{found:?}");
    }
}

#[test]
fn quota_of_a_group_above_the_largest_of_the_start_needs_a_restart() {
    let group = |quota: u32| {
        format!(
            "{BASE}[[group]]\nname = \"business\"\nsubscribers = [\"10.200.16.0/20\"]\n\
             limits = {{ ports_per_subscriber = {quota} }}\n"
        )
    };
    let (small, middle, large) = (group(1024), group(2048), group(4096));
    let changed = |start: &str, old: &str, new: &str| lines(start, old, new);
    let what = "group business: limits.ports_per_subscriber 1024 ->";
    assert_eq!(changed(BASE, &small, &middle), [format!("{what} 2048 (for new flows)")]);
    assert_eq!(changed(BASE, &small, &large), [format!("! {what} 4096 (for new flows)")]);
    assert_eq!(changed(&large, &small, &large), [format!("{what} 4096 (for new flows)")]);
    let added = "group business: added with 1 prefixes (for new flows)";
    assert_eq!(changed(BASE, BASE, &middle), [added]);
    assert_eq!(changed(BASE, BASE, &large), [format!("! {added}")]);
}
