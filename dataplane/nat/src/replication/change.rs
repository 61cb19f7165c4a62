//! Changes that one worker sends another about a lane: its records, by slot.
//!
//! A lane has two tables, mappings and further sessions, dealt into one space of slots, 1,024 of
//! the one, then 1,024 of the other. Every copy uses the slots of the owner:
//!
//! ```text
//!   slot = position of the extent << 11 | table << 10 | offset     table: 0 mappings, 1 sessions
//! ```

use weir_flow::OFFSET_BITS;

use crate::endpoint::ShardIndex;

/// Maximum bytes of a change's body.
pub const BODY_MAX: usize = 200;

/// What happened to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The slot holds this record from this change on. A full copy of the lane sends it too.
    Create,
    /// The record in the slot has changed to this.
    Change,
    /// The record ended.
    Delete,
    /// An owner update: a worker that does not own the lane saw traffic of the record.
    OwnerUpdate,
    /// No slot of a run that begins here holds a record of this version or an earlier one; the body
    /// has the run's length.
    Clear,
}

/// A change without its body. Streams keep the order of changes of the same slot; the order across
/// slots is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotChange {
    pub kind: ChangeKind,
    /// Index of the shard in the order of the configuration.
    pub shard: ShardIndex,
    /// 0 to 7.
    pub lane: u8,
    pub slot: u32,
    /// Version of the slot, in serial number arithmetic (RFC 1982).
    pub version: u32,
}

/// A change of a lane that is named elsewhere: see [`SlotChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneChange {
    pub kind: ChangeKind,
    pub slot: u32,
    pub version: u32,
}

impl SlotChange {
    /// Returns the change without its lane.
    pub fn in_lane(&self) -> LaneChange {
        LaneChange { kind: self.kind, slot: self.slot, version: self.version }
    }
}

/// Outcome of a change that another worker sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The copy has become as the change says.
    Done,
    /// The copy already was as the change says, or is newer.
    Old,
    /// This worker owns the lane: no other worker's change counts.
    Ours,
    /// The body is no record of this lane, or the lane's shard is not here.
    Invalid,
    /// No table has room for the record: the copy is incomplete.
    Full,
}

/// The table that a slot belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordTable {
    Mappings = 0,
    Sessions = 1,
}

/// Returns a lane's slot from a table's.
pub(crate) fn lane_slot(table: RecordTable, slot: u32) -> u32 {
    let (position, offset) = (slot >> OFFSET_BITS, slot & OFFSET_MASK);
    (position << 1 | table as u32) << OFFSET_BITS | offset
}

/// Returns the table of a lane's slot and the slot in that table.
pub(crate) fn table_slot(slot: u32) -> (RecordTable, u32) {
    let extent = slot >> OFFSET_BITS;
    let table = if extent & 1 == 0 { RecordTable::Mappings } else { RecordTable::Sessions };
    (table, extent >> 1 << OFFSET_BITS | slot & OFFSET_MASK)
}

pub(crate) const OFFSET_MASK: u32 = (1 << OFFSET_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_share_the_slots_of_a_lane() {
        assert_eq!(lane_slot(RecordTable::Mappings, 1023), 1023);
        assert_eq!(lane_slot(RecordTable::Sessions, 0), 1024);
        assert_eq!(lane_slot(RecordTable::Mappings, 1024), 2048);
        for slot in [0, 5, 1023, 1024, 99_999, (1 << 31) - 1] {
            for table in [RecordTable::Mappings, RecordTable::Sessions] {
                assert_eq!(table_slot(lane_slot(table, slot)), (table, slot));
            }
        }
    }
}
