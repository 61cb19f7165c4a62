//! What a node remembers over its restarts: the highest epoch of each shard that it has seen, and of which cluster.
//!
//! An etcd that was restored from a backup tells older entries again; a node that has seen newer ones must not obey
//! them. The file is small (a line of JSON) and replaced as a whole, so that a crash leaves the old one or the new one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_shard::{Epoch, ShardId};

/// The epochs and their file.
#[derive(Clone, Debug)]
pub(super) struct KnownEpochs {
    path: PathBuf,
    kept: Kept,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Of `/meta`; empty until it was seen.
    cluster_id: String,
    epochs: BTreeMap<u32, u64>,
}

impl KnownEpochs {
    /// What the file says; nothing if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is not what a node wrote: whoever removes it says that no older etcd can come back.
    pub(super) fn load(path: &Path) -> io::Result<Self> {
        let kept = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => return Err(error),
        };
        Ok(Self { path: path.to_owned(), kept })
    }

    pub(super) fn epochs(&self) -> impl Iterator<Item = (ShardId, Epoch)> + '_ {
        self.kept.epochs.iter().map(|(&shard, &epoch)| (ShardId(shard), Epoch(epoch)))
    }

    /// This is the node's cluster from now on; epochs of another one mean nothing in it.
    pub(super) fn set_cluster(&mut self, cluster_id: &str) {
        if self.kept.cluster_id != cluster_id {
            self.kept = Kept { cluster_id: cluster_id.to_owned(), epochs: BTreeMap::new() };
        }
    }

    /// None: the shard is no more.
    pub(super) fn set(&mut self, shard: ShardId, epoch: Option<Epoch>) {
        match epoch {
            Some(epoch) => self.kept.epochs.insert(shard.0, epoch.0),
            None => self.kept.epochs.remove(&shard.0),
        };
    }

    /// Writes the file, its folder too if need be.
    ///
    /// # Errors
    /// What the file system refuses; the old file is still there then.
    pub(super) fn save(&self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        serde_json::to_writer(&mut file, &self.kept).map_err(io::Error::other)?;
        file.flush()?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib/n1.json");
        let mut known = KnownEpochs::load(&path).unwrap();
        known.set_cluster("c1");
        known.set(ShardId(7), Some(Epoch(12)));
        known.set(ShardId(8), Some(Epoch(9)));
        known.set(ShardId(8), None);
        known.save().unwrap();
        let mut again = KnownEpochs::load(&path).unwrap();
        assert_eq!(again.epochs().collect::<Vec<_>>(), [(ShardId(7), Epoch(12))]);
        again.set_cluster("c1");
        assert_eq!(again.epochs().count(), 1);
        again.set_cluster("c2");
        assert_eq!(again.epochs().count(), 0, "another cluster counts anew");
    }

    /// What is read is what was written: any other bytes are refused, not taken for nothing.
    #[test]
    fn text() {
        type Case = (Vec<u8>, String, Vec<(u32, u64)>, Vec<(u16, u8)>);
        bolero::check!().with_type::<Case>().for_each(|(any, cluster_id, epochs, edits)| {
            let epochs = epochs.iter().copied().collect();
            let kept = Kept { cluster_id: cluster_id.clone(), epochs };
            let mut text = serde_json::to_vec(&kept).unwrap();
            assert_eq!(serde_json::from_slice::<Kept>(&text).unwrap(), kept);
            for (at, value) in edits {
                let at = usize::from(*at) % text.len();
                text[at] = *value;
            }
            for bytes in [&text, any] {
                if let Ok(read) = serde_json::from_slice::<Kept>(bytes) {
                    let again = serde_json::to_vec(&read).unwrap();
                    assert_eq!(serde_json::from_slice::<Kept>(&again).unwrap(), read);
                }
            }
        });
    }

    #[test]
    fn a_file_of_something_else_is_not_taken_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.json");
        fs::write(&path, "{}garbage").unwrap();
        assert!(KnownEpochs::load(&path).is_err());
    }
}
