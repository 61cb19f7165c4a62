//! What a node makes of the keys for its roles, as its roles thread does.

use std::collections::BTreeMap;

use weir_cluster::{Key, MirrorEvent, NodeRecord, Revision};
use weir_config::{ClusterShard, Desired};
use weir_member::order::ShardSetup;
use weir_member::roles::{Change, DesiredShard, Input, NodeWorker};
use weir_replica::{Fingerprint, FingerprintPart};
use weir_shard::{BootId, ShardEntry, ShardId};

/// The store's entries, with what they are compared by when they are written.
#[derive(Debug, Default)]
pub(super) struct MapInputs {
    entries: BTreeMap<ShardId, (Revision, ShardEntry)>,
}

impl MapInputs {
    /// None: it does not concern the roles, or cannot be read.
    pub(super) fn take(&mut self, event: MirrorEvent) -> Option<Input> {
        match event {
            MirrorEvent::Put { key, value, mod_revision } => {
                self.take_key(&key, &value, mod_revision)
            }
            MirrorEvent::Delete { key: Key::Shard(id) } => {
                self.entries.remove(&id);
                Some(Input::EntryGone(id))
            }
            MirrorEvent::Delete { key: Key::Node(name) } => {
                Some(Input::Node { node: name, workers: None })
            }
            MirrorEvent::Delete { .. } => None,
            MirrorEvent::SnapshotComplete { .. } => Some(Input::Fresh),
            MirrorEvent::Restored { .. } => {
                self.entries.clear();
                Some(Input::Restored)
            }
            MirrorEvent::Stale => Some(Input::Stale),
        }
    }

    fn take_key(&mut self, key: &Key, value: &[u8], revision: Revision) -> Option<Input> {
        match key {
            &Key::Shard(shard) => {
                let entry = ShardEntry::from_json(value).ok()?;
                self.entries.insert(shard, (revision, entry.clone()));
                Some(Input::Entry { shard, entry: Box::new(entry) })
            }
            Key::Node(node) => {
                let record: NodeRecord = serde_json::from_slice(value).ok()?;
                Some(Input::Node { node: node.clone(), workers: Some(workers_of(&record)) })
            }
            Key::Desired => Some(desired_input(&serde_json::from_slice(value).ok()?)),
            _ => None,
        }
    }

    /// What is to be written for a change, and the revision that it is compared with. None: the entry has moved on.
    pub(super) fn write_of(&self, change: &Change) -> Option<(Revision, Vec<u8>)> {
        let (revision, entry) = self.entries.get(&change.shard)?;
        let next = entry.after(change.at, &change.transition).ok()?;
        Some((*revision, next.to_json().into_bytes()))
    }
}

/// Those workers that say where they are reached.
fn workers_of(record: &NodeRecord) -> Vec<NodeWorker> {
    let workers = record.workers.iter().filter_map(|worker| {
        let boot_id = BootId::try_from(worker.boot_id.clone()).ok()?;
        Some(NodeWorker { index: worker.index, boot_id, replication: worker.replication? })
    });
    workers.collect()
}

/// The cluster's file as roles take it.
pub fn desired_input(desired: &Desired) -> Input {
    let shards = desired.shards.iter().filter_map(|shard| {
        let access = shard.endpoint.or(shard.steer)?;
        let awaits_replicas = desired.is_committed(shard);
        let setup = ShardSetup { awaits_replicas, ..setup_of(shard, desired.nat.enabled) };
        Some(DesiredShard { id: ShardId(shard.id), access, setup })
    });
    let digests = desired.fingerprint();
    let fingerprint = Fingerprint::default()
        .with(FingerprintPart::Prefixes, digests.prefixes)
        .with(FingerprintPart::BlockSize, digests.block_size)
        .with(FingerprintPart::Lanes, digests.lanes)
        .with(FingerprintPart::Shards, digests.shards);
    Input::Desired { shards: shards.collect(), fingerprint }
}

fn setup_of(shard: &ClusterShard, is_translating: bool) -> ShardSetup {
    let id = ShardId(shard.id);
    let (endpoint, subscribers) = (shard.endpoint.map(u32::from), shard.subscribers.clone());
    let has_public = is_translating || !shard.public.is_empty();
    let public = if has_public { &shard.public } else { &shard.subscribers }.clone();
    let nat = weir_nat::ShardConfig { id, public, subscribers_max: shard.subscribers_max };
    ShardSetup {
        engine: weir_engine::ShardConfig { id, endpoint, subscribers },
        nat,
        awaits_replicas: false,
    }
}
