//! How a node comes to take part: its lives go to disk before etcd hears of them. One that was started without etcd waits
//! for it first, and says what it does meanwhile.

use std::time::Duration;

use weir_shard::ShardEntry;

use crate::known_map::KnownMap;
use crate::map_keeper::Change;

/// A node that does not take part yet.
#[derive(Debug)]
pub(crate) struct Joining {
    /// None: it was started with etcd.
    pub(crate) outside: Option<Outside>,
    /// etcd answers, and holds the node's cluster.
    pub(crate) is_found: bool,
    /// That it is to be told of these lives of the node.
    pub(crate) noted: Option<Change>,
}

/// A node that was started without etcd, until etcd answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    began: Duration,
    /// Shards whose newest entry on disk names a former life of this node.
    pub shards: Vec<u32>,
    /// etcd answers, and holds the cluster of this id.
    pub other_cluster: Option<String>,
}

impl Joining {
    pub(crate) fn new(outside: Option<Outside>) -> Self {
        Self { is_found: outside.is_none(), outside, noted: None }
    }
}

impl Outside {
    pub(crate) fn new(now: Duration, node: &str, map: &KnownMap) -> Self {
        let names_us = |entry: &ShardEntry| {
            let mut members = entry.members().iter();
            members.any(|member| member.incarnation.worker.node.as_str() == node)
        };
        let shards = map.entries().filter(|(_, entry)| names_us(entry));
        let shards = shards.map(|(shard, _)| shard.0).collect();
        Self { began: now, shards, other_cluster: None }
    }

    pub(crate) fn begun(&self) {
        let shards = self.shards.len();
        tracing::warn!(
            event = "started-without-etcd",
            shards,
            "etcd does not answer: this node knows its cluster from its disk; of its shards it takes copies from \
             their other members, and makes no new flows until etcd answers"
        );
    }

    pub(crate) fn ended(&self, now: Duration) {
        let waited_sec = now.saturating_sub(self.began).as_secs();
        tracing::info!(event = "etcd-found", waited_sec, "etcd answers: this node takes part");
    }
}

#[cfg(test)]
mod tests {
    use weir_shard::{Epoch, ShardId};

    use super::*;
    use crate::known_map::tests::entry;

    #[test]
    fn shards_whose_entry_on_disk_names_the_node_wait_for_etcd() {
        let mut map = KnownMap::default();
        map.set_entry(ShardId(7), &entry(3));
        map.set_epoch(ShardId(8), Some(Epoch(1)));
        assert_eq!(Outside::new(Duration::ZERO, "n1", &map).shards, [7]);
        let other = Outside::new(Duration::ZERO, "n2", &map);
        assert!(other.shards.is_empty(), "a member on another node");
    }
}
