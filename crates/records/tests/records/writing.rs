//! What stands in the file.

use std::os::unix::fs::PermissionsExt;

use weir_records::BlockEventKind::{Allocated, Released};
use weir_records::{BlockLog, rotated_files, where_was_in_files};

use crate::folder::{Folder, TestClock, block, time, wait_until};

#[test]
fn lines_of_two_workers() {
    let folder = Folder::new("lines");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    clock.set(1_772_366_400_000);
    let (mut senders, log) = BlockLog::start(&path, "n1", 2, clock.as_clock()).expect("started");
    assert!(senders[0].push(block(Allocated, 1, 1, 0), time(1_772_366_400_123)));
    wait_until("the first is written", || log.counters().written_total == 2);
    assert!(senders[1].push(block(Released, 2, 9, 251), time(1_772_366_400_456)));
    clock.set(1_772_366_400_500);
    let counters = log.stop();
    assert_eq!(
        (counters.written_total, counters.lost_total, counters.write_errors_total),
        (4, 0, 0)
    );
    let expected = concat!(
        r#"{"time":"2026-03-01T12:00:00.000Z","event":"log-opened","node":"n1","sequence":1}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.123Z","event":"block-allocated","shard":1,"subscriber":"10.200.0.1","public":"203.0.113.1","ports":"1024-1279","node":"n1","sequence":2}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.456Z","event":"block-released","shard":1,"subscriber":"10.200.0.2","public":"203.0.113.9","ports":"65280-65535","node":"n1","sequence":3}"#,
        "\n",
        r#"{"time":"2026-03-01T12:00:00.500Z","event":"log-closed","node":"n1","sequence":4}"#,
        "\n",
    );
    assert_eq!(std::fs::read_to_string(&path).expect("written"), expected);
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o007, 0, "others cannot read who used which address");
}

#[test]
fn a_rotation_loses_no_line_and_a_search_reads_across_it() {
    let folder = Folder::new("rotation");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    let (mut senders, log) = BlockLog::start(&path, "n1", 1, clock.as_clock()).expect("started");
    assert!(senders[0].push(block(Allocated, 1, 1, 0), time(1000)));
    wait_until("it is written", || log.counters().written_total == 2);
    std::fs::rename(&path, folder.file("blocks.jsonl.1")).expect("rotated");
    log.reopen();
    wait_until("the new file is there", || path.exists());
    assert!(senders[0].push(block(Released, 1, 1, 0), time(5000)));
    drop(log);

    std::fs::write(folder.file("blocks.jsonl.2.gz"), b"").expect("written");
    std::fs::write(folder.file("blocks.jsonlx"), b"").expect("written");
    let files = rotated_files(&path).expect("listed");
    assert_eq!((files.plain.len(), files.compressed.len()), (2, 1));
    let answer =
        where_was_in_files(&files.plain, [203, 0, 113, 1].into(), 1100, time(3000)).expect("read");
    assert_eq!(answer.holders.len(), 1);
    assert_eq!(
        (answer.holders[0].from, answer.holders[0].until),
        (Some(time(1000)), Some(time(5000)))
    );
    assert_eq!(answer.covered, Some((time(0), time(5000))));
}

#[test]
fn a_path_that_cannot_be_opened_is_named() {
    let folder = Folder::new("path");
    let path = folder.file("missing/blocks.jsonl");
    let error =
        BlockLog::start(&path, "n1", 1, TestClock::default().as_clock()).expect_err("refused");
    assert!(error.to_string().contains("missing/blocks.jsonl"), "{error}");
    assert!(where_was_in_files(&[path], [1, 1, 1, 1].into(), 1, time(0)).is_err());
}
