//! The operator: orders, written at once and past all faults. What an order is checked for before it is given is not
//! this: who fences a node here knows that it has ended.

use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_cluster::transaction::{Operation, Transaction};
use weir_cluster::{ClusterName, Key, Keys, NodeName, json};
use weir_config::Desired;
use weir_controller::records::{
    Control, DrainOrder, FORMAT, FenceOrder, FreezeOrder, Intent, Meta, Order,
};
use weir_shard::{BootId, NodeId, ShardEntry};

use crate::etcd::Etcd;

/// Somebody with all rights on the keys of a cluster.
#[derive(Clone, Debug)]
pub struct Operator {
    keys: Keys,
}

impl Operator {
    pub fn new(cluster: ClusterName) -> Self {
        Self { keys: Keys::new(cluster) }
    }

    /// The cluster's file; the first one makes the cluster.
    pub fn apply(&self, now_us: u64, etcd: &mut Etcd, desired: &Desired, cluster_id: u128) {
        self.put(now_us, etcd, &Key::Desired, json(desired));
        if etcd.get(&self.keys.path(&Key::Meta)).is_none() {
            let meta = Meta { format: FORMAT, cluster_id: format!("{cluster_id:032x}") };
            self.put(now_us, etcd, &Key::Meta, json(&meta));
        }
    }

    pub fn drain(&self, now_us: u64, etcd: &mut Etcd, node: &NodeName, force: bool) {
        let drain = DrainOrder { order: order(now_us), force };
        self.intend(now_us, etcd, node, |intent| intent.drain = Some(drain));
    }

    pub fn undrain(&self, now_us: u64, etcd: &mut Etcd, node: &NodeName) {
        self.intend(now_us, etcd, node, |intent| intent.drain = None);
    }

    /// Every life of the node that a shard names has certainly ended. False: it is registered, so it may run, and
    /// nothing was written.
    pub fn fence(&self, now_us: u64, etcd: &mut Etcd, node: &NodeName) -> bool {
        if etcd.get(&self.keys.path(&Key::Node(node.clone()))).is_some() {
            return false;
        }
        let boot_ids = self.lives_of(etcd, node);
        let fence = FenceOrder { order: order(now_us), boot_ids };
        self.intend(now_us, etcd, node, |intent| intent.fence = Some(fence));
        true
    }

    fn lives_of(&self, etcd: &Etcd, node: &NodeName) -> Vec<BootId> {
        let name = NodeId::new(&node.to_string()).expect("a name of a node");
        let entries = self.entries(etcd).into_iter();
        let members = entries.flat_map(|(_, entry)| entry.members().to_vec());
        let lives = members.map(|member| member.incarnation);
        let mut lives: Vec<BootId> =
            lives.filter(|it| it.worker.node == name).map(|it| it.boot_id).collect();
        lives.sort_unstable();
        lives.dedup();
        lives
    }

    /// The map as it stands.
    pub fn entries(&self, etcd: &Etcd) -> Vec<(u32, ShardEntry)> {
        let found = etcd.list(&self.keys.range(weir_cluster::Range::Shards)).into_iter();
        let entries = found.filter_map(|(path, held)| {
            let Ok(Key::Shard(shard)) = self.keys.parse(path.as_bytes()) else { return None };
            Some((shard, ShardEntry::from_json(&held.value).ok()?))
        });
        entries.collect()
    }

    pub fn freeze(&self, now_us: u64, etcd: &mut Etcd) {
        let freeze = FreezeOrder { order: order(now_us), why: String::new(), is_total: false };
        self.control(now_us, etcd, |control| control.freeze = Some(freeze));
    }

    pub fn unfreeze(&self, now_us: u64, etcd: &mut Etcd) {
        self.control(now_us, etcd, |control| control.freeze = None);
    }

    pub fn rebalance(&self, now_us: u64, etcd: &mut Etcd) {
        self.control(now_us, etcd, |control| control.rebalance = Some(order(now_us)));
    }

    /// Shards in doubt are to go on although not all is certain.
    pub fn rebase(&self, now_us: u64, etcd: &mut Etcd) {
        self.control(now_us, etcd, |control| control.rebase = Some(order(now_us)));
    }

    /// What a key is, read as JSON.
    pub fn read<T: DeserializeOwned>(&self, etcd: &Etcd, key: &Key) -> Option<T> {
        serde_json::from_slice(&etcd.get(&self.keys.path(key))?.value).ok()
    }

    fn intend(
        &self,
        now_us: u64,
        etcd: &mut Etcd,
        node: &NodeName,
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

fn order(now_us: u64) -> Order {
    Order { by: "the operator".into(), at_ms: now_us / 1000 }
}
