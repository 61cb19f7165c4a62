//! The folder of files that a node needs over its restarts.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Returns the folder that systemd made for the service, or the one that it would make.
pub(crate) fn state_folder() -> PathBuf {
    let folder = std::env::var_os("STATE_DIRECTORY").filter(|folder| !folder.is_empty());
    folder.map_or_else(|| PathBuf::from("/var/lib/weir"), PathBuf::from)
}

/// Replaces a file as a whole, and makes its folder if there is none. Once this returns, a loss of
/// power does not bring the old file back. Only the node's own user may read it.
///
/// # Errors
/// When the file system refuses; the old file is still there then.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
    }
    let mut new = path.to_owned();
    new.as_mut_os_string().push(".new");
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
