//! Two mappings of one inside endpoint, and how they become one again.
//!
//! Each is right by itself and has a port of its own. They come about where a worker gets a packet of a flow that it has
//! no copy of: on both sides of a split, or within the lag of a stream. Then packets go by the mapping that is in use:
//! [`preferred`](Nat::preferred) is asked for each packet, so nothing in the index decides it. Who uses one and has never
//! seen a packet of the other says so to the other's owner, by a touch that is as old as a copy without packets
//! (`touch.rs`): the owner ends it, unless there has been traffic that it knows of.

use std::cmp::Reverse;

use weir_flow::{Hash, Record, RecordId};

use crate::change::{Applied, Table};
use crate::endpoint::{Endpoint, Tick};
use crate::mapping::Mapping;
use crate::nat::Nat;
use crate::session::SessionKey;
use crate::touch::is_never;

/// A mapping that has had a packet within this time is in use.
const IN_USE_SEC: u32 = 2;

/// One that has had none for this time may be ended for another. Two that are told at once that the other is in use must
/// not both be: a touch would have to be under way for longer than the difference.
const DISUSED_SEC: u32 = 5;

impl Nat {
    /// Which of two mappings of an inside endpoint a packet to `remote` goes by: one that has a session with it, the one
    /// whose last packet here is the later, the one with the lower public endpoint.
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

    /// The last packet that passed here between a mapping and a remote, if it has a session with it.
    fn seen(&self, id: RecordId, remote: Endpoint) -> Option<Tick> {
        let first = &self.mappings.get(id).first;
        if first.is(remote) {
            return Some(first.last_seen);
        }
        let session = self.find_session(id, SessionKey::Remote(remote))?;
        Some(self.sessions.get(session).remote.last_seen)
    }

    /// The other mapping of the inside endpoint that serves the first session of this one too; of several the one that is
    /// in use. `hash` is of its home, inside endpoint and protocol.
    fn double_of(&self, hash: Hash, id: RecordId) -> Option<RecordId> {
        let mapping = self.mappings.get(id);
        let (home, inside, protocol) = (mapping.home(), mapping.inside(), mapping.protocol);
        let remote = mapping.first.endpoint();
        self.find_preferred(hash, &home, inside, remote, protocol, |other| {
            other != id && self.seen(other, remote).is_some()
        })
    }

    /// The mapping of a copy is known to look-ups now; its inside endpoint may have had one.
    #[cold]
    pub(crate) fn look_for_double(&mut self, hash: Hash, id: RecordId) {
        if let Some(other) = self.double_of(hash, id) {
            self.mappings.get_mut(other).flags |= Mapping::DOUBLE;
            self.mappings.get_mut(id).flags |= Mapping::DOUBLE;
            self.settle_double(id);
        }
    }

    /// Ends a mapping that is not in use, or has its owner end it, if another is in use in its place. To be repeated: what
    /// is in use shows by and by.
    #[cold]
    pub(crate) fn settle_double(&mut self, id: RecordId) {
        let mapping = self.mappings.get(id);
        if mapping.flags & Mapping::DOUBLE == 0 || !mapping.kind.is_in_use() {
            return;
        }
        let (hash, _) = self.hashes_of(mapping);
        let Some(other) = self.double_of(hash, id) else {
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
            self.journal.touch(Table::Mappings, slab, version, id);
        }
    }

    /// Another worker uses another mapping in place of this one, which is ours.
    #[cold]
    pub(crate) fn supersede(&mut self, id: RecordId) -> Applied {
        let (hash, _) = self.hashes_of(self.mappings.get(id));
        if self.double_of(hash, id).is_none() {
            // Here it is the only one: the other is under way, or has ended.
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
