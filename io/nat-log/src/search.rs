//! Searches block logs for the home that held a public address and port, or an IPv6 address, at a
//! time.
//!
//! ```text
//!   files near the time --> which lanes? --> records of these lanes --> timelines --> answer
//!        ^                   (1st pass)         (2nd pass)                              |
//!        +------ all files <---------------------- cannot say --------------------------+
//! ```
//!
//! A search needs no more memory for a log of a year than for one of an hour: it keeps the
//! statements about the blocks and prefixes that are asked for and, for each lane in which these
//! lie, the gaps between its records.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::answer::LogAnswer;
use crate::glance::{Glance, Mention};
use crate::history::History;
use crate::holding::{Holding, HomeHolding, Prefix64};
use crate::line::{BlockLogLine, NotARecord, unix_ms};
use crate::mentions::Mentions;
use crate::source::{LogSource, LogSpan, SearchError};
use crate::verdict::Court;

/// How far before a time files are read: listings are repeated within an hour, so two hours of log
/// name every block.
const BEFORE_MS: u64 = 2 * 3_600_000;
/// How far after a time files are read: a mark that confirms completeness follows within seconds,
/// the next owner of a lane within minutes.
const AFTER_MS: u64 = 600_000;

/// A question to block logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuestion {
    pub about: About,
    /// The interval asked about; `None`: the end of the logs.
    pub time: Option<(SystemTime, SystemTime)>,
    /// How far apart the clocks of the nodes, and the clock that the time was read from, may be.
    pub clock_error: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Which home had this port?
    Port(Ipv4Addr, u16),
    /// Which homes had ports of this address?
    Address(Ipv4Addr),
    /// Which home had claimed the /64 of this address?
    Ipv6(Ipv6Addr),
    /// Which ports and prefixes had this home? Without a key: with any.
    Home(IpAddr, Option<u32>),
}

impl About {
    /// Returns the address or prefix as lines have it: those without it are about something else.
    pub(crate) fn needle(self) -> String {
        match self {
            Self::Port(address, _) | Self::Address(address) => address.to_string(),
            Self::Home(address, _) => address.to_string(),
            Self::Ipv6(address) => Prefix64::of(address).to_string(),
        }
    }

    pub(crate) fn is_named_by(self, held: &HomeHolding) -> bool {
        match (self, held.holding) {
            (Self::Port(address, port), Holding::Ports { public, first, last }) => {
                public == address && (first..=last).contains(&port)
            }
            (Self::Address(address), Holding::Ports { public, .. }) => public == address,
            (Self::Ipv6(address), Holding::Prefix(prefix)) => prefix == Prefix64::of(address),
            (Self::Home(home, key), _) => {
                held.home.0 == home && key.is_none_or(|key| held.home.1 == Some(key))
            }
            (Self::Port(..) | Self::Address(_), Holding::Prefix(_))
            | (Self::Ipv6(_), Holding::Ports { .. }) => false,
        }
    }
}

impl LogQuestion {
    /// Returns the interval asked about in milliseconds, widened by the clock error.
    pub(crate) fn interval_ms(&self) -> Option<(u64, u64)> {
        let (from, until) = self.time?;
        let error_ms = self.clock_error_ms();
        Some((unix_ms(from).saturating_sub(error_ms), unix_ms(until).saturating_add(error_ms)))
    }

