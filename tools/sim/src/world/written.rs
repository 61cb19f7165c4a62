//! Conditions on everything that is written to etcd: only the leader writes events, and each entry
//! follows the one before by one change.

use std::collections::BTreeMap;

use weir_controller::records::EventRecord;
use weir_etcd::message::ChangedKey;
use weir_etcd::{Key, LeaderRecord, Revision};
use weir_map::{ShardEntry, ShardId};

use crate::control::Plane;

/// The state at the last look.
#[derive(Debug, Default)]
pub(super) struct Written {
    seen: i64,
    leader: Option<String>,
    entries: BTreeMap<ShardId, ShardEntry>,
}

impl Written {
    /// Checks every new revision.
    pub(super) fn look(&mut self, plane: &Plane) -> Result<(), String> {
        let newest = plane.etcd.revision();
        if newest.0 == self.seen {
            return Ok(());
        }
        // Revisions that were compacted before the look are not seen.
        let Some(changes) = plane.etcd.changes(Revision(self.seen + 1)) else {
            self.restored(plane);
            return Ok(());
        };
        self.seen = newest.0;
        changes.iter().try_for_each(|changes| self.revision(plane, changes))
    }

    fn revision(&mut self, plane: &Plane, changes: &[ChangedKey]) -> Result<(), String> {
        let keys = plane.keys();
        let leader = self.leader.clone();
        for change in changes {
            let unreadable = |error: &dyn std::fmt::Display| format!("{}: {error}", change.path);
            let key = keys.parse(change.path.as_bytes()).map_err(|error| unreadable(&error))?;
            let value = change.value.as_deref();
            match (key, value) {
                (Key::Event(_), Some(value)) => {
                    let event: EventRecord =
                        serde_json::from_slice(value).map_err(|error| unreadable(&error))?;
                    if Some(&event.by) != leader.as_ref() {
                        return Err(format!("{event:?} is not the leader's, which is {leader:?}"));
                    }
                }
                (Key::Leader, value) => {
                    let record = value.map(serde_json::from_slice::<LeaderRecord>).transpose();
                    self.leader = record.map_err(|error| unreadable(&error))?.map(|it| it.name);
                }
                (Key::Shard(id), Some(value)) => {
                    let entry = ShardEntry::from_json(value).map_err(|error| unreadable(&error))?;
                    self.entry(id, entry)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that an entry follows the one before by one change, or was rebased above all epochs
    /// that any node has seen.
    fn entry(&mut self, id: ShardId, entry: ShardEntry) -> Result<(), String> {
        let is_rebased = entry.rebased() == Some(entry.epoch());
        let before = self.entries.insert(id, entry.clone());
        match before {
            Some(before) if !is_rebased && entry.epoch().0 != before.epoch().0 + 1 => {
                let (now, then) = (entry.epoch(), before.epoch());
                Err(format!("the entry of shard {id} of epoch {now} follows that of {then}"))
            }
            _ => Ok(()),
        }
    }

    /// Starts with the present state, as etcd's history is another one.
    pub(super) fn restored(&mut self, plane: &Plane) {
        self.seen = plane.etcd.revision().0;
        self.entries = plane.operator.entries(&plane.etcd).into_iter().collect();
        let record: Option<LeaderRecord> = plane.operator.read(&plane.etcd, &Key::Leader);
        self.leader = record.map(|record| record.name);
    }
}
