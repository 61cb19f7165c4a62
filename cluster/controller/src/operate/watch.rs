//! The map as it changes: one message for each change of a shard or of a node's registration.

use std::collections::VecDeque;

use weir_etcd::{EtcdCluster, Key, KeyRange, Mirror, MirrorEvent, Revision};
use weir_map::{LANES, Member, MemberState, ShardEntry, ShardId};

use super::map::{ShardLine, line, lines};
use crate::state::View;

/// A change of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapUpdate {
    /// The whole map: at the start, and after a restore of etcd.
    All(Vec<ShardLine>),
    /// A shard has changed; the texts describe each difference.
    Shard(ShardLine, Vec<String>),
    /// The shard's entry is gone.
    Retired(ShardId),
    Node(String, NodeUpdate),
    /// etcd does not answer: everything reported may be out of date.
    Silent,
    /// etcd answers again; changes in between have been reported.
    Again,
    /// etcd was restored from a backup: everything reported before is void.
    Restored,
}

/// A change of a node's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeUpdate {
    Registered,
    Restarted,
    Stopping,
    Gone,
}

impl NodeUpdate {
    pub fn words(self) -> &'static str {
        match self {
            Self::Registered => "is registered",
            Self::Restarted => "restarted",
            Self::Stopping => "is about to end",
            Self::Gone => "is not registered any more",
        }
    }
}

/// Reports changes of the map until it is dropped.
#[derive(Debug)]
pub struct MapWatch {
    mirror: Mirror,
    map: WatchedKeys,
}

impl MapWatch {
    pub fn open(cluster: &EtcdCluster) -> Self {
        Self { mirror: cluster.mirror(KeyRange::All, None), map: WatchedKeys::default() }
    }

    /// Returns the next change, beginning with the whole map. None: the connection has ended.
    pub async fn next(&mut self) -> Option<MapUpdate> {
        loop {
            if let Some(update) = self.map.updates.pop_front() {
                return Some(update);
            }
            self.map.take(self.mirror.next_event().await?);
        }
    }
}

/// The keys seen so far, and the changes that are still to be reported.
#[derive(Debug, Default)]
struct WatchedKeys {
    view: View,
    /// Whether the whole map has been reported.
    is_whole: bool,
    is_silent: bool,
    updates: VecDeque<MapUpdate>,
}

impl WatchedKeys {
    fn take(&mut self, event: MirrorEvent) {
        match event {
            MirrorEvent::Put { key, value, mod_revision } => {
                let update = self.put(&key, &value, mod_revision);
                self.updates.extend(update.filter(|_| self.is_whole));
            }
            MirrorEvent::Delete { key } => {
                let update = match &key {
                    Key::Shard(id) => Some(MapUpdate::Retired(*id)),
                    Key::Node(name) => Some(MapUpdate::Node(name.to_string(), NodeUpdate::Gone)),
                    _ => None,
                };
                self.updates.extend(update.filter(|_| self.is_whole));
                self.view.delete(&key);
            }
            MirrorEvent::SnapshotComplete { .. } => {
                let was_silent = std::mem::take(&mut self.is_silent);
                if !std::mem::replace(&mut self.is_whole, true) {
                    self.updates.push_back(MapUpdate::All(lines(&self.view)));
                } else if was_silent {
                    self.updates.push_back(MapUpdate::Again);
                }
            }
            MirrorEvent::Restored { .. } => {
                *self = Self { updates: std::mem::take(&mut self.updates), ..Self::default() };
                self.updates.push_back(MapUpdate::Restored);
            }
            MirrorEvent::Stale => {
                if self.is_whole && !std::mem::replace(&mut self.is_silent, true) {
                    self.updates.push_back(MapUpdate::Silent);
                }
            }
        }
    }

