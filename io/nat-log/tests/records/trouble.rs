//! Full disks, crashes, missing records, logs of the older version.

use std::os::unix::fs::symlink;
use std::time::Duration;

use weir_nat_log::BlockRecordKind::{Allocated, Released};
use weir_nat_log::LogVerdict::{CannotSay, Held, Nobody};
use weir_nat_log::{
    About, Begin, BlockLog, BlockRecord, BlockRecordKind, LogAnswer, LogQuestion, Reason,
    TenancyEnd, search_files, search_logs,
};

use crate::folder::{Folder, N1, TestClock, block, time, wait_until};
use crate::node_log::homes;

fn about(public: u8, port: u16, at_ms: u64) -> LogQuestion {
    let about = About::Port([203, 0, 113, public].into(), port);
    LogQuestion { about, time: Some((time(at_ms), time(at_ms))), clock_error: Duration::ZERO }
}

fn ask(log: &str, at_ms: u64) -> LogAnswer {
    search_logs(&[log.as_bytes()], &about(1, 1100, at_ms)).expect("read")
}

fn event(index: u64, kind: BlockRecordKind) -> BlockRecord {
    BlockRecord { shard: 1, lane: 0, epoch: 0, index, kind }
}

/// A line of the older version.
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

/// Numbers the lines of a node, from 1 at each of its starts.
fn counted(log: &str) -> String {
    let (mut sequence, mut counted) = (0, String::new());
    for line in log.split_inclusive('\n') {
        sequence = if line.contains("log-opened") { 1 } else { sequence + 1 };
        counted += &line.replace("\"sequence\":1}", &format!("\"sequence\":{sequence}}}"));
    }
    counted
}

/// A device that is always full, then a disk with room: every record is in the file or counted, and
/// the file states how many.
#[test]
fn a_full_disk_loses_only_counted_records() {
    const EVENTS: u64 = 100_000;
    let folder = Folder::new("full");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    symlink("/dev/full", &path).expect("linked");
    let (mut senders, log) = BlockLog::start(&path, N1, 1, clock.as_clock()).expect("started");
    wait_until("a write has failed", || log.counters().write_errors_total > 0);
    for number in 0..EVENTS {
        let block = block(1, 1, (number / 2 % 252) as u16);
        let kind = if number % 2 == 0 { Allocated(block) } else { Released(block) };
        senders[0].push(event(number + 1, kind), time(number));
    }
    let lost = log.counters().lost_total;
    assert!((1..EVENTS).contains(&lost), "{lost}");
    // A mark is due, but records wait: no mark may be written.
    clock.set(50_000);
    let errors = log.counters().write_errors_total;
    wait_until("it was tried again", || log.counters().write_errors_total > errors + 2);

    std::fs::remove_file(&path).expect("unlinked");
    log.reopen();
    let text = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("it is written again", || text().contains("log-mark"));
    // One more record, after the loss: the sequence continues behind the gap.
    assert!(senders[0].push(event(EVENTS + 1, Allocated(block(2, 2, 0))), time(EVENTS)));
    let counters = log.stop();
    assert_eq!(counters.lost_total, lost, "nothing is lost once the disk has room");

    let text = text();
    let last = text.lines().rev().nth(1).expect("lines");
    assert!(last.ends_with(&format!("\"sequence\":{}}}", 1 + EVENTS + 1 + 1)), "{last}");
    let blocks = |text: &str| text.matches("\"event\":\"block-").count() as u64;
    assert_eq!(blocks(&text), EVENTS + 1 - lost);
    let (before, _) = text.split_once("log-mark").expect("a mark");
    assert_eq!(blocks(before), EVENTS - lost);
    let answer = search_files(&[path], &about(2, 1024, EVENTS)).expect("read");
    assert_eq!((answer.records_lost, answer.lines_unreadable, answer.holders.len()), (lost, 0, 1));
}