    pub(crate) fn clock_error_ms(&self) -> u64 {
        u64::try_from(self.clock_error.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Answers from block logs in any order: those of several nodes, and their rotated predecessors
/// ([`crate::rotated_files`]), plain or compressed by gzip or zstd.
///
/// # Errors
/// Names the file that could not be read.
pub fn search_files(paths: &[PathBuf], question: &LogQuestion) -> Result<LogAnswer, SearchError> {
    let mut files = Vec::new();
    for path in paths {
        let source = LogSource::File(path);
        if let Some(extent) = source.extent()? {
            files.push((extent, source));
        }
    }
    files.sort_by_key(|(extent, _)| extent.first_ms);
    if let Some(near) = question.interval_ms().and_then(|interval| near(&files, interval)) {
        let answer = search(&near, question)?;
        if answer.is_complete() {
            return Ok(LogAnswer { files_skipped: files.len() - near.len(), ..answer });
        }
    }
    let all: Vec<LogSource<'_>> = files.into_iter().map(|(_, source)| source).collect();
    search(&all, question)
}

/// Answers as [`search_files`] does, from logs in memory, in order of time.
///
/// # Errors
/// Only those of reading memory: none in practice.
pub fn search_logs(logs: &[&[u8]], question: &LogQuestion) -> Result<LogAnswer, SearchError> {
    let sources: Vec<_> = logs.iter().map(|log| LogSource::Memory(log)).collect();
    search(&sources, question)
}

/// Returns the files that lie near the time asked about. An answer from only some of the logs is
/// never wrong, so these may be enough. `None` if no file would be left out.
fn near<'a>(
    files: &[(LogSpan, LogSource<'a>)],
    interval: (u64, u64),
) -> Option<Vec<LogSource<'a>>> {
    let (from, until) = (interval.0.saturating_sub(BEFORE_MS), interval.1.saturating_add(AFTER_MS));
    let is_near = |extent: &LogSpan| {
        extent.first_ms <= until && extent.last_ms.is_none_or(|last| from <= last)
    };
    let near: Vec<_> =
        files.iter().filter(|(extent, _)| is_near(extent)).map(|(_, file)| file.clone()).collect();
    (near.len() < files.len()).then_some(near)
}

fn search(logs: &[LogSource<'_>], question: &LogQuestion) -> Result<LogAnswer, SearchError> {
    let (mentions, lengths) = find(logs, question)?;
    let wanted = mentions.lanes();
    let mut reading = SecondPass {
        mentions: &mentions,
        subjects: mentions.subjects(),
        history: History::of(wanted),
        glance: Glance::new(),
        lines_unreadable: 0,
    };
    for (log, length) in logs.iter().zip(lengths) {
        // Read only as far as the first pass did: a log that grows meanwhile may name blocks which
        // that pass has not seen.
        let mut lines = log.lines_up_to(length)?;
        while let Some(text) = lines.next().map_err(|source| log.named(source))? {
            reading.take(text);
        }
    }
    reading.history.sort();
    let court = Court { question, mentions: &mentions, history: &reading.history };
    Ok(LogAnswer { lines_unreadable: reading.lines_unreadable, ..court.answer() })
}

/// The first pass: finds the blocks and prefixes, with their lanes, that the question is about, and
/// the length of each log.
fn find(
    logs: &[LogSource<'_>],
    question: &LogQuestion,
) -> Result<(Mentions, Vec<u64>), SearchError> {
    let (mut mentions, mention) =
        (Mentions::new(question.about), Mention::new(&question.about.needle()));
    let mut lengths = Vec::new();
    for log in logs {
        let mut lines = log.lines_up_to(u64::MAX)?;
        while let Some(text) = lines.next().map_err(|source| log.named(source))? {
            if mention.is_in(text)
                && let Ok(Some(line)) = BlockLogLine::parse(text)
            {
                mentions.note(&line);
            }
        }
        lengths.push(lines.bytes_read());
    }
    Ok((mentions, lengths))
}

/// The state of the second pass.
struct SecondPass<'a> {
    mentions: &'a Mentions,
    /// The addresses of the blocks, and the prefixes, asked for, as lines contain them.
    subjects: BTreeSet<Vec<u8>>,
    history: History,
    glance: Glance,
    lines_unreadable: u64,
}

impl SecondPass<'_> {
    fn take(&mut self, text: &[u8]) {
        if let Some(seen) = self.glance.read(text)
            && self.history.is_named(seen.writer)
        {
            let is_elsewhere =
                seen.lane.is_some_and(|(lane, ..)| !self.history.is_wanted((seen.shard, lane)));
            let subject = self.glance.subject(&seen);
            let is_other = subject.is_some_and(|subject| !self.subjects.contains(subject));
            if is_elsewhere || is_other {
                return self.history.pass(&seen);
            }
        }
        match BlockLogLine::parse(text) {
            Ok(Some(line)) => {
                let is_subject = self.mentions.is_subject(&line);
                self.history.take(&line, is_subject);
            }
            Ok(None) => {}
            Err(NotARecord) if text.iter().all(u8::is_ascii_whitespace) => {}
            Err(NotARecord) => self.lines_unreadable += 1,
        }
    }
}
