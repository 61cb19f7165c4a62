//! The content of the file.

use std::os::unix::fs::PermissionsExt;

use weir_nat_log::BlockRecordKind::{Allocated, Held, Left, Listed, Released, Taken};
use weir_nat_log::{BlockLog, BlockRecord, NodeLife};

use crate::folder::{Folder, N1, TestClock, block, time, wait_until};

fn event(lane: u8, index: u64, kind: weir_nat_log::BlockRecordKind) -> BlockRecord {
    BlockRecord { shard: 1, lane, epoch: 17, index, kind }
}

#[test]
fn the_lines_of_two_workers_are_written_as_documented() {
    let folder = Folder::new("lines");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    clock.set(1_772_366_400_000);
    let life = NodeLife { is_clustered: true, ..N1 };
    let (mut senders, log) = BlockLog::start(&path, life, 2, clock.as_clock()).expect("started");
    let at = time(1_772_366_400_123);
    assert!(senders[0].push(event(3, 1, Taken { before: Some(12) }), at));
    let held = Held { block: block(3, 1, 5), since: Some(time(1_772_366_300_000)) };
    assert!(senders[0].push(event(3, 2, held), at));
    assert!(
        senders[0].push(event(3, 3, Listed { blocks: 1, from: 1, are_claims_by_lane: true }), at)
    );
    assert!(senders[0].push(event(3, 4, Allocated(block(1, 1, 0))), at));
    wait_until("the first are written", || log.counters().written_total == 5);
    let at = time(1_772_366_400_456);
    assert!(senders[1].push(event(7, 1, Released(block(2, 9, 251))), at));
    assert!(senders[1].push(event(7, 2, Left), at));
    clock.set(1_772_366_400_500);
    let counters = log.stop();
    assert_eq!(
        (counters.written_total, counters.lost_total, counters.write_errors_total),
        (8, 0, 0)
    );
    let expected = concat!(
        r#"{"time":"2026-03-01T12:00:00.000Z","event":"log-opened","clustered":true,BOOT,"sequence":1}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.123Z","event":"lane-taken","shard":1,"lane":3,"epoch":17,"index":1,"before":12,BOOT,"sequence":2}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.123Z","event":"block-held","shard":1,"lane":3,"epoch":17,"index":2,"subscriber":"10.200.0.3","public":"203.0.113.1","ports":"2304-2559","since":"2026-03-01T11:58:20.000Z",BOOT,"sequence":3}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.123Z","event":"lane-listed","shard":1,"lane":3,"epoch":17,"index":3,"blocks":1,"from":1,"claims_by_lane":true,BOOT,"sequence":4}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.123Z","event":"block-allocated","shard":1,"lane":3,"epoch":17,"index":4,"subscriber":"10.200.0.1","public":"203.0.113.1","ports":"1024-1279",BOOT,"sequence":5}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.456Z","event":"block-released","shard":1,"lane":7,"epoch":17,"index":1,"subscriber":"10.200.0.2","public":"203.0.113.9","ports":"65280-65535",BOOT,"sequence":6}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.456Z","event":"lane-left","shard":1,"lane":7,"epoch":17,"index":2,BOOT,"sequence":7}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.500Z","event":"log-closed",BOOT,"sequence":8}"#,
        "\n",
    );
    let expected =
        expected.replace("BOOT", r#""node":"n1","boot":"000000000000000000000000000000a1""#);
    assert_eq!(std::fs::read_to_string(&path).expect("written"), expected);
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o007, 0, "others cannot read who used which address");
}

#[test]
fn a_mark_is_written_every_ten_seconds() {
    let folder = Folder::new("marks");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    clock.set(1_000_000);
    let (mut senders, log) = BlockLog::start(&path, N1, 1, clock.as_clock()).expect("started");
    let written = |count| wait_until("it is written", || log.counters().written_total == count);
    written(1);
    clock.set(1_009_999);
    assert!(senders[0].push(event(0, 1, Allocated(block(1, 1, 0))), time(1_009_999)));
    written(2);
    // A busy log has marks, too: a record of one worker shows nothing about the others.
    clock.set(1_010_000);
    written(3);
    // A worker that has stamped a record hands it in a moment later.
    assert!(senders[0].push(event(0, 2, Released(block(1, 1, 0))), time(1_009_500)));
    written(4);
    // A clock that is set back does not suppress the marks.
    clock.set(1_008_000);
    written(5);
    log.stop();
    let text = std::fs::read_to_string(&path).expect("written");
    let marks: Vec<&str> = text.lines().filter(|line| line.contains("log-mark")).collect();
    assert_eq!(marks.len(), 2);
    assert!(marks[0].starts_with(r#"{"time":"1970-01-01T00:16:49.000Z""#), "{}", marks[0]);
    assert!(marks[1].starts_with(r#"{"time":"1970-01-01T00:16:47.000Z""#), "{}", marks[1]);
}

#[test]
fn a_start_names_the_incarnation_before_it() {
    let folder = Folder::new("lives");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    for boot in [1, 2] {
        drop(
            BlockLog::start(&path, NodeLife { boot, ..N1 }, 1, clock.as_clock()).expect("started"),
        );
    }
    let text = std::fs::read_to_string(&path).expect("written");
    let opened: Vec<&str> = text.lines().filter(|line| line.contains("log-opened")).collect();
    assert!(!opened[0].contains("boot_before"), "{}", opened[0]);
    assert!(
        opened[1].contains(r#""boot_before":"00000000000000000000000000000001""#),
        "{}",
        opened[1]
    );
}

#[test]
fn a_path_that_cannot_be_opened_is_named() {
    let folder = Folder::new("path");
    let path = folder.file("missing/blocks.jsonl");
    let error =
        BlockLog::start(&path, N1, 1, TestClock::default().as_clock()).expect_err("refused");
    assert!(error.to_string().contains("missing/blocks.jsonl"), "{error}");
}
