//! Full disks, crashes, missing records.

use std::os::unix::fs::symlink;
use std::time::Duration;

use weir_records::BlockEventKind::{Allocated, Released};
use weir_records::{Answer, BlockLog, End, where_was, where_was_in_files};

use crate::folder::{Folder, TestClock, block, time, wait_until};

fn ask(log: &str, at_ms: u64) -> Answer {
    where_was([log.as_bytes()], [203, 0, 113, 1].into(), 1100, time(at_ms)).expect("read")
}

fn line(ms: u64, event: &str, subscriber: u8) -> String {
    format!(
        "{{\"time\":\"1970-01-01T00:00:{:02}.{:03}Z\",\"event\":\"{event}\",\"shard\":1,\"subscriber\":\"10.200.0.{subscriber}\",\
         \"public\":\"203.0.113.1\",\"ports\":\"1024-1279\",\"node\":\"n1\",\"sequence\":1}}\n",
        ms / 1000,
        ms % 1000
    )
}

fn opened(ms: u64) -> String {
    let seconds = ms / 1000;
    format!(
        "{{\"time\":\"1970-01-01T00:00:{seconds:02}Z\",\"event\":\"log-opened\",\"node\":\"n1\",\"sequence\":1}}\n"
    )
}

/// A device that is always full, then a disk with room: every record is in the file or counted, and the file says how many.
#[test]
fn a_full_disk_loses_only_counted_records() {
    const EVENTS: u64 = 100_000;
    let folder = Folder::new("full");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    symlink("/dev/full", &path).expect("linked");
    let (mut senders, log) = BlockLog::start(&path, "n1", 1, clock.as_clock()).expect("started");
    wait_until("a write has failed", || log.counters().write_errors_total > 0);
    for number in 0..EVENTS {
        let kind = if number % 2 == 0 { Allocated } else { Released };
        senders[0].push(block(kind, 1, 1, (number / 2 % 252) as u16), time(number));
    }
    let lost = log.counters().lost_total;
    assert!((1..EVENTS).contains(&lost), "{lost}");

    std::fs::remove_file(&path).expect("unlinked");
    log.reopen();
    wait_until("it is written again", || log.counters().written_total > EVENTS - lost);
    // One more, after the loss: the sequence goes on behind the gap.
    assert!(senders[0].push(block(Allocated, 2, 2, 0), time(EVENTS)));
    let counters = log.stop();
    assert_eq!(counters.lost_total, lost, "nothing is lost once the disk has room");

    let text = std::fs::read_to_string(&path).expect("written");
    let last = text.lines().rev().nth(1).expect("lines");
    assert!(last.ends_with(&format!("\"sequence\":{}}}", 1 + EVENTS + 1)), "{last}");
    let blocks = text.lines().filter(|line| line.contains("\"block-")).count() as u64;
    assert_eq!(blocks, EVENTS + 1 - lost);
    let answer =
        where_was_in_files(&[path], [203, 0, 113, 2].into(), 1024, time(EVENTS)).expect("read");
    assert_eq!((answer.records_lost, answer.lines_unreadable, answer.holders.len()), (lost, 0, 1));
}

#[test]
fn stopping_with_a_full_disk_ends_and_counts() {
    let folder = Folder::new("stop");
    let path = folder.file("blocks.jsonl");
    symlink("/dev/full", &path).expect("linked");
    let (mut senders, log) =
        BlockLog::start(&path, "n1", 1, TestClock::default().as_clock()).expect("started");
    assert!(senders[0].push(block(Allocated, 1, 1, 0), time(0)));
    let counters = log.stop();
    assert_eq!((counters.written_total, counters.lost_total), (0, 2));
}

/// A pipe that nobody reads takes some records and then holds its writer up, as a disk that stands still.
#[test]
fn a_disk_that_stands_still_is_seen_and_holds_up_neither_workers_nor_the_end() {
    let folder = Folder::new("still");
    let path = folder.file("blocks.jsonl");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    let (mut senders, log) =
        BlockLog::start(&path, "n1", 1, TestClock::default().as_clock()).expect("started");
    // More than a pipe holds; handing in never waits.
    for number in 0..10_000 {
        senders[0].push(block(Allocated, 1, 1, (number % 252) as u16), time(number));
    }
    wait_until("it is seen to stand still", || log.stalled() > Duration::from_secs(1));
    let written = log.counters().written_total;
    let counters = log.stop();
    assert_eq!(counters.written_total, written);
    assert!(counters.lost_total > 0, "{counters:?}");
}

