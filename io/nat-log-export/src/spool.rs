//! Events on disk while the collector is away or slow.
//!
//! ```text
//!   append --> [segment 7 ][segment 8 ][segment 9 ..   each: 16 bytes of header, then records of 72 bytes
//!                    |taken      |read       |written
//! ```
//!
//! - A segment is written once, from its beginning on, and removed when the collector has taken all of it. How far it
//!   has taken the first one stands in that one's header, which is written twice a second: after a crash the events that
//!   it took since come again.
//! - After a start the segments that are there are read first, by number; new events go to new ones.
//! - A write that fails leaves the records that were there before; those of the failed write are cut off.
//! - Nothing that the files contain makes this panic, and no damage passes for data: records with a wrong checksum are
//!   passed over and counted, a header with one says nothing, so all of its segment comes again.
//!
//! Written bytes are in the hands of the kernel: a restart of the process loses none of them, a machine without power
//! those of the last seconds.
//!
//! A header is a magic number of 8 bytes, 4 bytes of records taken, big-endian, and the CRC-32 of both.

mod record;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::nat_event::NatEvent;
use record::RECORD_BYTES;

/// Contains the format's number.
const MAGIC: &[u8; 8] = b"weirnat1";
const HEADER_BYTES: usize = 16;
const TAKEN_AT: usize = 8;
const HEADER_SUM_AT: usize = 12;
const SUFFIX: &str = "spool";
const UNREADABLE: &str = "unreadable";
/// A record of the users of an address is personal data.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
const SEGMENT_BYTES_MAX: u64 = 4 << 20;
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// A spool has room for about this many segments.
const SEGMENTS: u64 = 16;
/// A disk that has failed is not tried again before.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Records that cannot be read are given up after this time. The events behind them wait so long.
const READ_PATIENCE: Duration = Duration::from_secs(60);
/// Records read at once.
const READ_RECORDS: u64 = 512;

/// Where the spool is and how large it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// Of this collector alone; made if it is not there.
    pub folder: PathBuf,
    pub megabytes_max: u64,
}

/// Why the spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error(
        "the spool {}: {source}: give a folder that this process may make and write",
        folder.display()
    )]
    Folder { folder: PathBuf, source: io::Error },
    #[error(
        "the spool {} is in use by another process or collector: give each a folder of its own",
        .0.display()
    )]
    InUse(PathBuf),
}

/// Why an event was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Disk,
}

/// A record's place: it and all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    segment: u64,
    /// Records of the segment up to and including it.
    records: u64,
}

#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    bytes_max: u64,
    segment_bytes: u64,
    /// By number.
    segments: VecDeque<Segment>,
    /// Bytes of all segments.
    bytes: u64,
    next_number: u64,
    /// The last segment, if it was begun by this process.
    writer: Option<File>,
    /// The file being read, by the number of its segment.
    reader: Option<(u64, File)>,
    /// The last failure of a write.
    failed_at: Option<Instant>,
    /// Reads fail since then, and the last one at that time.
    read_failing: Option<(Instant, Instant)>,
    last_error: Option<io::Error>,
    /// Of records that could not be read.
    unreadable: u64,
    buffer: Vec<u8>,
    _lock: Flock<File>,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    /// Written in full.
    records: u64,
    /// Handed out, or passed over as unreadable.
    read: u64,
    taken: u64,
    taken_saved: u64,
    /// Unreadable records behind the last one that was handed out.
    unreadable_tail: u64,
}

impl Segment {
    fn is_over(&self) -> bool {
        self.read == self.records && self.taken + self.unreadable_tail >= self.records
    }

    fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.records * RECORD_BYTES as u64
    }
}

