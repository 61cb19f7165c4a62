//! `weir status`: one verdict on the node.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use jiff::Timestamp;
use weir_admin::api::{
    BirdSideStatus, MembershipStatus, SideStatus, Status, Verdict, WaitingStatus, WorkerStatus,
};
use weir_admin::client::ClientError;

use crate::node_socket::NodeSocket;
use crate::table::{Align, Table};

/// Position of the column that is there only with IPv6 flows: behind all flows, of which they are.
const IPV6_COLUMN: usize = 4;

/// Say in one word how the node is, and why.
///
/// OK: everything forwards. DEGRADED: packets are forwarded, something needs a look. DOWN: nothing
/// forwards, or no node runs. The exit code is 0, 1 or 2 accordingly. A node that starts is DOWN
/// and says what it waits for: etcd, its cluster's file, or its own tables and devices. Rates are
/// those of the last second.
///
/// A node of a cluster also judges its part in it: OK, or AT RISK when the next failure could end
/// flows or the node stands apart, which makes it DEGRADED.
///
///   weir status
///   weir status --json | jq .workers[0].flows
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// Everything as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let status = args.node.client().and_then(|client| client.get::<Status>("/status"));
    let printed = match &status {
        Ok(status) if args.json => print_json(status),
        Ok(status) => print(status),
        Err(error) => return unreachable(error, args.json),
    };
    match (printed, status.map(|status| status.verdict)) {
        (Ok(()), Ok(verdict)) => ExitCode::from(verdict as u8),
        _ => ExitCode::from(Verdict::Down as u8),
    }
}

/// Reports the node as down: without an answer this command cannot know more.
fn unreachable(error: &ClientError, json: bool) -> ExitCode {
    if json {
        let answer = serde_json::json!({"verdict": Verdict::Down, "reasons": [error.to_string()]});
        println!("{answer}");
    } else {
        println!("{}  {error}", Verdict::Down.name());
    }
    ExitCode::from(Verdict::Down as u8)
}

fn print_json(status: &Status) -> io::Result<()> {
    let text = serde_json::to_string_pretty(status)?;
    writeln!(io::stdout(), "{text}")
}

fn print(status: &Status) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}  {}", status.verdict.name(), headline(status))?;
    for reason in &status.reasons {
        writeln!(out, "  - {reason}")?;
    }
    if let Some(waiting) = &status.waiting {
        return writeln!(out, "  since {}", since(waiting));
    }
    writeln!(out)?;
    if let Some(membership) = &status.membership {
        print_membership(membership, &mut out)?;
        writeln!(out)?;
    }
    worker_table(&status.workers).print(&mut out)?;
    writeln!(out)?;
    let mut table = Table::new(&[
        ("worker", Align::Right),
        ("side", Align::Left),
        ("address", Align::Left),
        ("mac", Align::Left),
        ("link", Align::Left),
        ("gateway", Align::Left),
        ("rx packets", Align::Right),
        ("tx packets", Align::Right),
        ("rx/s", Align::Right),
        ("tx/s", Align::Right),
        ("missed", Align::Right),
        ("unsent", Align::Right),
        ("device", Align::Left),
    ]);
    for worker in &status.workers {
        let rates = &worker.rates;
        let access = [rates.access_rx_packets, rates.access_tx_packets];
        let internet = [rates.internet_rx_packets, rates.internet_tx_packets];
        table.row(side_row(worker.worker, "access", &worker.access, access));
        table.row(side_row(worker.worker, "internet", &worker.internet, internet));
    }
    table.print(&mut out)?;
    print_hints(&status.workers, &mut out)
}

/// Prints wrong checksums that were seen, and advice for the other end of virtual links, each hint
/// once.
fn print_hints(workers: &[WorkerStatus], out: &mut impl Write) -> io::Result<()> {
    for WorkerStatus { worker, access, internet, .. } in workers {
        for (name, side) in [("access", access), ("internet", internet)] {
            let wrong = side.checksums_wrong_total;
            if wrong > 0 {
                writeln!(
                    out,
                    "\nchecksums: worker {worker} has seen {wrong} TCP SYNs from the {name} side with a wrong one, of one in \
                     64 that it looks at: nobody answers such"
                )?;
            }
        }
    }
    let hints = workers.iter().flat_map(|worker| [&worker.access.hint, &worker.internet.hint]);
    let hints: BTreeSet<&String> = hints.filter(|hint| !hint.is_empty()).collect();
    hints.into_iter().try_for_each(|hint| writeln!(out, "\nhint: {hint}"))
}

