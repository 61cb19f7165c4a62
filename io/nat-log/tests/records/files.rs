//! Searches over files: rotated, compressed, of several nodes, in any order.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use weir_nat_log::LogVerdict::{CannotSay, Held, Nobody};
use weir_nat_log::{
    About, BlockLog, BlockRecord, BlockRecordKind, LogAnswer, rotated_files, search_files,
};

use crate::folder::{Folder, N1, TestClock, block, time, wait_until};
use crate::node_log::{LaneBlock, NodeLog, PUBLIC, homes, question};

const HOUR: u64 = 3_600_000;
const AT: LaneBlock = LaneBlock { lane: 0, epoch: 3, block: 0 };

fn ask(files: &[PathBuf], at_ms: u64) -> LogAnswer {
    let about = About::Port(PUBLIC.into(), AT.port());
    search_files(files, &question(about, at_ms, at_ms)).expect("read")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn write(folder: &Folder, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.file(name);
    std::fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn a_rotation_loses_no_line_and_a_search_reads_across_it() {
    let folder = Folder::new("rotation");
    let (path, clock) = (folder.file("blocks.jsonl"), TestClock::default());
    let (mut senders, log) = BlockLog::start(&path, N1, 1, clock.as_clock()).expect("started");
    let event = |index, kind| BlockRecord { shard: 1, lane: 0, epoch: 0, index, kind };
    let allocated = BlockRecordKind::Allocated(block(1, 1, 0));
    assert!(senders[0].push(event(1, allocated), time(1000)));
    wait_until("it is written", || log.counters().written_total == 2);
    std::fs::rename(&path, folder.file("blocks.jsonl.1")).expect("rotated");
    log.reopen();
    wait_until("the new file is there", || path.exists());
    assert!(senders[0].push(event(2, BlockRecordKind::Released(block(1, 1, 0))), time(5000)));
    clock.set(6000);
    drop(log);

    std::fs::write(folder.file("blocks.jsonl.2.xz"), b"").expect("written");
    std::fs::write(folder.file("blocks.jsonlx"), b"").expect("written");
    let files = rotated_files(&path).expect("listed");
    assert_eq!((files.readable.len(), files.unreadable.len()), (2, 1));
    let answer = ask(&files.readable, 3000);
    assert_eq!((answer.verdict, homes(&answer)), (Held, vec![1]));
    let holder = &answer.holders[0];
    assert_eq!((holder.from, holder.until), (Some(time(1000)), Some(time(5000))));
    // The release alone shows which home had it, not since when.
    let answer = ask(&[path], 4500);
    assert_eq!((answer.verdict, homes(&answer)), (CannotSay, vec![1]));
}

/// A day of a member, one file an hour: the home has its block from 2 h to 20 h, with an hourly
/// listing and a mark every ten minutes.
fn day() -> Vec<Vec<u8>> {
    let mut node = NodeLog::new("n1", 0);
    let mut files = Vec::new();
    for hour in 0..24 {
        let now = hour * HOUR;
        match hour {
            0 => {
                node.opened(now, true);
                node.taken(now, 0, 3, None);
                node.listed(now, 0, 3, 1);
            }
            2 => node.allocated(now, AT, 7),
            20 => node.released(now, AT, 7),
            _ => {}
        }
        let from = node.index(0, 3);
        if (2..20).contains(&hour) {
            node.held(now + 1000, AT, 7, None);
        }
        node.listed(now + 1000, 0, 3, from);
        (0..6).for_each(|ten| node.mark(now + ten * HOUR / 6 + 2000));
        files.push(std::mem::take(&mut node.lines).concat().into_bytes());
    }
    files
}

#[test]
fn compressed_files_are_searched_in_any_order() {
    let folder = Folder::new("compressed");
    let mut files: Vec<PathBuf> = day()
        .iter()
        .enumerate()
        .map(|(hour, text)| match hour % 4 {
            0 => write(&folder, &format!("{hour}.gz"), &gzip(text)),
            1 => write(&folder, &format!("{hour}.zst"), &zstd(text)),
            2 => {
                // Concatenated pieces, as appending with `zstd` and `gzip` makes them.
                let (head, tail) = text.split_at(text.len() / 2);
                let pack = if hour % 8 == 2 { gzip } else { zstd };
                write(&folder, &format!("{hour}.some"), &[pack(head), pack(tail)].concat())
            }
            _ => write(&folder, &format!("{hour}.jsonl"), text),
        })
        .collect();
    files.reverse();
    files.swap(3, 17);
    assert_eq!(ask(&files, HOUR).verdict, Nobody);
    let answer = ask(&files, 9 * HOUR);
    assert_eq!((answer.verdict, homes(&answer)), (Held, vec![7]));
    assert_eq!(answer.holders[0].from, Some(time(2 * HOUR)));
    assert_eq!(answer.holders[0].until, Some(time(20 * HOUR)));
    assert_eq!(ask(&files, 21 * HOUR).verdict, Nobody);
    // One file is missing: its hour is not covered, since the listing does not state since when.
    let at_ten = files.iter().position(|path| path.ends_with("10.some")).expect("there");
    files.remove(at_ten);
    assert_eq!(ask(&files, 10 * HOUR + HOUR / 2).verdict, CannotSay);
    assert_eq!(ask(&files, 12 * HOUR).verdict, Held);
}

#[test]
fn files_far_from_the_time_are_read_only_if_they_can_add_facts() {
    let folder = Folder::new("skipped");
    let files: Vec<PathBuf> = day()
        .iter()
        .enumerate()
        .map(|(hour, text)| write(&folder, &format!("{hour}.jsonl"), text))
        .collect();
    // The block is free at 1 h and 22 h: the files around show it.
    assert_eq!((ask(&files, HOUR).verdict, ask(&files, 22 * HOUR).verdict), (Nobody, Nobody));
    assert!(ask(&files, 22 * HOUR).files_skipped >= 18);
    // Only the file of 2 h shows since when it is held at 12 h, so all files are read.
    let answer = ask(&files, 12 * HOUR);
    assert_eq!((answer.verdict, answer.files_skipped), (Held, 0));
    assert_eq!(answer.holders[0].from, Some(time(2 * HOUR)));
    // At 3 h the beginning is near, and the end does not matter.
    let answer = ask(&files, 3 * HOUR);
    assert_eq!((answer.verdict, homes(&answer)), (Held, vec![7]));
    assert!(answer.files_skipped > 10);
    assert_eq!(answer.holders[0].until, None);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = Folder::new("unreadable");
    let missing = folder.file("missing.jsonl");
    let torn = {
        let packed = gzip(&day().concat());
        write(&folder, "torn.gz", &packed[..packed.len() / 2])
    };
    let torn_zstd = {
        let packed = zstd(&day().concat());
        write(&folder, "torn.zst", &packed[..packed.len() / 2])
    };
    let wrong_zstd = {
        let mut packed = zstd(&day().concat());
        *packed.last_mut().expect("a checksum") ^= 1;
        write(&folder, "wrong.zst", &packed)
    };
    for path in [missing.as_path(), &torn, &torn_zstd, &wrong_zstd, Path::new("/")] {
        let about = About::Port(PUBLIC.into(), AT.port());
        let error = search_files(&[path.to_owned()], &question(about, 0, 0)).expect_err("named");
        assert_eq!(error.path, path);
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    let empty = write(&folder, "empty", b"");
    assert_eq!(ask(&[empty], HOUR).verdict, CannotSay);
}
