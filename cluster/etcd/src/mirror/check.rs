//! The full list beside a watch: what it shows and the watch has not delivered.
//!
//! The list and the watch are not of one moment. What the watch is ahead with is no difference, and what it is behind with
//! is one only when it has had its time to deliver.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use crate::keys::Key;
use crate::mirror::event::Entry;
use crate::revision::Revision;

/// What the owner has been told of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) mod_revision: Revision,
    pub(super) fingerprint: u64,
}

impl Known {
    pub(super) fn of(entry: &Entry) -> Self {
        let mut hasher = DefaultHasher::new();
        entry.value.hash(&mut hasher);
        Self { mod_revision: entry.mod_revision, fingerprint: hasher.finish() }
    }
}

/// The full list beside a watch.
#[derive(Debug)]
pub(super) enum Check {
    Due {
        at: Instant,
    },
    /// Asked for; what the watch deleted meanwhile may still be in it.
    Listing {
        deleted: BTreeMap<Key, Revision>,
    },
    /// The list differs; the watch may still deliver.
    Doubt {
        until: Instant,
        differing: Differing,
    },
}

/// Keys that a list shows with this revision, or not at all, and the watch has not reported so.
pub(super) type Differing = BTreeMap<Key, Option<Revision>>;

impl Check {
    /// The watch reported a change of `key`.
    pub(super) fn change(&mut self, key: &Key, revision: Revision, is_delete: bool) {
        match self {
            Self::Due { .. } => {}
            Self::Listing { deleted } if is_delete => {
                deleted.insert(key.clone(), revision);
            }
            Self::Listing { .. } => {}
            Self::Doubt { differing, .. } => {
                let is_explained =
                    |listed: &Option<Revision>| listed.is_none_or(|listed| listed <= revision);
                if differing.get(key).is_some_and(is_explained) {
                    differing.remove(key);
                }
            }
        }
    }
}

/// What a list at `revision` shows and the watch has not reported until now.
pub(super) fn differences(
    known: &BTreeMap<Key, Known>,
    deleted: &BTreeMap<Key, Revision>,
    revision: Revision,
    entries: &[Entry],
) -> Differing {
    let mut differing: Differing = known
        .iter()
        .filter(|(_, known)| known.mod_revision <= revision)
        .map(|(key, _)| (key.clone(), None))
        .collect();
    for entry in entries {
        let listed = entry.mod_revision;
        let is_told = known.get(&entry.key).is_some_and(|known| known.mod_revision >= listed)
            || deleted.get(&entry.key).is_some_and(|deleted| *deleted > listed);
        if is_told {
            differing.remove(&entry.key);
        } else {
            differing.insert(entry.key.clone(), Some(listed));
        }
    }
    differing
}
