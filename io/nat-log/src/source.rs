//! A block log to be searched: a file, plain or compressed, or bytes in memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Take};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use crate::line::BlockLogLine;
use crate::lines::Lines;
use crate::log_file::{last_record, tail};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A log that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct SearchError {
    pub path: PathBuf,
    pub source: io::Error,
}

#[derive(Clone, Debug)]
pub(crate) enum LogSource<'a> {
    File(&'a Path),
    Memory(&'a [u8]),
}

/// The time span of a log, by the clock of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSpan {
    pub(crate) first_ms: u64,
    /// `None` if only a reader of the whole log can know it.
    pub(crate) last_ms: Option<u64>,
}

impl<'a> LogSource<'a> {
    /// Returns the lines within its first `length` bytes, unpacked.
    pub(crate) fn lines_up_to(
        &self,
        length: u64,
    ) -> Result<Lines<Take<Box<dyn Read + 'a>>>, SearchError> {
        let input: Box<dyn Read + 'a> = match self {
            Self::Memory(bytes) => Box::new(*bytes),
            Self::File(path) => unpacked(path).map_err(|source| self.named(source))?.0,
        };
        Ok(Lines::new(input.take(length)))
    }

    /// Returns its time span; `None` if it holds no record.
    pub(crate) fn extent(&self) -> Result<Option<LogSpan>, SearchError> {
        let first_ms = {
            let mut lines = self.lines_up_to(u64::MAX)?;
            let mut first = None;
            while let Some(text) = lines.next().map_err(|source| self.named(source))? {
                first = BlockLogLine::parse(text).ok().flatten();
                if first.is_some() {
                    break;
                }
            }
            first.map(|line| line.time_ms)
        };
        let Some(first_ms) = first_ms else { return Ok(None) };
        let last_ms = self.last_ms().map_err(|source| self.named(source))?;
        Ok(Some(LogSpan { first_ms, last_ms }))
    }

    fn last_ms(&self) -> io::Result<Option<u64>> {
        let tail = match self {
            Self::Memory(_) => return Ok(None),
            Self::File(path) => match unpacked(path)? {
                (_, true) => return Ok(None),
                (_, false) => tail(&mut File::open(path)?)?,
            },
        };
        Ok(last_record(&tail).map(|line| line.time_ms))
    }

    pub(crate) fn named(&self, source: io::Error) -> SearchError {
        let path = match self {
            Self::File(path) => path,
            Self::Memory(_) => Path::new("memory"),
        };
        SearchError { path: path.to_owned(), source }
    }
}

/// Opens a file; returns its unpacked content, and whether it is compressed, by its first bytes,
/// not by its name.
fn unpacked(path: &Path) -> io::Result<(Box<dyn Read>, bool)> {
    let mut file = BufReader::with_capacity(128 << 10, File::open(path)?);
    let head = file.fill_buf()?;
    Ok(if head.starts_with(&GZIP) {
        (Box::new(MultiGzDecoder::new(file)), true)
    } else if head.starts_with(&ZSTD) {
        (Box::new(Zstd { frame: None, rest: Some(file) }), true)
    } else {
        (Box::new(file), false)
    })
}

/// Concatenated zstd frames, as appending with `zstd` makes them.
struct Zstd {
    frame: Option<StreamingDecoder<BufReader<File>, ruzstd::decoding::FrameDecoder>>,
    /// The remaining input, between two frames.
    rest: Option<BufReader<File>>,
}

impl Read for Zstd {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(mut rest) = self.rest.take() {
                if rest.fill_buf()?.is_empty() {
                    self.rest = Some(rest);
                    return Ok(0);
                }
                self.frame = Some(StreamingDecoder::new(rest).map_err(io::Error::other)?);
            }
            let Some(frame) = &mut self.frame else { return Ok(0) };
            let count = frame.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            if let Some((rest, frame)) = self.frame.take().map(StreamingDecoder::into_parts) {
                let checksum = frame.get_checksum_from_data();
                if checksum.is_some() && checksum != frame.get_calculated_checksum() {
                    return Err(io::Error::new(ErrorKind::InvalidData, "checksum differs"));
                }
                self.rest = Some(rest);
            }
        }
    }
}