#[test]
fn stopping_with_a_full_disk_ends_and_counts() {
    let folder = Folder::new("stop");
    let path = folder.file("blocks.jsonl");
    symlink("/dev/full", &path).expect("linked");
    let (mut senders, log) =
        BlockLog::start(&path, N1, 1, TestClock::default().as_clock()).expect("started");
    assert!(senders[0].push(event(1, Allocated(block(1, 1, 0))), time(0)));
    let counters = log.stop();
    assert_eq!((counters.written_total, counters.lost_total), (0, 2));
}

/// A pipe without a reader takes some records and then blocks its writer, as a stalled disk does.
#[test]
fn a_stalled_disk_is_detected_and_blocks_neither_workers_nor_the_end() {
    let folder = Folder::new("still");
    let path = folder.file("blocks.jsonl");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    let (mut senders, log) =
        BlockLog::start(&path, N1, 1, TestClock::default().as_clock()).expect("started");
    // More than a pipe holds; handing in never waits.
    for number in 0..10_000 {
        let block = block(1, 1, (number % 252) as u16);
        senders[0].push(event(number + 1, Allocated(block)), time(number));
    }
    wait_until("it is seen to stand still", || log.stalled() > Duration::from_secs(1));
    let written = log.counters().written_total;
    let counters = log.stop();
    assert_eq!(counters.written_total, written);
    assert!(counters.lost_total > 0, "{counters:?}");
}

/// A crash cuts the last line off and releases no block. The next start terminates that line and
/// ends all that was held.
#[test]
fn a_crash_ends_every_tenancy_at_the_next_start() {
    let folder = Folder::new("crash");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    let before = counted(&(opened(0) + &line(1000, "block-allocated", 1)));
    std::fs::write(&path, before + "{\"time\":\"1970-01").expect("written");
    clock.set(9000);
    let (mut senders, log) = BlockLog::start(&path, N1, 1, clock.as_clock()).expect("started");
    assert!(senders[0].push(event(1, Allocated(block(2, 1, 0))), time(10_000)));
    clock.set(12_000);
    log.stop();

    let ask = |ms| search_files(std::slice::from_ref(&path), &about(1, 1024, ms)).expect("read");
    let answer = ask(5000);
    assert_eq!((answer.verdict, answer.holders.len(), answer.lines_unreadable), (Held, 1, 1));
    assert_eq!(
        (answer.holders[0].end, answer.holders[0].until),
        (TenancyEnd::NodeRestarted, Some(time(9000)))
    );
    assert_eq!(ask(9500).verdict, Nobody);
    let now = ask(11_000);
    assert_eq!((now.verdict, homes(&now)), (Held, vec![2]));
    let holder = &now.holders[0];
    assert_eq!((holder.end, holder.until), (TenancyEnd::NodeStopped, Some(time(12_000))));
    let after = ask(13_000);
    assert_eq!((after.verdict, after.missing[0].reason), (CannotSay, Reason::EndOfLog));
}

/// The logs do not show what the node did between its last mark and its end.
#[test]
fn a_crash_leaves_a_doubt_behind_the_last_mark() {
    let folder = Folder::new("doubt");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    let (mut senders, log) = BlockLog::start(&path, N1, 1, clock.as_clock()).expect("started");
    assert!(senders[0].push(event(1, Allocated(block(1, 1, 0))), time(5000)));
    wait_until("it is written", || log.counters().written_total == 2);
    clock.set(20_000);
    wait_until("it is marked", || log.counters().written_total == 3);
    log.stop();
    let text = std::fs::read_to_string(&path).expect("written");
    let kept = text.split_inclusive('\n').filter(|line| !line.contains("log-closed"));
    std::fs::write(&path, kept.collect::<String>()).expect("written");
    clock.set(30_000);
    let again = weir_nat_log::NodeLife { boot: 9, ..N1 };
    let (mut senders, log) = BlockLog::start(&path, again, 1, clock.as_clock()).expect("started");
    assert!(senders[0].push(event(1, Allocated(block(2, 1, 0))), time(40_000)));
    clock.set(50_000);
    log.stop();

    let ask = |ms| {
        let answer = search_files(std::slice::from_ref(&path), &about(1, 1024, ms)).expect("read");
        (answer.verdict, homes(&answer))
    };
    assert_eq!(ask(15_000), (Held, vec![1]));
    assert_eq!(ask(25_000), (CannotSay, vec![1]));
    assert_eq!(ask(35_000), (Nobody, vec![]));
    assert_eq!(ask(45_000), (Held, vec![2]));
}

