//! Clears: runs of slots that hold no record at the owner, because it ended there unnoticed here.
//!
//! A clear is true when its owner sends it, for all versions up to the given one in the slots of
//! its run. A record of such a version may begin there afterwards, and arrive from another worker
//! before the clear does. The copy is therefore forgotten, not ended, and comes back with the
//! owner's next change of that version.

use weir_flow::{SlabId, is_later_version};

use crate::nat::Nat;
use crate::replication::change::{Applied, OFFSET_MASK, RecordTable, lane_slot, table_slot};
use crate::replication::mirror::CopyRemoval;

/// Slots that one step of a clear looks at.
const CLEAR_STEP: usize = 64;

impl Nat {
    /// Forgets the copies of this version or an earlier one in a run of a lane's slots: their ends
    /// were missed here.
    pub(crate) fn clear(&mut self, slab: SlabId, first: u32, run: u32, version: u32) -> Applied {
        let end = first.saturating_add(run);
        for table in [RecordTable::Mappings, RecordTable::Sessions] {
            let mut from = first;
            while let Some(slot) = self.next_held(table, slab, from).filter(|&slot| slot < end) {
                from = slot + 1;
                let (_, own_slot) = table_slot(slot);
                let (id, held) = match table {
                    RecordTable::Mappings => self.held_mapping(slab, own_slot),
                    RecordTable::Sessions => self.held_session(slab, own_slot),
                };
                let Some(id) = id.filter(|_| version == held || is_later_version(version, held))
                else {
                    continue;
                };
                match table {
                    RecordTable::Mappings => self.remove_mapping(id, CopyRemoval::Forgotten),
                    RecordTable::Sessions => self.end_copy(id, CopyRemoval::Forgotten),
                }
            }
        }
        self.mappings.raise_floor(slab, version);
        self.sessions.raise_floor(slab, version);
        Applied::Done
    }

    /// Returns the first slot of a lane, not below `from`, in which this table has a record.
    fn next_held(&self, table: RecordTable, slab: SlabId, from: u32) -> Option<u32> {
        let own_from = match table_slot(from) {
            (of, slot) if of == table => slot,
            // `from` lies in 1,024 slots of the other table: those of the sessions follow those of
            // the mappings.
            (RecordTable::Mappings, slot) => slot & !OFFSET_MASK,
            (RecordTable::Sessions, slot) => (slot | OFFSET_MASK).saturating_add(1),
        };
        let mut found = None;
        let mut next = Some(own_from);
        while let (None, Some(slot)) = (found, next) {
            let note = |id_slot| found = found.or(Some(id_slot));
            next = self.walk_slots(table, slab, slot, note);
        }
        found.map(|slot| lane_slot(table, slot))
    }

    /// Takes one step of a walk over a table's slots of a lane.
    fn walk_slots(
        &self,
        table: RecordTable,
        slab: SlabId,
        from: u32,
        mut note: impl FnMut(u32),
    ) -> Option<u32> {
        match table {
            RecordTable::Mappings => self.mappings.walk_slab(slab, from, CLEAR_STEP, |id, _| {
                note(self.mappings.slot_of(id));
            }),
            RecordTable::Sessions => self.sessions.walk_slab(slab, from, CLEAR_STEP, |id, _| {
                note(self.sessions.slot_of(id));
            }),
        }
    }
}
