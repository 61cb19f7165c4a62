//! What a mirror is told by etcd and the clock, what it wants done, and what it tells its owner.

use serde::{Deserialize, Serialize};

use crate::keys::Key;
use crate::revision::{Place, Revision};

/// What a mirror tells its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MirrorEvent {
    /// The key has this value now.
    Put { key: Key, value: Vec<u8>, mod_revision: Revision },
    /// The key is gone.
    Delete { key: Key },
    /// Everything reported until now is the state at this place, complete.
    SnapshotComplete { place: Place },
    /// etcd tells another history than before, as after a restore from a backup. All that was reported is void; every key
    /// follows anew, then `SnapshotComplete`.
    Restored { reason: RestoreReason, place: Place },
    /// etcd gives no news: what was reported may be old. A `SnapshotComplete` follows when it does again.
    Stale,
}

/// How another history was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestoreReason {
    /// It is another etcd.
    ClusterId { before: u64, now: u64 },
    /// The store is at an earlier revision than it was.
    Revision { before: Revision, now: Revision },
    /// etcd's elections are counted anew.
    RaftTerm { before: u64, now: u64 },
    /// A key has an older value than before, or another one of the same revision.
    Key { before: Revision, now: Revision },
}

/// A key of a list or of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub value: Vec<u8>,
    pub mod_revision: Revision,
}

/// What a watch reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Entry),
    Delete { key: Key, revision: Revision },
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Nothing but time.
    Tick,
    /// All keys of the range, at this place.
    Listed {
        place: Place,
        entries: Vec<Entry>,
    },
    ListFailed,
    WatchOpened,
    /// Events, or none: an answer to a progress request.
    Watched(Vec<Change>),
    /// etcd ended the watch since it has compacted what it would need.
    Compacted,
    /// The watch could not be opened, or ended.
    WatchFailed,
}

/// What to do. A new `List` or `OpenWatch` replaces one that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read all keys of the range at one revision.
    List,
    /// Open a watch on everything after this revision.
    OpenWatch(Revision),
    /// Ask the watch for a sign of life.
    RequestProgress,
    /// Drop the watch and any list under way.
    Close,
    /// The connection of the watch is not to be trusted: use another one from now on. Comes before `Close`.
    Distrust,
}

/// What to do and what to tell, in order, and what to count.
#[derive(Debug, Default)]
pub struct Output {
    pub actions: Vec<Action>,
    pub events: Vec<MirrorEvent>,
    /// Keys that a list showed and a running watch did not deliver.
    pub list_differences: u64,
    /// A watch was given up since it did not answer.
    pub is_stalled: bool,
}

impl Entry {
    pub(super) fn into_put(self) -> MirrorEvent {
        MirrorEvent::Put { key: self.key, value: self.value, mod_revision: self.mod_revision }
    }
}

impl Change {
    pub(super) fn what(&self) -> (&Key, Revision) {
        match self {
            Self::Put(entry) => (&entry.key, entry.mod_revision),
            Self::Delete { key, revision } => (key, *revision),
        }
    }
}
