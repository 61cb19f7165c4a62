//! A node that was started without etcd, until etcd answers: what of the map its disk names it for, what it does for that,
//! and says so.

use std::time::Instant;

use weir_shard::ShardEntry;

use super::known_map::KnownMap;
use crate::api::OutsideStatus;

/// Such a node.
#[derive(Debug)]
pub(super) struct Outside {
    began: Instant,
    /// Shards whose newest entry on disk names a former life of this node.
    shards: Vec<u32>,
    /// etcd answers, and holds the cluster of this id.
    pub(super) other_cluster: Option<String>,
}

impl Outside {
    pub(super) fn new(node: &str, map: &KnownMap) -> Self {
        let names_us = |entry: &ShardEntry| {
            let mut members = entry.members().iter();
            members.any(|member| member.incarnation.worker.node.as_str() == node)
        };
        let shards = map.entries().filter(|(_, entry)| names_us(entry));
        let shards = shards.map(|(shard, _)| shard.0).collect();
        Self { began: Instant::now(), shards, other_cluster: None }
    }

    pub(super) fn begun(&self) {
        let shards = self.shards.len();
        tracing::warn!(
            event = "started-without-etcd",
            shards,
            "etcd does not answer: this node knows its cluster from its disk; of its shards it takes copies from \
             their other members, and makes no new flows until etcd answers"
        );
    }

    pub(super) fn ended(&self) {
        let waited_sec = self.began.elapsed().as_secs();
        tracing::info!(event = "etcd-found", waited_sec, "etcd answers: this node takes part");
    }

    pub(super) fn status(&self) -> OutsideStatus {
        OutsideStatus { shards: self.shards.clone(), other_cluster: self.other_cluster.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_shard::ShardId;

    use super::super::known_map::tests::entry;
    use super::*;

    #[test]
    fn shards_whose_entry_on_disk_names_the_node_wait_for_etcd() {
        let mut map = KnownMap::load(Path::new("/nonexistent/n1.json")).unwrap();
        map.set_entry(ShardId(7), &entry(3));
        map.set_epoch(ShardId(8), Some(weir_shard::Epoch(1)));
        assert_eq!(Outside::new("n1", &map).status().shards, [7]);
        assert!(Outside::new("n2", &map).status().shards.is_empty(), "a member on another node");
    }
}
