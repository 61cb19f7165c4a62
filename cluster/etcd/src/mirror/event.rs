//! Inputs of a mirror from etcd and the clock, its actions, and its events for the owner.

use serde::{Deserialize, Serialize};

use crate::keys::Key;
use crate::revision::{HistoryPosition, Revision};

/// An event for a mirror's owner, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MirrorEvent {
    /// The key has this value now.
    Put { key: Key, value: Vec<u8>, mod_revision: Revision },
    /// The key is gone.
    Delete { key: Key },
    /// Everything reported so far is the complete state at this position.
    SnapshotComplete { position: HistoryPosition },
    /// etcd's history differs from the one reported, as after a restore from a backup. Everything
    /// reported is void; every key is reported again, then `SnapshotComplete`.
    Restored { reason: RestoreReason, position: HistoryPosition },
    /// etcd sends no news: the reported state may be out of date. A `SnapshotComplete` follows when
    /// it does again.
    Stale,
}

/// The evidence that etcd's history has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestoreReason {
    /// It is another etcd.
    ClusterId { before: u64, now: u64 },
    /// The store is at an earlier revision than before.
    Revision { before: Revision, now: Revision },
    /// The count of etcd's elections has restarted.
    RaftTerm { before: u64, now: u64 },
    /// A key has an older value than before, or a different one of the same revision.
    Key { before: Revision, now: Revision },
}

/// A key in a list or in a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorEntry {
    pub key: Key,
    pub value: Vec<u8>,
    pub mod_revision: Revision,
}

/// A change that a watch reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorChange {
    Put(MirrorEntry),
    Delete { key: Key, revision: Revision },
}

/// An input of a mirror.
#[derive(Clone, Debug)]
pub enum MirrorInput {
    /// Only time has passed.
    Tick,
    /// All keys of the range, at this position.
    Listed {
        position: HistoryPosition,
        entries: Vec<MirrorEntry>,
    },
    ListFailed,
    WatchOpened,
    /// Changes; none: the answer to a progress request.
    Watched(Vec<MirrorChange>),
    /// etcd ended the watch because it has compacted revisions that the watch needs.
    Compacted,
    /// The watch could not be opened, or ended.
    WatchFailed,
}

/// An action for the client. A new `List` or `OpenWatch` replaces one that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorAction {
    /// Read all keys of the range at one revision.
    List,
    /// Open a watch on everything after this revision.
    OpenWatch(Revision),
    /// Request the progress of the watch, which shows that it is alive.
    RequestProgress,
    /// Drop the watch and any list under way.
    Close,
    /// Distrust the connection of the watch: use another one from now on. Comes before `Close`.
    Distrust,
}

/// Actions and events, in order, and values to count.
#[derive(Debug, Default)]
pub struct MirrorOutput {
    pub actions: Vec<MirrorAction>,
    pub events: Vec<MirrorEvent>,
    /// Number of keys that a list contained and a running watch did not deliver.
    pub list_differences: u64,
    /// Whether a watch was given up because it did not answer.
    pub is_stalled: bool,
}

impl MirrorEntry {
    pub(super) fn into_put(self) -> MirrorEvent {
        MirrorEvent::Put { key: self.key, value: self.value, mod_revision: self.mod_revision }
    }
}

impl MirrorChange {
    pub(super) fn what(&self) -> (&Key, Revision) {
        match self {
            Self::Put(entry) => (&entry.key, entry.mod_revision),
            Self::Delete { key, revision } => (key, *revision),
        }
    }
}
