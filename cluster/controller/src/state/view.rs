//! The known state of etcd: the newest value of every key.
//!
//! Values come from the mirror, from lost races, from reads and from the controller's own writes;
//! an older value never replaces a newer one. A value that cannot be read is kept as such: its
//! content is unknown, which is never taken for absence.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use weir_config::DESIRED_FORMAT;
use weir_etcd::{Key, NodeRecord, Revision, Versioned};
use weir_map::{NodeId, ShardEntry, ShardId};

use crate::records::{
    BY_LOAD, Control, DesiredView, EventRecord, FORMAT, Intent, LeaderReport, Meta,
};

/// A key's value and the revision that wrote it.
#[derive(Clone, Debug)]
pub(crate) struct RevisedValue<T> {
    /// None: the value cannot be read.
    pub(crate) value: Option<T>,
    pub(crate) revision: Revision,
}

impl<T> RevisedValue<T> {
    fn new(value: Option<T>, revision: Revision) -> Self {
        Self { value, revision }
    }
}

/// Every key that the controller reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) nodes: BTreeMap<NodeId, RevisedValue<NodeRecord>>,
    pub(crate) shards: BTreeMap<ShardId, RevisedValue<ShardEntry>>,
    pub(crate) intents: BTreeMap<NodeId, RevisedValue<Intent>>,
    pub(crate) events: BTreeMap<u32, RevisedValue<EventRecord>>,
    pub(crate) control: Option<RevisedValue<Control>>,
    pub(crate) desired: Option<RevisedValue<DesiredView>>,
    pub(crate) meta: Option<RevisedValue<Meta>>,
    pub(crate) report: Option<RevisedValue<LeaderReport>>,
}

impl View {
    /// Creates the view of one list of all keys.
    pub(crate) fn of(found: &[(Key, Versioned)]) -> Self {
        let mut view = Self::default();
        for (key, held) in found {
            view.put(key, &held.value, held.mod_revision);
        }
        view
    }

    /// Takes a value, unless a newer one is known.
    pub(crate) fn put(&mut self, key: &Key, value: &[u8], revision: Revision) {
        if self.revision(key).is_some_and(|known| known >= revision) {
            return;
        }
        match key {
            Key::Node(name) => {
                self.nodes.insert(name.clone(), RevisedValue::new(parse(value), revision));
            }
            Key::Shard(id) => {
                let entry = ShardEntry::from_json(value).ok();
                self.shards.insert(*id, RevisedValue::new(entry, revision));
            }
            Key::Intent(name) => {
                self.intents.insert(name.clone(), RevisedValue::new(parse(value), revision));
            }
            Key::Event(slot) => {
                self.events.insert(*slot, RevisedValue::new(parse(value), revision));
            }
            Key::Control => self.control = Some(RevisedValue::new(parse(value), revision)),
            Key::Desired => {
                let is_known = |desired: &DesiredView| desired.format <= DESIRED_FORMAT;
                let known = parse(value).filter(is_known);
                self.desired = Some(RevisedValue::new(known, revision));
            }
            Key::Meta => {
                let known = parse(value).filter(|meta: &Meta| meta.format <= FORMAT);
                self.meta = Some(RevisedValue::new(known, revision));
            }
            Key::Report => self.report = Some(RevisedValue::new(parse(value), revision)),
            Key::Leader => {}
        }
    }

    pub(crate) fn delete(&mut self, key: &Key) {
        match key {
            Key::Node(name) => drop(self.nodes.remove(name)),
            Key::Shard(id) => drop(self.shards.remove(id)),
            Key::Intent(name) => drop(self.intents.remove(name)),
            Key::Event(slot) => drop(self.events.remove(slot)),
            Key::Control => self.control = None,
            Key::Desired => self.desired = None,
            Key::Meta => self.meta = None,
            Key::Report => self.report = None,
            Key::Leader => {}
        }
    }

    /// Takes the current state of a key from a read or a lost race.
    pub(crate) fn learn(&mut self, key: &Key, found: Option<&Versioned>) {
        match found {
            Some(found) => self.put(key, &found.value, found.mod_revision),
            None => self.delete(key),
        }
    }

    /// Returns the revision of a key's value; none: the key is absent.
    pub(crate) fn revision(&self, key: &Key) -> Option<Revision> {
        match key {
            Key::Node(name) => self.nodes.get(name).map(|it| it.revision),
            Key::Shard(id) => self.shards.get(id).map(|it| it.revision),
            Key::Intent(name) => self.intents.get(name).map(|it| it.revision),
            Key::Event(slot) => self.events.get(slot).map(|it| it.revision),
            Key::Control => self.control.as_ref().map(|it| it.revision),
            Key::Desired => self.desired.as_ref().map(|it| it.revision),
            Key::Meta => self.meta.as_ref().map(|it| it.revision),
            Key::Report => self.report.as_ref().map(|it| it.revision),
            Key::Leader => None,
        }
    }

    pub(crate) fn entry(&self, id: ShardId) -> Option<&ShardEntry> {
        self.shards.get(&id)?.value.as_ref()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (ShardId, &ShardEntry)> {
        self.shards.iter().filter_map(|(&id, held)| Some((id, held.value.as_ref()?)))
    }

    pub(crate) fn intent(&self, node: &NodeId) -> Option<&Intent> {
        self.intents.get(node)?.value.as_ref()
    }

    /// Returns the desired state, if it is readable.
    pub(crate) fn desired(&self) -> Option<&DesiredView> {
        self.desired.as_ref()?.value.as_ref()
    }

    /// Whether shards are to be spread by load, not by number.
    pub(crate) fn is_by_load(&self) -> bool {
        self.desired().is_some_and(|desired| desired.cluster.balance == BY_LOAD)
    }

    /// Returns the operator's orders for the controller; `None` if they cannot be read.
    pub(crate) fn control(&self) -> Option<Control> {
        self.control.as_ref().map_or_else(|| Some(Control::default()), |held| held.value.clone())
    }
}

fn parse<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}
