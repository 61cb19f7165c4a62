//! Copies of other workers' lanes: how a change is applied here.
//!
//! The slot number is the owner's, so a change is one store if its version is newer. What follows
//! from a mapping's record - index entries, its home, its port and block - is made at the end of
//! its burst, see `attach.rs`.
//!
//! - A version that was deleted stays deleted, a mapping in quarantine does not come back to life,
//!   and a change of the version held here replaces what its owner decides: the order of changes
//!   within a slot is the stream's.
//! - Changes of different slots come in any order: a session brings its mapping along, a mapping
//!   its home.
//! - A relayed change takes no port and no block from the home that holds it here: the end of the
//!   relayed mapping may have arrived here alone. Nor does it take a session back to an earlier
//!   state.
//! - The writer's own copy does not take a session back either, if packets have arrived here that
//!   the writer has not seen: it is sent the state that the session has here.
//! - A change that no table has room for is refused, and the lane is marked full until it is copied
//!   again.

use weir_flow::{Record, RecordId, SlabId, is_later_version};

use crate::endpoint::{Endpoint, Protocol, ShardIndex, Tick};
use crate::nat::Nat;
use crate::replication::change::{Applied, Change, ChangeKind, Table, table_slot};
use crate::replication::change_body::{Body, MappingBody};
use crate::replication::facet::ReplicaMut;
use crate::replication::lane::{LANES, LaneFault, LaneState, lane_of, slab_of};
use crate::replication::owner_update::{OwnerUpdate, never};
use crate::sessions::mapping::{Kind, Mapping, Remote};
use crate::sessions::session_state::SessionState;
use crate::subscribers::subscriber::NO_ADDRESS;

/// How the copy of a record is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The owner of the lane ended the record.
    Ended,
    /// The copy conflicts with a newer one, found no room, or its slot is reported free: the same
    /// version may come again.
    Forgotten,
}

impl ReplicaMut<'_> {
    /// Applies a change of a lane that another worker owns, or an owner update for a lane owned
    /// here.
    ///
    /// The same change may come again, and changes of different slots in any order.
    pub fn apply(&mut self, change: &Change, body: &[u8], now: Tick) -> Applied {
        self.nat.is_relayed = false;
        let applied = self.nat.apply_to_slot(change, body, now);
        self.nat.attach_waiting();
        applied
    }

    /// Applies changes that arrived together and overlaps their cache misses: call it once per
    /// datagram, not once per change.
    ///
    /// `is_relayed`: the changes are relayed, by a worker that did not write them and may have
    /// missed the end of what it reports. They add to what is here, and take no port and no block
    /// from a home that holds it here.
    #[inline]
    pub fn apply_burst<'a>(
        &mut self,
        changes: impl Iterator<Item = (Change, &'a [u8])> + Clone,
        is_relayed: bool,
        now: Tick,
    ) {
        self.nat.is_relayed = is_relayed;
        for (change, _) in changes.clone() {
            self.nat.prefetch_change(&change);
        }
        for (change, body) in changes {
            self.nat.apply_to_slot(&change, body, now);
        }
        self.nat.attach_waiting();
    }
}

impl Nat {
    /// Prefetches the record that a change is about.
    #[inline(always)]
    fn prefetch_change(&mut self, change: &Change) {
        let Change { shard, lane, slot, .. } = *change;
        if usize::from(shard.0) < self.shards.len() && u32::from(lane) < LANES {
            let slab = slab_of(shard, lane.into());
            match table_slot(slot) {
                (Table::Mappings, slot) => self.mappings.prefetch_slot(slab, slot),
                (Table::Sessions, slot) => self.sessions.prefetch_slot(slab, slot),
            }
        }
    }

    /// Applies one change. Copies of mappings may still wait to be attached when this returns.
    #[inline(always)]
    fn apply_to_slot(&mut self, change: &Change, body: &[u8], now: Tick) -> Applied {
        let Change { kind, shard, lane, slot, version } = *change;
        if usize::from(shard.0) >= self.shards.len() || u32::from(lane) >= LANES {
            return self.count(Applied::Invalid);
        }
        let slab = slab_of(shard, lane.into());
        let (table, own_slot) = table_slot(slot);
        let &LaneState { is_present, is_owned, .. } = self.lanes.get(slab);
        let is_told = matches!(kind, ChangeKind::Create | ChangeKind::Change) && version != 0;
        if is_told && is_present && !is_owned && table == Table::Mappings {
            // Nearly every change is a mapping and nothing else.
            if let Some(mapping) = MappingBody::read_alone(body) {
                let news = (kind, version);
                let applied = self.apply_mapping(slab, own_slot, news, &mapping, None, now);
                return self.count(applied);
            }
        }
        self.apply_slow_path(change, body, now)
    }

