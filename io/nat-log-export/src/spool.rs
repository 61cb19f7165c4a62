//! Events on disk while the collector is away or slow.
//!
//! ```text
//!   append --> [segment 7 ][segment 8 ][segment 9 ..   each: 16 bytes of header, then records
//!                    |taken      |read       |written        of 72 bytes, or of 84
//! ```
//!
//! - A segment is written once, from its beginning on, and removed when the collector has taken all
//!   of it. The number of records taken of the first segment is in its header, which is written
//!   twice a second: after a crash the events taken since then are sent again.
//! - After a start the existing segments are read first, by number; new events go to new segments.
//! - A write that fails leaves the records that were there before; those of the failed write are
//!   cut off.
//! - Nothing that the files contain makes this code panic, and damaged data is never used: records
//!   with a wrong checksum are skipped and counted; a header with a wrong checksum is ignored, so
//!   all of its segment is sent again.
//!
//! Written bytes are in the kernel's page cache: a restart of the process loses none of them, a
//! power failure those of the last seconds.
//!
//! Records of homes with an IPv6 address are longer. From the first such event on new segments have
//! longer records, with a magic number of their own: a version that does not know them sets these
//! segments aside, and a spool without such homes is one of earlier versions.
//!
//! A header is a magic number of 8 bytes, 4 bytes of records taken, big-endian, and the CRC-32 of
//! both.

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
use record::{LONG_RECORD_BYTES, RECORD_BYTES};

/// Magic numbers, which contain the format's version, and the bytes of the records of each.
const FORMATS: [(&[u8; 8], usize); 2] =
    [(b"weirnat1", RECORD_BYTES), (b"weirnat2", LONG_RECORD_BYTES)];
const HEADER_BYTES: usize = 16;
const TAKEN_AT: usize = 8;
const HEADER_SUM_AT: usize = 12;
const SUFFIX: &str = "spool";
const UNREADABLE: &str = "unreadable";
/// Records of the users of an address are personal data.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
const SEGMENT_BYTES_MAX: u64 = 4 << 20;
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Approximate number of segments that a spool has room for.
const SEGMENTS: u64 = 16;
/// Pause before a disk that has failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Time after which unreadable records are given up. The events behind them wait until then.
const READ_PATIENCE: Duration = Duration::from_secs(60);
/// Largest number of records read at once.
const READ_RECORDS: u64 = 512;

/// Path and largest size of a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// Folder of this collector alone; made if it does not exist.
    pub folder: PathBuf,
    pub megabytes_max: u64,
}

/// Reasons why the spool cannot be used.
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

/// Reasons why an event was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotStored {
    Full,
    Disk,
}

/// Position of a record; it stands for the record and all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpoolPosition {
    segment: u64,
    /// Number of records of the segment up to and including this one.
    records: u64,
}

#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    bytes_max: u64,
    segment_bytes: u64,
    /// Bytes of the records in the segments that begin.
    record_bytes: usize,
    /// Sorted by number.
    segments: VecDeque<SpoolSegment>,
    /// Bytes of all segments.
    bytes: u64,
    next_number: u64,
    /// File of the last segment, if this process began it.
    writer: Option<File>,
    /// The file being read, with the number of its segment.
    reader: Option<(u64, File)>,
    /// Time of the last failed write.
    failed_at: Option<Instant>,
    /// Times since which reads have been failing, and of the last failed read.
    read_failing: Option<(Instant, Instant)>,
    last_error: Option<io::Error>,
    /// Number of records that could not be read.
    unreadable: u64,
    buffer: Vec<u8>,
    _lock: Flock<File>,
}

#[derive(Debug)]
struct SpoolSegment {
    number: u64,
    /// Bytes of a record.
    record_bytes: usize,
    /// Number of records written in full.
    records: u64,
    /// Number of records handed out, or skipped as unreadable.
    read: u64,
    taken: u64,
    taken_saved: u64,
    /// Number of unreadable records behind the last one that was handed out.
    unreadable_tail: u64,
}

impl SpoolSegment {
    fn is_over(&self) -> bool {
        self.read == self.records && self.taken + self.unreadable_tail >= self.records
    }

    fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.records * self.record_bytes as u64
    }
}

impl Spool {
    /// Makes the folder if it does not exist, and recovers the segments that a former process left
    /// in it.
    ///
    /// # Errors
    /// If the folder cannot be used, or is in use by another process or collector.
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
            record_bytes: RECORD_BYTES,
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

