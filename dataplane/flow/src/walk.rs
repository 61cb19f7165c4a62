//! Walks over records in slot order, a bounded number of slots at a time: expiry over the whole
//! arena, dumps over one slab.

use std::ops::ControlFlow;

use crate::extent::{OFFSET_BITS, RECORDS};
use crate::prefetch::prefetch;
use crate::record::{Record, RecordId, SlabId};
use crate::slabs::Slabs;

/// Where a walk over an arena continues. After the end it starts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    extent: u32,
    offset: u32,
}

/// Number of records that a walk prefetches ahead. The processor's own prefetcher stops at each 4
/// KiB, and a walk of a few slots per burst finds its first records in the cache.
const AHEAD: usize = 16;

/// A walk shows its caller the record this far ahead, which is in the cache by then.
const SOON: usize = 8;

impl<R: Record> Slabs<R> {
    /// Calls `visit` for the live records, with their slabs, among the next slots: at most `budget`
    /// slots, none of them twice. The unused rest of an extent, or a whole extent without a slab,
    /// counts as one slot.
    ///
    /// Returns whether the walk came to the end of the arena, where the cursor starts again.
    pub fn walk(
        &mut self,
        cursor: &mut Cursor,
        budget: usize,
        mut visit: impl FnMut(RecordId, SlabId, &mut R),
    ) -> bool {
        let extents = self.extents.all.len() as u32;
        let start = *cursor;
        let mut budget = budget.min(self.records.len()) as u32;
        let mut has_wrapped = false;
        // The first extent may be entered twice: behind the cursor, and a lap later before it.
        for lap_step in 0..=extents {
            let end = match u32::from(self.extents.get(cursor.extent).fresh) {
                fresh if lap_step == extents => fresh.min(start.offset),
                fresh => fresh,
            };
            let first = cursor.offset.min(end);
            let last = first.saturating_add(budget).min(end);
            let slab = SlabId(self.extents.get(cursor.extent).slab);
            for offset in first..last {
                let id = cursor.extent << OFFSET_BITS | offset;
                prefetch(&self.records, id as usize + AHEAD);
                let record = &mut self.records[id as usize];
                if record.is_live() {
                    visit(RecordId(id), slab, record);
                }
            }
            budget -= last - first;
            cursor.offset = last;
            if budget == 0 || lap_step == extents {
                break;
            }
            if end < RECORDS {
                budget -= 1;
            }
            cursor.offset = 0;
            cursor.extent += 1;
            if cursor.extent == extents {
                cursor.extent = 0;
                has_wrapped = true;
            }
        }
        has_wrapped
    }

    /// Calls `visit` for the live records of one slab from slot `from_slot` on, looking at no more
    /// than `budget` slots (at least one). Returns the slot from which to continue; `None` at the
    /// end.
    ///
    /// A record that is live throughout a dump of several calls is visited exactly once.
    ///
    /// # Panics
    /// If `slab` is not below the number of slabs.
    pub fn walk_slab(
        &self,
        slab: SlabId,
        from_slot: u32,
        budget: usize,
        mut visit: impl FnMut(RecordId, &R),
    ) -> Option<u32> {
        let mut budget = budget.max(1);
        let mut from = from_slot;
        loop {
            let position = self.positions.next_taken(slab.0 as usize, from >> OFFSET_BITS)?;
            let number = self.extent_at(slab, position).expect("a position in use has an extent");
            let fresh = u32::from(self.extents.get(number).fresh);
            let is_entered_midway = position == from >> OFFSET_BITS;
            let first = if is_entered_midway { from % RECORDS } else { 0 };
            let last = first.saturating_add(u32::try_from(budget).unwrap_or(u32::MAX)).min(fresh);
            for offset in first..last {
                let id = number << OFFSET_BITS | offset;
                prefetch(&self.records, id as usize + AHEAD);
                let record = &self.records[id as usize];
                if record.is_live() {
                    visit(RecordId(id), record);
                }
            }
            budget -= last.saturating_sub(first) as usize;
            if last < fresh {
                return Some(position << OFFSET_BITS | last);
            }
            budget = budget.saturating_sub(1);
            from = (position + 1) << OFFSET_BITS;
            if budget == 0 {
                return Some(from);
            }
        }
    }

    /// Calls `visit` for the live records of the extent at a position of a slab from `offset` on,
    /// with their offsets, until it returns `Break`. Does nothing if there is no such extent.
    ///
    /// `soon` gets a record some slots ahead, to prefetch what `visit` will read through it. It may
    /// be live or not, and of any slab.
    pub fn walk_extent(
        &self,
        slab: SlabId,
        position: u32,
        offset: u32,
        soon: impl Fn(&R),
        mut visit: impl FnMut(u32, &R) -> ControlFlow<()>,
    ) {
        let Some(number) = self.extent_at(slab, position) else { return };
        for offset in offset..u32::from(self.extents.get(number).fresh) {
            let id = number << OFFSET_BITS | offset;
            prefetch(&self.records, id as usize + AHEAD);
            if let Some(record) = self.records.get(id as usize + SOON) {
                soon(record);
            }
            let record = &self.records[id as usize];
            if record.is_live() && visit(offset, record).is_break() {
                return;
            }
        }
    }

    /// Returns the lowest position of a slab, not below `from`, that has an extent.
    pub fn next_extent(&self, slab: SlabId, from: u32) -> Option<u32> {
        self.positions.next_taken(slab.0 as usize, from)
    }
}
