//! Full copies of a lane: its records in slot order while traffic flows, and sums that compare two
//! copies.
//!
//! The owner of a lane knows which slots are free, so its copy clears them. A relay only knows
//! which slots were free at the last change that it received: a receiver that has received more
//! from the writer must keep its records. A relayed copy therefore clears no slot. It carries only
//! versions of free slots, for a worker that takes the lane over.

use std::ops::{ControlFlow, Range};

use weir_flow::{HashKey, OFFSET_BITS, Record, SlabId};

use crate::endpoint::{Endpoint, ShardIndex};
use crate::nat::Nat;
use crate::replication::change::{
    BODY_MAX, ChangeKind, OFFSET_MASK, RecordTable, SlotChange, table_slot,
};
use crate::replication::change_body::BodyWriter;
use crate::replication::facet::Replica;
use crate::replication::lane::slab_of;
use crate::replication::lane_record::LaneRecord;
use crate::sessions::mapping::{Mapping, MappingKind};
use crate::sessions::session::FurtherSession;

/// Hash key of the sums. Both ends of a comparison use it; it is not a secret.
const SUMS: HashKey = HashKey::new([0x6c61_6e65, 0x7375_6d73]);

/// A walk over the slots of a lane.
struct Walk<'a, O> {
    nat: &'a Nat,
    shard: ShardIndex,
    lane: u8,
    slab: SlabId,
    is_ours: bool,
    /// First slot that no change has covered yet.
    unsent: u32,
    out: O,
}

impl Replica<'_> {
    /// Returns the number of slots to walk in a lane: one more than the last slot that may be in
    /// use.
    pub fn lane_slots(self, shard: ShardIndex, lane: u8) -> u32 {
        let slab = slab_of(shard, lane.into());
        let mut slots = 0;
        while let Some(extent) = self.nat.next_lane_extent(slab, slots >> OFFSET_BITS) {
            slots = (extent + 1) << OFFSET_BITS;
        }
        slots
    }

    /// Copies the slots of a lane: a [`Create`](ChangeKind::Create) for each record, and a
    /// [`Clear`](ChangeKind::Clear) for each run of slots without one. The version of a `Clear` is
    /// not exceeded by any earlier record in the run; in a lane that this worker does not own, its
    /// run has no slots. `out` gets each change with its body and returns whether it took it. Looks
    /// at `budget` slots at most, or a few more.
    ///
    /// Returns the slot to continue from: `slots.end` when all slots are covered.
    pub fn copy_lane(
        self,
        shard: ShardIndex,
        lane: u8,
        slots: Range<u32>,
        budget: u32,
        out: impl FnMut(&SlotChange, &[u8]) -> bool,
    ) -> u32 {
        let (slab, mut from, mut left) = (slab_of(shard, lane.into()), slots.start, budget);
        let is_ours = self.nat.lanes.get(slab).is_owned;
        let mut walk = Walk { nat: self.nat, shard, lane, slab, is_ours, unsent: slots.start, out };
        while from < slots.end && left > 0 {
            let extent = self.nat.next_lane_extent(slab, from >> OFFSET_BITS);
            let start = extent.map_or(slots.end, |extent| (extent << OFFSET_BITS).min(slots.end));
            if start > from {
                // No extent here: no record in this gap had a version later than the slab's floors.
                let floors = [self.nat.mappings.floor(slab), self.nat.sessions.floor(slab)];
                if !walk.send_cleared(start, later(floors)) {
                    return walk.unsent;
                }
                (from, left) = (start, left - 1);
                continue;
            }
            let end = ((from | OFFSET_MASK).saturating_add(1)).min(slots.end);
            let end = end.min(from.saturating_add(left));
            let is_taken = match table_slot(from).0 {
                RecordTable::Mappings => walk.send_extent::<Mapping>(from, end),
                RecordTable::Sessions => walk.send_extent::<FurtherSession>(from, end),
            };
            if !is_taken {
                return walk.unsent;
            }
            left -= end - from;
            from = end;
        }
        from
    }

    /// Returns a sum over the records in these slots of a lane, in any order. It covers their
    /// identities and leaves out what a worker that serves a flow may know better (TCP state, GRE
    /// key to echo, times). Equal on the owner and on a copy.
    pub fn sum_lane(self, shard: ShardIndex, lane: u8, slots: Range<u32>) -> u64 {
        let (slab, mut sum, mut from) = (slab_of(shard, lane.into()), 0_u64, slots.start);
        while let Some(extent) = self.nat.next_lane_extent(slab, from >> OFFSET_BITS) {
            let first = from.max(extent << OFFSET_BITS);
            if first >= slots.end {
                break;
            }
            let (table, _) = table_slot(first);
            let base = extent << OFFSET_BITS;
            let mut add = |slot: u32, term: u64| {
                sum = sum.wrapping_add(if slot < slots.end { term } else { 0 });
            };
            let nat = self.nat;
            match table {
                RecordTable::Mappings => nat.each_term::<Mapping>(slab, first, &mut add),
                RecordTable::Sessions => nat.each_term::<FurtherSession>(slab, first, &mut add),
            }
            from = base.saturating_add(OFFSET_MASK + 1);
        }
        sum
    }
}

