//! Hot. Copies of other workers' lanes: how a change is applied here.
//!
//! The slot number is the owner's, so a change is one store if its version is newer. What follows
//! from a mapping's record (index entries, its home, its port and block) is in `attach.rs`.
//!
//! ```text
//!   for each change of a burst: read it; prefetch record, both index lines, block, port
//!   for each change: prefetch the home that has the block
//!   for each change, in order: apply it
//! ```
//!
//! The cache misses of a datagram's changes thus overlap each other and the reading.
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

use crate::endpoint::{Endpoint, Protocol, ShardIndex, Tick, is_outer_handle};
use crate::ipv6::FlowImage;
use crate::nat::Nat;
use crate::ports::port_block::BlockId;
use crate::replication::attach::{MappingCopy, Nearby};
use crate::replication::change::{
    Applied, ChangeKind, LaneChange, RecordTable, SlotChange, table_slot,
};
use crate::replication::change_body::Body;
use crate::replication::facet::ReplicaMut;
use crate::replication::image::MappingImage;
use crate::replication::lane::{LANES, LaneFault, LaneState, slab_of};
use crate::replication::lane_record::LaneRecord;
use crate::replication::owner_update::OwnerUpdate;
use crate::sessions::mapping::{Mapping, MappingKind};
use crate::sessions::session::FurtherSession;
use crate::sessions::session_state::SessionState;

/// Changes whose cache misses overlap: those of a datagram.
const BURST: usize = 32;

/// How the copy of a record is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyRemoval {
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
    pub fn apply(&mut self, change: &SlotChange, body: &[u8], now: Tick) -> Applied {
        self.nat.is_relayed = false;
        let applied = match self.nat.lane_slab(change.shard, change.lane) {
            Some(slab) => self.nat.apply_any(slab, change.in_lane(), body, now),
            None => Applied::Invalid,
        };
        self.nat.count(applied)
    }

    /// Applies changes of a lane that arrived together and overlaps their cache misses: call it
    /// once per datagram, not once per change.
    ///
    /// `is_relayed`: the changes are relayed, by a worker that did not write them and may have
    /// missed the end of what it reports. They add to what is here, and take no port and no block
    /// from a home that holds it here.
    #[inline]
    pub fn apply_burst<'a>(
        &mut self,
        (shard, lane): (ShardIndex, u8),
        changes: impl Iterator<Item = (LaneChange, &'a [u8])> + Clone,
        is_relayed: bool,
        now: Tick,
    ) {
        self.nat.is_relayed = is_relayed;
        let Some(slab) = self.nat.lane_slab(shard, lane) else {
            changes.for_each(|_| _ = self.nat.count(Applied::Invalid));
            return;
        };
        let &LaneState { is_present, is_owned, .. } = self.nat.lanes.get(slab);
        if is_owned || !is_present {
            for (change, body) in changes {
                let applied = self.nat.apply_any(slab, change, body, now);
                self.nat.count(applied);
            }
            return;
        }
        let mut changes = changes;
        let mut copies = [MappingCopy::EMPTY; BURST];
        let mut nearby = Nearby::NOWHERE;
        loop {
            let (count, mut are_copies) =
                self.nat.read_copies(slab, changes.clone(), &mut copies, &mut nearby);
            for copy in &copies[..count] {
                self.nat.prefetch_owner(copy.place.block);
            }
            for (copy, (change, body)) in copies[..count].iter().zip(changes.by_ref()) {
                let applied = match are_copies & 1 {
                    0 => self.nat.apply_any(slab, change, body, now),
                    _ => self.nat.apply_mapping(slab, change, copy, None, now),
                };
                self.nat.count(applied);
                are_copies >>= 1;
            }
            if count < BURST {
                return;
            }
        }
    }
}

impl Nat {
    fn lane_slab(&self, shard: ShardIndex, lane: u8) -> Option<SlabId> {
        let is_known = usize::from(shard.0) < self.shards.len() && u32::from(lane) < LANES;
        is_known.then(|| slab_of(shard, lane.into()))
    }

    /// Reads changes of another worker's lane, at most as many as there are copies. Returns their
    /// number, and bit by bit, which of them are copies of mappings. Changes nothing.
    #[inline(never)]
    fn read_copies<'a>(
        &mut self,
        slab: SlabId,
        changes: impl Iterator<Item = (LaneChange, &'a [u8])>,
        copies: &mut [MappingCopy; BURST],
        nearby: &mut Nearby,
    ) -> (usize, u32) {
        let (mut count, mut are_copies) = (0, 0_u32);
        for (copy, (change, body)) in copies.iter_mut().zip(changes) {
            let is_copy = self.read_copy(slab, &change, body, copy, nearby);
            are_copies |= u32::from(is_copy) << count;
            count += 1;
        }
        (count, are_copies)
    }