/// A crash cuts the last line off and releases nothing. The next start ends that line and all that was held.
#[test]
fn a_crash_ends_what_was_held() {
    let folder = Folder::new("crash");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    std::fs::write(&path, opened(0) + &line(1000, "block-allocated", 1) + "{\"time\":\"1970-01")
        .expect("written");
    clock.set(9000);
    let (mut senders, log) = BlockLog::start(&path, "n1", 1, clock.as_clock()).expect("started");
    assert!(senders[0].push(block(Allocated, 2, 1, 0), time(10_000)));
    clock.set(12_000);
    log.stop();

    let ask = |ms| {
        where_was_in_files(std::slice::from_ref(&path), [203, 0, 113, 1].into(), 1024, time(ms))
            .expect("read")
    };
    let answer = ask(5000);
    assert_eq!((answer.holders.len(), answer.lines_unreadable), (1, 1));
    assert_eq!(
        (answer.holders[0].end, answer.holders[0].until),
        (End::NodeRestarted, Some(time(9000)))
    );
    assert!(ask(9500).holders.is_empty());
    let now = ask(11_000).holders;
    assert_eq!(
        (now.len(), now[0].end, now[0].until, now[0].subscriber),
        (1, End::NodeStopped, Some(time(12_000)), [10, 200, 0, 2].into())
    );
    assert!(ask(13_000).holders.is_empty());
}

/// Logs of many nodes may say different things of a time: always in the same order.
#[test]
fn those_who_held_a_port_since_the_same_time_are_told_in_order() {
    let nodes: Vec<String> = (0..8).map(|node| format!("n{node}")).collect();
    let line = line(1000, "block-allocated", 1);
    let of_node = |node: &String| line.replace("\"n1\"", &format!("\"{node}\""));
    let log: String = nodes.iter().rev().map(of_node).collect();
    let told = ask(&log, 5000).holders.into_iter().map(|holder| holder.node);
    assert!(told.eq(nodes));
}

#[test]
fn a_lost_release_ends_when_another_has_the_block() {
    let log = opened(0) + &line(1000, "block-allocated", 1) + &line(5000, "block-allocated", 2);
    let answer = ask(&log, 3000);
    assert_eq!((answer.holders.len(), answer.holders[0].end), (1, End::GivenToAnother));
    assert_eq!(ask(&log, 6000).holders[0].subscriber, std::net::Ipv4Addr::new(10, 200, 0, 2));
}

#[test]
fn a_lost_allocation_is_known_from_its_release() {
    let log = opened(0)
        + &line(1000, "block-allocated", 1)
        + &line(2000, "block-released", 1)
        + &line(5000, "block-released", 2);
    assert!(ask(&log, 500).holders.is_empty());
    assert_eq!(ask(&log, 1500).holders[0].from, Some(time(1000)));
    let answer = ask(&log, 3000).holders;
    assert_eq!((answer.len(), answer[0].from, answer[0].until), (1, None, Some(time(5000))));
    assert!(ask(&log, 5001).holders.is_empty());
}

#[test]
fn other_nodes_ports_and_addresses_are_other_matters() {
    let other_node = line(1000, "block-allocated", 1).replace("\"n1\"", "\"n2\"");
    let log = other_node
        + &opened(2000)
        + &line(3000, "block-allocated", 2).replace("1024-1279", "1280-1535");
    assert_eq!(ask(&log, 2500).holders[0].node, "n2");
    assert_eq!(ask(&log, 3500).holders.len(), 1);
    let elsewhere = line(1000, "block-allocated", 1).replace("203.0.113.1", "203.0.113.2");
    let answer = ask(&elsewhere, 1500);
    assert!(answer.holders.is_empty());
    assert_eq!(answer.covered, Some((time(1000), time(1000))), "lines passed over count, too");
}