    #[inline(always)]
    fn count(&mut self, applied: Applied) -> Applied {
        let totals = &mut self.totals;
        *match applied {
            Applied::Done => &mut totals.changes_applied,
            Applied::Old => &mut totals.changes_old,
            Applied::Ours => &mut totals.changes_ours,
            Applied::Invalid => &mut totals.changes_invalid,
            Applied::Full => &mut totals.changes_full,
        } += 1;
        applied
    }

    #[inline(never)]
    fn apply_slow_path(&mut self, change: &Change, body: &[u8], now: Tick) -> Applied {
        let applied = self.apply_any(change, body, now);
        self.count(applied)
    }

    fn apply_any(&mut self, change: &Change, body: &[u8], now: Tick) -> Applied {
        let Change { kind, shard, lane, slot, version } = *change;
        let slab = slab_of(shard, lane.into());
        let (table, own_slot) = table_slot(slot);
        let &LaneState { is_present, is_owned, .. } = self.lanes.get(slab);
        let Some(body) = Body::read(body) else { return Applied::Invalid };
        match kind {
            // The shard is being removed, or gone.
            _ if !is_present => Applied::Invalid,
            ChangeKind::OwnerUpdate if is_owned => {
                let Some(idle_sec) = body.idle_sec else { return Applied::Invalid };
                let seen = Tick(now.0.wrapping_sub(idle_sec.min(i32::MAX as u32)));
                let update = OwnerUpdate { seen, segment: body.segment, state: body.state };
                self.apply_owner_update(table, slab, own_slot, version, &update, now)
            }
            // The lane has changed its owner since the update was sent.
            ChangeKind::OwnerUpdate => Applied::Old,
            _ if is_owned => Applied::Ours,
            ChangeKind::Clear => match body.run {
                Some(run) => self.clear(slab, slot, run, version),
                None => Applied::Invalid,
            },
            _ if version == 0 => Applied::Invalid,
            ChangeKind::Delete => self.apply_end(table, slab, own_slot, version),
            ChangeKind::Create | ChangeKind::Change => match (table, body.mapping, body.session) {
                (Table::Mappings, Some(mapping), _) => {
                    self.apply_mapping(slab, own_slot, (kind, version), &mapping, body.seat, now)
                }
                (Table::Sessions, Some(mapping), Some(session)) => {
                    let whole = (&session, &mapping, body.seat);
                    self.apply_session(slab, own_slot, (kind, version), whole, now)
                }
                _ => Applied::Invalid,
            },
        }
    }

    /// Returns the record in a slot, attached, and the slot's version; 0 if nothing is known of the
    /// slot.
    #[inline(always)]
    pub(crate) fn held_mapping(&mut self, slab: SlabId, slot: u32) -> (Option<RecordId>, u32) {
        let held = self.known_mapping(slab, slot);
        if held.0.is_some_and(|id| self.mappings.get(id).flags & Mapping::WAITING != 0) {
            self.attach_waiting();
            return self.known_mapping(slab, slot);
        }
        held
    }

    #[inline(always)]
    fn known_mapping(&self, slab: SlabId, slot: u32) -> (Option<RecordId>, u32) {
        let Some(id) = self.mappings.id_of(slab, slot) else { return (None, 0) };
        let mapping = self.mappings.get(id);
        (mapping.is_live().then_some(id), mapping.version())
    }

    pub(crate) fn held_session(&self, slab: SlabId, slot: u32) -> (Option<RecordId>, u32) {
        let Some(id) = self.sessions.id_of(slab, slot) else { return (None, 0) };
        let session = self.sessions.get(id);
        (session.is_live().then_some(id), session.version())
    }

