//! The operator: orders that are written at once, past all faults, and without a check.

use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_config::Desired;
use weir_controller::records::{Control, DrainOrder, FORMAT, Intent, Meta, OrderAuthor};
use weir_etcd::transaction::{Operation, Transaction};
use weir_etcd::{ClusterName, Key, Keys, json};
use weir_map::{NodeId, ShardEntry, ShardId};

use crate::etcd::Etcd;

/// An operator with all rights on the keys of a cluster.
#[derive(Clone, Debug)]
pub struct Operator {
    keys: Keys,
}

impl Operator {
    pub fn new(cluster: ClusterName) -> Self {
        Self { keys: Keys::new(cluster) }
    }

    /// Writes the cluster's file; the first one creates the cluster.
    pub fn apply(&self, now_us: u64, etcd: &mut Etcd, desired: &Desired, cluster_id: u128) {
        self.put(now_us, etcd, &Key::Desired, json(desired));
        if etcd.get(&self.keys.path(&Key::Meta)).is_none() {
            let meta = Meta { format: FORMAT, cluster_id: format!("{cluster_id:032x}") };
            self.put(now_us, etcd, &Key::Meta, json(&meta));
        }
    }

    pub fn drain(&self, now_us: u64, etcd: &mut Etcd, node: &NodeId, force: bool) {
        let drain = DrainOrder { order: order(now_us), force };
        self.intend(now_us, etcd, node, |intent| intent.drain = Some(drain));
    }

    pub fn undrain(&self, now_us: u64, etcd: &mut Etcd, node: &NodeId) {
        self.intend(now_us, etcd, node, |intent| intent.drain = None);
    }

    /// Returns the current map.
    pub fn entries(&self, etcd: &Etcd) -> Vec<(ShardId, ShardEntry)> {
        let found = etcd.list(&self.keys.range(weir_etcd::KeyRange::Shards)).into_iter();
        let entries = found.filter_map(|(path, held)| {
            let Ok(Key::Shard(shard)) = self.keys.parse(path.as_bytes()) else { return None };
            Some((shard, ShardEntry::from_json(&held.value).ok()?))
        });
        entries.collect()
    }

    pub fn unfreeze(&self, now_us: u64, etcd: &mut Etcd) {
        self.control(now_us, etcd, |control| control.freeze = None);
    }

    /// Lets shards in doubt continue although their newest entry is not certain.
    pub fn rebase(&self, now_us: u64, etcd: &mut Etcd) {
        self.control(now_us, etcd, |control| control.rebase = Some(order(now_us)));
    }

    /// Returns the value of a key, parsed as JSON.
    pub fn read<T: DeserializeOwned>(&self, etcd: &Etcd, key: &Key) -> Option<T> {
        serde_json::from_slice(&etcd.get(&self.keys.path(key))?.value).ok()
    }

    fn intend(
        &self,
        now_us: u64,
        etcd: &mut Etcd,
        node: &NodeId,
        change: impl FnOnce(&mut Intent),
    ) {
        self.change(now_us, etcd, &Key::Intent(node.clone()), change);
    }

    fn control(&self, now_us: u64, etcd: &mut Etcd, change: impl FnOnce(&mut Control)) {
        self.change(now_us, etcd, &Key::Control, change);
    }

    fn change<T: Default + Serialize + DeserializeOwned>(
        &self,
        now_us: u64,
        etcd: &mut Etcd,
        key: &Key,
        change: impl FnOnce(&mut T),
    ) {
        let mut value: T = self.read(etcd, key).unwrap_or_default();
        let before = json(&value);
        change(&mut value);
        if json(&value) != before {
            self.put(now_us, etcd, key, json(&value));
        }
    }

    fn put(&self, now_us: u64, etcd: &mut Etcd, key: &Key, value: Vec<u8>) {
        let put = Operation::Put { path: self.keys.path(key), value, lease: None };
        etcd.do_now(now_us, &Transaction { then: vec![put], ..Transaction::default() });
    }
}

fn order(now_us: u64) -> OrderAuthor {
    OrderAuthor { by: "the operator".into(), at_ms: now_us / 1000 }
}