#[test]
fn junk_is_counted_and_passed_over() {
    let junk = format!("{}\n\0\0\0\n\n{{}}\n", "x".repeat(100_000));
    let log = junk.clone() + &line(1000, "block-allocated", 1) + &junk;
    let answer = ask(&log, 1500);
    assert_eq!((answer.holders.len(), answer.lines_unreadable), (1, 6));
}

/// Times that are none, in lines that are passed over: `covered` is what the others say.
#[test]
fn a_time_that_is_none_takes_no_other_away() {
    let elsewhere = |ms| line(ms, "block-allocated", 1).replace("203.0.113.1", "203.0.113.2");
    let good = elsewhere(1000) + &elsewhere(2000);
    let stamp = good.split('"').nth(3).expect("a time").to_owned();
    for (at, text) in [(5, "13"), (8, "32"), (11, "24"), (14, "60"), (17, "61"), (0, "!"), (0, "~")]
    {
        let mut wrong = stamp.clone();
        wrong.replace_range(at..at + text.len(), text);
        let answer = ask(&(good.clone() + &elsewhere(1000).replace(&stamp, &wrong)), 1500);
        assert_eq!(answer.covered, Some((time(1000), time(2000))), "{wrong}");
        assert_eq!(answer.lines_unreadable, 1, "{wrong}");
    }
}

#[test]
fn more_records_are_lost_than_there_are_numbers() {
    let lost = |count: u64| {
        let record = opened(1000).replace("log-opened", "records-lost");
        record.replacen("\"node\"", &format!("\"count\":{count},\"node\""), 1)
    };
    assert_eq!(ask(&(lost(3) + &lost(4)), 1500).records_lost, 7);
    assert_eq!(ask(&(lost(u64::MAX) + &lost(4)), 1500).records_lost, u64::MAX);
}

#[test]
fn no_log_makes_the_search_panic() {
    bolero::check!().with_type::<(Vec<(u8, u16, u8)>, Vec<u8>, u16)>().for_each(
        |(records, junk, at)| {
            let mut log = Vec::new();
            for (kind, ms, subscriber) in records {
                let text = match kind % 4 {
                    0 => line(u64::from(*ms) % 60_000, "block-allocated", *subscriber),
                    1 => line(u64::from(*ms) % 60_000, "block-released", *subscriber),
                    2 => opened(u64::from(*ms) % 60_000),
                    _ => String::from_utf8_lossy(junk).into_owned(),
                };
                log.extend(text.into_bytes());
            }
            let answer =
                where_was([log.as_slice()], [203, 0, 113, 1].into(), 1100, time(u64::from(*at)));
            assert!(
                answer.expect("read").holders.iter().all(|holder| holder.ports == (1024, 1279))
            );
        },
    );
}

/// Without translation a home has a whole address. Another node that goes on with it says so itself.
#[test]
fn a_block_of_all_ports_answers_for_each() {
    let whole = |ms, event, subscriber, node: &str| {
        let line = line(ms, event, subscriber);
        line.replace("1024-1279", "0-65535").replace("\"n1\"", &format!("{node:?}"))
    };
    let log = [
        whole(1000, "block-allocated", 1, "n1"),
        whole(2000, "block-allocated", 1, "n2"),
        whole(3000, "block-released", 1, "n2"),
        whole(4000, "block-released", 1, "n1"),
        whole(5000, "block-allocated", 2, "n1"),
    ]
    .concat();
    for port in [0, 1100, 65_535] {
        let who = |ms| -> Vec<u8> {
            let answer = where_was([log.as_bytes()], [203, 0, 113, 1].into(), port, time(ms));
            let holders = answer.expect("read").holders;
            assert!(holders.iter().all(|holder| holder.ports == (0, 65_535)));
            holders.iter().map(|holder| holder.subscriber.octets()[3]).collect()
        };
        assert_eq!(
            [999, 1500, 2500, 4500, 6000].map(who),
            [vec![], vec![1], vec![1, 1], vec![], vec![2]]
        );
    }
}