fn print_membership(membership: &MembershipStatus, out: &mut impl Write) -> io::Result<()> {
    let verdict = match membership.risks.as_slice() {
        [] => "OK".to_owned(),
        risks => format!("AT RISK: {}", risks.join("; ")),
    };
    writeln!(out, "cluster {}: {verdict}", membership.cluster)?;
    let mut table = Table::new(&[
        ("registered", Align::Left),
        ("etcd silent", Align::Right),
        ("map", Align::Left),
        ("shards", Align::Left),
        ("copies missing", Align::Right),
        ("awaited here", Align::Right),
        ("peers silent", Align::Right),
        ("routes not set", Align::Right),
    ]);
    let shards: Vec<String> =
        membership.shards.iter().map(|(role, count)| format!("{count} {role}")).collect();
    table.row(vec![
        if membership.is_registered { "yes" } else { "NO" }.into(),
        format!("{:.1} s", membership.etcd_silent_ms as f64 / 1e3),
        if membership.is_map_fresh { "fresh" } else { "STALE" }.into(),
        if shards.is_empty() { "-".into() } else { shards.join(", ") },
        membership.copies_missing.to_string(),
        membership.copies_awaited.to_string(),
        format!("{} of {}", membership.peers_silent, membership.peers),
        format!("{} of {}", membership.routes_not_set, membership.routes),
    ]);
    table.print(out)?;
    writeln!(out, "BIRD: {}", bird_line(&membership.bird))
}

fn bird_line(sides: &[BirdSideStatus]) -> String {
    let sides = sides.iter().map(|side| {
        let BirdSideStatus { side, state, sessions_established, sessions, why, since_ms } = side;
        match (state.as_str(), why.as_str()) {
            ("up", _) => format!("{side} up, {sessions_established} of {sessions} sessions"),
            ("not-watched" | "unknown", "") => format!("{side} {}", state.replace('-', " ")),
            (state, why) => {
                let state = state.to_uppercase().replace('-', " ");
                format!("{side} {state} for {} s: {why}", since_ms / 1_000)
            }
        }
    });
    let sides: Vec<String> = sides.collect();
    if sides.is_empty() { "not watched".into() } else { sides.join("; ") }
}

/// Returns when a wait began.
fn since(waiting: &WaitingStatus) -> String {
    let seconds = i64::try_from(waiting.since_unix_sec).ok();
    let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| "an unknown time".into(), |time| time.to_string())
}

fn headline(status: &Status) -> String {
    let memory = if status.has_huge_pages { "huge pages" } else { "ordinary pages" };
    if status.waiting.is_some() {
        return format!(
            "node {}, weir {}, up {} s, starting",
            status.node, status.version, status.uptime_sec
        );
    }
    let ready = if status.has_been_ready { "" } else { ", not ready yet" };
    format!(
        "node {}, weir {}, up {} s, {memory}{ready}",
        status.node, status.version, status.uptime_sec
    )
}

/// Returns the table of workers; with a column of IPv6 flows, if there are any.
fn worker_table(workers: &[WorkerStatus]) -> Table {
    let mut columns = vec![
        ("worker", Align::Right),
        ("core", Align::Right),
        ("busy", Align::Right),
        ("flows", Align::Right),
        ("of", Align::Right),
        ("new flows/s", Align::Right),
        ("drops/s", Align::Right),
        ("subscribers", Align::Right),
        ("generation", Align::Right),
        ("memory", Align::Right),
        ("pages", Align::Left),
    ];
    let has_ipv6 = workers.iter().any(|worker| worker.flows6 > 0);
    if has_ipv6 {
        columns.insert(IPV6_COLUMN, ("IPv6", Align::Right));
    }
    let mut table = Table::new(&columns);
    for worker in workers {
        let mut row = worker_row(worker);
        if has_ipv6 {
            row.insert(IPV6_COLUMN, worker.flows6.to_string());
        }
        table.row(row);
    }
    table
}

fn worker_row(worker: &WorkerStatus) -> Vec<String> {
    vec![
        worker.worker.to_string(),
        worker.core.to_string(),
        format!("{:.1} %", worker.busy_ratio * 100.0),
        worker.flows.to_string(),
        worker.flows_max.to_string(),
        format!("{:.0}", worker.rates.new_flows),
        format!("{:.0}", worker.rates.drops),
        worker.subscribers.to_string(),
        worker.generation.to_string(),
        format!("{} MiB", worker.memory_bytes >> 20),
        pages(worker.record_page_bytes, worker.index_page_bytes),
    ]
}

