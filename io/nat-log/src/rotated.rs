//! Finds the files that a rotation has left beside the block log.

use std::path::{Path, PathBuf};

/// Name endings of files that must be unpacked before they can be searched.
const UNREADABLE: [&str; 4] = [".xz", ".bz2", ".lz4", ".lzma"];

/// The files of a block log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotatedFiles {
    /// The log and its rotated predecessors, in no order of time.
    pub readable: Vec<PathBuf>,
    /// Predecessors that a search cannot read: their compression is neither gzip nor zstd.
    pub unreadable: Vec<PathBuf>,
}

/// Returns the files of the block log at `path`: `blocks.jsonl`, `blocks.jsonl.1`,
/// `blocks.jsonl-20260301`, ...
///
/// # Errors
/// The folder cannot be read.
pub fn rotated_files(path: &Path) -> std::io::Result<RotatedFiles> {
    let mut files = RotatedFiles::default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = found.strip_prefix(&name) else { continue };
        if !rest.is_empty() && !rest.starts_with(['.', '-', '_']) {
            continue;
        }
        let is_unreadable = UNREADABLE.iter().any(|ending| rest.ends_with(ending));
        let files = if is_unreadable { &mut files.unreadable } else { &mut files.readable };
        files.push(entry.path());
    }
    files.readable.sort();
    files.unreadable.sort();
    Ok(files)
}
