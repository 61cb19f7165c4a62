//! The full list beside a watch: the differences that the watch has not delivered.
//!
//! The list and the watch are not of one moment. A change that the watch has delivered ahead of the
//! list is no difference, and a change that it has not delivered is one only after its grace time.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use crate::keys::Key;
use crate::mirror::event::MirrorEntry;
use crate::revision::Revision;

/// The state of a key as reported to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) mod_revision: Revision,
    pub(super) fingerprint: u64,
}

impl Known {
    pub(super) fn of(entry: &MirrorEntry) -> Self {
        let mut hasher = DefaultHasher::new();
        entry.value.hash(&mut hasher);
        Self { mod_revision: entry.mod_revision, fingerprint: hasher.finish() }
    }
}

/// The state of the check by a full list.
#[derive(Debug)]
pub(super) enum Check {
    Due {
        at: Instant,
    },
    /// The list is requested; it may still contain keys that the watch has deleted since.
    Listing {
        deleted: BTreeMap<Key, Revision>,
    },
    /// The list differs; the watch may still deliver the changes.
    Doubt {
        until: Instant,
        differing: Differing,
    },
}

/// Keys that a list contains with this revision, or not at all, and that the watch has not reported
/// so.
pub(super) type Differing = BTreeMap<Key, Option<Revision>>;

impl Check {
    /// Takes the watch's report of a change of `key`.
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

/// Returns the differences between a list at `revision` and the state reported so far.
pub(super) fn differences(
    known: &BTreeMap<Key, Known>,
    deleted: &BTreeMap<Key, Revision>,
    revision: Revision,
    entries: &[MirrorEntry],
) -> Differing {
    let mut differing: Differing = known
        .iter()
        .filter(|(_, known)| known.mod_revision <= revision)
        .map(|(key, _)| (key.clone(), None))
        .collect();
    for entry in entries {
        let listed = entry.mod_revision;
        let is_reported = known.get(&entry.key).is_some_and(|known| known.mod_revision >= listed)
            || deleted.get(&entry.key).is_some_and(|deleted| *deleted > listed);
        if is_reported {
            differing.remove(&entry.key);
        } else {
            differing.insert(entry.key.clone(), Some(listed));
        }
    }
    differing
}