    /// Recovers a segment of a former process. A file that is no segment is set aside, and its
    /// records count as unreadable.
    fn recover(&mut self, number: u64) {
        let path = self.path(number);
        let found = FoundSegment::at(&path);
        match &found {
            Ok(FoundSegment { records, taken: Some(taken), record_bytes }) if taken < records => {
                let segment = SpoolSegment {
                    number,
                    record_bytes: *record_bytes,
                    records: *records,
                    read: *taken,
                    taken: *taken,
                    taken_saved: *taken,
                    unreadable_tail: 0,
                };
                self.bytes += segment.bytes();
                self.segments.push_back(segment);
            }
            Ok(FoundSegment { taken: Some(_), .. }) => remove(&path),
            Ok(FoundSegment { taken: None, .. }) | Err(_) => {
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

    /// Returns the number of records that the collector has not taken.
    pub(crate) fn records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.records.saturating_sub(segment.taken)).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of records lost since the last call because they could not be read.
    pub(crate) fn take_unreadable(&mut self) -> u64 {
        std::mem::take(&mut self.unreadable)
    }

    /// Returns the last error of the disk, once.
    pub(crate) fn take_error(&mut self) -> Option<io::Error> {
        self.last_error.take()
    }

    /// Writes as many events as there is room for. Returns their number, and the reason why the
    /// others were not written.
    pub(crate) fn append(&mut self, events: &[NatEvent]) -> (usize, Option<NotStored>) {
        self.append_in(events, false)
    }

    fn append_in(
        &mut self,
        events: &[NatEvent],
        is_one_segment: bool,
    ) -> (usize, Option<NotStored>) {
        if self.failed_at.is_some_and(|at| at.elapsed() < RETRY_PAUSE) {
            return (0, Some(NotStored::Disk));
        }
        self.failed_at = None;
        if events.iter().any(|event| event.kind.is_over_ipv6()) {
            self.record_bytes = LONG_RECORD_BYTES;
        }
        let mut done = 0;
        while done < events.len() && !(is_one_segment && done > 0) {
            match self.append_to_segment(&events[done..]) {
                Ok(0) => return (done, Some(NotStored::Full)),
                Ok(count) => done += count,
                Err(error) => {
                    self.failed(error);
                    return (done, Some(NotStored::Disk));
                }
            }
        }
        (done, None)
    }

    /// Writes events that the caller has in memory, as many as fit in one segment: they count as
    /// read. Returns their positions. There must be an event, and no record may be unread.
    pub(crate) fn append_as_read(
        &mut self,
        events: &[NatEvent],
    ) -> Result<impl Iterator<Item = SpoolPosition> + use<>, NotStored> {
        debug_assert!(!self.has_unread(), "unread events come first");
        let (count, refused) = self.append_in(events, true);
        let Some(segment) = self.segments.back_mut().filter(|_| count > 0) else {
            return Err(refused.unwrap_or(NotStored::Full));
        };
        segment.read = segment.records;
        segment.unreadable_tail = 0;
        let (number, first) = (segment.number, segment.records - count as u64);
        Ok((first + 1..=segment.records)
            .map(move |records| SpoolPosition { segment: number, records }))
    }

    /// Writes the events that fit in the last segment, after beginning a new one if necessary.
    /// Returns 0 if the spool is full.
    fn append_to_segment(&mut self, events: &[NatEvent]) -> io::Result<usize> {
        let record = self.record_bytes as u64;
        let is_room = |segment: &SpoolSegment| {
            segment.record_bytes == self.record_bytes
                && segment.bytes() + record <= self.segment_bytes
        };
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
            record::write(event, self.record_bytes, &mut self.buffer);
        }
        let end = segment.bytes();
        if let Err(error) = file.write_all_at(&self.buffer, end) {
            // If the disk refuses this too, a restart may find whole records of the failed write:
            // then they are sent twice.
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
        // A number is used once, even if its file can be neither written nor removed.
        self.next_number = number.saturating_add(1);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        let file = options.open(&path)?;
        if let Err(error) = file.write_all_at(&header(0, self.record_bytes), 0) {
            remove(&path);
            return Err(error);
        }
        self.bytes += HEADER_BYTES as u64;
        self.writer = Some(file);
        let (records, read, taken) = (0, 0, 0);
        self.segments.push_back(SpoolSegment {
            number,
            record_bytes: self.record_bytes,
            records,
            read,
            taken,
            taken_saved: 0,
            unreadable_tail: 0,
        });
        Ok(())
    }

    /// Closes the last segment, so that the next events go to another file. Removes the segment if
    /// it is empty.
    fn give_up_segment(&mut self) {
        self.writer = None;
        if self.segments.back().is_some_and(|segment| segment.records == 0) {
            if let Some(segment) = self.segments.pop_back() {
                self.bytes -= segment.bytes();
                remove(&self.path(segment.number));
            }
        }
    }

    /// Hands out the next records, some hundred at most. Returns whether it made progress: false
    /// while the disk refuses to read.
    pub(crate) fn read(&mut self, out: &mut Vec<(NatEvent, SpoolPosition)>) -> bool {
        let unread = self.segments.iter().position(|segment| segment.read < segment.records);
        let Some(index) = unread else { return false };
        if self.read_failing.is_some_and(|(_, last)| last.elapsed() < RETRY_PAUSE) {
            return false;
        }
        let count = (self.segments[index].records - self.segments[index].read).min(READ_RECORDS);
        if let Err(error) = self.fill_buffer(index, count) {
            return self.cannot_read(index, error);
        }
        self.read_failing = None;
        let segment = &mut self.segments[index];
        for record in self.buffer.chunks_exact(segment.record_bytes) {
            segment.read += 1;
            match record::read(record) {
                Some(event) => {
                    segment.unreadable_tail = 0;
                    out.push((
                        event,
                        SpoolPosition { segment: segment.number, records: segment.read },
                    ));
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

    /// Handles a failed read. A disk may fail for a moment. Records that are gone, or that could
    /// not be read for `READ_PATIENCE`, are given up: the collector gets the events behind them.
    /// Returns whether they were given up.
    fn cannot_read(&mut self, index: usize, error: io::Error) -> bool {
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
        let segment = &mut self.segments[index];
        let rest = segment.records - segment.read;
        segment.read = segment.records;
        segment.unreadable_tail += rest;
        self.unreadable += rest;
        self.remove_over();
        true
    }

    fn fill_buffer(&mut self, index: usize, count: u64) -> io::Result<()> {
        let segment = &self.segments[index];
        let at = HEADER_BYTES as u64 + segment.read * segment.record_bytes as u64;
        if self.reader.as_ref().is_none_or(|(number, _)| *number != segment.number) {
            self.reader = Some((segment.number, File::open(self.path(segment.number))?));
        }
        self.buffer.resize(count as usize * segment.record_bytes, 0);
        match &self.reader {
            Some((_, file)) => file.read_exact_at(&mut self.buffer, at),
            None => Ok(()),
        }
    }

    /// Notes that the collector has taken the record and all before it.
    pub(crate) fn taken(&mut self, position: SpoolPosition) {
        for segment in &mut self.segments {
            if segment.number < position.segment {
                segment.taken = segment.records;
            } else if segment.number == position.segment {
                segment.taken = segment.taken.max(position.records.min(segment.records));
            }
        }
        self.remove_over();
    }

    /// Removes the first segments that are completed.
    fn remove_over(&mut self) {
        while self.segments.front().is_some_and(SpoolSegment::is_over) {
            let Some(segment) = self.segments.pop_front() else { return };
            self.bytes -= segment.bytes();
            // An open file would keep its space on the disk.
            self.reader.take_if(|(number, _)| *number == segment.number);
            remove(&self.path(segment.number));
            if self.segments.is_empty() {
                self.writer = None;
            }
        }
    }

    /// Writes the number of records that the collector has taken of the first segment to its
    /// header.
    pub(crate) fn save_taken(&mut self) {
        let Some(segment) = self.segments.front_mut() else { return };
        if segment.taken == segment.taken_saved {
            return;
        }
        segment.taken_saved = segment.taken;
        let (number, taken, record_bytes) = (segment.number, segment.taken, segment.record_bytes);
        let file = OpenOptions::new().write(true).open(self.path(number));
        let bytes = &header(taken, record_bytes)[TAKEN_AT..];
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

/// Returns the numbers of the segments in a folder, in order.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() != Some(OsStr::new(SUFFIX)) {
            continue;
        }
        // Only names of the form that `path` returns, so that no other file is touched.
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        if stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit()) {
            numbers.extend(stem.parse::<u64>());
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the header of a segment with records of so many bytes, of which `taken` were taken,
/// capped at `u32::MAX`.
fn header(taken: u64, record_bytes: usize) -> [u8; HEADER_BYTES] {
    let [(short, _), (long, _)] = FORMATS;
    let magic = if record_bytes == RECORD_BYTES { short } else { long };
    let taken = u32::try_from(taken).unwrap_or(u32::MAX);
    let mut header = [0; HEADER_BYTES];
    header[..TAKEN_AT].copy_from_slice(magic);
    header[TAKEN_AT..HEADER_SUM_AT].copy_from_slice(&taken.to_be_bytes());
    let sum = record::checksum(&header[..HEADER_SUM_AT]);
    header[HEADER_SUM_AT..].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Content of a file of a former process.
struct FoundSegment {
    /// Number of whole records.
    records: u64,
    /// Number of records taken; `None` if the file is no segment of this version.
    taken: Option<u64>,
    /// Bytes of a record.
    record_bytes: usize,
}

impl FoundSegment {
    fn at(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let Some(bytes) = bytes.checked_sub(HEADER_BYTES as u64) else {
            // The process ended before it had written the header: there was no record.
            return Ok(Self { records: 0, taken: Some(0), record_bytes: RECORD_BYTES });
        };
        let mut found = [0; HEADER_BYTES];
        file.read_exact_at(&mut found, 0)?;
        let format = FORMATS.into_iter().find(|(magic, _)| found.starts_with(*magic));
        let Some((_, record_bytes)) = format else {
            let records = bytes / RECORD_BYTES as u64;
            return Ok(Self { records, taken: None, record_bytes: RECORD_BYTES });
        };
        let records = bytes / record_bytes as u64;
        let taken = u32::from_be_bytes(found[TAKEN_AT..HEADER_SUM_AT].try_into().expect("4 bytes"));
        let taken = u64::from(taken);
        // An impossible number is ignored: all records are sent again.
        let is_right = taken <= records && header(taken, record_bytes) == found;
        Ok(Self { records, taken: Some(if is_right { taken } else { 0 }), record_bytes })
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
