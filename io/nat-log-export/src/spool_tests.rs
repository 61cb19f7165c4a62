use std::net::Ipv4Addr;
use std::process::Command;

use super::*;
use crate::nat_event::{ExportedBlock, ExportedHome, NatEventKind, any_event};

fn event(index: u64) -> NatEvent {
    let home = ExportedHome { address: Ipv4Addr::LOCALHOST.into(), gre_key: None };
    let kind = NatEventKind::AddressesExhausted { home };
    NatEvent { time_ms: 1, node: 1, shard: 1, lane: 0, epoch: 0, index, kind }
}

fn events(indices: std::ops::Range<u64>) -> Vec<NatEvent> {
    indices.map(event).collect()
}

fn options(folder: &Path) -> SpoolOptions {
    SpoolOptions { folder: folder.join("spool"), megabytes_max: 1 }
}

fn open(folder: &Path) -> Spool {
    Spool::open(&options(folder)).unwrap()
}

fn read_all(spool: &mut Spool) -> Vec<(NatEvent, SpoolPosition)> {
    let mut out = Vec::new();
    while spool.has_unread() {
        assert!(spool.read(&mut out));
    }
    out
}

fn indices(read: &[(NatEvent, SpoolPosition)]) -> Vec<u64> {
    read.iter().map(|(event, _)| event.index).collect()
}

fn segment_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder.join("spool"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new(SUFFIX)))
        .collect();
    files.sort();
    files
}

/// The bytes of records as the version before IPv6 wrote them.
#[test]
fn records_of_an_older_version_are_read_and_those_of_a_newer_one_are_counted() {
    let hex = |text: &str| -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    };
    let old =
        hex("0000019ca9450a7b 00000001 00000003 05 01 00 01 0000000000000009 0000000000000102
        0ac80001 00000007 cb007101 0400 04ff 0000000000000000 0000000000000000");
    let mut newer = old.clone();
    newer[17] = 14;
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    assert_eq!(spool.append(&events(0..1)), (1, None));
    drop(spool);
    let mut bytes = header(0, RECORD_BYTES).to_vec();
    for record in [old, newer] {
        assert_eq!(record.len(), RECORD_BYTES - 4);
        bytes.extend(&record);
        bytes.extend(record::checksum(&record).to_be_bytes());
    }
    std::fs::write(&segment_files(folder.path())[0], bytes).unwrap();
    let mut spool = open(folder.path());
    let read = read_all(&mut spool);
    let home = ExportedHome { address: Ipv4Addr::new(10, 200, 0, 1).into(), gre_key: Some(7) };
    let public = Ipv4Addr::new(203, 0, 113, 1);
    let block = ExportedBlock { home, public, port_first: 1024, port_last: 1279 };
    let (time_ms, kind) = (1_772_366_400_123, NatEventKind::BlockAllocated(block));
    let expected = NatEvent { time_ms, node: 1, shard: 3, lane: 5, epoch: 9, index: 258, kind };
    assert_eq!(read.iter().map(|(event, _)| *event).collect::<Vec<_>>(), [expected]);
    assert_eq!(spool.take_unreadable(), 1);
}

#[test]
fn segments_have_longer_records_from_the_first_home_with_an_ipv6_address_on() {
    let over_ipv6 = |index| {
        let address = "2001:db8:e:102:304:506:708:90a".parse().unwrap();
        let home = ExportedHome { address, gre_key: Some(7) };
        NatEvent { kind: NatEventKind::AddressesExhausted { home }, ..event(index) }
    };
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let written = [event(0), event(1), over_ipv6(2), event(3)];
    assert_eq!(spool.append(&written[..2]), (2, None));
    assert_eq!(spool.append(&written[2..]), (2, None));
    drop(spool);
    let lengths = || -> Vec<u64> {
        let files = segment_files(folder.path());
        files.iter().map(|file| std::fs::metadata(file).unwrap().len()).collect()
    };
    assert_eq!(lengths(), [16 + 2 * 72, 16 + 2 * 84]);
    let mut spool = open(folder.path());
    let read = read_all(&mut spool);
    assert_eq!(read.iter().map(|(event, _)| *event).collect::<Vec<_>>(), written);
    spool.taken(read[2].1);
    spool.save_taken();
    drop(spool);
    let mut spool = open(folder.path());
    assert_eq!(indices(&read_all(&mut spool)), [3]);
    // Without such an event a segment is one of the versions before.
    assert_eq!(spool.append(&[event(4)]), (1, None));
    assert_eq!(lengths()[1..], [16 + 72]);
}

