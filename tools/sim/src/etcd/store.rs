//! etcd's keys in all their revisions, and its leases: one state machine, as each member applies
//! it.
//!
//! It follows etcd 3.4 (`server/mvcc`, `lease`, `etcdserver/apply.go`): a transaction that changes
//! something makes one revision, all keys of a lease are deleted in one, a put for an unknown lease
//! refuses its whole transaction. The first revision of an empty store is 1. As in etcd 3.4.23,
//! which Debian has, a compaction also drops deletions of the very revision compacted at, so that a
//! watch from there never sends them (etcd-io/etcd issue 18089).

use std::collections::{BTreeMap, BTreeSet};

use weir_etcd::message::ChangedKey;
use weir_etcd::transaction::{Compare, Decided, Operation, Transaction};
use weir_etcd::{LeaseId, Revision, Versioned};

use super::message::Refusal;

/// Most comparisons, or operations of one branch, in a transaction (`--max-txn-ops`).
const OPERATIONS_MAX: usize = 128;

/// The state of a key from one revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    mod_revision: i64,
    /// `None`: deleted.
    held: Option<Held>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    value: Vec<u8>,
    create_revision: i64,
    /// Number of puts since the key was created.
    version: i64,
    lease: Option<LeaseId>,
}

#[derive(Clone, Debug)]
struct Lease {
    ttl_sec: u64,
    ends_us: u64,
    keys: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    revision: i64,
    compacted: i64,
    /// By path, oldest first; the revisions since the compaction, and the last one before it.
    keys: BTreeMap<String, Vec<Version>>,
    /// Paths by the revision that changed them, in the order of their changes.
    changes: BTreeMap<i64, Vec<String>>,
    leases: BTreeMap<i64, Lease>,
}

/// The keys that a range request found, and whether there are more.
pub(super) type Found = (Vec<(String, Versioned)>, bool);

impl Store {
    pub(super) fn new() -> Self {
        Self {
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            changes: BTreeMap::new(),
            leases: BTreeMap::new(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision)
    }

    pub(super) fn get(&self, path: &str) -> Option<Versioned> {
        self.at(path, self.revision)
    }

    /// Returns how often the key was written since it was created; 0 if there is none.
    #[cfg(test)]
    pub(super) fn version(&self, path: &str) -> i64 {
        self.newest(path).map_or(0, |(_, held)| held.version)
    }

    fn newest(&self, path: &str) -> Option<(i64, &Held)> {
        let version = self.keys.get(path)?.last()?;
        Some((version.mod_revision, version.held.as_ref()?))
    }

    fn at(&self, path: &str, revision: i64) -> Option<Versioned> {
        let versions = self.keys.get(path)?;
        let version = versions.iter().rev().find(|version| version.mod_revision <= revision)?;
        let held = version.held.as_ref()?;
        Some(Versioned {
            value: held.value.clone(),
            create_revision: Revision(held.create_revision),
            mod_revision: Revision(version.mod_revision),
            lease: held.lease,
        })
    }

    pub(super) fn range(
        &self,
        start: &str,
        end: &str,
        limit: usize,
        revision: Option<Revision>,
    ) -> Result<Found, Refusal> {
        let revision = revision.map_or(self.revision, |revision| revision.0);
        if revision > self.revision {
            return Err(Refusal::Future);
        }
        if revision < self.compacted {
            return Err(Refusal::Compacted);
        }
        let paths = self.keys.range(start.to_owned()..end.to_owned()).map(|(path, _)| path);
        let mut all = paths.filter_map(|path| Some((path.clone(), self.at(path, revision)?)));
        let found = all.by_ref().take(limit).collect();
        Ok((found, all.next().is_some()))
    }

    pub(super) fn transact(&mut self, transaction: &Transaction) -> Result<Decided, Refusal> {
        let Transaction { compares, then, otherwise } = transaction;
        let longest = compares.len().max(then.len()).max(otherwise.len());
        if longest > OPERATIONS_MAX {
            return Err(Refusal::TooLarge);
        }
        if writes_twice(then) || writes_twice(otherwise) {
            return Err(Refusal::Duplicate);
        }
        let has_held = compares.iter().all(|compare| self.holds(compare));
        let operations = if has_held { then } else { otherwise };
        let knows_lease = |operation: &Operation| match operation {
            Operation::Put { lease: Some(lease), .. } => self.leases.contains_key(&lease.0),
            _ => true,
        };
        if !operations.iter().all(knows_lease) {
            return Err(Refusal::NoSuchLease);
        }
        let next = self.revision + 1;
        let mut found = Vec::new();
        for operation in operations {
            match operation {
                Operation::Get(path) => found.push(self.at(path, next)),
                Operation::Put { path, value, lease } => self.put(path, value, *lease, next),
                Operation::Delete(path) => self.delete(path, next),
            }
        }
        self.commit(next);
        Ok(Decided { has_held, revision: self.revision(), found })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let newest = |path: &str| self.newest(path);
        match compare {
            Compare::CreateRevision(path, wanted) => {
                newest(path).map_or(0, |(_, held)| held.create_revision) == wanted.0
            }
            Compare::ModRevision(path, wanted) => {
                newest(path).map_or(0, |(mod_revision, _)| mod_revision) == wanted.0
            }
            Compare::Lease(path, wanted) => {
                newest(path).and_then(|(_, held)| held.lease).map_or(0, |lease| lease.0) == wanted.0
            }
        }
    }

    fn put(&mut self, path: &str, value: &[u8], lease: Option<LeaseId>, revision: i64) {
        let before = self.newest(path).map(|(_, held)| (held.create_revision, held.version));
        let (create_revision, version) = before.unwrap_or((revision, 0));
        self.detach(path);
        if let Some(lease) = lease.and_then(|lease| self.leases.get_mut(&lease.0)) {
            lease.keys.insert(path.to_owned());
        }
        let value = value.to_vec();
        let held = Held { value, create_revision, version: version + 1, lease };
        self.change(path, Some(held), revision);
    }

    fn delete(&mut self, path: &str, revision: i64) {
        if self.newest(path).is_some() {
            self.detach(path);
            self.change(path, None, revision);
        }
    }

    fn detach(&mut self, path: &str) {
        let lease = self.newest(path).and_then(|(_, held)| held.lease);
        if let Some(lease) = lease.and_then(|lease| self.leases.get_mut(&lease.0)) {
            lease.keys.remove(path);
        }
    }

    fn change(&mut self, path: &str, held: Option<Held>, mod_revision: i64) {
        self.keys.entry(path.to_owned()).or_default().push(Version { mod_revision, held });
        self.changes.entry(mod_revision).or_default().push(path.to_owned());
    }

    /// Makes `next` the present revision if anything was changed in it.
    fn commit(&mut self, next: i64) {
        if self.changes.contains_key(&next) {
            self.revision = next;
        }
    }

    /// Returns the changes below a prefix, by revision, from one on; `None` if they are compacted.
    pub(super) fn changes_from(&self, prefix: &str, from: i64) -> Option<Vec<Vec<ChangedKey>>> {
        if from < self.compacted {
            return None;
        }
        let of_revision = |(&revision, paths): (&i64, &Vec<String>)| {
            let paths = paths.iter().filter(|path| path.starts_with(prefix));
            let changes = paths.filter_map(|path| {
                let versions = self.keys.get(path)?;
                let version = versions.iter().find(|it| it.mod_revision == revision)?;
                let value = version.held.as_ref().map(|held| held.value.clone());
                Some(ChangedKey { path: path.clone(), value, revision: Revision(revision) })
            });
            changes.collect::<Vec<_>>()
        };
        let changes = self.changes.range(from..).map(of_revision);
        Some(changes.filter(|changes| !changes.is_empty()).collect())
    }

    /// Forgets the values that were superseded before `revision`.
    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), Refusal> {
        if revision.0 > self.revision {
            return Err(Refusal::Future);
        }
        if revision.0 <= self.compacted {
            return Err(Refusal::Compacted);
        }
        self.compacted = revision.0;
        self.changes = self.changes.split_off(&revision.0);
        self.keys.retain(|_, versions| {
            let kept = versions.partition_point(|version| version.mod_revision <= revision.0);
            if let Some(last) = kept.checked_sub(1) {
                let is_deleted = versions[last].held.is_none();
                versions.drain(..if is_deleted { kept } else { last });
            }
            !versions.is_empty()
        });
        Ok(())
    }