    /// Inlined into both callers, so that the fields of a body that is read there stay in
    /// registers.
    #[inline(always)]
    pub(crate) fn apply_mapping(
        &mut self,
        slab: SlabId,
        slot: u32,
        (kind, version): (ChangeKind, u32),
        body: &MappingBody,
        seat: Option<u32>,
        now: Tick,
    ) -> Applied {
        let Some((address, seat)) = self.place_of(slab, body, seat) else {
            return Applied::Invalid;
        };
        let (held, version_held) = self.held_mapping(slab, slot);
        if let Some(id) = held.filter(|_| version == version_held) {
            if self.is_same_mapping(id, body) {
                return self.change_mapping(id, kind, body, now);
            }
            // A correct owner never gives one version to two mappings.
            self.remove_mapping(id, Exit::Forgotten);
        } else if !is_later_version(version, version_held) {
            return Applied::Old;
        } else if let Some(id) = held {
            self.remove_mapping(id, Exit::Ended);
        }
        let Some(id) = self.mappings.put(slab, slot, version) else {
            return self.lane_is_full(slab);
        };
        let mapping = self.mappings.get_mut(id);
        fill(mapping, lane_of(slab).0, body, now);
        self.policy.has_keyed |= body.gre_key.is_some();
        mapping.address = address;
        // The paired address, until the copy is attached to a subscriber.
        mapping.subscriber = seat;
        self.wait_to_attach(id);
        Applied::Done
    }

    /// Returns the positions of the public and the paired address, if such a mapping can lie in
    /// this lane.
    #[inline(always)]
    fn place_of(&self, slab: SlabId, body: &MappingBody, seat: Option<u32>) -> Option<(u32, u32)> {
        let (shard, lane) = lane_of(slab);
        let Endpoint { address, port } = body.public;
        if !self.homes.contains(body.outer) {
            return None;
        }
        if !self.policy.enabled {
            let is_ours =
                body.inside == body.public && self.public.shard_of(address) == Some(shard);
            return is_ours.then_some((NO_ADDRESS, NO_ADDRESS));
        }
        let position = self.ports.position_of(address)?;
        let block = self.ports.block_of(position, port);
        let is_right = self.ports.is_usable(port)
            && self.ports.shard_at(position) == shard
            && self.ports.lane(block) == u32::from(lane);
        if !is_right {
            return None;
        }
        let Some(seat) = seat else { return Some((position, position)) };
        let seat =
            self.ports.position_of(seat).filter(|&seat| self.ports.shard_at(seat) == shard)?;
        Some((position, seat))
    }

    fn is_same_mapping(&self, id: RecordId, body: &MappingBody) -> bool {
        let mapping = self.mappings.get(id);
        mapping.outer == body.outer
            && mapping.inside() == body.inside
            && mapping.is_public(body.public, body.protocol)
            && (!self.policy.by_key || mapping.gre_key() == body.gre_key)
    }

    /// Applies what the owner decides of a mapping that is here.
    #[inline(never)]
    fn change_mapping(
        &mut self,
        id: RecordId,
        kind: ChangeKind,
        body: &MappingBody,
        now: Tick,
    ) -> Applied {
        let Mapping { first, protocol, .. } = *self.mappings.get(id);
        let told = (body.remote, body.state);
        let state = self.state_told(&first, protocol, kind, told, now);
        if state != body.state {
            self.tell_further(Table::Mappings, id);
        }
        let mapping = self.mappings.get_mut(id);
        if mapping.kind == Kind::Quarantined && !body.is_quarantined {
            return Applied::Old;
        }
        let is_over = mapping.kind.is_in_use() && body.is_quarantined;
        mapping.note_gre_key(body.gre_key);
        self.policy.has_keyed |= body.gre_key.is_some();
        mapping.flags &= !Mapping::UNCLEAN;
        if body.is_unclean {
            mapping.flags |= Mapping::UNCLEAN;
        }
        if body.is_answered {
            mapping.flags |= Mapping::ANSWERED;
            self.subscribers.set_answered(mapping.subscriber);
        }
        mapping.count_inbound(mapping.first.state, -1);
        if !mapping.first.is(body.remote) {
            (mapping.first.address, mapping.first.port) = (body.remote.address, body.remote.port);
        }
        mapping.first.state = state;
        mapping.count_inbound(state, 1);
        if is_over {
            self.quarantine_copy(id);
        }
        Applied::Done
    }