/// The logs of another system may end long before, or begin long after, and hide nothing.
#[test]
fn an_address_moved_between_nodes_is_found_on_both() {
    let of_n2 = |log: String| log.replace("\"n1\"", "\"n2\"");
    let first =
        counted(&(opened(0) + &line(1000, "block-allocated", 1) + &line(9000, "log-closed", 1)));
    let second = of_n2(counted(
        &(opened(20_000) + &line(30_000, "block-allocated", 2) + &line(40_000, "log-closed", 2)),
    ));
    let both = first.clone() + &second;
    assert_eq!((ask(&both, 5000).verdict, homes(&ask(&both, 5000))), (Held, vec![1]));
    assert_eq!((ask(&both, 35_000).verdict, homes(&ask(&both, 35_000))), (Held, vec![2]));
    for ms in [15_000, 25_000] {
        assert_eq!(ask(&both, ms).verdict, CannotSay, "the first one may have started again");
    }
    let [first_alone, second_alone] = [&first, &second].map(|log| ask(log, 25_000).verdict);
    assert_eq!((first_alone, second_alone), (CannotSay, Nobody));
    assert_eq!(ask(&first, 35_000).verdict, CannotSay);
}

#[test]
fn a_missing_release_leaves_a_doubt() {
    let log = opened(0)
        + &line(1000, "block-allocated", 1)
        + &line(5000, "block-allocated", 2)
        + &line(8000, "log-closed", 2);
    let log = counted(&log);
    let answer = ask(&log, 3000);
    assert_eq!((answer.verdict, homes(&answer)), (CannotSay, vec![1]));
    assert_eq!(
        (answer.holders[0].end, answer.missing[0].reason),
        (TenancyEnd::GivenToAnother, Reason::Contradiction)
    );
    assert_eq!((ask(&log, 6000).verdict, homes(&ask(&log, 6000))), (Held, vec![2]));
}

#[test]
fn a_missing_allocation_is_inferred_from_its_release() {
    let log = opened(0)
        + &line(1000, "block-allocated", 1)
        + &line(2000, "block-released", 1)
        + &line(5000, "block-released", 2)
        + &line(6000, "log-closed", 2);
    let log = counted(&log);
    assert_eq!(ask(&log, 500).verdict, Nobody);
    assert_eq!(ask(&log, 1500).holders[0].from, Some(time(1000)));
    assert_eq!(ask(&log, 3000).verdict, CannotSay);
    let answer = ask(&log, 5000);
    assert_eq!(
        (answer.holders[0].begin, answer.holders[0].until),
        (Begin::Unknown, Some(time(5000)))
    );
    assert_eq!(ask(&log, 5001).verdict, Nobody);
}

#[test]
fn a_log_of_the_older_version_given_twice_answers_as_if_given_once() {
    let first = opened(0)
        + &line(1000, "block-allocated", 1)
        + &line(5000, "block-released", 1)
        + &line(6000, "block-allocated", 2);
    let all = counted(&(first + &opened(9000) + &line(12_000, "block-allocated", 3)));
    // In two files, too.
    let middle = all[..all.find("block-released").expect("there")].rfind('\n').expect("a line");
    let (head, tail) = all.split_at(middle + 1);
    for twice in [all.repeat(2), [head, head, tail, tail].concat()] {
        for ms in (500..15_000).step_by(500) {
            assert_eq!(ask(&twice, ms), ask(&all, ms), "{ms}");
        }
    }
}