    /// Reads a change, unless it is more than the image of a mapping, and prefetches what applying
    /// it reads. Returns whether `copy` is the change's now. Changes nothing.
    #[inline(always)]
    fn read_copy(
        &mut self,
        slab: SlabId,
        change: &LaneChange,
        body: &[u8],
        copy: &mut MappingCopy,
        nearby: &mut Nearby,
    ) -> bool {
        copy.place.block = BlockId::NONE;
        let LaneChange { kind, slot, version } = *change;
        let (table, own_slot) = table_slot(slot);
        if table == RecordTable::Sessions {
            self.sessions.prefetch_slot(slab, own_slot);
            return false;
        }
        let hint = nearby.prefetch_slot(&mut self.mappings, slab, own_slot);
        if kind != ChangeKind::Create && kind != ChangeKind::Change || version == 0 {
            return false;
        }
        let Some(image) = MappingImage::read_alone(body) else { return false };
        let Some(place) = self.place_of::<false>(slab, &image, None, nearby) else { return false };
        *copy = self.copy_at(slab, &image, place, hint);
        self.prefetch_copy(copy);
        true
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
    fn apply_any(&mut self, slab: SlabId, change: LaneChange, body: &[u8], now: Tick) -> Applied {
        let Some(mut body) = Body::read(body) else { return Applied::Invalid };
        if !self.name_home(&mut body) {
            return Applied::Invalid;
        }
        let applied = self.apply_body(slab, change, &body, now);
        if body.outer6.is_some() {
            self.release_outers();
        }
        applied
    }

    /// Puts the handle that this worker has for a home's outer IPv6 address into the images of a
    /// body. Returns false if the address is no home's, or missing.
    #[inline(always)]
    fn name_home(&mut self, body: &mut Body) -> bool {
        let has_handle = match (&body.mapping, &body.flow6) {
            (Some(image), _) => is_outer_handle(image.outer()),
            (_, Some(image)) => !image.is_of_prefix && is_outer_handle(image.outer),
            _ => false,
        };
        match body.outer6 {
            None => !has_handle,
            Some(address) => self.name_home_over_ipv6(body, address),
        }
    }

    #[inline(never)]
    fn name_home_over_ipv6(&mut self, body: &mut Body, address: [u64; 2]) -> bool {
        let Some(outer) = self.intern_outer(address) else { return false };
        body.mapping = body.mapping.map(|image| image.with_outer(outer));
        body.flow6 = body.flow6.map(|image| FlowImage { outer, ..image });
        true
    }

    fn apply_body(&mut self, slab: SlabId, change: LaneChange, body: &Body, now: Tick) -> Applied {
        let LaneChange { kind, slot, version } = change;
        let (table, own_slot) = table_slot(slot);
        let &LaneState { is_present, is_owned, .. } = self.lanes.get(slab);
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
            ChangeKind::Delete => match table {
                RecordTable::Mappings => self.apply_end::<Mapping>(slab, own_slot, version),
                RecordTable::Sessions => self.apply_end::<FurtherSession>(slab, own_slot, version),
            },
            ChangeKind::Create | ChangeKind::Change
                if body.flow6.is_some() && table == RecordTable::Mappings =>
            {
                match body.flow6 {
                    Some(image) => self.apply_flow6(slab, change, &image, now),
                    None => Applied::Invalid,
                }
            }
            ChangeKind::Create | ChangeKind::Change => match (table, body.mapping, body.session) {
                (RecordTable::Mappings, Some(image), _) => {
                    match self.copy_of(slab, &image, body.asked, body.paired_address) {
                        Some(copy) => self.apply_mapping(slab, change, &copy, body.asked, now),
                        None => Applied::Invalid,
                    }
                }
                (RecordTable::Sessions, Some(mapping), Some(session)) => {
                    let whole = (&session, &mapping, body.paired_address);
                    self.apply_session(slab, own_slot, (kind, version), whole, now)
                }
                _ => Applied::Invalid,
            },
        }
    }

    /// Returns the record in a slot, and the slot's version; 0 if nothing is known of the slot.
    pub(crate) fn held<R: LaneRecord>(&self, slab: SlabId, slot: u32) -> (Option<RecordId>, u32) {
        let Some(id) = R::table(self).id_of(slab, slot) else { return (None, 0) };
        let record = R::table(self).get(id);
        (record.is_live().then_some(id), record.version())
    }

    #[inline(always)]
    pub(crate) fn apply_mapping(
        &mut self,
        slab: SlabId,
        change: LaneChange,
        copy: &MappingCopy,
        asked: Option<Endpoint>,
        now: Tick,
    ) -> Applied {
        let (_, slot) = table_slot(change.slot);
        let id = match self.mappings.put_newer(slab, slot, change.version, copy.hint) {
            Some(id) => id,
            None => match self.put_mapping(slab, change, copy, asked, now) {
                Ok(id) => id,
                Err(applied) => return applied,
            },
        };
        self.attach(slab, id, copy, asked, now)
    }

