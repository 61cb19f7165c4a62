//! The file to which the block log is appended.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::line::BlockLogLine;

/// The use of an address is personal data: readable for the owner and the group only.
const MODE: u32 = 0o640;

/// The last record of a file lies within its last bytes, unless a crash cut it off.
pub(crate) const TAIL_BYTES: u64 = 8192;

/// Opens `path` for appending. Terminates a last line that a crash cut off, so that the next one is
/// separate. Returns also the last record of the file.
pub(crate) fn open(path: &Path) -> std::io::Result<(File, Option<BlockLogLine>)> {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).read(true).create(true).mode(MODE).open(path)?;
    let tail = tail(&mut file)?;
    if tail.last().is_some_and(|last| *last != b'\n') {
        file.write_all(b"\n")?;
    }
    Ok((file, last_record(&tail)))
}

/// Returns the last bytes of a file; none for a pipe or device.
pub(crate) fn tail(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    if file.metadata()?.is_file() {
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(end.saturating_sub(TAIL_BYTES)))?;
        file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    }
    Ok(tail)
}

pub(crate) fn last_record(tail: &[u8]) -> Option<BlockLogLine> {
    tail.rsplit(|byte| *byte == b'\n').find_map(|text| BlockLogLine::parse(text).ok().flatten())
}
