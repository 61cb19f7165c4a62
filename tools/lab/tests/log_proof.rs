//! The proof of the block logs detects a wrong answer: otherwise it would prove nothing.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use weir_lab::load::Use;
use weir_lab::log_proof::{
    About, Asked, LogBook, Logs, NodeLog, Outcome, Sample, Tally, ask_all, moved, select,
};

const CLOCK_ERROR: Duration = Duration::from_millis(500);
/// 2026-03-01T12:00:10Z.
const USED_US: u64 = 1_772_366_410_000_000;

/// Number of lanes of a shard.
const LANES: u32 = 8;

/// Returns the log of a node that owns a shard, in which `home` gets one block at 12:00:05.
fn log(home: &str) -> String {
    let block =
        format!("\"subscriber\":\"{home}\",\"public\":\"198.18.0.1\",\"ports\":\"1024-1087\"");
    let no_more = "\"clustered\":true".to_owned();
    let mut events = vec![("00.000", "log-opened", no_more.clone())];
    for lane in 0..LANES {
        events.push(("01.000", "lane-taken", of_lane(lane, 1, "\"before\":0")));
        events.push(("01.000", "lane-listed", of_lane(lane, 2, "\"blocks\":0,\"from\":1")));
    }
    events.push(("05.000", "block-allocated", of_lane(0, 3, &block)));
    events.push(("30.000", "log-mark", no_more));
    let line = |(sequence, (second, event, fields)): (usize, (&str, &str, String))| {
        format!(
            "{{\"time\":\"2026-03-01T12:00:{second}Z\",\"event\":\"{event}\",{fields},\"node\":\"n1\",\
             \"boot\":\"{:032x}\",\"sequence\":{sequence}}}\n",
            7
        )
    };
    (1..).zip(events).map(line).collect()
}

fn of_lane(lane: u32, index: u32, fields: &str) -> String {
    format!("\"shard\":1,\"lane\":{lane},\"epoch\":1,\"index\":{index},{fields}")
}

/// Asks the log of one node, whose clock is ahead, about a datagram of a home.
fn ask(name: &str, log: &str, home: Ipv4Addr) -> Result<Vec<Asked>> {
    let public = SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 1030);
    let mut sample = Sample::new(1, 1);
    sample.add(Use { at_us: USED_US, public, home });
    let mut book = LogBook::default();
    book.read(log, false);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, moved(log, 500))?;
    let logs = [NodeLog { path, is_lost: false }];
    ask_all(&select(&sample, &book, 1, 1), &logs, CLOCK_ERROR, 1)
}

#[test]
fn a_log_that_names_another_home_is_found() {
    let home = Ipv4Addr::new(10, 200, 1, 7);
    let outcomes = |answers: &[Asked]| {
        let each = answers.iter().map(|it| (it.about, it.logs, it.outcome.clone()));
        let mut each: Vec<_> = each.collect();
        each.sort_by_key(|(about, logs, _)| (*about, *logs));
        each
    };
    let all = |port: Outcome, home: Outcome| {
        vec![
            (About::Port, Logs::All, port.clone()),
            (About::Port, Logs::Part, port.clone()),
            (About::Address, Logs::All, port),
            (About::Home, Logs::All, home),
        ]
    };
    let right = ask("right.jsonl", &log("10.200.1.7"), home).unwrap();
    assert_eq!(outcomes(&right), all(Outcome::Right, Outcome::Right));
    assert!(Tally::of(&right, |_| false).complaints().is_empty());

    let wrong = ask("wrong.jsonl", &log("10.200.1.8"), home).unwrap();
    let unknown = Outcome::CannotSay(["not-named".to_owned()].into());
    assert_eq!(outcomes(&wrong), all(Outcome::Wrong, unknown));
    let tally = Tally::of(&wrong, |_| false);
    let complaints = tally.complaints().iter().filter(|line| line.starts_with("WRONG"));
    assert_eq!(complaints.count(), 3, "{:?}", tally.complaints());

    // Without its record the block belonged to no home, although a datagram came from it.
    let forgets = log("10.200.1.7").replace("block-allocated", "block-forgotten");
    let free = ask("free.jsonl", &forgets, home).unwrap();
    assert!(!free.iter().any(|it| it.outcome == Outcome::Right), "{free:?}");
}
