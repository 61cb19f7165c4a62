//! What a node remembers over its restarts: the newest entry of each shard that it has seen and its epoch, where the workers
//! of each node are reached, what the operator wants of the cluster, and which cluster that is.
//!
//! An etcd that was restored from a backup tells older entries again; a node that has seen newer ones must not obey
//! them. A node that starts while etcd does not answer knows its cluster from this file. It is JSON and replaced as a
//! whole, so that a crash leaves the old one or the new one; values of etcd lie in it as they were read there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_config::Desired;
use weir_shard::{BootId, Epoch, Member, ShardEntry, ShardId};

/// The newest of the map, and its file. A clone costs a few pointers for each shard.
#[derive(Clone, Debug)]
pub(super) struct KnownMap {
    path: PathBuf,
    kept: Kept,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Of `/meta`; empty until it was seen.
    cluster_id: String,
    epochs: BTreeMap<u32, u64>,
    /// Entries of some of them, each of that epoch.
    #[serde(default)]
    entries: BTreeMap<u32, Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    desired: Option<Text>,
    /// The record of each node as it was last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nodes: BTreeMap<String, Text>,
    /// Of each worker the boot id of the last process that has told etcd of itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lives: Vec<String>,
    /// The node's last process may have told etcd that it has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_ended: bool,
}

/// A value of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(Arc<str>);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(deserializer)?.into()))
    }
}

