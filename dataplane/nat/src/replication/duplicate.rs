//! Duplicate mappings: two mappings of one inside endpoint, and how they become one again.
//!
//! Each is valid by itself and has a port of its own. A duplicate arises where a worker gets a
//! packet of a flow that it has no copy of: on both sides of a network split, or within the lag of
//! a stream. Packets then use the mapping that is in use: [`preferred`](Nat::preferred) is asked
//! for each packet, so nothing in the index decides it. A worker that uses one mapping and has
//! never seen a packet of the other informs the other's owner, by an owner update that is as old as
//! a copy without packets (`owner_update.rs`). The owner ends its mapping, unless it knows of
//! traffic.

use std::cmp::Reverse;

use weir_flow::{Hash, Record, RecordId};

use crate::endpoint::{Endpoint, Tick};
use crate::nat::Nat;
use crate::replication::change::{Applied, RecordTable};
use crate::replication::owner_update::is_never;
use crate::sessions::mapping::Mapping;
use crate::sessions::session::SessionKey;

/// A mapping that has had a packet within this time is in use.
const IN_USE_SEC: u32 = 2;

/// A mapping without a packet for this time may be ended in favour of its duplicate. Two owners
/// that learn at the same time that the other mapping is in use must not both end theirs: that
/// would take an owner update that is under way for longer than the difference to [`IN_USE_SEC`].
const DISUSED_SEC: u32 = 5;

impl Nat {
    /// Returns the one of two mappings of an inside endpoint that packets to `remote` use: the one
    /// that has a session with it, then the one whose last packet here is the later, then the one
    /// with the lower public endpoint.
    #[cold]
    pub(crate) fn preferred(&self, one: RecordId, other: RecordId, remote: Endpoint) -> RecordId {
        let rank = |id: RecordId| {
            let seen = self.seen(id, remote);
            let mapping = self.mappings.get(id);
            let idle_sec = self.now.since(seen.unwrap_or(mapping.first.last_seen));
            let Endpoint { address, port } = mapping.public();
            Reverse((seen.is_none(), idle_sec, address, port))
        };
        if rank(one) < rank(other) { other } else { one }
    }

    /// Returns the time of the last packet here between a mapping and a remote, if the mapping has
    /// a session with it.
    pub(crate) fn seen(&self, id: RecordId, remote: Endpoint) -> Option<Tick> {
        let first = &self.mappings.get(id).first;
        if first.is(remote) {
            return Some(first.last_seen);
        }
        let session = self.find_session(id, SessionKey::Remote(remote))?;
        Some(self.sessions.get(session).remote.last_seen)
    }

    /// Returns the duplicate of this mapping that serves its first session too; among several, the
    /// one that is in use. `hash` is that of its home, inside endpoint and protocol.
    fn duplicate_of(&self, hash: Hash, id: RecordId) -> Option<RecordId> {
        let mapping = self.mappings.get(id);
        let (home, protocol) = (mapping.home(), mapping.protocol);
        let remote = mapping.first.endpoint();
        let ends = (mapping.inside(), remote, mapping.asked());
        let is_static = mapping.is_static();
        let pool = self.rules.set.source_pool_of(mapping.public_address);
        self.find_preferred(hash, &home, ends, protocol, |other| {
            let is_alike = self.mappings.get(other).is_static() == is_static
                && (is_static || self.is_of_source_pool(other, pool));
            other != id && is_alike && self.seen(other, remote).is_some()
        })
    }

    /// Looks for a duplicate of a copied mapping that has just become visible to look-ups, marks
    /// both and settles them.
    #[cold]
    pub(crate) fn look_for_duplicate(&mut self, hash: Hash, id: RecordId) {
        if let Some(other) = self.duplicate_of(hash, id) {
            self.mappings.get_mut(other).flags |= Mapping::DOUBLE;
            self.mappings.get_mut(id).flags |= Mapping::DOUBLE;
            self.resolve_duplicate(id);
        }
    }

    /// Ends a mapping that is not in use, or has its owner end it, if its duplicate is in use. To
    /// be repeated: only traffic over time shows which of the two is in use.
    #[cold]
    pub(crate) fn resolve_duplicate(&mut self, id: RecordId) {
        let mapping = self.mappings.get(id);
        if mapping.flags & Mapping::DOUBLE == 0 || !mapping.kind.is_in_use() {
            return;
        }
        let (hash, _) = self.hashes_of(mapping);
        let Some(other) = self.duplicate_of(hash, id) else {
            self.mappings.get_mut(id).flags &= !Mapping::DOUBLE;
            return;
        };
        let (version, last_seen) = (mapping.version(), mapping.first.last_seen);
        let other_seen = self.seen(other, mapping.first.endpoint());
        let is_other_in_use = other_seen.is_some_and(|seen| self.now.since(seen) < IN_USE_SEC);
        let slab = self.mappings.slab_of(id);
        if is_other_in_use && self.lanes.get(slab).is_owned {
            self.end_disused(id);
        } else if is_other_in_use && is_never(last_seen, self.now) {
            self.journal.push_owner_update(RecordTable::Mappings, slab, version, id);
        }
    }

    /// Ends an owned mapping, as another worker uses its duplicate in place of it.
    #[cold]
    pub(crate) fn supersede(&mut self, id: RecordId) -> Applied {
        let (hash, _) = self.hashes_of(self.mappings.get(id));
        if self.duplicate_of(hash, id).is_none() {
            // No duplicate is known here: the other mapping is still under way, or has ended.
            return Applied::Old;
        }
        self.end_disused(id)
    }

    fn end_disused(&mut self, id: RecordId) -> Applied {
        let mapping = self.mappings.get(id);
        let lane = self.lanes.get(self.mappings.slab_of(id));
        let idle_sec = lane.idle_sec(mapping.first.last_seen, self.now);
        if mapping.sessions > 0 || idle_sec < DISUSED_SEC {
            return Applied::Old;
        }
        self.totals.flow_superseded += 1;
        self.end_mapping(id, self.now);
        Applied::Done
    }
}
