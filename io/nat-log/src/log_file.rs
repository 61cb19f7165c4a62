//! The file the block log is appended to.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::line::Line;

/// Who used an address when is personal data: readable for the owner and the group only.
const MODE: u32 = 0o640;

/// The last record of a file lies within its last bytes, but for one that a crash cut off.
pub(crate) const TAIL_BYTES: u64 = 8192;

/// Opens `path` for appending. A last line that a crash cut off is ended, so that the next one stands alone. Gives the
/// last record of the file, too.
pub(crate) fn open(path: &Path) -> std::io::Result<(File, Option<Line>)> {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).read(true).create(true).mode(MODE).open(path)?;
    let tail = tail(&mut file)?;
    if tail.last().is_some_and(|last| *last != b'\n') {
        file.write_all(b"\n")?;
    }
    Ok((file, last_record(&tail)))
}

/// The last bytes of a file. Pipes and devices have none.
pub(crate) fn tail(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    if file.metadata()?.is_file() {
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(end.saturating_sub(TAIL_BYTES)))?;
        file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    }
    Ok(tail)
}

pub(crate) fn last_record(tail: &[u8]) -> Option<Line> {
    tail.rsplit(|byte| *byte == b'\n').find_map(|text| Line::parse(text).ok().flatten())
}
