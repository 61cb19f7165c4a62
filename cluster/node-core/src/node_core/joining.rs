//! How a node comes to take part: its incarnations go to disk before etcd hears of them. A node
//! that was started without etcd waits for it first, and logs what it does meanwhile.

use std::time::Duration;

use weir_etcd::NodeRecord;
use weir_map::{BootId, NodeId, ShardEntry};
use weir_roles::RolesInput;

use super::Core;
use crate::action::CoreAction;
use crate::known_map::KnownMap;
use crate::map_keeper::ChangeNumber;

/// A node that does not take part yet.
#[derive(Debug)]
pub(crate) struct Joining {
    /// None: the node was started with etcd.
    pub(crate) outside: Option<Outside>,
    /// Whether etcd answers, and holds the node's cluster.
    pub(crate) is_found: bool,
    /// The saved change that notes the node's incarnations, which etcd is about to be sent.
    pub(crate) noted: Option<ChangeNumber>,
}

/// A node that was started without etcd, until etcd answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    began: Duration,
    /// Shards whose newest entry on disk names a former incarnation of this node.
    pub shards: Vec<u32>,
    /// Set if etcd answers, but holds the cluster of this id.
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

impl Core {
    /// Begins without etcd: the node knows from its disk where others are reached, and which shards
    /// its former incarnations were members of. Its workers take copies of those, unless other
    /// nodes may know of the former incarnations' end.
    pub(super) fn begin_outside(&mut self) {
        let map = self.keeper.map().clone();
        for (name, text) in map.nodes() {
            let record = serde_json::from_str::<NodeRecord>(text);
            if let (Ok(node), Ok(record)) = (NodeId::new(name), record) {
                self.know_node(node.clone(), &record);
                // Whether the node is registered now is not known.
                self.queue(RolesInput::Node { node, workers: None });
            }
        }
        if !map.is_ended() {
            for (shard, entry) in map.entries() {
                self.queue(RolesInput::Kept { shard, entry: Box::new(entry) });
            }
        }
        self.outside().iter().for_each(|outside| outside.begun());
    }

    pub(super) fn cluster_found(&mut self, found: Result<(), String>) {
        let Some(joining) = &mut self.joining else { return };
        match found {
            Ok(()) => joining.is_found = true,
            Err(found) => {
                joining.outside.iter_mut().for_each(|it| it.other_cluster = Some(found.clone()));
            }
        }
    }

    /// Registers the node, once its incarnations are on disk.
    pub(super) fn join(&mut self) {
        let Some(joining) = self.joining.as_mut().filter(|joining| joining.is_found) else {
            return;
        };
        let (keeper, now) = (&mut self.keeper, self.now);
        let noted = *joining.noted.get_or_insert_with(|| keeper.begin_lives(now, &self.boot_ids));
        if !keeper.is_saved(noted) && !keeper.is_stalled(now) {
            return;
        }
        let outside = self.joining.take().and_then(|joining| joining.outside);
        if let Some(outside) = outside {
            outside.ended(now);
            // Handed in before anything of etcd, and before etcd hears of this node.
            self.queue(RolesInput::Joining);
            self.hand_in();
            // If several nodes come back, one with copies is to be a member first.
            self.record.has_copies = self.roles.has_guests_with_copies();
            if self.roles.is_resuming() {
                tracing::info!(
                    event = "seats-resumed",
                    "etcd is told which shards this node has resumed"
                );
                self.set_resumes(|former| former);
            }
        }
        self.actions.push_back(CoreAction::Join(Box::new(self.record.clone())));
    }

    /// Takes the former incarnations out of the record once all entries name the resumed ones.
    pub(super) fn end_resuming(&mut self) {
        let resumes = self.record.workers.iter().any(|worker| worker.resumes.is_some());
        if resumes && self.roles.is_fresh() && !self.roles.is_resuming() {
            self.pass_to_roles(RolesInput::Resumed);
            self.set_resumes(|_| None);
            self.register();
        }
    }

    fn set_resumes(&mut self, what: impl Fn(Option<BootId>) -> Option<BootId>) {
        for (worker, &former) in self.record.workers.iter_mut().zip(&self.formers) {
            worker.resumes = what(former).map(|it| it.to_string());
        }
    }

    pub(super) fn register(&mut self) {
        self.actions.push_back(CoreAction::Register(Box::new(self.record.clone())));
    }
}

#[cfg(test)]
mod tests {
    use weir_map::{Epoch, ShardId};

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