#[test]
fn events_come_back_in_order_and_segments_go_when_they_were_taken() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    assert_eq!(spool.append(&events(0..5000)), (5000, None));
    assert!(segment_files(folder.path()).len() > 4);
    let read = read_all(&mut spool);
    assert_eq!(indices(&read), (0..5000).collect::<Vec<_>>());
    assert_eq!(spool.records(), 5000);
    spool.taken(read[2499].1);
    assert_eq!(spool.records(), 2500);
    assert_eq!(segment_files(folder.path()).len(), spool.segments.len());
    spool.taken(read[4999].1);
    assert_eq!((spool.records(), spool.bytes()), (0, 0));
    assert!(segment_files(folder.path()).is_empty());
    // The spool works as if it were new.
    assert_eq!(spool.append(&events(5000..5001)), (1, None));
    assert_eq!(indices(&read_all(&mut spool)), [5000]);
}

#[test]
fn restart_continues_behind_the_last_record_taken() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    spool.append(&events(0..3000));
    let read = read_all(&mut spool);
    spool.taken(read[1233].1);
    spool.save_taken();
    drop(spool);
    let mut spool = open(folder.path());
    assert_eq!(spool.records(), 3000 - 1234);
    spool.append(&events(3000..3010));
    assert_eq!(indices(&read_all(&mut spool)), (1234..3010).collect::<Vec<_>>());
}

#[test]
fn a_full_spool_takes_what_fits_and_has_room_again_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let (count, refused) = spool.append(&events(0..20_000));
    assert_eq!(refused, Some(NotStored::Full));
    assert!((13_000..14_000).contains(&count), "{count}");
    assert!(spool.bytes() <= 1_000_000);
    assert_eq!(spool.append(&events(0..1)), (0, Some(NotStored::Full)));
    let bytes: u64 =
        segment_files(folder.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!(bytes, spool.bytes());
    let read = read_all(&mut spool);
    assert_eq!(indices(&read), (0..count as u64).collect::<Vec<_>>());
    spool.taken(read[count / 2].1);
    assert_eq!(spool.append(&events(0..100)), (100, None));
}

#[test]
fn events_that_memory_has_are_written_without_being_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let (mut written, mut positions) = (0, Vec::new());
    while written < 3000 {
        positions.extend(spool.append_as_read(&events(written..3000)).unwrap());
        written = positions.len() as u64;
    }
    assert!(positions.is_sorted() && !spool.has_unread());
    spool.append(&events(3000..3001));
    assert_eq!(indices(&read_all(&mut spool)), [3000]);
    spool.taken(positions[2999]);
    assert_eq!(spool.records(), 1);
    drop(spool);
    assert_eq!(indices(&read_all(&mut open(folder.path()))).last(), Some(&3000));
}

#[test]
fn a_folder_that_is_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("spool"), "").unwrap();
    let error = Spool::open(&options(folder.path())).unwrap_err().to_string();
    assert!(error.contains("/spool: ") && error.contains("give a folder"), "{error}");
}

#[test]
fn two_processes_do_not_share_a_spool() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    assert!(matches!(Spool::open(&options(folder.path())), Err(SpoolError::InUse(_))));
    drop(spool);
    open(folder.path());
}

#[test]
fn personal_data_is_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    spool.append(&events(0..1));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("spool")), 0o700);
    assert_eq!(mode(&segment_files(folder.path())[0]), 0o600);
}

#[test]
fn a_folder_that_vanishes_is_an_error_of_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    std::fs::remove_dir_all(folder.path().join("spool")).unwrap();
    assert_eq!(spool.append(&events(0..2)), (0, Some(NotStored::Disk)));
    assert!(spool.take_error().is_some());
    // For a moment the disk is not even tried.
    assert_eq!(spool.append(&events(0..2)), (0, Some(NotStored::Disk)));
    assert!(spool.take_error().is_none());
}