    /// Quarantines a mapping that is in use here: it has ended at its owner, and its port rests.
    fn quarantine_copy(&mut self, id: RecordId) {
        self.end_sessions(id, Exit::Ended);
        let mapping = self.mappings.get_mut(id);
        mapping.kind = Kind::Quarantined;
        let mapping = *mapping;
        self.unindex_outbound(id, &mapping);
        self.quarantined += 1;
    }

    fn unindex_outbound(&mut self, id: RecordId, mapping: &Mapping) {
        let (outbound, _) = self.hashes_of(mapping);
        let was_outbound = self.outbound_index.remove(outbound, id.0);
        assert!(was_outbound, "a live mapping is in both indexes");
        self.subscribers.get_mut(mapping.subscriber).flows -= 1;
        self.flows -= 1;
    }

    pub(crate) fn lane_is_full(&mut self, slab: SlabId) -> Applied {
        self.lanes.note(LaneFault::Filled, slab);
        Applied::Full
    }

    pub(crate) fn apply_end(
        &mut self,
        table: Table,
        slab: SlabId,
        slot: u32,
        version: u32,
    ) -> Applied {
        let (held, version_held) = match table {
            Table::Mappings => self.held_mapping(slab, slot),
            Table::Sessions => self.held_session(slab, slot),
        };
        let is_old = version != version_held && !is_later_version(version, version_held);
        if is_old {
            return Applied::Old;
        }
        match (table, held) {
            (Table::Mappings, Some(id)) => self.remove_mapping(id, Exit::Ended),
            (Table::Sessions, Some(id)) => self.end_copy(id, Exit::Ended),
            (_, None) => {}
        }
        match table {
            Table::Mappings => self.mappings.bury(slab, slot, version),
            Table::Sessions => self.sessions.bury(slab, slot, version),
        }
        if held.is_some() { Applied::Done } else { Applied::Old }
    }

    /// Removes the copy of a mapping with all that belongs to it.
    #[inline(never)]
    pub(crate) fn remove_mapping(&mut self, id: RecordId, exit: Exit) {
        self.end_sessions(id, exit);
        let mapping = *self.mappings.get(id);
        if mapping.kind.is_in_use() {
            self.unindex_outbound(id, &mapping);
        } else {
            self.quarantined -= 1;
        }
        self.release_holding(id);
        self.subscribers.get_mut(mapping.subscriber).records -= 1;
        self.dismiss_home(mapping.subscriber);
        match exit {
            Exit::Ended => self.mappings.free(id),
            Exit::Forgotten => self.mappings.forget(id),
        }
    }

    /// Returns the mapping of this lane that holds a public endpoint, in use or in quarantine.
    pub(crate) fn find_holder(
        &self,
        slab: SlabId,
        public: Endpoint,
        protocol: Protocol,
    ) -> Option<RecordId> {
        let hash = self.inbound_hash(public, protocol);
        let found = self.inbound_index.find(hash, |id| {
            self.mappings.get(RecordId(id)).is_public(public, protocol)
                && self.mappings.slab_of(RecordId(id)) == slab
        });
        found.map(RecordId)
    }
}

impl Mapping {
    /// Counts a session that a remote has opened: in (1) or out (-1).
    pub(crate) fn count_inbound(&mut self, state: SessionState, count: i16) {
        if state.has(SessionState::OPENED_BY_REMOTE) {
            self.sessions_inbound = self.sessions_inbound.wrapping_add_signed(count);
        }
    }
}

/// Fills the record of a copy that waits to be attached.
#[inline(always)]
fn fill(mapping: &mut Mapping, shard: ShardIndex, body: &MappingBody, now: Tick) {
    mapping.kind = if body.is_quarantined { Kind::Quarantined } else { Kind::Live };
    mapping.outer = body.outer;
    mapping.shard = shard;
    mapping.inside_address = body.inside.address;
    mapping.inside_port = body.inside.port;
    mapping.public_address = body.public.address;
    mapping.public_port = body.public.port;
    mapping.protocol = body.protocol;
    mapping.first = Remote {
        address: body.remote.address,
        last_seen: never(now),
        port: body.remote.port,
        state: body.state,
    };
    mapping.flags = Mapping::WAITING
        | if body.is_unclean { Mapping::UNCLEAN } else { 0 }
        | if body.is_answered { Mapping::ANSWERED } else { 0 };
    mapping.note_gre_key(body.gre_key);
    mapping.count_inbound(body.state, 1);
    mapping.created = Tick(now.0.wrapping_sub(body.age_sec));
}
