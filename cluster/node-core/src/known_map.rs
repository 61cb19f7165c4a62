//! The map that a node keeps across restarts: the newest entry of each shard that it has seen and
//! its epoch, where the workers of each node are reached, what the operator wants of the cluster,
//! and which cluster that is.
//!
//! An etcd that was restored from a backup reports older entries again; a node that has seen newer
//! ones must not obey them. A node that starts while etcd does not answer knows its cluster from
//! this map. Its text on disk is JSON and is replaced as a whole, so that a crash leaves the old
//! one or the new one; values of etcd lie in it as they were read.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_config::Desired;
use weir_map::{BootId, Epoch, Member, ShardEntry, ShardId};

/// The newest of the map that a node has seen. A clone costs a few pointers for each shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownMap {
    /// The cluster id of `/meta`; empty until it was seen.
    cluster_id: String,
    epochs: BTreeMap<u32, u64>,
    /// Entries of some of these shards, each of the shard's epoch.
    #[serde(default)]
    entries: BTreeMap<u32, SharedText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    desired: Option<SharedText>,
    /// The last record of each node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nodes: BTreeMap<String, SharedText>,
    /// By worker: the boot id of the last process that has registered in etcd.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lives: Vec<String>,
    /// Whether the node's last process may have sent its shutdown notice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_ended: bool,
}

/// A value of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SharedText(Arc<str>);

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(deserializer)?.into()))
    }
}

impl KnownMap {
    /// Reads what a node has written.
    ///
    /// # Errors
    /// The text is anything else.
    pub fn from_json(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Returns the text as it lies on disk.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers")
    }