#[test]
fn segments_that_vanish_are_lost_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    spool.append(&events(0..3000));
    let files = segment_files(folder.path());
    std::fs::remove_file(&files[1]).unwrap();
    let read = read_all(&mut spool);
    let lost = spool.take_unreadable();
    assert!(lost > 0 && read.len() as u64 + lost == 3000);
    assert!(indices(&read).is_sorted());
    spool.taken(read.last().unwrap().1);
    assert_eq!(spool.records(), 0);
}

#[test]
fn damaged_records_are_passed_over_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    spool.append(&events(0..10));
    drop(spool);
    let file = &segment_files(folder.path())[0];
    let mut bytes = std::fs::read(file).unwrap();
    for record in [3, 9] {
        bytes[HEADER_BYTES + record * RECORD_BYTES + 30] ^= 0x10;
    }
    // A crash in the middle of a write leaves a part of a record.
    bytes.extend([1; 20]);
    std::fs::write(file, bytes).unwrap();
    let mut spool = open(folder.path());
    let read = read_all(&mut spool);
    assert_eq!(indices(&read), [0, 1, 2, 4, 5, 6, 7, 8]);
    assert_eq!(spool.take_unreadable(), 2);
    spool.taken(read[7].1);
    assert!(segment_files(folder.path()).is_empty());
}

/// Makes a segment of ten events, of which five were taken; returns its file.
fn half_taken(folder: &Path) -> PathBuf {
    let mut spool = open(folder);
    spool.append(&events(0..10));
    let read = read_all(&mut spool);
    spool.taken(read[4].1);
    spool.save_taken();
    segment_files(folder).remove(0)
}

#[test]
fn a_header_with_a_flipped_bit_makes_no_event_vanish() {
    let folder = tempfile::tempdir().unwrap();
    let file = half_taken(folder.path());
    let whole = std::fs::read(&file).unwrap();
    assert_eq!(indices(&read_all(&mut open(folder.path()))), [5, 6, 7, 8, 9]);
    for bit in 0..HEADER_BYTES * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, bytes).unwrap();
        let mut spool = open(folder.path());
        if bit / 8 < TAKEN_AT {
            assert_eq!((spool.records(), spool.take_unreadable()), (0, 10), "bit {bit}");
        } else {
            assert_eq!(indices(&read_all(&mut spool)), (0..10).collect::<Vec<_>>(), "bit {bit}");
        }
    }
}

#[test]
fn a_segment_cut_at_any_length_gives_its_whole_records() {
    let folder = tempfile::tempdir().unwrap();
    let file = half_taken(folder.path());
    let whole = std::fs::read(&file).unwrap();
    for length in 0..=whole.len() {
        std::fs::write(&file, &whole[..length]).unwrap();
        let records = length.saturating_sub(HEADER_BYTES) / RECORD_BYTES;
        // If a file is shorter than its header's number of records taken, that number is ignored.
        let first = if records < 5 { 0 } else { 5 };
        let mut spool = open(folder.path());
        assert_eq!(indices(&read_all(&mut spool)), (first..records as u64).collect::<Vec<_>>());
        assert_eq!(spool.take_unreadable(), 0, "{length} bytes");
    }
}

#[test]
fn a_disk_that_refuses_to_read_for_a_moment_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    spool.append(&events(0..10));
    let (file, away) = (segment_files(folder.path()).remove(0), folder.path().join("away"));
    std::fs::rename(&file, &away).unwrap();
    std::fs::create_dir(&file).unwrap();
    for _ in 0..2 {
        assert!(!spool.read(&mut Vec::new()) && spool.has_unread());
    }
    assert!(spool.take_error().is_some());
    // Writes continue meanwhile.
    assert_eq!(spool.append(&events(10..11)), (1, None));
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&away, &file).unwrap();
    // The pause after an error is not tested here.
    spool.read_failing = None;
    assert_eq!(indices(&read_all(&mut spool)), (0..11).collect::<Vec<_>>());
    assert_eq!(spool.take_unreadable(), 0);
}

#[test]
fn records_that_cannot_be_read_for_long_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    spool.append(&events(0..10));
    let file = segment_files(folder.path()).remove(0);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(!spool.read(&mut Vec::new()));
    let since = Instant::now().checked_sub(READ_PATIENCE).unwrap();
    spool.read_failing = Some((since, since));
    assert!(spool.read(&mut Vec::new()) && !spool.has_unread());
    assert_eq!((spool.take_unreadable(), spool.records()), (10, 0));
}