impl Spool {
    /// Makes the folder if it is not there, and looks what a former process has left in it.
    ///
    /// # Errors
    /// When the folder cannot be used, or is used by another.
    pub(crate) fn open(options: &SpoolOptions) -> Result<Self, SpoolError> {
        let folder = options.folder.clone();
        let failed = |source| SpoolError::Folder { folder: folder.clone(), source };
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&folder).map_err(failed)?;
        let mut lock = OpenOptions::new();
        lock.write(true).create(true).truncate(false).mode(FILE_MODE);
        let lock = lock.open(folder.join("lock")).map_err(failed)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
            if error == Errno::EWOULDBLOCK {
                SpoolError::InUse(folder.clone())
            } else {
                failed(error.into())
            }
        })?;
        let bytes_max = options.megabytes_max.saturating_mul(1_000_000);
        let mut spool = Self {
            folder: folder.clone(),
            bytes_max,
            segment_bytes: (bytes_max / SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
            segments: VecDeque::new(),
            bytes: 0,
            next_number: 1,
            writer: None,
            reader: None,
            failed_at: None,
            read_failing: None,
            last_error: None,
            unreadable: 0,
            buffer: Vec::new(),
            _lock: lock,
        };
        for number in numbers(&folder).map_err(failed)? {
            spool.next_number = number.saturating_add(1);
            spool.recover(number);
        }
        Ok(spool)
    }

    /// Takes up a segment of a former process. A file that is none is set aside, and its records count as unreadable.
    fn recover(&mut self, number: u64) {
        let path = self.path(number);
        let found = Found::at(&path);
        match &found {
            Ok(Found { records, taken: Some(taken) }) if taken < records => {
                let segment = Segment {
                    number,
                    records: *records,
                    read: *taken,
                    taken: *taken,
                    taken_saved: *taken,
                    unreadable_tail: 0,
                };
                self.bytes += segment.bytes();
                self.segments.push_back(segment);
            }
            Ok(Found { taken: Some(_), .. }) => remove(&path),
            Ok(Found { taken: None, .. }) | Err(_) => {
                let records = found.as_ref().map_or(0, |found| found.records);
                self.unreadable += records;
                let to = path.with_extension(UNREADABLE);
                let (path, error) = (to.display(), found.err());
                tracing::warn!(event = "export-spool-unreadable", %path, records, ?error, "no segment of this version: set aside");
                if let Err(error) = std::fs::rename(self.path(number), &to) {
                    self.failed(error);
                }
            }
        }
    }

    /// Whether there are records that [`read`](Self::read) has not handed out.
    pub(crate) fn has_unread(&self) -> bool {
        self.segments.iter().any(|segment| segment.read < segment.records)
    }

    /// Records that the collector has not taken.
    pub(crate) fn records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.records.saturating_sub(segment.taken)).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records lost since the last call because they could not be read.
    pub(crate) fn take_unreadable(&mut self) -> u64 {
        std::mem::take(&mut self.unreadable)
    }

    /// The last error of the disk, once.
    pub(crate) fn take_error(&mut self) -> Option<io::Error> {
        self.last_error.take()
    }

    /// Writes events, as many as there is room for. Gives how many, and why not the others.
    pub(crate) fn append(&mut self, events: &[NatEvent]) -> (usize, Option<Refused>) {
        self.append_in(events, false)
    }

    fn append_in(&mut self, events: &[NatEvent], is_one_segment: bool) -> (usize, Option<Refused>) {
        if self.failed_at.is_some_and(|at| at.elapsed() < RETRY_PAUSE) {
            return (0, Some(Refused::Disk));
        }
        self.failed_at = None;
        let mut done = 0;
        while done < events.len() && !(is_one_segment && done > 0) {
            match self.append_to_segment(&events[done..]) {
                Ok(0) => return (done, Some(Refused::Full)),
                Ok(count) => done += count,
                Err(error) => {
                    self.failed(error);
                    return (done, Some(Refused::Disk));
                }
            }
        }
        (done, None)
    }

    /// Writes events that the caller has at hand, as many as fit one segment: they count as read. Gives their
    /// positions. There must be an event, and nothing may be unread.
    pub(crate) fn append_as_read(
        &mut self,
        events: &[NatEvent],
    ) -> Result<impl Iterator<Item = Position> + use<>, Refused> {
        debug_assert!(!self.has_unread(), "unread events come first");
        let (count, refused) = self.append_in(events, true);
        let Some(segment) = self.segments.back_mut().filter(|_| count > 0) else {
            return Err(refused.unwrap_or(Refused::Full));
        };
        segment.read = segment.records;
        segment.unreadable_tail = 0;
        let (number, first) = (segment.number, segment.records - count as u64);
        Ok((first + 1..=segment.records).map(move |records| Position { segment: number, records }))
    }

    /// Writes the events that fit the last segment, after having begun a new one if need be. 0: the spool is full.
    fn append_to_segment(&mut self, events: &[NatEvent]) -> io::Result<usize> {
        let record = RECORD_BYTES as u64;
        let is_room = |segment: &Segment| segment.bytes() + record <= self.segment_bytes;
        if self.writer.is_none() || !self.segments.back().is_some_and(is_room) {
            if self.bytes + HEADER_BYTES as u64 + record > self.bytes_max {
                return Ok(0);
            }
            self.begin_segment()?;
        }
        let (Some(file), Some(segment)) = (&self.writer, self.segments.back_mut()) else {
            return Ok(0);
        };
        let room = (self.segment_bytes - segment.bytes())
            .min(self.bytes_max.saturating_sub(self.bytes))
            / record;
        let count = events.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.buffer.clear();
        for event in &events[..count] {
            self.buffer.extend_from_slice(&record::write(event));
        }
        let end = segment.bytes();
        if let Err(error) = file.write_all_at(&self.buffer, end) {
            // Where the disk refuses this too, a restart may find whole records of it: then they come twice.
            let _ = file.set_len(end);
            self.give_up_segment();
            return Err(error);
        }
        segment.records += count as u64;
        self.bytes += self.buffer.len() as u64;
        Ok(count)
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let number = self.next_number;
        let path = self.path(number);
        // A number is used once, also if its file can be neither written nor removed.
        self.next_number = number.saturating_add(1);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        let file = options.open(&path)?;
        if let Err(error) = file.write_all_at(&header(0), 0) {
            remove(&path);
            return Err(error);
        }
        self.bytes += HEADER_BYTES as u64;
        self.writer = Some(file);
        let (records, read, taken) = (0, 0, 0);
        self.segments.push_back(Segment {
            number,
            records,
            read,
            taken,
            taken_saved: 0,
            unreadable_tail: 0,
        });
        Ok(())
    }

    /// The next events go to another file. An empty one is of no use.
    fn give_up_segment(&mut self) {
        self.writer = None;
        if self.segments.back().is_some_and(|segment| segment.records == 0) {
            if let Some(segment) = self.segments.pop_back() {
                self.bytes -= segment.bytes();
                remove(&self.path(segment.number));
            }
        }
    }

    /// Hands out the next records, some hundred at most. Gives whether it went on: not while the disk refuses to read.
    pub(crate) fn read(&mut self, out: &mut Vec<(NatEvent, Position)>) -> bool {
        let unread = self.segments.iter().position(|segment| segment.read < segment.records);
        let Some(place) = unread else { return false };
        if self.read_failing.is_some_and(|(_, last)| last.elapsed() < RETRY_PAUSE) {
            return false;
        }
        let count = (self.segments[place].records - self.segments[place].read).min(READ_RECORDS);
        if let Err(error) = self.fill_buffer(place, count) {
            return self.cannot_read(place, error);
        }
        self.read_failing = None;
        let segment = &mut self.segments[place];
        for bytes in self.buffer.chunks_exact(RECORD_BYTES) {
            segment.read += 1;
            let record = bytes.try_into().expect("a chunk has the size of a record");
            match record::read(record) {
                Some(event) => {
                    segment.unreadable_tail = 0;
                    out.push((event, Position { segment: segment.number, records: segment.read }));
                }
                None => {
                    segment.unreadable_tail += 1;
                    self.unreadable += 1;
                }
            }
        }
        self.remove_over();
        true
    }

    /// A disk may fail for a moment. Records that are gone, or that cannot be read for long, are given up: the collector
    /// gets the events behind them. Gives whether it is so.
    fn cannot_read(&mut self, place: usize, error: io::Error) -> bool {
        let is_gone =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof);
        let now = Instant::now();
        let since = self.read_failing.map_or(now, |(since, _)| since);
        self.reader = None;
        self.last_error = Some(error);
        if !is_gone && now - since < READ_PATIENCE {
            self.read_failing = Some((since, now));
            return false;
        }
        self.read_failing = None;
        let segment = &mut self.segments[place];
        let rest = segment.records - segment.read;
        segment.read = segment.records;
        segment.unreadable_tail += rest;
        self.unreadable += rest;
        self.remove_over();
        true
    }

    fn fill_buffer(&mut self, place: usize, count: u64) -> io::Result<()> {
        let segment = &self.segments[place];
        let at = HEADER_BYTES as u64 + segment.read * RECORD_BYTES as u64;
        if self.reader.as_ref().is_none_or(|(number, _)| *number != segment.number) {
            self.reader = Some((segment.number, File::open(self.path(segment.number))?));
        }
        self.buffer.resize(count as usize * RECORD_BYTES, 0);
        match &self.reader {
            Some((_, file)) => file.read_exact_at(&mut self.buffer, at),
            None => Ok(()),
        }
    }

    /// The collector has taken the record and all before it.
    pub(crate) fn taken(&mut self, position: Position) {
        for segment in &mut self.segments {
            if segment.number < position.segment {
                segment.taken = segment.records;
            } else if segment.number == position.segment {
                segment.taken = segment.taken.max(position.records.min(segment.records));
            }
        }
        self.remove_over();
    }

    /// Removes the first segments that are over.
    fn remove_over(&mut self) {
        while self.segments.front().is_some_and(Segment::is_over) {
            let Some(segment) = self.segments.pop_front() else { return };
            self.bytes -= segment.bytes();
            // An open file would keep its room on the disk.
            self.reader.take_if(|(number, _)| *number == segment.number);
            remove(&self.path(segment.number));
            if self.segments.is_empty() {
                self.writer = None;
            }
        }
    }

    /// Writes down how far the collector has taken the first segment.
    pub(crate) fn save_taken(&mut self) {
        let Some(segment) = self.segments.front_mut() else { return };
        if segment.taken == segment.taken_saved {
            return;
        }
        segment.taken_saved = segment.taken;
        let (number, taken) = (segment.number, segment.taken);
        let file = OpenOptions::new().write(true).open(self.path(number));
        let bytes = &header(taken)[TAKEN_AT..];
        let result = file.and_then(|file| file.write_all_at(bytes, TAKEN_AT as u64));
        if let Err(error) = result {
            self.last_error = Some(error);
        }
    }

    fn failed(&mut self, error: io::Error) {
        self.failed_at = Some(Instant::now());
        self.last_error = Some(error);
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:020}.{SUFFIX}"))
    }
}