    fn put(&mut self, key: &Key, value: &[u8], revision: Revision) -> Option<MapUpdate> {
        match key {
            &Key::Shard(id) => {
                let before = self.view.entry(id).cloned();
                self.view.put(key, value, revision);
                let what = match self.view.entry(id) {
                    Some(after) => changes(before.as_ref(), after),
                    None => vec!["its key cannot be read".to_owned()],
                };
                (!what.is_empty()).then(|| MapUpdate::Shard(line(&self.view, id), what))
            }
            Key::Node(node) => {
                let record = |view: &View| view.nodes.get(node).and_then(|it| it.value.clone());
                let before = record(&self.view);
                self.view.put(key, value, revision);
                let after = record(&self.view)?;
                let update = match before {
                    None => NodeUpdate::Registered,
                    Some(before) if before.boot_id != after.boot_id => NodeUpdate::Restarted,
                    Some(before) if after.is_stopping && !before.is_stopping => {
                        NodeUpdate::Stopping
                    }
                    Some(_) => return None,
                };
                Some(MapUpdate::Node(node.to_string(), update))
            }
            _ => {
                self.view.put(key, value, revision);
                None
            }
        }
    }
}

/// Describes the differences between two entries of a shard, in words.
fn changes(before: Option<&ShardEntry>, after: &ShardEntry) -> Vec<String> {
    let Some(before) = before else {
        return vec![format!("created, {} is primary", after.primary().incarnation.worker)];
    };
    let mut what = Vec::new();
    if before.primary().incarnation != after.primary().incarnation {
        what.push(format!("{} is primary", after.primary().incarnation.worker));
    }
    for member in after.members() {
        let former = before.member(&member.incarnation).map(|(_, former)| former);
        let is_again = |other: &Member| other.incarnation.worker == member.incarnation.worker;
        let worker = &member.incarnation.worker;
        match former {
            None if before.members().iter().any(is_again) => {
                what.push(format!("{worker} starts over"));
            }
            None if member.state != MemberState::Synced => {
                what.push(format!("{worker} begins to copy"));
            }
            None => {}
            Some(former) => {
                if former.state != member.state {
                    what.push(format!("{worker} {}", state_words(member.state)));
                }
                if member.is_leaving && !former.is_leaving {
                    what.push(format!("{worker} is to leave"));
                }
            }
        }
    }
    for member in before.members() {
        let is_there = |other: &Member| other.incarnation.worker == member.incarnation.worker;
        if !after.members().iter().any(is_there) {
            what.push(format!("{} has left", member.incarnation.worker));
        }
    }
    what.extend(lane_changes(before, after));
    what
}

fn state_words(state: MemberState) -> &'static str {
    match state {
        MemberState::Syncing => "begins to copy",
        MemberState::Synced => "is synced",
        MemberState::OutOfSync => "is out of sync",
    }
}

/// Describes the lanes that begin to move, and those that have moved.
fn lane_changes(before: &ShardEntry, after: &ShardEntry) -> Vec<String> {
    let name = |entry: &ShardEntry, slot| match entry.at_slot(slot) {
        Some(member) => member.incarnation.worker.to_string(),
        None => "nobody".to_owned(),
    };
    let mut what: Vec<(String, Vec<String>)> = Vec::new();
    for lane in 0..LANES {
        let (old, new) = (before.lanes()[lane], after.lanes()[lane]);
        let words = match (old.moving, new.moving) {
            (old_move, Some(moving)) if old_move != Some(moving) => {
                format!("{} -> {}", name(after, moving.from), name(after, new.owner))
            }
            (Some(_), None) => format!("at {}", name(after, new.owner)),
            (None, None) if name(before, old.owner) != name(after, new.owner) => {
                format!("at {}", name(after, new.owner))
            }
            _ => continue,
        };
        match what.iter_mut().find(|(known, _)| *known == words) {
            Some((_, lanes)) => lanes.push(lane.to_string()),
            None => what.push((words, vec![lane.to_string()])),
        }
    }
    what.into_iter().map(|(words, lanes)| format!("lane {}: {words}", lanes.join(" "))).collect()
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