/// In a log of the older version, too, gaps in the numbers show missing records.
#[test]
fn a_gap_in_a_log_of_the_older_version_leaves_a_doubt() {
    let log = opened(0)
        + &line(1000, "block-allocated", 1)
        + &line(2000, "block-allocated", 3).replace("1024-1279", "1280-1535")
        + &line(5000, "block-released", 1)
        + &line(6000, "log-closed", 2);
    let log = counted(&log);
    assert_eq!((ask(&log, 3000).verdict, homes(&ask(&log, 3000))), (Held, vec![1]));
    let without: String =
        log.split_inclusive('\n').filter(|line| !line.contains("1280-1535")).collect();
    assert_eq!((ask(&without, 3000).verdict, homes(&ask(&without, 3000))), (CannotSay, vec![1]));
    assert_eq!(ask(&without, 500).verdict, Nobody);
    assert_eq!(ask(&without, 5500).verdict, Nobody);
}

#[test]
fn records_of_other_ports_and_nodes_do_not_affect_the_answer() {
    let log = opened(0)
        + &line(1000, "block-allocated", 1)
        + &line(3000, "block-allocated", 2).replace("1024-1279", "1280-1535");
    let log = counted(&log) + &opened(3500).replace("\"n1\"", "\"n2\"");
    let log = log + &line(4000, "log-closed", 1).replace("\"sequence\":1}", "\"sequence\":4}");
    assert_eq!((ask(&log, 3700).verdict, homes(&ask(&log, 3700))), (Held, vec![1]));
    let elsewhere = line(1000, "block-allocated", 1).replace("203.0.113.1", "203.0.113.2");
    let answer = ask(&elsewhere, 1000);
    assert_eq!((answer.verdict, answer.missing[0].reason), (CannotSay, Reason::NotNamed));
}

#[test]
fn junk_lines_are_counted_and_skipped() {
    let junk = format!("{}\n\0\0\0\n\n{{}}\n", "x".repeat(100_000));
    let records = opened(0) + &line(1000, "block-allocated", 1) + &line(2000, "log-closed", 1);
    let log = junk.clone() + &counted(&records) + &junk;
    let answer = ask(&log, 1500);
    assert_eq!((answer.verdict, answer.holders.len(), answer.lines_unreadable), (Held, 1, 6));
}

/// An invalid time makes a line unreadable, even if only a glance reads it.
#[test]
fn a_line_with_an_invalid_time_is_unreadable() {
    let elsewhere = |ms| line(ms, "block-allocated", 1).replace("203.0.113.1", "203.0.113.2");
    let good = elsewhere(1000) + &elsewhere(2000);
    let stamp = good.split('"').nth(3).expect("a time").to_owned();
    for (at, text) in [(5, "13"), (8, "32"), (11, "24"), (14, "60"), (17, "61"), (0, "!"), (0, "~")]
    {
        let mut wrong = stamp.clone();
        wrong.replace_range(at..at + text.len(), text);
        let answer = ask(&(good.clone() + &elsewhere(1000).replace(&stamp, &wrong)), 1500);
        assert_eq!(answer.lines_unreadable, 1, "{wrong}");
    }
}

#[test]
fn the_count_of_lost_records_saturates() {
    let lost = |count: u64| {
        let record = opened(1000).replace("log-opened", "records-lost");
        record.replacen("\"node\"", &format!("\"count\":{count},\"node\""), 1)
    };
    assert_eq!(ask(&(lost(3) + &lost(4)), 1500).records_lost, 7);
    assert_eq!(ask(&(lost(u64::MAX) + &lost(4)), 1500).records_lost, u64::MAX);
}