    pub fn epochs(&self) -> impl Iterator<Item = (ShardId, Epoch)> + '_ {
        self.epochs.iter().map(|(&shard, &epoch)| (ShardId(shard), Epoch(epoch)))
    }

    pub fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.epochs.get(&shard.0).copied().map(Epoch)
    }

    /// Returns the entries of the highest epoch seen, without those that this version cannot read.
    pub fn entries(&self) -> impl Iterator<Item = (ShardId, ShardEntry)> + '_ {
        self.entries.iter().filter_map(|(&shard, text)| {
            let entry = ShardEntry::from_json(text.0.as_bytes()).ok()?;
            (Some(entry.epoch()) == self.epoch(ShardId(shard))).then_some((ShardId(shard), entry))
        })
    }

    /// Returns the cluster's id and settings, if both were seen.
    ///
    /// # Errors
    /// This version cannot read the settings.
    pub fn cluster(&self) -> Result<Option<(&str, Desired)>, serde_json::Error> {
        let Some(desired) = self.desired.as_ref().filter(|_| !self.cluster_id.is_empty()) else {
            return Ok(None);
        };
        Ok(Some((self.cluster_id.as_str(), serde_json::from_str(&desired.0)?)))
    }

    /// Sets the node's cluster. Everything seen of another cluster is dropped: it means nothing in
    /// this one.
    pub fn set_cluster(&mut self, cluster_id: &str) {
        if self.cluster_id != cluster_id {
            *self = Self { cluster_id: cluster_id.to_owned(), ..Self::default() };
        }
    }

    /// Sets an epoch. None: the shard is no more. Returns whether that is new.
    pub fn set_epoch(&mut self, shard: ShardId, epoch: Option<Epoch>) -> bool {
        if self.epoch(shard) == epoch {
            return false;
        }
        self.entries.remove(&shard.0);
        match epoch {
            Some(epoch) => self.epochs.insert(shard.0, epoch.0),
            None => self.epochs.remove(&shard.0),
        };
        true
    }

    /// Sets an entry that is to be obeyed, with its epoch. Returns whether that is new.
    pub fn set_entry(&mut self, shard: ShardId, entry: &ShardEntry) -> bool {
        let text = SharedText(entry.to_json().into());
        let is_new = self.set_epoch(shard, Some(entry.epoch()));
        self.entries.insert(shard.0, text.clone()).as_ref() != Some(&text) || is_new
    }

    /// Sets what the operator wants, as etcd has it. Returns whether that is new.
    pub fn set_desired(&mut self, text: &str) -> bool {
        let is_new = self.desired.as_ref().is_none_or(|desired| *desired.0 != *text);
        if is_new {
            self.desired = Some(SharedText(text.into()));
        }
        is_new
    }

    /// Returns the records of nodes, by name, as etcd had them.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.nodes.iter().map(|(name, text)| (name.as_str(), &*text.0))
    }

    /// Sets a node's record. None: the node is not registered any more; its record is kept while it
    /// is a member of a shard, as it may still run. Returns whether that is new.
    pub fn set_node(&mut self, name: &str, text: Option<&str>) -> bool {
        let Some(text) = text.map(|text| SharedText(text.into())) else {
            let is_its = |member: &Member| member.incarnation.worker.node.as_str() == name;
            let is_member = self.entries().any(|(_, entry)| entry.members().iter().any(is_its));
            return !is_member && self.nodes.remove(name).is_some();
        };
        let is_new = self.nodes.get(name) != Some(&text);
        if is_new {
            self.nodes.insert(name.to_owned(), text);
        }
        is_new
    }

    /// True if other nodes may have got the notice that the processes of this node have ended: then
    /// its workers may not be guests in their member slots.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Returns the incarnation of a worker that etcd was last sent, as far as is known.
    pub fn life(&self, worker: usize) -> Option<BootId> {
        BootId::try_from(self.lives.get(worker)?.clone()).ok()
    }

    /// Notes that a process takes part with these incarnations of its workers: the end of an
    /// earlier process does not matter any more. To be on disk before etcd is sent the record.
    pub fn begin_lives(&mut self, boot_ids: &[BootId]) {
        self.is_ended = false;
        self.lives = boot_ids.iter().map(ToString::to_string).collect();
    }

    /// Notes whether the node's process has ended. Returns whether that is new.
    pub fn set_ended(&mut self, is_ended: bool) -> bool {
        std::mem::replace(&mut self.is_ended, is_ended) != is_ended
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_map::{Incarnation, NodeId, Transition, WorkerId};

    use super::*;

    /// Returns the entry of a shard of n1 after this many changes.
    pub(crate) fn entry(epoch: u64) -> ShardEntry {
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

    /// The map as read after a restart.
    fn read(known: &KnownMap) -> KnownMap {
        KnownMap::from_json(&known.to_json()).unwrap()
    }

    #[test]
    fn a_saved_map_is_known_after_a_restart() {
        let mut known = KnownMap::default();
        known.set_cluster("c1");
        assert!(known.set_entry(ShardId(7), &entry(12)));
        assert!(!known.set_entry(ShardId(7), &entry(12)), "nothing new");
        assert!(known.set_entry(ShardId(8), &entry(9)));
        assert!(known.set_epoch(ShardId(8), None));
        assert!(known.set_epoch(ShardId(9), Some(Epoch(3))));
        let mut again = read(&known);
        let epochs: Vec<_> = again.epochs().collect();
        assert_eq!(epochs, [(ShardId(7), Epoch(12)), (ShardId(9), Epoch(3))]);
        assert_eq!(again.entries().collect::<Vec<_>>(), [(ShardId(7), entry(12))]);
        again.set_cluster("c1");
        assert_eq!(again.epochs().count(), 2);
        again.set_cluster("c2");
        assert_eq!(again.epochs().count(), 0, "another cluster has epochs of its own");
        assert_eq!(again.entries().count(), 0, "another cluster has entries of its own");
    }

    #[test]
    fn an_epoch_without_its_entry_leaves_no_older_entry() {
        let mut known = KnownMap::default();
        known.set_entry(ShardId(7), &entry(2));
        known.set_epoch(ShardId(7), Some(Epoch(3)));
        assert_eq!(known.entries().count(), 0);
        assert_eq!(known.epoch(ShardId(7)), Some(Epoch(3)));
    }

    #[test]
    fn a_node_s_record_is_kept_while_it_is_a_member() {
        let mut known = KnownMap::default();
        known.set_entry(ShardId(7), &entry(2));
        assert!(known.set_node("n1", Some("{}")) && known.set_node("n3", Some("[]")));
        assert!(!known.set_node("n1", Some("{}")), "nothing new");
        let mut again = read(&known);
        assert_eq!(again.nodes().collect::<Vec<_>>(), [("n1", "{}"), ("n3", "[]")]);
        assert!(!again.set_node("n1", None), "a member's node may still run");
        assert!(again.set_node("n3", None));
        again.set_epoch(ShardId(7), None);
        assert!(again.set_node("n1", None));
        assert_eq!(again.nodes().count(), 0);
    }

    #[test]
    fn a_shutdown_notice_is_known_until_the_node_takes_part_again() {
        let mut known = KnownMap::default();
        assert!(!known.is_ended() && known.set_ended(true) && !known.set_ended(true));
        assert_eq!(known.life(0), None);
        let mut again = read(&known);
        assert!(again.is_ended() && again.set_ended(false) && !again.is_ended());
        again.set_ended(true);
        again.begin_lives(&[BootId(5), BootId(6)]);
        let again = read(&again);
        assert!(!again.is_ended());
        let lives = [again.life(0), again.life(1), again.life(2)];
        assert_eq!(lives, [Some(BootId(5)), Some(BootId(6)), None]);
    }

    #[test]
    fn the_cluster_is_known_once_its_id_and_its_file_were_seen() {
        let mut known = KnownMap::default();
        assert!(known.set_desired("{"));
        assert!(!known.set_desired("{"));
        assert!(known.cluster().unwrap().is_none(), "the id of the cluster is not known");
        known.set_cluster("c1");
        assert!(known.cluster().unwrap().is_none(), "the file was of another cluster");
        known.set_desired("{");
        assert!(known.cluster().is_err(), "a file that cannot be read does not count as absent");
    }

    #[test]
    fn the_file_of_a_node_that_kept_epochs_only_is_read() {
        let known = KnownMap::from_json(br#"{"cluster_id":"c1","epochs":{"7":12}}"#).unwrap();
        assert_eq!(known.epochs().collect::<Vec<_>>(), [(ShardId(7), Epoch(12))]);
        assert!(known.entries().next().is_none() && known.cluster().unwrap().is_none());
    }

    /// Text that is read is what was written: any other bytes are refused, not counted as an empty
    /// map.
    #[test]
    fn text() {
        type Values = (Vec<(u32, String)>, Option<String>);
        type Case = (Vec<u8>, String, Vec<(u32, u64)>, Values, Vec<(u16, u8)>);
        bolero::check!().with_type::<Case>().for_each(
            |(any, cluster_id, epochs, values, edits)| {
                let text = |value: &String| SharedText(value.as_str().into());
                let (entries, desired) = values;
                let kept = KnownMap {
                    lives: Vec::new(),
                    cluster_id: cluster_id.clone(),
                    epochs: epochs.iter().copied().collect(),
                    entries: entries.iter().map(|(shard, value)| (*shard, text(value))).collect(),
                    desired: desired.as_ref().map(text),
                    nodes: desired.iter().map(|it| (it.clone(), text(it))).collect(),
                    is_ended: desired.is_some(),
                };
                let mut text = serde_json::to_vec(&kept).unwrap();
                assert_eq!(serde_json::from_slice::<KnownMap>(&text).unwrap(), kept);
                for (at, value) in edits {
                    let at = usize::from(*at) % text.len();
                    text[at] = *value;
                }
                for bytes in [&text, any] {
                    if let Ok(read) = serde_json::from_slice::<KnownMap>(bytes) {
                        let again = serde_json::to_vec(&read).unwrap();
                        assert_eq!(serde_json::from_slice::<KnownMap>(&again).unwrap(), read);
                        let _ = (read.entries().count(), read.cluster().is_ok());
                    }
                }
            },
        );
    }

    #[test]
    fn a_map_file_of_something_else_is_refused() {
        assert!(KnownMap::from_json(b"{}garbage").is_err());
    }
}
