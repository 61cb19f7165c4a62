//! Records which processes of this node have certainly ended: the running process holds a file
//! locked until its end.
//!
//! The kernel releases the lock when the last thread of its holder is gone. So a process that gets
//! the lock knows that all processes before it, whose boot ids the file names, translate nothing
//! any more: it takes over their registration without waiting for the end of their lease, and other
//! workers may have their lanes at once. Only processes under the same boot of the kernel count:
//! the file may lie in a copy of a machine's disk.
//!
//! A failure to read or write its content costs the time of a lease after the next restart, and
//! nothing else. Without the file or the lock the node does not start: a second process of it could
//! run.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Longest wait for the lock: a killed process still has to release gigabytes of memory.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);
/// Number of remembered processes: one that ended before it registered left the registration of an
/// earlier one in place.
const REMEMBERED: usize = 16;
/// File with an id that changes each time the kernel starts.
const KERNEL: &str = "/proc/sys/kernel/random/boot_id";

/// The locked file.
#[derive(Debug)]
pub(super) struct LifeFile {
    file: Flock<File>,
    kept: Kept,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    kernel: String,
    /// Newest last.
    boot_ids: Vec<String>,
}

impl Kept {
    /// Parses a file; a file of another boot of the kernel names no process.
    fn read(text: &str, kernel: String) -> Self {
        let kept = serde_json::from_str(text).ok();
        let kept = kept.filter(|kept: &Self| kept.kernel == kernel && !kernel.is_empty());
        kept.unwrap_or(Self { kernel, boot_ids: Vec::new() })
    }
}

impl LifeFile {
    /// Waits until no other process of this node runs on this machine.
    ///
    /// # Errors
    /// When such a process goes on running, or the file cannot be made.
    pub(super) fn take(path: &Path) -> Result<Self, Failure> {
        Self::take_within(path, PATIENCE)
    }

    fn take_within(path: &Path, patience: Duration) -> Result<Self, Failure> {
        let failure = |why: String| Failure::Cluster(format!("{}: {why}", path.display()));
        let refused = |error: std::io::Error| {
            failure(format!(
                "{error}; it tells whether another process runs as this node: let weir write there, or \
                 name another folder in STATE_DIRECTORY"
            ))
        };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(refused)?;
        }
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = file.map_err(refused)?;
        let began = Instant::now();
        let mut file = loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => break locked,
                Err((back, Errno::EWOULDBLOCK)) if began.elapsed() < patience => file = back,
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(failure(
                        "another weir process runs as this node: stop it, or give this one \
                         another [node] name"
                            .into(),
                    ));
                }
                Err((_, error)) => return Err(refused(error.into())),
            }
            thread::sleep(POLL);
        };
        let kernel = fs::read_to_string(KERNEL).unwrap_or_default().trim().to_owned();
        let mut text = String::new();
        let _ = file.read_to_string(&mut text);
        Ok(Self { file, kept: Kept::read(&text, kernel) })
    }

    /// Returns the boot ids of processes that have ended.
    pub(super) fn ended(&self) -> Vec<String> {
        self.kept.boot_ids.clone()
    }

    /// Writes this process's boot id for the next process. Must be called before the boot id is
    /// published.
    pub(super) fn begin(&mut self, boot_id: &str) {
        let ended = &self.kept.boot_ids[self.kept.boot_ids.len().saturating_sub(REMEMBERED - 1)..];
        let boot_ids = ended.iter().cloned().chain([boot_id.to_owned()]).collect();
        let kept = Kept { kernel: self.kept.kernel.clone(), boot_ids };
        let file: &mut File = &mut self.file;
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| serde_json::to_writer(&mut *file, &kept).map_err(std::io::Error::other));
        if let Err(error) = written {
            tracing::warn!(
                event = "life-unsaid",
                %error,
                "if this process is killed, the next one waits for the end of its lease"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn next_process_knows_ended_processes_and_waits_for_a_running_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib/n1.life");
        let mut first = LifeFile::take(&path).unwrap();
        assert!(first.ended().is_empty());
        first.begin("b1");
        let error = LifeFile::take_within(&path, SHORT).unwrap_err().to_string();
        assert!(error.contains("n1.life") && error.contains("another weir process"), "{error}");
        drop(first);
        let mut second = LifeFile::take(&path).unwrap();
        assert_eq!(second.ended(), ["b1"]);
        second.begin("b2");
        assert_eq!(second.ended(), ["b1"], "the process itself has not ended");
        drop(second);
        let mut third = LifeFile::take(&path).unwrap();
        assert_eq!(third.ended(), ["b1", "b2"]);
        (3..100).for_each(|number| third.begin(&format!("b{number}")));
        drop(third);
        assert_eq!(LifeFile::take(&path).unwrap().ended(), ["b1", "b2", "b99"]);
    }

    /// No file names an ended process unless it was written under this boot of the kernel.
    #[test]
    fn text() {
        type Case = (Vec<u8>, String, Vec<String>, Vec<(u16, u8)>);
        bolero::check!().with_type::<Case>().for_each(|(any, kernel, boot_ids, edits)| {
            let kept = Kept { kernel: kernel.clone(), boot_ids: boot_ids.clone() };
            let mut text = serde_json::to_vec(&kept).unwrap();
            let whole = Kept::read(&String::from_utf8_lossy(&text), kernel.clone());
            assert_eq!(whole.boot_ids, if kernel.is_empty() { &[][..] } else { boot_ids });
            for (at, value) in edits {
                let at = usize::from(*at) % text.len();
                text[at] = *value;
            }
            for bytes in [&text, any] {
                let text = String::from_utf8_lossy(bytes);
                let read = Kept::read(&text, kernel.clone());
                assert_eq!(&read.kernel, kernel);
                assert!(Kept::read(&text, String::new()).boot_ids.is_empty());
                let again = serde_json::to_string(&read).unwrap();
                let other = Kept::read(&again, format!("{kernel}2"));
                assert!(other.boot_ids.is_empty(), "boot ids of another kernel do not count");
            }
        });
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named_with_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lib"), "no folder").unwrap();
        let error = LifeFile::take(&folder.path().join("lib/n1.life")).unwrap_err().to_string();
        assert!(error.contains("n1.life: ") && error.contains("STATE_DIRECTORY"), "{error}");
    }

    #[test]
    fn file_of_another_kernel_or_invalid_file_names_no_ended_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.life");
        for text in [r#"{"kernel":"of another machine","boot_ids":["b1"]}"#, "{", ""] {
            fs::write(&path, text).unwrap();
            let mut file = LifeFile::take(&path).unwrap();
            assert!(file.ended().is_empty(), "{text}");
            file.begin("b2");
            drop(file);
            assert_eq!(LifeFile::take(&path).unwrap().ended(), ["b2"]);
        }
    }
}
