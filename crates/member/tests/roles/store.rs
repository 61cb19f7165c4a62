//! A store: entries and node records under compare and swap, and a log of all changes for those who watch.

use std::collections::BTreeMap;

use weir_member::roles::NodeWorker;
use weir_shard::{Epoch, NodeId, ShardEntry, ShardId, Transition};

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Entry(ShardId, Box<ShardEntry>),
    Node(NodeId, Option<Vec<NodeWorker>>),
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) entries: BTreeMap<ShardId, ShardEntry>,
    pub(crate) nodes: BTreeMap<NodeId, Vec<NodeWorker>>,
    /// Every change there ever was, and when.
    pub(crate) log: Vec<(u64, Change)>,
}

impl Store {
    pub(crate) fn create(&mut self, now_ms: u64, shard: ShardId, entry: ShardEntry) {
        self.log.push((now_ms, Change::Entry(shard, Box::new(entry.clone()))));
        self.entries.insert(shard, entry);
    }

    /// Whether the change was still for the entry that is there.
    pub(crate) fn change(
        &mut self,
        now_ms: u64,
        shard: ShardId,
        at: Epoch,
        transition: &Transition,
    ) -> bool {
        let next = self.entries.get(&shard).map(|entry| entry.after(at, transition));
        let Some(Ok(next)) = next else { return false };
        self.create(now_ms, shard, next);
        true
    }

    pub(crate) fn register(&mut self, now_ms: u64, node: &NodeId, workers: Vec<NodeWorker>) {
        if self.nodes.get(node) != Some(&workers) {
            self.nodes.insert(node.clone(), workers.clone());
            self.log.push((now_ms, Change::Node(node.clone(), Some(workers))));
        }
    }

    pub(crate) fn unregister(&mut self, now_ms: u64, node: &NodeId) {
        if self.nodes.remove(node).is_some() {
            self.log.push((now_ms, Change::Node(node.clone(), None)));
        }
    }
}
