//! The file the block log is appended to.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Who used an address when is personal data: readable for the owner and the group only.
const MODE: u32 = 0o640;

/// Opens `path` for appending. A last line that a crash cut off is ended, so that the next one stands alone.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).read(true).create(true).mode(MODE).open(path)?;
    if is_cut_off(&mut file)? {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Whether the last byte is not a newline. Pipes and devices have no last byte.
fn is_cut_off(file: &mut File) -> std::io::Result<bool> {
    if !file.metadata()?.is_file() || file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}