/// The numbers of the segments in a folder, in order.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() != Some(OsStr::new(SUFFIX)) {
            continue;
        }
        // Only the form that `path` writes, so that no other file is touched.
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        if stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit()) {
            numbers.extend(stem.parse::<u64>());
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The header of a segment of which so many records were taken, or more.
fn header(taken: u64) -> [u8; HEADER_BYTES] {
    let taken = u32::try_from(taken).unwrap_or(u32::MAX);
    let mut header = [0; HEADER_BYTES];
    header[..TAKEN_AT].copy_from_slice(MAGIC);
    header[TAKEN_AT..HEADER_SUM_AT].copy_from_slice(&taken.to_be_bytes());
    let sum = record::checksum(&header[..HEADER_SUM_AT]);
    header[HEADER_SUM_AT..].copy_from_slice(&sum.to_be_bytes());
    header
}

/// A file of a former process.
struct Found {
    /// Those that are whole.
    records: u64,
    /// `None` if the file is no segment of this version.
    taken: Option<u64>,
}

impl Found {
    fn at(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let Some(bytes) = bytes.checked_sub(HEADER_BYTES as u64) else {
            // The process ended before it had written the header: there was no record.
            return Ok(Self { records: 0, taken: Some(0) });
        };
        let records = bytes / RECORD_BYTES as u64;
        let mut found = [0; HEADER_BYTES];
        file.read_exact_at(&mut found, 0)?;
        if !found.starts_with(MAGIC) {
            return Ok(Self { records, taken: None });
        }
        let taken = u32::from_be_bytes(found[TAKEN_AT..HEADER_SUM_AT].try_into().expect("4 bytes"));
        let taken = u64::from(taken);
        // A number that cannot be right is worth nothing: all comes again.
        let is_right = taken <= records && header(taken) == found;
        Ok(Self { records, taken: Some(if is_right { taken } else { 0 }) })
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        let path = path.display();
        tracing::warn!(event = "export-spool-not-removed", %path, %error, "a segment that was sent stays: it will be sent again after a restart");
    }
}

#[cfg(test)]
#[path = "spool_tests.rs"]
mod tests;