    pub(super) fn compacted(&self) -> Revision {
        Revision(self.compacted)
    }

    pub(super) fn grant(&mut self, lease: LeaseId, ttl_sec: u64, now_us: u64) {
        let ends_us = now_us + ttl_sec * 1_000_000;
        self.leases.insert(lease.0, Lease { ttl_sec, ends_us, keys: BTreeSet::new() });
    }

    /// Renews a lease. One that has expired cannot be renewed, even if its keys are still there.
    pub(super) fn keep_alive(&mut self, lease: LeaseId, now_us: u64) -> Result<(), Refusal> {
        let lease = self.leases.get_mut(&lease.0).filter(|lease| now_us < lease.ends_us);
        let lease = lease.ok_or(Refusal::NoSuchLease)?;
        lease.ends_us = now_us + lease.ttl_sec * 1_000_000;
        Ok(())
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) -> Result<(), Refusal> {
        let ended = self.leases.remove(&lease.0).ok_or(Refusal::NoSuchLease)?;
        let next = self.revision + 1;
        for path in &ended.keys {
            self.change(path, None, next);
        }
        self.commit(next);
        Ok(())
    }

    /// Ends the leases that have expired; returns whether there were any.
    pub(super) fn end_leases(&mut self, now_us: u64) -> bool {
        let over = self.leases.iter().filter(|(_, lease)| lease.ends_us <= now_us);
        let over: Vec<i64> = over.map(|(&id, _)| id).collect();
        for &lease in &over {
            // The lease exists: it was just found.
            let _ = self.revoke(LeaseId(lease));
        }
        !over.is_empty()
    }

    /// Extends every lease by its whole time: a new leader does not know when leases were renewed
    /// last.
    pub(super) fn extend_leases(&mut self, now_us: u64) {
        for lease in self.leases.values_mut() {
            lease.ends_us = now_us + lease.ttl_sec * 1_000_000;
        }
    }
}

/// True if a key is put twice, or put and deleted.
fn writes_twice(operations: &[Operation]) -> bool {
    let mut put = BTreeSet::new();
    let is_again = operations.iter().any(|operation| match operation {
        Operation::Put { path, .. } => !put.insert(path),
        _ => false,
    });
    is_again
        || operations.iter().any(|operation| match operation {
            Operation::Delete(path) => put.contains(path),
            _ => false,
        })
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
