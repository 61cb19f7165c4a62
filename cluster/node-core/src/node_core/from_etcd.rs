//! Reports of etcd to the core: keys, the node's registration, the results of writes.

use std::net::SocketAddr;

use weir_config::Desired;
use weir_etcd::{Key, MirrorEvent, NodeRecord, Revision};
use weir_map::{NodeId, ShardEntry, ShardId, WorkerId};
use weir_roles::{NodeWorker, RolesInput};

use super::Core;
use crate::action::CoreAction;
use crate::event::{Registration, WriteResult};
use crate::setup::{desired_input, workers_of};

impl Core {
    pub(super) fn mirror(&mut self, event: MirrorEvent) {
        match event {
            MirrorEvent::Put { key, value, mod_revision } => {
                self.take_key(&key, &value, mod_revision);
            }
            MirrorEvent::Delete { key: Key::Shard(shard) } => {
                self.entries.remove(&shard);
                self.queue(RolesInput::EntryGone(shard));
            }
            MirrorEvent::Delete { key: Key::Node(node) } => {
                self.keeper.set_node(self.now, node.as_str(), None);
                self.queue(RolesInput::Node { node, workers: None });
            }
            MirrorEvent::Delete { .. } => {}
            MirrorEvent::SnapshotComplete { .. } => self.queue(RolesInput::Fresh),
            MirrorEvent::Restored { reason, .. } => {
                tracing::error!(event = "map-set-back", ?reason, "etcd tells another history");
                self.entries.clear();
                self.queue(RolesInput::Restored);
            }
            MirrorEvent::Stale => self.queue(RolesInput::Stale),
        }
        self.hand_in();
    }

    fn take_key(&mut self, key: &Key, value: &[u8], revision: Revision) {
        let unreadable = |what: &str, error: &dyn std::fmt::Display| {
            tracing::error!(event = "map-unreadable", "{what} in etcd cannot be read: {error}");
        };
        match key {
            Key::Shard(shard) => match ShardEntry::from_json(value) {
                Ok(entry) => {
                    let shard = *shard;
                    self.entries.insert(shard, (revision, entry.clone()));
                    self.queue(RolesInput::Entry { shard, entry: Box::new(entry) });
                }
                Err(error) => unreadable(&format!("shard {shard}"), &error),
            },
            Key::Node(node) => match serde_json::from_slice::<NodeRecord>(value) {
                Ok(record) => {
                    let text = String::from_utf8_lossy(value);
                    self.keeper.set_node(self.now, node.as_str(), Some(&text));
                    self.know_node(node.clone(), &record);
                }
                Err(error) => unreadable(&format!("node {node}"), &error),
            },
            Key::Desired => match serde_json::from_slice::<Desired>(value) {
                Ok(desired) => {
                    let text = String::from_utf8_lossy(value);
                    self.keeper.set_desired(self.now, &text);
                    self.actions.push_back(CoreAction::TakeSettings {
                        number: revision.0.try_into().unwrap_or(0),
                        desired: Box::new(desired.clone()),
                    });
                    self.apply(desired);
                }
                Err(error) => unreadable("what the cluster is", &error),
            },
            _ => {}
        }
    }

    /// Notes where the workers of a node are reached.
    pub(super) fn know_node(&mut self, node: NodeId, record: &NodeRecord) {
        let workers = workers_of(record);
        for NodeWorker { index, replication, .. } in &workers {
            let id = WorkerId { node: node.clone(), index: *index };
            self.names.insert(SocketAddr::V4(*replication), id);
        }
        self.queue(RolesInput::Node { node, workers: Some(workers) });
    }

    /// Replaces the cluster settings that the operator wants.
    pub(super) fn apply(&mut self, desired: Desired) {
        self.roles.set_quarantine_ms(1000 * u64::from(desired.nat.quarantine_sec));
        self.queue(desired_input(&desired));
        self.desired = desired;
    }

    pub(super) fn registration(&mut self, registration: Registration) {
        match registration {
            Registration::Held => {
                self.is_registered = true;
                self.pass_to_roles(RolesInput::Registered);
                tracing::info!(event = "node-registered", "this node is known to the cluster");
            }
            Registration::Silent => {
                tracing::warn!(event = "etcd-lost", "etcd does not answer; traffic goes on");
            }
            Registration::Gone => {
                self.is_registered = false;
                tracing::warn!(event = "node-unregistered", "the cluster counts this node as gone");
            }
            Registration::HeldByOther { boot_id } => {
                self.is_registered = false;
                tracing::error!(event = "node-name-taken", boot_id, "another node has this name");
            }
        }
    }

    pub(super) fn written(&mut self, shard: ShardId, how: WriteResult) {
        if let WriteResult::Refused(why) = &how {
            tracing::error!(event = "map-write-refused", shard = shard.0, "{why}");
        }
        self.pass_to_roles(RolesInput::Written { shard, is_done: how == WriteResult::Done });
    }
}
