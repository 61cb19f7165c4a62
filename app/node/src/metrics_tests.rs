//! The metrics of a node with one worker, as an operator reads them.

use std::collections::{BTreeMap, BTreeSet};

use weir_admin::api::RuleCount;
use weir_engine::DropReason;
use weir_process::{ControllerNumbers, ScrapeFormat, controller_text};

use super::*;
use crate::sample_node::sample_node;

#[test]
fn names_and_labels_are_those_operators_alert_on() {
    let (node, _mailbox) = sample_node();
    let count = RuleCount { rule: "no-mail".to_owned(), action: "drop".to_owned(), hits_total: 12 };
    node.counted_rules.set(vec![count]);
    let text = text(&node);
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("weir_build_info{{version=\"{version}\"}} 1");
    let expected = [
        build.as_str(),
        "weir_packets_total{worker=\"0\",side=\"access\",dir=\"rx\"} 5",
        "weir_packets_total{worker=\"0\",side=\"internet\",dir=\"tx\"} 0",
        "weir_bytes_total{worker=\"0\",side=\"access\",dir=\"rx\"} 500",
        "weir_flows{worker=\"0\"} 3.0",
        "weir_flows_max{worker=\"0\"} 1000.0",
        "weir_flow_creates_total{worker=\"0\"} 5",
        "weir_family_flows{worker=\"0\",family=\"4\"} 2.0",
        "weir_family_flows{worker=\"0\",family=\"6\"} 1.0",
        "weir_family_flow_creates_total{worker=\"0\",family=\"4\"} 3",
        "weir_family_flow_creates_total{worker=\"0\",family=\"6\"} 2",
        "weir_subscribers{worker=\"0\"} 0.0",
        "weir_rule_hits_total{rule=\"no-mail\",action=\"drop\"} 12",
        "weir_ports_used{shard=\"7\"} 4.0",
        "weir_blocks_free{shard=\"7\"} 60.0",
        "weir_addresses_out_of_service{shard=\"7\"} 2.0",
        "weir_ports_out_of_service{shard=\"7\"} 3.0",
        "weir_static_blocks_awaited{shard=\"7\"} 1.0",
        "weir_worker_busy_ratio{worker=\"0\"} 0.0",
        "weir_rx_missed_total{worker=\"0\",side=\"access\"} 9",
        "weir_busy_cycles_total{worker=\"0\"} 0",
        "weir_busy_packets_total{worker=\"0\"} 0",
        "weir_gateway_up{worker=\"0\",side=\"access\"} 0.0",
        "weir_tx_dropped_total{worker=\"0\",side=\"internet\"} 2",
        "weir_log_lines_dropped_total{log=\"block\"} 0",
        "weir_log_lines_dropped_total{log=\"operational\"} 0",
        "weir_table_used{worker=\"0\",table=\"sessions\"} 95.0",
        "weir_table_max{worker=\"0\",table=\"sessions\"} 100.0",
        "weir_homes_displaced_total{worker=\"0\"} 2",
        "weir_memory_bytes{worker=\"0\",table=\"mappings\"} 64000.0",
        "weir_memory_bytes{worker=\"0\",table=\"subscribers\"} 0.0",
        "weir_memory_bytes{worker=\"0\",table=\"addresses\"} 0.0",
        "weir_page_bytes{worker=\"0\",table=\"mappings\"} 1073741824.0",
        "weir_page_bytes{worker=\"0\",table=\"inbound-index\"} 0.0",
        "weir_bytes_per_flow{worker=\"0\"} 64.0",
        "weir_turn_seconds_max{worker=\"0\"} 0.00025",
        "weir_turn_seconds_bucket{le=\"0.0001\",worker=\"0\"} 0",
        "weir_turn_seconds_bucket{le=\"0.0003\",worker=\"0\"} 1",
        "weir_turn_seconds_bucket{le=\"+Inf\",worker=\"0\"} 1",
        "weir_turn_seconds_count{worker=\"0\"} 1",
        "weir_turn_seconds_sum{worker=\"0\"} 0.00025",
        "weir_tick_seconds_bucket{le=\"0.001\",worker=\"0\"} 0",
        "weir_tick_seconds_bucket{le=\"0.003\",worker=\"0\"} 1",
        "weir_tick_seconds_count{worker=\"0\"} 1",
    ];
    for line in expected {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

/// The rules of `promtool check metrics`.
#[test]
fn the_text_format_has_help_and_type_once_for_each_family_and_counters_end_in_total() {
    let (node, _mailbox) = sample_node();
    node.member.set(Arc::default()).unwrap();
    let controller = controller_text(&ControllerNumbers::default(), 0);
    let progress = StartProgress::begin("n1");
    for open_metrics in [text(&node), controller, text_of_start(&progress)] {
        let text = ScrapeFormat::Text.of(open_metrics);
        let mut types = BTreeMap::new();
        let mut lines = text.lines().peekable();
        while let Some(help) = lines.next() {
            let (name, words) = help.strip_prefix("# HELP ").unwrap().split_once(' ').unwrap();
            assert!(words.ends_with('.') && !words.contains('\\'), "{help}");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert_eq!(types.insert(name, kind), None, "{name} comes twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            let ends = ["_count", "_sum", "_bucket", "_milliseconds", "_ms"];
            assert!(!ends.iter().any(|end| name.ends_with(end)), "{name}");
            let mut seen = BTreeSet::new();
            while let Some(series) = lines.next_if(|line| !line.starts_with('#')) {
                let (series, value) = series.rsplit_once(' ').unwrap();
                let of = series.split('{').next().unwrap();
                let of = if kind == "histogram" { plain(of) } else { of };
                assert_eq!(of, name);
                assert!(value.parse::<f64>().is_ok(), "{series} {value}");
                assert!(seen.insert(series), "{series} comes twice");
            }
        }
    }
}

#[test]
fn every_drop_reason_is_there_from_the_start() {
    let (node, _mailbox) = sample_node();
    let text = text(&node);
    for reason in DropReason::ALL {
        let line = format!("weir_drops_total{{worker=\"0\",reason=\"{}\"}} 0", reason.name());
        assert!(text.lines().any(|found| found == line), "{line}");
    }
}

/// Returns the families of a text, by the names of their series.
fn families(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
        .collect()
}

/// Returns every metric name in a document, without the suffixes of histograms.
fn named(document: &str) -> BTreeSet<String> {
    let words = document.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("weir_")).map(|name| plain(name).to_owned()).collect()
}

fn plain(name: &str) -> &str {
    let ends = ["_bucket", "_count", "_sum"];
    ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

#[test]
fn the_operators_guide_has_a_row_for_every_metric_and_names_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let (node, _mailbox) = sample_node();
    let of_node = families(&text(&node));
    node.member.set(Arc::default()).unwrap();
    let mut all = families(&text(&node));
    all.extend(families(&controller_text(&ControllerNumbers::default(), 0)));
    assert!(of_node.len() > 25 && all.len() > of_node.len() + 20, "{all:?}");

    let cells = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `weir_").and_then(|row| row.split(" | ").next()));
    let rows: BTreeSet<String> = cells.flat_map(|cell| named(&format!("weir_{cell}"))).collect();
    let missing: Vec<_> = all.difference(&rows).collect();
    assert!(missing.is_empty(), "metrics without a row in docs/operations.md: {missing:?}");
    let named = named(&guide);
    let unknown: Vec<_> = named.difference(&all).collect();
    assert!(unknown.is_empty(), "docs/operations.md names what no node has: {unknown:?}");
}
