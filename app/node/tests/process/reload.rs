//! A node takes its file again while it runs.

use std::fs;

use crate::lab::{Lab, ready_node};
use crate::program::{text, wait_for};

/// Replaces a piece of the node's file.
fn edit(lab: &Lab, from: &str, to: &str) {
    let file = lab.path("reload.toml");
    let old = fs::read_to_string(&file).unwrap();
    assert!(old.contains(from), "{old}");
    fs::write(&file, old.replace(from, to)).unwrap();
}

#[test]
fn a_node_takes_its_file_again_without_a_restart_and_refuses_what_it_cannot_take() {
    let mut lab = Lab::new();
    ready_node(&mut lab, "reload");
    let same = lab.ask(&["reload"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    assert_eq!(text(&same.stdout), "nothing to change: generation 0\n");

    edit(&lab, "flows_max = 10_000", "flows_max = 9_000\nfiltering = \"endpoint-independent\"");
    let dry = lab.ask(&["reload", "--dry-run"]);
    let changes = "  nat.filtering: \"address-and-port-dependent\" -> \"endpoint-independent\" (for new flows)\n  \
                   nat.flows_max: 10000 -> 9000 (for new flows)\n";
    assert_eq!(text(&dry.stdout), format!("{changes}can be applied; nothing was changed\n"));
    let done = lab.ask(&["reload"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stdout));
    assert_eq!(text(&done.stdout), format!("{changes}applied: generation 1\n"));
    let metrics = || text(&lab.ask(&["metrics"]).stdout);
    assert!(metrics().contains("weir_generation{worker=\"0\"} 1.0"), "{}", metrics());
    let flows_max = "weir_flows_max{worker=\"0\"} 9000.0";
    wait_for("the worker's new limit", || metrics().contains(flows_max).then_some(()));

    edit(&lab, "flows_max = 9_000", "flows_max = 20_000");
    let refused = lab.ask(&["reload", "--json"]);
    assert_eq!(refused.status.code(), Some(1));
    let printed = text(&refused.stdout);
    assert!(printed.contains("\"outcome\": \"refused\""), "{printed}");
    assert!(printed.contains("nat.flows_max needs a restart of the node"), "{printed}");
    edit(&lab, "flows_max = 20_000", "flows_max = many");
    let broken = lab.ask(&["reload"]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(text(&broken.stdout).ends_with("refused: generation 1 goes on, nothing was changed\n"));
    let status = text(&lab.ask(&["status"]).stdout);
    assert!(status.contains("settings were refused, the former ones go on"), "{status}");
    assert!(metrics().contains("weir_generation_refused{} 1.0"));

    edit(&lab, "flows_max = many", "flows_max = 9_000");
    assert_eq!(lab.ask(&["reload"]).status.code(), Some(0));
    assert!(text(&lab.ask(&["status"]).stdout).starts_with("OK"));
    let log = lab.log();
    assert!(log.contains("event=\"generation-taken\" number=1"), "{log}");
    assert!(log.contains("event=\"generation-refused\""), "{log}");
    assert_eq!(log.matches("event=\"admin-change\"").count(), 1, "{log}");
    lab.signal("TERM");
    assert_eq!(lab.wait().code(), Some(0), "{}", lab.log());
}

#[test]
fn node_with_a_broken_file_starts_with_the_settings_that_it_took_last() {
    let mut lab = Lab::new();
    ready_node(&mut lab, "reload");
    edit(&lab, "flows_max = 10_000", "flows_max = 9_000");
    assert_eq!(lab.ask(&["reload"]).status.code(), Some(0));
    lab.signal("TERM");
    assert_eq!(lab.wait().code(), Some(0));

    edit(&lab, "flows_max = 9_000", "flows_max = many");
    lab.start(&lab.path("reload.toml"));
    let flows_max = "weir_flows_max{worker=\"0\"} 9000.0";
    let metrics = || text(&lab.ask(&["metrics"]).stdout);
    wait_for("the worker's limit", || metrics().contains(flows_max).then_some(()));
    let status = text(&lab.ask(&["status"]).stdout);
    assert!(status.starts_with("DEGRADED"), "{status}");
    assert!(
        status.contains("the former ones go on") && status.contains("reload.toml:"),
        "{status}"
    );
    assert!(lab.log().contains("flows_max"), "{}", lab.log());

    edit(&lab, "flows_max = many", "flows_max = 8_000");
    let done = lab.ask(&["reload"]);
    assert!(text(&done.stdout).contains("nat.flows_max: 9000 -> 8000"), "{}", text(&done.stdout));
    assert!(text(&lab.ask(&["status"]).stdout).starts_with("OK"));
    lab.signal("TERM");
    assert_eq!(lab.wait().code(), Some(0), "{}", lab.log());
}