#[test]
fn a_file_in_the_way_stops_one_segment_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    std::fs::write(spool.path(spool.next_number), "").unwrap();
    assert_eq!(spool.append(&events(0..1)), (0, Some(NotStored::Disk)));
    // The pause after an error is not tested here.
    spool.failed_at = None;
    assert_eq!(spool.append(&events(0..1)), (1, None));
    assert_eq!(indices(&read_all(&mut spool)), [0]);
}

#[test]
fn files_of_another_version_are_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let spool = folder.path().join("spool");
    std::fs::write(spool.join("00000000000000000007.spool"), [b'x'; 100]).unwrap();
    std::fs::write(spool.join("notes.spool"), "not ours").unwrap();
    let mut opened = open(folder.path());
    assert!(!opened.has_unread());
    assert_eq!(opened.take_unreadable(), 1, "100 bytes have room for a header and one record");
    assert!(spool.join("00000000000000000007.unreadable").exists());
    assert!(spool.join("notes.spool").exists());
    opened.append(&events(0..1));
    assert!(spool.join("00000000000000000008.spool").exists());
}

#[test]
fn any_bytes_in_a_segment_are_read_or_refused() {
    bolero::check!().with_type::<(Vec<u8>, Option<bool>, [u8; 64])>().for_each(
        |(junk, is_ours, choices)| {
            let folder = tempfile::tempdir().unwrap();
            drop(open(folder.path()));
            let file = folder.path().join("spool/00000000000000000001.spool");
            let mut bytes = Vec::new();
            if let Some(is_long) = is_ours {
                let format = FORMATS[usize::from(*is_long)];
                bytes.extend(format.0);
            }
            bytes.extend(junk);
            record::write(&any_event(choices), LONG_RECORD_BYTES, &mut bytes);
            std::fs::write(&file, &bytes).unwrap();
            let mut spool = open(folder.path());
            let (records, set_aside) = (spool.records(), spool.take_unreadable());
            assert!(records == 0 || set_aside == 0);
            let read = read_all(&mut spool);
            assert_eq!(read.len() as u64 + spool.take_unreadable(), records);
            if let Some((_, position)) = read.last() {
                spool.taken(*position);
            }
            assert_eq!(spool.append(&[any_event(choices)]), (1, None));
            assert_eq!(read_all(&mut spool)[0].0, any_event(choices));
        },
    );
}

#[test]
fn any_events_come_back_over_restarts() {
    bolero::check!().with_type::<Vec<([u8; 64], u8)>>().for_each(|choices| {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = open(folder.path());
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for (choice, step) in choices {
            let event = any_event(choice);
            assert_eq!(spool.append(&[event]), (1, None));
            written.push(event);
            if step % 3 == 0 {
                read.extend(read_all(&mut spool));
                if let Some((_, position)) = read.last() {
                    spool.taken(*position);
                }
            }
            if step % 5 == 0 {
                read.extend(read_all(&mut spool));
                if let Some((_, position)) = read.last() {
                    spool.taken(*position);
                }
                spool.save_taken();
                drop(spool);
                spool = open(folder.path());
            }
        }
        read.extend(read_all(&mut spool));
        assert!(read.iter().map(|(event, _)| event).eq(&written));
    });
}

/// A limit on the size of files applies to a whole process: a child process gets it.
#[test]
fn a_file_that_cannot_grow_loses_only_what_was_refused() {
    let script =
        "trap '' XFSZ; ulimit -f 32; exec \"$0\" --ignored --exact spool::tests::under_a_limit";
    let itself = std::env::current_exe().unwrap();
    let output = Command::new("sh").arg("-c").arg(script).arg(itself).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by a_file_that_cannot_grow_loses_only_what_was_refused, with a limit"]
fn under_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let (mut accepted, mut refusals) = (Vec::new(), 0);
    for first in (0..2000).step_by(100) {
        let (count, refused) = spool.append(&events(first..first + 100));
        accepted.extend(first..first + count as u64);
        refusals += u64::from(refused == Some(NotStored::Disk));
        // The pause after an error is not tested here.
        spool.failed_at = None;
    }
    assert!(refusals > 0 && accepted.len() >= 200, "{refusals} refusals, {} taken", accepted.len());
    assert_eq!(indices(&read_all(&mut spool)), accepted);
    drop(spool);
    assert_eq!(indices(&read_all(&mut open(folder.path()))), accepted);
}
