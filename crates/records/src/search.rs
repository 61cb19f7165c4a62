//! Who held a public address and port at a time: the question that a block log exists to answer.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::glance::Glance;
use crate::line::{Content, Line, unix_ms};
use crate::replay::{Begin, Replay, Tenancy};

/// Longer lines are none of ours.
const LINE_BYTES_MAX: u64 = 4096;

/// A subscriber that held the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub shard: u32,
    /// Outer source address in gre mode, inside address in plain mode.
    pub subscriber: Ipv4Addr,
    pub gre_key: Option<u32>,
    pub node: String,
    /// The block, both ports included.
    pub ports: (u16, u16),
    /// `None`: the allocation is not in these logs.
    pub from: Option<SystemTime>,
    /// `None`: held at the end of these logs.
    pub until: Option<SystemTime>,
    pub end: End,
}

/// How a tenancy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Released,
    /// The node stopped.
    NodeStopped,
    /// The node started anew; it ended at `until` or before.
    NodeRestarted,
    /// Another subscriber has the block; the record of the release is missing, it ended at `until` or before.
    GivenToAnother,
    /// It had not ended at the end of these logs.
    Open,
}

/// What the logs say, and how far they can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// More than one only if a release and an allocation fall into the same millisecond, or if records are missing.
    pub holders: Vec<Holder>,
    /// Records the nodes reported as lost, in all the logs.
    pub records_lost: u64,
    /// Lines that are no records, such as one that a crash cut off.
    pub lines_unreadable: u64,
    /// Times of the first and the last record read: outside of them the logs say nothing.
    pub covered: Option<(SystemTime, SystemTime)>,
}

/// A log that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct SearchError {
    pub path: PathBuf,
    pub source: std::io::Error,
}

/// Who held `public`:`port` at the time `at`, from block logs in any order: those of several nodes, and their rotated
/// predecessors ([`crate::rotated_files`]). Reads each file once, line by line.
///
/// # Errors
/// Names the file that could not be read.
pub fn where_was_in_files(
    paths: &[PathBuf],
    public: Ipv4Addr,
    port: u16,
    at: SystemTime,
) -> Result<Answer, SearchError> {
    let named = |path: &Path, source| SearchError { path: path.to_owned(), source };
    let mut files = Vec::new();
    for path in paths {
        let open = || File::open(path).map(BufReader::new).map_err(|source| named(path, source));
        if let Some(first) = first_record(open()?).map_err(|source| named(path, source))? {
            files.push((first.time_ms, path, open()?));
        }
    }
    files.sort_by_key(|(first_ms, ..)| *first_ms);
    let mut search = Search::new(public, port, at);
    for (_, path, file) in files {
        search.read(file).map_err(|source| named(path, source))?;
    }
    Ok(search.finish())
}

/// As [`where_was_in_files`], from logs in order of time.
///
/// # Errors
/// Those of the readers.
pub fn where_was<R: BufRead>(
    logs: impl IntoIterator<Item = R>,
    public: Ipv4Addr,
    port: u16,
    at: SystemTime,
) -> std::io::Result<Answer> {
    let mut search = Search::new(public, port, at);
    for log in logs {
        search.read(log)?;
    }
    Ok(search.finish())
}

struct Search {
    public: Ipv4Addr,
    port: u16,
    at_ms: u64,
    glance: Glance,
    replay: Replay,
    found: Vec<Tenancy>,
    answer: Answer,
}

impl Search {
    fn new(public: Ipv4Addr, port: u16, at: SystemTime) -> Self {
        let (replay, found, answer) = (Replay::default(), Vec::new(), Answer::default());
        let (glance, at_ms) = (Glance::new(public), unix_ms(at));
        Self { public, port, at_ms, glance, replay, found, answer }
    }

    fn read(&mut self, mut log: impl BufRead) -> std::io::Result<()> {
        let mut text = Vec::new();
        while next_line(&mut log, &mut text)? {
            if self.glance.passes_over(&text) {
                continue;
            }
            match Line::parse(&text) {
                Ok(Some(line)) => self.apply(&line),
                Ok(None) => {}
                Err(_) if text.iter().all(u8::is_ascii_whitespace) => {}
                Err(_) => self.answer.lines_unreadable += 1,
            }
        }
        Ok(())
    }

    fn apply(&mut self, line: &Line) {
        self.cover(line.time_ms, line.time_ms);
        let is_relevant = match &line.content {
            Content::Opened | Content::Closed => true,
            Content::Lost(count) => {
                self.answer.records_lost = self.answer.records_lost.saturating_add(*count);
                false
            }
            Content::Block(block) => {
                block.public == self.public
                    && (block.port_first..=block.port_last).contains(&self.port)
            }
        };
        if is_relevant {
            self.replay.apply(line, &mut self.found);
            let at_ms = self.at_ms;
            self.found.retain(|tenancy| tenancy.contains(at_ms));
        }
    }

    fn cover(&mut self, from_ms: u64, to_ms: u64) {
        let (from, to) = (system_time(from_ms), system_time(to_ms));
        let (first, last) = self.answer.covered.unwrap_or((from, to));
        self.answer.covered = Some((first.min(from), last.max(to)));
    }

    fn finish(mut self) -> Answer {
        if let Some((from_ms, to_ms)) = self.glance.covered_ms() {
            self.cover(from_ms, to_ms);
        }
        self.replay.finish(&mut self.found);
        let mut found = self.found;
        found.retain(|tenancy| tenancy.contains(self.at_ms));
        self.answer.holders = found.into_iter().map(holder).collect();
        let key = |it: &Holder| (it.from, it.node.clone(), it.shard, it.subscriber, it.gre_key);
        self.answer.holders.sort_by_cached_key(key);
        self.answer
    }
}

fn holder(tenancy: Tenancy) -> Holder {
    let block = tenancy.block;
    Holder {
        shard: block.shard,
        subscriber: block.subscriber,
        gre_key: block.gre_key,
        node: tenancy.node,
        ports: (block.port_first, block.port_last),
        from: match tenancy.begin {
            Begin::Allocated(ms) => Some(system_time(ms)),
            Begin::NotBefore(_) => None,
        },
        until: tenancy.end_ms.map(system_time),
        end: tenancy.end,
    }
}

fn first_record(mut log: impl BufRead) -> std::io::Result<Option<Line>> {
    let mut text = Vec::new();
    while next_line(&mut log, &mut text)? {
        if let Ok(Some(line)) = Line::parse(&text) {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

/// Reads the next line into `text`; one that is too long is cut off, its rest skipped. `false`: the log has ended.
fn next_line(log: &mut impl BufRead, text: &mut Vec<u8>) -> std::io::Result<bool> {
    text.clear();
    if log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', text)? == 0 {
        return Ok(false);
    }
    let mut rest = Vec::new();
    let mut is_ended = text.ends_with(b"\n");
    while !is_ended {
        rest.clear();
        let count = log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut rest)?;
        is_ended = count == 0 || rest.ends_with(b"\n");
    }
    Ok(true)
}

fn system_time(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
