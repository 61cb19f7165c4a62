//! The keys of a cluster as etcd would hold them, with their history for mirrors that lag.

use std::collections::{BTreeMap, BTreeSet};

use weir_etcd::{
    Cause, Error, HistoryPosition, Key, MirrorEvent, Outcome, Revision, Swap, SwapChange,
    TRANSACTION_KEYS_MAX, Versioned,
};

#[derive(Default)]
pub(crate) struct FakeEtcd {
    pub(crate) keys: BTreeMap<Key, Versioned>,
    /// Every change; a mirror's position is an index into it.
    pub(crate) history: Vec<(Key, Option<Versioned>)>,
    revision: i64,
    /// The controller that holds the leader's key.
    pub(crate) leader: Option<usize>,
}

/// The changes of a completed write: each key's value before and after.
pub(crate) type Changes = Vec<(Key, Option<Versioned>, Option<Versioned>)>;

impl FakeEtcd {
    pub(crate) fn position(&self) -> HistoryPosition {
        HistoryPosition { cluster_id: 1, revision: Revision(self.revision), raft_term: 1 }
    }

    pub(crate) fn value(&self, key: &Key) -> Option<&[u8]> {
        self.keys.get(key).map(|held| held.value.as_slice())
    }

    /// Gives the leader's key to a controller.
    pub(crate) fn elect(&mut self, leader: usize) -> Revision {
        self.delete(Key::Leader);
        self.put(Key::Leader, b"{}".to_vec());
        self.leader = Some(leader);
        Revision(self.revision)
    }

    /// Writes a key unconditionally, like an operator or a node.
    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>) {
        let expected = self.keys.get(&key).map(|held| held.mod_revision);
        let swap = Swap { key, expected, change: SwapChange::Put(value) };
        assert!(matches!(self.transact(&[swap], None).0, Outcome::Done(_)));
    }

    pub(crate) fn delete(&mut self, key: Key) {
        if let Some(held) = self.keys.get(&key) {
            let expected = Some(held.mod_revision);
            self.transact(&[Swap { key, expected, change: SwapChange::Delete }], None);
        }
    }

    pub(crate) fn transact(&mut self, swaps: &[Swap], writer: Option<usize>) -> (Outcome, Changes) {
        let keys: BTreeSet<&Key> = swaps.iter().map(|swap| &swap.key).collect();
        assert_eq!(keys.len(), swaps.len(), "a transaction names each key once");
        assert!(keys.len() <= TRANSACTION_KEYS_MAX);
        if writer.is_some() && writer != self.leader {
            return (Outcome::NotLeader, Vec::new());
        }
        let is_as_expected =
            |swap: &Swap| self.keys.get(&swap.key).map(|it| it.mod_revision) == swap.expected;
        if !swaps.iter().all(is_as_expected) {
            let current = swaps.iter().map(|swap| self.keys.get(&swap.key).cloned());
            return (Outcome::LostRace(current.collect()), Vec::new());
        }
        self.revision += 1;
        let revision = Revision(self.revision);
        let mut changes = Vec::new();
        for swap in swaps {
            let before = self.keys.get(&swap.key).cloned();
            let after = match &swap.change {
                SwapChange::Keep => continue,
                SwapChange::Delete => None,
                SwapChange::Put(value) => Some(Versioned {
                    value: value.clone(),
                    create_revision: before.as_ref().map_or(revision, |it| it.create_revision),
                    mod_revision: revision,
                    lease: None,
                }),
            };
            match &after {
                Some(held) => drop(self.keys.insert(swap.key.clone(), held.clone())),
                None => drop(self.keys.remove(&swap.key)),
            }
            self.history.push((swap.key.clone(), after.clone()));
            changes.push((swap.key.clone(), before, after));
        }
        (Outcome::Done(revision), changes)
    }

    /// Returns the mirror's event for one change.
    pub(crate) fn mirror_event(change: &(Key, Option<Versioned>)) -> MirrorEvent {
        let key = change.0.clone();
        match &change.1 {
            Some(held) => {
                MirrorEvent::Put { key, value: held.value.clone(), mod_revision: held.mod_revision }
            }
            None => MirrorEvent::Delete { key },
        }
    }
}

pub(crate) fn silence(may_have_happened: bool) -> Error {
    Error {
        endpoint: "fake".into(),
        operation: "write".into(),
        cause: Cause::Timeout,
        detail: String::new(),
        may_have_happened,
    }
}
