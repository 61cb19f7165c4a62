//! The file with what a node remembers of the map over its restarts, and the threads that write it,
//! so that no other thread waits for the disk. [`weir_node_core`] decides what is written when.

use std::path::{Path, PathBuf};
use std::{fs, io, thread};

use weir_node_core::KnownMap;

use super::inbox::{InboxSender, Notice};
use crate::state_folder::replace_file;

/// The file, and the inbox that the result of each save goes to.
#[derive(Clone, Debug)]
pub(super) struct MapFile {
    path: PathBuf,
    inbox: InboxSender,
}

impl MapFile {
    pub(super) fn new(path: PathBuf, inbox: InboxSender) -> Self {
        Self { path, inbox }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file in a thread of its own; the result comes as
    /// [`CoreEvent::Saved`](weir_node_core::CoreEvent::Saved).
    pub(super) fn save_aside(&self, map: KnownMap) {
        let it = self.clone();
        let thread = thread::Builder::new().name("weir-map".into()).spawn(move || {
            let saved = save(&it.path, &map).map_err(|error| error.to_string());
            it.report(saved);
        });
        if let Err(error) = thread {
            self.report(Err(error.to_string()));
        }
    }

    fn report(&self, saved: Result<(), String>) {
        // A node that ends has closed its inbox.
        let _ = self.inbox.send(Notice::Saved(saved));
    }
}

/// Reads the file; returns an empty map if there is none.
///
/// # Errors
/// When it cannot be read, or is not what a node wrote: an operator who removes it asserts that no
/// older etcd can come back.
pub(super) fn load(path: &Path) -> io::Result<KnownMap> {
    match fs::read(path) {
        Ok(text) => KnownMap::from_json(&text).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(KnownMap::default()),
        Err(error) => Err(error),
    }
}

/// Writes the file.
///
/// # Errors
/// As [`replace_file`].
pub(super) fn save(path: &Path, map: &KnownMap) -> io::Result<()> {
    replace_file(path, &map.to_json())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_map::{Epoch, ShardId};
    use weir_node_core::CoreEvent;

    use super::super::inbox::{Inbox, inbox};
    use super::*;

    #[test]
    fn a_saved_map_is_reported_and_read_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib/n1.json");
        assert_eq!(load(&path).unwrap(), KnownMap::default());
        let mut map = KnownMap::default();
        map.set_epoch(ShardId(7), Some(Epoch(12)));
        let (sender, mut messages) = inbox();
        let file = MapFile::new(path.clone(), sender);
        file.save_aside(map.clone());
        let input = messages.recv_timeout(Duration::from_secs(20));
        assert!(matches!(input, Some(Inbox::Event(CoreEvent::Saved(Ok(()))))), "{input:?}");
        assert_eq!(load(&path).unwrap(), map);
    }

    #[test]
    fn a_failed_save_of_the_map_is_reported_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lib"), "no folder").unwrap();
        let (sender, mut messages) = inbox();
        let file = MapFile::new(folder.path().join("lib/n1.json"), sender);
        file.save_aside(KnownMap::default());
        let input = messages.recv_timeout(Duration::from_secs(20));
        assert!(matches!(input, Some(Inbox::Event(CoreEvent::Saved(Err(_))))), "{input:?}");
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.json");
        fs::write(&path, "{}garbage").unwrap();
        assert!(load(&path).is_err());
    }
}