/// Returns the size of the pages under the records and, if it differs, under the indexes.
fn pages(records: u64, indexes: u64) -> String {
    let size = |bytes: u64| match bytes {
        0 => "unknown".to_owned(),
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    };
    if records == indexes {
        return size(records);
    }
    format!("{}, indexes {}", size(records), size(indexes))
}

fn side_row(worker: usize, name: &str, side: &SideStatus, [rx, tx]: [f64; 2]) -> Vec<String> {
    let up = |is_up: bool| if is_up { "up" } else { "DOWN" };
    vec![
        worker.to_string(),
        name.into(),
        side.address.clone(),
        side.mac.clone(),
        up(side.is_link_up).into(),
        format!("{} {}", up(side.is_gateway_up), side.gateways.join(",")),
        side.rx_packets_total.to_string(),
        side.tx_packets_total.to_string(),
        format!("{rx:.0}"),
        format!("{tx:.0}"),
        side.rx_missed_total.to_string(),
        side.tx_dropped_total.to_string(),
        side.device.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(risks: &[&str]) -> String {
        let membership = MembershipStatus {
            cluster: "north".into(),
            risks: risks.iter().map(|&risk| risk.into()).collect(),
            is_registered: risks.is_empty(),
            etcd_silent_ms: 250,
            is_map_fresh: true,
            shards: vec![("primary".into(), 3), ("synced".into(), 2)],
            copies_missing: 1,
            copies_awaited: 4,
            peers: 2,
            routes: 10,
            ..MembershipStatus::default()
        };
        let mut text = Vec::new();
        print_membership(&membership, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_member_has_one_verdict_and_its_numbers() {
        let expected = "cluster north: OK\n\
            registered  etcd silent  map    shards               copies missing  awaited here  peers silent  routes not set\n\
            yes               0.2 s  fresh  3 primary, 2 synced               1             4        0 of 2         0 of 10\n\
            BIRD: not watched\n";
        assert_eq!(printed(&[]), expected);
        let at_risk = printed(&["not registered", "etcd is silent"]);
        assert!(at_risk.starts_with("cluster north: AT RISK: not registered; etcd is silent\n"));
        assert!(at_risk.contains("\nNO "), "{at_risk}");
    }

    #[test]
    fn workers_have_a_column_of_ipv6_only_if_there_are_such_flows() {
        let side = serde_json::to_value(SideStatus::default()).unwrap();
        let worker = |flows6: u64| -> WorkerStatus {
            serde_json::from_value(serde_json::json!({
                "worker": 0, "core": 1, "silent_ms": 0, "busy_ratio": 0.0, "flows": 9,
                "flows6": flows6, "flows_max": 100, "subscribers": 1, "memory_bytes": 0,
                "access": side, "internet": side,
            }))
            .unwrap()
        };
        let printed = |workers: &[WorkerStatus]| {
            let mut text = Vec::new();
            worker_table(workers).print(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert!(!printed(&[worker(0)]).contains("IPv6"));
        let text = printed(&[worker(0), worker(4)]);
        assert!(text.starts_with("worker  core   busy  flows  IPv6   of "), "{text}");
        assert!(text.lines().nth(2).unwrap().contains("      9     4  100 "), "{text}");
    }

    #[test]
    fn pages_of_records_and_indexes_are_named_apart_only_if_they_differ() {
        assert_eq!(pages(1 << 30, 2 << 20), "1 GiB, indexes 2 MiB");
        assert_eq!(pages(4 << 10, 4 << 10), "4 KiB");
        assert_eq!(pages(0, 0), "unknown");
    }

    #[test]
    fn a_wait_has_the_time_when_it_began() {
        let waiting = WaitingStatus {
            awaited: "etcd".into(),
            why: "connection refused".into(),
            waited_ms: 38_000,
            since_unix_sec: 1_772_366_400,
        };
        assert_eq!(since(&waiting), "2026-03-01T12:00:00Z");
    }

    #[test]
    fn each_side_of_bird_is_shown_with_what_is_wrong() {
        let side = |side: &str, state: &str, why: &str| BirdSideStatus {
            side: side.into(),
            state: state.into(),
            sessions_established: 1,
            sessions: 2,
            why: why.into(),
            since_ms: 12_900,
        };
        let sides = [side("access", "up", ""), side("internet", "not-exporting", "one lacks 1")];
        assert_eq!(
            bird_line(&sides),
            "access up, 1 of 2 sessions; internet NOT EXPORTING for 12 s: one lacks 1"
        );
        assert_eq!(bird_line(&[side("access", "not-watched", "")]), "access not watched");
        assert_eq!(bird_line(&[side("access", "unknown", "")]), "access unknown");
    }
}