    /// Puts a record into the mapping's slot, whatever it holds.
    ///
    /// # Errors
    /// The outcome, if the change makes no new record.
    #[inline(never)]
    fn put_mapping(
        &mut self,
        slab: SlabId,
        change: LaneChange,
        copy: &MappingCopy,
        asked: Option<Endpoint>,
        now: Tick,
    ) -> Result<RecordId, Applied> {
        let LaneChange { kind, slot, version } = change;
        let ((_, slot), image) = (table_slot(slot), &copy.image);
        // The extent may have come with the change before.
        let hint = self.mappings.prefetch_slot(slab, slot);
        if hint != copy.hint {
            if let Some(id) = self.mappings.put_newer(slab, slot, version, hint) {
                return Ok(id);
            }
        }
        let known = self.mappings.held(slab, slot, hint);
        let version_held = known.map_or(0, |id| self.mappings.get(id).version());
        let held = known.filter(|&id| self.mappings.get(id).is_live());
        if let Some(id) = held.filter(|_| version == version_held) {
            if self.is_same_mapping(id, image, asked) {
                return Err(self.change_mapping(id, kind, image, now));
            }
            // A correct owner never gives one version to two mappings.
            self.remove_mapping(id, CopyRemoval::Forgotten);
        } else if !is_later_version(version, version_held) {
            return Err(Applied::Old);
        } else if let Some(id) = held {
            self.remove_mapping(id, CopyRemoval::Ended);
        }
        let put = self.mappings.put(slab, slot, version, hint);
        put.ok_or_else(|| self.lane_is_full(slab))
    }

    fn is_same_mapping(&self, id: RecordId, image: &MappingImage, asked: Option<Endpoint>) -> bool {
        let mapping = self.mappings.get(id);
        !mapping.kind.is_ipv6()
            && mapping.outer == image.outer()
            && mapping.inside() == image.inside()
            && mapping.is_public(image.public(), image.protocol())
            && mapping.asked() == asked
            && (!self.policy.by_key || mapping.gre_key() == image.gre_key())
    }

    /// Applies what the owner decides of a mapping that is here.
    #[inline(never)]
    fn change_mapping(
        &mut self,
        id: RecordId,
        kind: ChangeKind,
        image: &MappingImage,
        now: Tick,
    ) -> Applied {
        let Mapping { first, protocol, .. } = *self.mappings.get(id);
        let received = (image.remote(), image.state());
        let state = self.received_state(&first, protocol, kind, received, now);
        if state != image.state() {
            self.send_state_to_owner::<Mapping>(id);
        }
        let mapping = self.mappings.get_mut(id);
        if mapping.kind == MappingKind::Quarantined && !image.is_quarantined() {
            return Applied::Old;
        }
        let is_over = mapping.kind.is_in_use() && image.is_quarantined();
        mapping.note_gre_key(image.gre_key());
        self.policy.has_keyed |= image.gre_key().is_some();
        mapping.flags &= !Mapping::UNCLEAN;
        mapping.flags |= image.flags() & Mapping::UNCLEAN;
        if image.flags() & Mapping::ANSWERED != 0 {
            mapping.flags |= Mapping::ANSWERED;
            self.subscribers.set_answered(mapping.subscriber);
        }
        mapping.count_inbound(mapping.first.state, -1);
        let remote = image.remote();
        if !mapping.first.is(remote) {
            (mapping.first.address, mapping.first.port) = (remote.address, remote.port);
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
        self.end_sessions(id, CopyRemoval::Ended);
        let mapping = self.mappings.get_mut(id);
        mapping.kind = MappingKind::Quarantined;
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

    fn apply_end<R: LaneRecord>(&mut self, slab: SlabId, slot: u32, version: u32) -> Applied {
        let (held, version_held) = self.held::<R>(slab, slot);
        if version != version_held && !is_later_version(version, version_held) {
            return Applied::Old;
        }
        if let Some(id) = held {
            R::remove_copy(self, id, CopyRemoval::Ended);
        }
        R::table_mut(self).bury(slab, slot, version);
        if held.is_some() { Applied::Done } else { Applied::Old }
    }

    /// Removes the copy of a mapping with all that belongs to it.
    #[inline(never)]
    pub(crate) fn remove_mapping(&mut self, id: RecordId, exit: CopyRemoval) {
        if self.mappings.get(id).kind.is_ipv6() {
            return self.remove_flow6(id, exit);
        }
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
            CopyRemoval::Ended => self.mappings.free(id),
            CopyRemoval::Forgotten => self.mappings.forget(id),
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