impl KnownMap {
    /// What the file says; nothing if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is not what a node wrote: whoever removes it says that no older etcd can come back.
    pub(super) fn load(path: &Path) -> io::Result<Self> {
        let kept: Kept = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => return Err(error),
        };
        Ok(Self { path: path.to_owned(), kept })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn epochs(&self) -> impl Iterator<Item = (ShardId, Epoch)> + '_ {
        self.kept.epochs.iter().map(|(&shard, &epoch)| (ShardId(shard), Epoch(epoch)))
    }

    pub(super) fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.kept.epochs.get(&shard.0).copied().map(Epoch)
    }

    /// Those of the highest epoch seen; without those that this version cannot read.
    pub(super) fn entries(&self) -> impl Iterator<Item = (ShardId, ShardEntry)> + '_ {
        self.kept.entries.iter().filter_map(|(&shard, text)| {
            let entry = ShardEntry::from_json(text.0.as_bytes()).ok()?;
            (Some(entry.epoch()) == self.epoch(ShardId(shard))).then_some((ShardId(shard), entry))
        })
    }

    /// The cluster and what was wanted of it, where both were seen.
    ///
    /// # Errors
    /// Why this version cannot read the latter.
    pub(super) fn cluster(&self) -> Result<Option<(&str, Desired)>, serde_json::Error> {
        let Some(desired) = self.kept.desired.as_ref().filter(|_| !self.kept.cluster_id.is_empty())
        else {
            return Ok(None);
        };
        Ok(Some((self.kept.cluster_id.as_str(), serde_json::from_str(&desired.0)?)))
    }

    /// This is the node's cluster from now on; what was seen of another one means nothing in it.
    pub(super) fn set_cluster(&mut self, cluster_id: &str) {
        if self.kept.cluster_id != cluster_id {
            self.kept = Kept { cluster_id: cluster_id.to_owned(), ..Kept::default() };
        }
    }

    /// None: the shard is no more. Whether that is new.
    pub(super) fn set_epoch(&mut self, shard: ShardId, epoch: Option<Epoch>) -> bool {
        if self.epoch(shard) == epoch {
            return false;
        }
        self.kept.entries.remove(&shard.0);
        match epoch {
            Some(epoch) => self.kept.epochs.insert(shard.0, epoch.0),
            None => self.kept.epochs.remove(&shard.0),
        };
        true
    }

    /// An entry that is to be obeyed, with its epoch. Whether that is new.
    pub(super) fn set_entry(&mut self, shard: ShardId, entry: &ShardEntry) -> bool {
        let text = Text(entry.to_json().into());
        let is_new = self.set_epoch(shard, Some(entry.epoch()));
        self.kept.entries.insert(shard.0, text.clone()).as_ref() != Some(&text) || is_new
    }

    /// What the operator wants, as etcd has it. Whether that is new.
    pub(super) fn set_desired(&mut self, text: &str) -> bool {
        let is_new = self.kept.desired.as_ref().is_none_or(|desired| *desired.0 != *text);
        if is_new {
            self.kept.desired = Some(Text(text.into()));
        }
        is_new
    }

    /// By name, as etcd had them.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept.nodes.iter().map(|(name, text)| (name.as_str(), &*text.0))
    }

    /// None: the node is not registered any more. It is kept while it is a member of a shard, as it may still run. Whether
    /// that is new.
    pub(super) fn set_node(&mut self, name: &str, text: Option<&str>) -> bool {
        let Some(text) = text.map(|text| Text(text.into())) else {
            let is_its = |member: &Member| member.incarnation.worker.node.as_str() == name;
            let is_member = self.entries().any(|(_, entry)| entry.members().iter().any(is_its));
            return !is_member && self.kept.nodes.remove(name).is_some();
        };
        let is_new = self.kept.nodes.get(name) != Some(&text);
        if is_new {
            self.kept.nodes.insert(name.to_owned(), text);
        }
        is_new
    }

    /// Whether others may have been told that the processes of this node have ended: who would be a guest in their place has
    /// no place.
    pub(super) fn is_ended(&self) -> bool {
        self.kept.is_ended
    }

    /// The life of a worker that etcd was told of last, as far as is known.
    pub(super) fn life(&self, worker: usize) -> Option<BootId> {
        BootId::try_from(self.kept.lives.get(worker)?.clone()).ok()
    }

    /// A process takes part, with these lives of its workers: that one before it has ended says nothing any more. To be on
    /// disk before etcd is told of it.
    pub(super) fn begin_lives(&mut self, boot_ids: &[BootId]) {
        self.kept.is_ended = false;
        self.kept.lives = boot_ids.iter().map(ToString::to_string).collect();
    }

    /// Whether that is new.
    pub(super) fn set_ended(&mut self, is_ended: bool) -> bool {
        std::mem::replace(&mut self.kept.is_ended, is_ended) != is_ended
    }

    /// Writes the file, its folder too if need be. Once this returns, a loss of power does not bring the old one back.
    ///
    /// # Errors
    /// What the file system refuses; the old file is still there then.
    pub(super) fn save(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            fs::create_dir_all(folder)?;
        }
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        let text = serde_json::to_vec(&self.kept).map_err(io::Error::other)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use weir_shard::{Incarnation, NodeId, Transition, WorkerId};

    use super::*;

    /// The entry of a shard of n1 after so many changes.
    pub(in crate::cluster) fn entry(epoch: u64) -> ShardEntry {
        let life = |node: &str, boot_id: u64| Incarnation {
            worker: WorkerId { node: NodeId::new(node).unwrap(), index: 0 },
            boot_id: BootId(boot_id.into()),
        };
        let mut entry = ShardEntry::create(life("n1", 1));
        for epoch in 1..epoch {
            let ended = entry.primary().incarnation.clone();
            let change = Transition::Restart { ended, boot_id: BootId(u128::from(epoch) + 1) };
            entry = entry.after(Epoch(epoch), &change).unwrap();
        }
        entry
    }

    #[test]
    fn what_was_saved_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib/n1.json");
        let mut known = KnownMap::load(&path).unwrap();
        known.set_cluster("c1");
        assert!(known.set_entry(ShardId(7), &entry(12)));
        assert!(!known.set_entry(ShardId(7), &entry(12)), "nothing new");
        assert!(known.set_entry(ShardId(8), &entry(9)));
        assert!(known.set_epoch(ShardId(8), None));
        assert!(known.set_epoch(ShardId(9), Some(Epoch(3))));
        known.save().unwrap();
        let mut again = KnownMap::load(&path).unwrap();
        let epochs: Vec<_> = again.epochs().collect();
        assert_eq!(epochs, [(ShardId(7), Epoch(12)), (ShardId(9), Epoch(3))]);
        assert_eq!(again.entries().collect::<Vec<_>>(), [(ShardId(7), entry(12))]);
        again.set_cluster("c1");
        assert_eq!(again.epochs().count(), 2);
        again.set_cluster("c2");
        assert_eq!(again.epochs().count(), 0, "another cluster counts anew");
        assert_eq!(again.entries().count(), 0, "and has entries of its own");
    }

    #[test]
    fn an_epoch_without_its_entry_leaves_no_older_entry() {
        let mut known = KnownMap::load(Path::new("/nonexistent/n1.json")).unwrap();
        known.set_entry(ShardId(7), &entry(2));
        known.set_epoch(ShardId(7), Some(Epoch(3)));
        assert_eq!(known.entries().count(), 0);
        assert_eq!(known.epoch(ShardId(7)), Some(Epoch(3)));
    }

    #[test]
    fn a_node_s_record_is_kept_while_it_is_a_member() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n2.json");
        let mut known = KnownMap::load(&path).unwrap();
        known.set_entry(ShardId(7), &entry(2));
        assert!(known.set_node("n1", Some("{}")) && known.set_node("n3", Some("[]")));
        assert!(!known.set_node("n1", Some("{}")), "nothing new");
        known.save().unwrap();
        let mut again = KnownMap::load(&path).unwrap();
        assert_eq!(again.nodes().collect::<Vec<_>>(), [("n1", "{}"), ("n3", "[]")]);
        assert!(!again.set_node("n1", None), "it may still run");
        assert!(again.set_node("n3", None));
        again.set_epoch(ShardId(7), None);
        assert!(again.set_node("n1", None));
        assert_eq!(again.nodes().count(), 0);
    }

    #[test]
    fn that_the_node_has_said_its_end_is_known_until_it_takes_part_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.json");
        let mut known = KnownMap::load(&path).unwrap();
        assert!(!known.is_ended() && known.set_ended(true) && !known.set_ended(true));
        assert_eq!(known.life(0), None);
        known.save().unwrap();
        let mut again = KnownMap::load(&path).unwrap();
        assert!(again.is_ended() && again.set_ended(false) && !again.is_ended());
        again.set_ended(true);
        again.begin_lives(&[BootId(5), BootId(6)]);
        again.save().unwrap();
        let again = KnownMap::load(&path).unwrap();
        assert!(!again.is_ended());
        let lives = [again.life(0), again.life(1), again.life(2)];
        assert_eq!(lives, [Some(BootId(5)), Some(BootId(6)), None]);
    }

    #[test]
    fn the_cluster_is_known_once_its_id_and_its_file_were_seen() {
        let mut known = KnownMap::load(Path::new("/nonexistent/n1.json")).unwrap();
        assert!(known.set_desired("{"));
        assert!(!known.set_desired("{"));
        assert!(known.cluster().unwrap().is_none(), "of which cluster?");
        known.set_cluster("c1");
        assert!(known.cluster().unwrap().is_none(), "it was of another cluster");
        known.set_desired("{");
        assert!(known.cluster().is_err(), "what cannot be read is not taken for nothing");
    }

    #[test]
    fn the_file_of_a_node_that_kept_epochs_only_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.json");
        fs::write(&path, r#"{"cluster_id":"c1","epochs":{"7":12}}"#).unwrap();
        let known = KnownMap::load(&path).unwrap();
        assert_eq!(known.epochs().collect::<Vec<_>>(), [(ShardId(7), Epoch(12))]);
        assert!(known.entries().next().is_none() && known.cluster().unwrap().is_none());
    }

    /// What is read is what was written: any other bytes are refused, not taken for nothing.
    #[test]
    fn text() {
        type Values = (Vec<(u32, String)>, Option<String>);
        type Case = (Vec<u8>, String, Vec<(u32, u64)>, Values, Vec<(u16, u8)>);
        bolero::check!().with_type::<Case>().for_each(
            |(any, cluster_id, epochs, values, edits)| {
                let text = |value: &String| Text(value.as_str().into());
                let (entries, desired) = values;
                let kept = Kept {
                    lives: Vec::new(),
                    cluster_id: cluster_id.clone(),
                    epochs: epochs.iter().copied().collect(),
                    entries: entries.iter().map(|(shard, value)| (*shard, text(value))).collect(),
                    desired: desired.as_ref().map(text),
                    nodes: desired.iter().map(|it| (it.clone(), text(it))).collect(),
                    is_ended: desired.is_some(),
                };
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
                        let known = KnownMap { path: PathBuf::new(), kept: read };
                        let _ = (known.entries().count(), known.cluster().is_ok());
                    }
                }
            },
        );
    }

    #[test]
    fn a_file_of_something_else_is_not_taken_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.json");
        fs::write(&path, "{}garbage").unwrap();
        assert!(KnownMap::load(&path).is_err());
    }
}
