//! The socket file: made once, refused if another process answers on it, removed at the end.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::Group;

/// Group that may read if none is configured; used if it exists.
const DEFAULT_GROUP: &str = "weir";

/// A listening socket; its file is removed with it.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    path: PathBuf,
    /// Device and inode of the file made here: another process's file is not removed.
    identity: (u64, u64),
    listener: UnixListener,
}

/// Why the socket cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("a process answers on it")]
    AlreadyRunning,
    #[error("it exists and is not a socket")]
    NotASocket,
    #[error("there is no group '{0}'")]
    NoGroup(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl AdminSocket {
    /// Makes the socket with mode 0660 and the group; replaces a file on which no process answers.
    ///
    /// # Errors
    /// When another process answers on it, or the file cannot be made.
    pub(crate) fn claim(path: &Path, group: Option<&str>) -> Result<Self, ClaimError> {
        let group = find_group(group)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        remove_stale(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
        if let Some(group) = group {
            chown(path, None, Some(group.gid.as_raw()))?;
        }
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { path: path.into(), identity: (metadata.dev(), metadata.ino()), listener })
    }

    /// A second handle of the listening socket, non-blocking.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        let listener = self.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if is_ours {
            // Nothing can be done about a failure: the next start replaces a stale file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), ClaimError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(ClaimError::NotASocket),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ClaimError::AlreadyRunning),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // A full backlog means that a process listens there.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ClaimError::AlreadyRunning),
        Err(error) => Err(error.into()),
    }
}

fn find_group(name: Option<&str>) -> Result<Option<Group>, ClaimError> {
    let group = Group::from_name(name.unwrap_or(DEFAULT_GROUP)).map_err(io::Error::from)?;
    match (name, group) {
        (Some(name), None) => Err(ClaimError::NoGroup(name.into())),
        (_, group) => Ok(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_socket_is_refused_and_a_stale_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/n1.sock");
        let first = AdminSocket::claim(&path, None).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        assert!(matches!(AdminSocket::claim(&path, None), Err(ClaimError::AlreadyRunning)));
        // As after SIGKILL: the listener is gone, the file is not.
        let stale = folder.path().join("stale.sock");
        drop(UnixListener::bind(&stale).unwrap());
        assert!(stale.exists());
        drop(AdminSocket::claim(&stale, None).unwrap());
        assert!(!stale.exists());
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn other_files_and_unknown_groups_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(matches!(AdminSocket::claim(&file, None), Err(ClaimError::NotASocket)));
        let path = folder.path().join("n1.sock");
        let claimed = AdminSocket::claim(&path, Some("no-such-group-here"));
        assert!(matches!(claimed, Err(ClaimError::NoGroup(_))));
        assert!(!path.exists());
    }
}
