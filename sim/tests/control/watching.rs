//! What must be true of everything that is ever written.

use std::collections::BTreeMap;

use weir_cluster::message::Changed;
use weir_cluster::{Key, LeaderRecord, Revision};
use weir_controller::records::Event;
use weir_shard::ShardEntry;
use weir_sim::control::Plane;

#[derive(Default)]
pub(crate) struct Watching {
    seen: i64,
    leader: Option<String>,
    entries: BTreeMap<u32, ShardEntry>,
    pub(crate) events: u64,
    pub(crate) entries_written: u64,
    pub(crate) leaders: u64,
}

impl Watching {
    /// Looks at every revision that is new.
    pub(crate) fn look(&mut self, plane: &Plane) {
        if plane.etcd.revision().0 == self.seen {
            return;
        }
        // What was compacted before it was looked at is not seen.
        let changes = plane.etcd.changes(Revision(self.seen + 1)).unwrap_or_default();
        for changes in &changes {
            self.revision(plane, changes);
        }
        self.seen = plane.etcd.revision().0;
    }

    fn revision(&mut self, plane: &Plane, changes: &[Changed]) {
        let keys = plane.keys();
        let key_of = |change: &Changed| keys.parse(change.path.as_bytes()).expect("a key of weir");
        let leader = self.leader.clone();
        for change in changes {
            match (key_of(change), &change.value) {
                (Key::Event(_), Some(value)) => {
                    let event: Event = serde_json::from_slice(value).expect("an event");
                    assert_eq!(Some(&event.by), leader.as_ref(), "{event:?} is not the leader's");
                    self.events += 1;
                }
                (Key::Leader, value) => {
                    let name = value.as_ref().map(|value| {
                        let record: LeaderRecord = serde_json::from_slice(value).expect("a leader");
                        record.name
                    });
                    self.leaders += u64::from(name.is_some() && name != self.leader);
                    self.leader = name;
                }
                (Key::Shard(id), Some(value)) => {
                    let entry = ShardEntry::from_json(value).expect("an entry");
                    self.entry(id, entry);
                }
                _ => {}
            }
        }
    }

    /// Each follows the one before, by one change, or was rebased above all that anybody has seen.
    fn entry(&mut self, id: u32, entry: ShardEntry) {
        self.entries_written += 1;
        if let Some(before) = self.entries.get(&id)
            && entry.rebased() != Some(entry.epoch())
        {
            assert_eq!(entry.epoch().0, before.epoch().0 + 1, "shard {id}: {before:?} {entry:?}");
        }
        self.entries.insert(id, entry);
    }

    /// Another history has begun.
    pub(crate) fn restored(&mut self, plane: &Plane) {
        self.seen = plane.etcd.revision().0;
        self.entries = plane.operator.entries(&plane.etcd).into_iter().collect();
        let record: Option<LeaderRecord> = plane.operator.read(&plane.etcd, &Key::Leader);
        self.leader = record.map(|record| record.name);
    }
}
