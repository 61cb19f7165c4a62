//! Files with a secret: a password, a private key, the key of replication. One rule for all of
//! them.
//!
//! The file is regular, belongs to root or to the user of the process, and no other user may read
//! or change it. The rule applies to the file that is opened, so a symbolic link is judged by its
//! target; the link itself must also belong to root or to that user, since its owner decides what
//! is read.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions, symlink_metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

/// Longest file: keys of certificates take a few kilobytes.
const BYTES_MAX: u64 = 64 << 10;

/// A secret that cannot be used, and what to do about it. It never shows the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct SecretFileError {
    pub path: PathBuf,
    pub reason: SecretFileReason,
}

/// Reason that a file with a secret is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFileReason {
    Unreadable(String),
    NotRegular,
    /// The permission bits, and the path.
    Mode(u32, PathBuf),
    /// The user that owns the file, and the user of the process.
    Owner {
        owner: u32,
        user: u32,
    },
    LinkOwner {
        owner: u32,
        user: u32,
    },
    TooLong,
    NotText,
    Empty,
}

impl fmt::Display for SecretFileReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => out.write_str(error),
            Self::NotRegular => out.write_str("not a regular file"),
            Self::Mode(mode, path) => write!(
                out,
                "mode {mode:04o} lets others than its owner read or change the secret in it: chmod 600 {}",
                path.display()
            ),
            Self::Owner { owner, user } => write!(
                out,
                "it belongs to user {owner}: it must belong to root or to user {user}, who runs weir"
            ),
            Self::LinkOwner { owner, user } => write!(
                out,
                "the symbolic link belongs to user {owner}: it must belong to root or to user {user}, who runs weir"
            ),
            Self::TooLong => write!(out, "longer than {BYTES_MAX} bytes"),
            Self::NotText => out.write_str("not UTF-8"),
            Self::Empty => out.write_str("empty"),
        }
    }
}

/// Checks the mode and the owner of a file.
fn judge(path: &Path, mode: u32, owner: u32, user: u32) -> Result<(), SecretFileReason> {
    if owner != 0 && owner != user {
        return Err(SecretFileReason::Owner { owner, user });
    }
    if mode & 0o077 != 0 {
        return Err(SecretFileReason::Mode(mode & 0o7777, path.to_owned()));
    }
    Ok(())
}

/// Reads a file with a secret.
///
/// # Errors
/// When the file cannot be read, or another user can read or change it.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, SecretFileError> {
    let refused = |reason| SecretFileError { path: path.to_owned(), reason };
    read(path, geteuid().as_raw()).map_err(refused)
}

/// Reads a secret as text, without the end of its last line; an empty secret is an error.
///
/// # Errors
/// As [`read_secret`], and when the secret is not UTF-8 or empty.
pub fn read_secret_line(path: &Path) -> Result<String, SecretFileError> {
    let refused = |reason| SecretFileError { path: path.to_owned(), reason };
    let text = String::from_utf8(read_secret(path)?);
    let text = text.map_err(|_| refused(SecretFileReason::NotText))?;
    let line = text.trim_end_matches(['\r', '\n']);
    if line.is_empty() { Err(refused(SecretFileReason::Empty)) } else { Ok(line.to_owned()) }
}

fn read(path: &Path, user: u32) -> Result<Vec<u8>, SecretFileReason> {
    let unreadable = |error: io::Error| SecretFileReason::Unreadable(error.to_string());
    let link: Metadata = symlink_metadata(path).map_err(unreadable)?;
    if link.is_symlink() && link.uid() != 0 && link.uid() != user {
        return Err(SecretFileReason::LinkOwner { owner: link.uid(), user });
    }
    // Opening a pipe or a device could block.
    let flags = (OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY).bits();
    let file: File =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    // The metadata must be of the open file: the path may name another one by now.
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(SecretFileReason::NotRegular);
    }
    judge(path, metadata.mode(), metadata.uid(), user)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MAX { Err(SecretFileReason::TooLong) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn secret(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.0.path().join(name);
            write(&path, "hush\n").unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    #[test]
    fn a_secret_that_others_may_read_or_change_is_refused_with_advice() {
        let folder = Folder::new();
        for mode in [0o600, 0o400, 0o700] {
            let path = folder.secret("good", mode);
            assert_eq!(read_secret_line(&path).as_deref(), Ok("hush"), "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o666, 0o4640] {
            let path = folder.secret("bad", mode);
            let error = read_secret(&path).unwrap_err().to_string();
            let name = path.display().to_string();
            assert!(error.starts_with(&format!("{name}: mode {mode:04o} ")), "{error}");
            assert!(error.ends_with(&format!("chmod 600 {name}")), "{error}");
            assert!(!error.contains("hush"));
        }
    }

    #[test]
    fn a_symbolic_link_is_judged_by_its_target_and_its_own_owner() {
        let folder = Folder::new();
        let link = folder.0.path().join("link");
        symlink(folder.secret("target", 0o600), &link).unwrap();
        assert!(read_secret(&link).is_ok());
        folder.secret("target", 0o644);
        let error = read_secret(&link).unwrap_err();
        assert!(matches!(error.reason, SecretFileReason::Mode(0o644, _)), "{error}");
        folder.secret("target", 0o600);
        if geteuid().is_root() {
            lchown(&link, Some(4711), None).unwrap();
            let error = read_secret(&link).unwrap_err();
            assert_eq!(error.reason, SecretFileReason::LinkOwner { owner: 4711, user: 0 });
        }
    }

    #[test]
    fn a_secret_belongs_to_root_or_to_the_user_of_the_process() {
        let path = Path::new("/p");
        assert_eq!(judge(path, 0o100_600, 0, 1000), Ok(()));
        assert_eq!(judge(path, 0o100_600, 1000, 1000), Ok(()));
        let refused = SecretFileReason::Owner { owner: 5, user: 1000 };
        assert_eq!(judge(path, 0o100_600, 5, 1000), Err(refused));
        if geteuid().is_root() {
            let folder = Folder::new();
            let path = folder.secret("theirs", 0o600);
            chown(&path, Some(4711), None).unwrap();
            let error = read_secret(&path).unwrap_err();
            assert_eq!(error.reason, SecretFileReason::Owner { owner: 4711, user: 0 });
        }
    }

    #[test]
    fn a_path_without_a_readable_secret_is_refused_without_blocking() {
        let folder = Folder::new();
        let pipe = folder.0.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(read_secret(&pipe).unwrap_err().reason, SecretFileReason::NotRegular);
        let folders = read_secret(folder.0.path()).unwrap_err().reason;
        assert_eq!(folders, SecretFileReason::NotRegular);
        let none = read_secret(&folder.0.path().join("none")).unwrap_err().to_string();
        assert!(none.contains("none: No such file"), "{none}");
        let path = folder.secret("long", 0o600);
        write(&path, vec![b'x'; BYTES_MAX as usize + 1]).unwrap();
        assert_eq!(read_secret(&path).unwrap_err().reason, SecretFileReason::TooLong);
        write(&path, "\r\n").unwrap();
        assert_eq!(read_secret_line(&path).unwrap_err().reason, SecretFileReason::Empty);
        write(&path, [0xff]).unwrap();
        assert_eq!(read_secret_line(&path).unwrap_err().reason, SecretFileReason::NotText);
    }
}
