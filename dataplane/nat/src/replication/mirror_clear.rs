//! Clears: runs of slots that hold no record at the owner, because it ended there unnoticed here.
//!
//! A clear is true when its owner sends it, for all versions up to the given one in the slots of
//! its run. A record of such a version may begin there afterwards, and arrive from another worker
//! before the clear does. The copy is therefore forgotten, not ended, and comes back with the
//! owner's next change of that version.

use weir_flow::{SlabId, is_later_version};

use crate::nat::Nat;
use crate::replication::change::{Applied, OFFSET_MASK, RecordTable, lane_slot, table_slot};
use crate::replication::lane_record::LaneRecord;
use crate::replication::mirror::CopyRemoval;
use crate::sessions::mapping::Mapping;
use crate::sessions::session::FurtherSession;

/// Slots that one step of a clear looks at.
const CLEAR_STEP: usize = 64;

impl Nat {
    /// Forgets the copies of this version or an earlier one in a run of a lane's slots: their ends
    /// were missed here.
    pub(crate) fn clear(&mut self, slab: SlabId, first: u32, run: u32, version: u32) -> Applied {
        self.clear_table::<Mapping>(slab, first, run, version);
        self.clear_table::<FurtherSession>(slab, first, run, version);
        Applied::Done
    }

    fn clear_table<R: LaneRecord>(&mut self, slab: SlabId, first: u32, run: u32, version: u32) {
        let (mut from, end) = (first, first.saturating_add(run));
        while let Some(slot) = self.next_held::<R>(slab, from).filter(|&slot| slot < end) {
            from = slot + 1;
            let (held, version_held) = self.held::<R>(slab, table_slot(slot).1);
            let is_cleared = version == version_held || is_later_version(version, version_held);
            if let Some(id) = held.filter(|_| is_cleared) {
                R::remove_copy(self, id, CopyRemoval::Forgotten);
            }
        }
        R::table_mut(self).raise_floor(slab, version);
    }

    /// Returns the first slot of a lane, not below `from`, in which this table has a record.
    fn next_held<R: LaneRecord>(&self, slab: SlabId, from: u32) -> Option<u32> {
        let own_from = match table_slot(from) {
            (table, slot) if table == R::TABLE => slot,
            // `from` lies in 1,024 slots of the other table: those of the sessions follow those of
            // the mappings.
            (RecordTable::Sessions, slot) => (slot | OFFSET_MASK).saturating_add(1),
            (RecordTable::Mappings, slot) => slot & !OFFSET_MASK,
        };
        let (mut found, mut next) = (None, Some(own_from));
        while let (None, Some(slot)) = (found, next) {
            next = R::table(self).walk_slab(slab, slot, CLEAR_STEP, |id, _| {
                found = found.or(Some(R::table(self).slot_of(id)));
            });
        }
        found.map(|slot| lane_slot(R::TABLE, slot))
    }
}