impl Nat {
    /// Returns the first extent of a lane's slots, not below `from`, that exists: mappings and
    /// sessions alternate.
    fn next_lane_extent(&self, slab: SlabId, from: u32) -> Option<u32> {
        let mappings = self.mappings.next_extent(slab, from.div_ceil(2)).map(|at| at << 1);
        let sessions = self.sessions.next_extent(slab, from / 2).map(|at| at << 1 | 1);
        mappings.into_iter().chain(sessions).min()
    }

    /// Calls `add` for the records from this slot of a lane to the end of its extent, with their
    /// slots and their terms of a sum.
    fn each_term<R: LaneRecord>(&self, slab: SlabId, first: u32, add: &mut impl FnMut(u32, u64)) {
        let (_, own_slot) = table_slot(first);
        let (position, offset) = (own_slot >> OFFSET_BITS, own_slot & OFFSET_MASK);
        let base = first & !OFFSET_MASK;
        R::table(self).walk_extent(
            slab,
            position,
            offset,
            |_| {},
            |at, record| {
                add(base + at, record.term(self, base + at));
                ControlFlow::Continue(())
            },
        );
    }

    pub(crate) fn mapping_term(&self, slot: u32, mapping: &Mapping) -> u64 {
        if mapping.kind.is_ipv6() {
            return self.flow6_term(slot, mapping, |words| SUMS.hash(words));
        }
        let key = if self.policy.by_key { mapping.gre_key().map_or(1 << 32, u64::from) } else { 0 };
        // Only the owner knows whether a mapping is committed: all kinds in use count as live.
        let kind = if mapping.kind.is_in_use() { MappingKind::Live } else { mapping.kind };
        let kinds = u64::from(kind as u8) << 8 | mapping.protocol as u64;
        let first = SUMS.hash([
            u64::from(slot) << 32 | u64::from(mapping.version()),
            word(mapping.inside()),
            word(mapping.public()),
        ]);
        let remote = word(mapping.first.endpoint());
        let outer = self.outer_term(mapping.outer, |words| SUMS.hash(words));
        SUMS.hash([first.0, remote << 16 | kinds, outer ^ key]).0
    }

    pub(crate) fn session_term(&self, slot: u32, session: &FurtherSession) -> u64 {
        let mapping = self.mappings.slot_of(session.mapping);
        let version = self.mappings.get(session.mapping).version();
        SUMS.hash([
            u64::from(slot) << 32 | u64::from(session.version()),
            word(session.remote.endpoint()),
            u64::from(mapping) << 32 | u64::from(version),
        ])
        .0
    }
}

impl<O: FnMut(&SlotChange, &[u8]) -> bool> Walk<'_, O> {
    /// Covers the slots of one extent. False if `out` did not take a change.
    fn send_extent<R: LaneRecord>(&mut self, from: u32, end: u32) -> bool {
        let (nat, slab) = (self.nat, self.slab);
        let (_, own_slot) = table_slot(from);
        let (position, offset) = (own_slot >> OFFSET_BITS, own_slot & OFFSET_MASK);
        let base = from & !OFFSET_MASK;
        let ceiling = R::table(nat).ceiling(slab, position);
        let (mut is_taken, mut bytes) = (true, [0; BODY_MAX]);
        let soon = |record: &R| record.prefetch_body(nat);
        R::table(nat).walk_extent(slab, position, offset, soon, |at, record| {
            let slot = base + at;
            if slot >= end {
                return ControlFlow::Break(());
            }
            let mut writer = BodyWriter::new(&mut bytes);
            record.write_body(nat, &mut writer);
            let len = writer.len();
            // In another worker's lane, versions go out once, at the end of the extent.
            is_taken = (!self.is_ours || self.send_cleared(slot, ceiling))
                && self.send_record(slot, record.version(), &bytes[..len]);
            if is_taken { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        is_taken && self.send_cleared(end, ceiling)
    }

    fn send_record(&mut self, slot: u32, version: u32, body: &[u8]) -> bool {
        let is_taken = self.send(ChangeKind::Create, slot, version, body);
        if is_taken {
            self.unsent = slot + 1;
        }
        is_taken
    }

    /// Reports that no record lies between the first uncovered slot and `end`, and that none there
    /// was later than `version`. For version 0 there never was a record, so nothing is reported.
    fn send_cleared(&mut self, end: u32, version: u32) -> bool {
        if version != 0 && end > self.unsent {
            let mut bytes = [0; BODY_MAX];
            let mut writer = BodyWriter::new(&mut bytes);
            writer.run(if self.is_ours { end - self.unsent } else { 0 });
            let len = writer.len();
            if !self.send(ChangeKind::Clear, self.unsent, version, &bytes[..len]) {
                return false;
            }
        }
        self.unsent = self.unsent.max(end);
        true
    }

    fn send(&mut self, kind: ChangeKind, slot: u32, version: u32, body: &[u8]) -> bool {
        let Self { shard, lane, .. } = *self;
        (self.out)(&SlotChange { kind, shard, lane, slot, version }, body)
    }
}

fn word(endpoint: Endpoint) -> u64 {
    u64::from(endpoint.address) << 16 | u64::from(endpoint.port)
}

/// Returns the later of two versions, of which 0 is the earliest.
fn later([a, b]: [u32; 2]) -> u32 {
    if a != 0 && weir_flow::is_later_version(a, b) { a } else { b }
}
