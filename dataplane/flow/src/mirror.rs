//! Slabs of another table, mirrored slot by slot: the owner reports which slot holds which version,
//! and this table puts its copy of the record there.
//!
//! ```text
//!   owner's alloc  ~~ (slab, slot, version) ~~>  put      free, forget   an empty extent keeps
//!   owner's free   ~~ (slab, slot, version) ~~>  bury                    its versions until its
//!                                                                        room is needed
//!                                                take_over: alloc works here from then on
//! ```
//!
//! - A mirrored extent has no free list: slots come in the owner's order. The first `alloc` in it
//!   after a take-over makes the list, one extent at a time, so that taking over a slab of millions
//!   of records costs nothing at once.
//! - A slab's floor is at least every version that was buried in it, or that a slot had whose
//!   extent was given back. A take-over raises it to those of all extents and leaps ahead of it:
//!   records that the former owner wrote and did not report have other versions than those written
//!   here.
//! - There is one writer of a slab at a time; the caller has to ensure that.

use crate::extent::{END, OFFSET_BITS, RECORDS};
use crate::record::{Record, RecordId, SlabId, is_later_version, later_version, previous_version};
use crate::slabs::{Slab, Slabs, parts};

/// Number of unreported versions that a slot may have had when its slab is taken over: as often as
/// a port can be used again in the seconds that a stream lags.
const LEAP: u32 = 1 << 20;

impl<R: Record> Slabs<R> {
    /// Returns the record at a slot of a slab, as [`id_of`](Self::id_of) does. `hint`: where it
    /// was, or any id.
    #[inline]
    pub fn held(&self, slab: SlabId, slot: u32, hint: RecordId) -> Option<RecordId> {
        let (position, offset) = (slot >> OFFSET_BITS, slot % RECORDS);
        let number = match self.is_extent_at(parts(hint).0, slab, position) {
            true => parts(hint).0,
            false => self.extent_at(slab, position)?,
        };
        (offset < u32::from(self.extents.get(number).fresh))
            .then_some(RecordId(number << OFFSET_BITS | offset))
    }

    /// Allocates the record at a slot, as [`put`](Self::put) does, if that changes nothing else:
    /// the slot is free and had no version from this one on, and the extent at `hint` is the slot's
    /// and has further records. `None`, and nothing is changed, in all other cases.
    #[inline(always)]
    pub fn put_newer(
        &mut self,
        slab: SlabId,
        slot: u32,
        version: u32,
        hint: RecordId,
    ) -> Option<RecordId> {
        let offset = slot % RECORDS;
        let (number, _) = parts(hint);
        let extent = self.extents.all.get_mut(number as usize)?;
        let is_there = extent.slab == slab.0 && extent.position == slot >> OFFSET_BITS;
        let stays_in_its_list = (1..RECORDS as u16 - 1).contains(&extent.live);
        if !is_there || !extent.is_mirrored || !stays_in_its_list || self.live == self.capacity {
            return None;
        }
        let id = number << OFFSET_BITS | offset;
        let record = self.records.get_mut(id as usize)?;
        let is_fresh = offset == u32::from(extent.fresh);
        if is_fresh {
            extent.fresh += 1;
        } else if offset > u32::from(extent.fresh)
            || record.is_live()
            || !is_later_version(version, record.version())
        {
            return None;
        }
        if is_later_version(version, extent.high_version) {
            extent.high_version = version;
        }
        extent.live += 1;
        self.live += 1;
        // A free record is EMPTY except for its version and its link, as for `alloc`.
        record.set_next_free(R::EMPTY.next_free());
        record.set_version(version);
        Some(RecordId(id))
    }

    /// Allocates the record at a free slot that the slab's owner chose: [`Record::EMPTY`] except
    /// for `version`. Attaches the extent at that position if there is none. `None` if `capacity`
    /// records are allocated, if no extent is free, or if the slot is beyond those that this arena
    /// could have. `hint`: where the slot was, or any id.
    ///
    /// # Panics
    /// If `slab` is not below the number of slabs.
    #[inline]
    pub fn put(
        &mut self,
        slab: SlabId,
        slot: u32,
        version: u32,
        hint: RecordId,
    ) -> Option<RecordId> {
        let (position, offset) = (slot >> OFFSET_BITS, slot % RECORDS);
        if self.live == self.capacity {
            return None;
        }
        let mut number = parts(hint).0;
        if !self.is_extent_at(number, slab, position) {
            number = self.find_or_attach(slab, position)?;
        }
        let extent = self.extents.get(number);
        if extent.live == 0 || !extent.is_mirrored || u32::from(extent.fresh) < offset {
            self.prepare(number, offset);
        }
        let extent = self.extents.get_mut(number);
        extent.fresh = extent.fresh.max(offset as u16 + 1);
        extent.high_version = later_version(extent.high_version, version);
        extent.live += 1;
        let is_full = !extent.has_room();
        self.live += 1;
        if is_full {
            self.extents.unlink(&mut self.slabs[slab.0 as usize].mirrored_head, number);
        }
        let id = number << OFFSET_BITS | offset;
        let record = &mut self.records[id as usize];
        debug_assert!(!record.is_live(), "the slot is free");
        *record = R::EMPTY;
        record.set_version(version);
        Some(RecordId(id))
    }

    #[cold]
    fn find_or_attach(&mut self, slab: SlabId, position: u32) -> Option<u32> {
        if position as usize >= self.extents.all.len() {
            return None;
        }
        self.extent_at(slab, position).or_else(|| self.attach_at(slab, position))
    }

    /// Makes an extent one that is mirrored and not idle, and its slots up to `offset` ones that
    /// are in use or free.
    #[cold]
    fn prepare(&mut self, number: u32, offset: u32) {
        let extent = self.extents.get(number);
        if extent.is_idle() {
            self.wake(number);
        } else if !extent.is_mirrored {
            self.mirror(number);
        }
        let extent = self.extents.get_mut(number);
        for skipped in u32::from(extent.fresh)..offset {
            let record = &mut self.records[(number << OFFSET_BITS | skipped) as usize];
            // The owner's record in this slot is unknown: any version that arrives is newer.
            *record = R::EMPTY;
        }
        extent.fresh = extent.fresh.max(offset as u16);
    }

    /// Frees a record of a mirrored extent. The slab keeps the extent, with the versions of its
    /// slots.
    #[cold]
    pub(crate) fn free_mirrored(&mut self, id: RecordId) {
        let (number, _) = parts(id);
        let record = &mut self.records[id.0 as usize];
        let version = record.version();
        *record = R::EMPTY;
        record.set_version(version);
        let extent = self.extents.get_mut(number);
        let had_room = extent.has_room();
        extent.live -= 1;
        self.live -= 1;
        let (is_idle, slab) = (extent.is_idle(), extent.slab as usize);
        let head = &mut self.slabs[slab].mirrored_head;
        if is_idle {
            self.extents.unlink(head, number);
            let mut idle_head = self.extents.idle_head;
            self.extents.link(&mut idle_head, number);
            self.extents.idle_head = idle_head;
        } else if !had_room {
            self.extents.link(head, number);
        }
    }

    /// Takes an empty mirrored extent off the idle list, because it gets a record.
    #[cold]
    fn wake(&mut self, number: u32) {
        let mut idle_head = self.extents.idle_head;
        self.extents.unlink(&mut idle_head, number);
        self.extents.idle_head = idle_head;
        let slab = self.extents.get(number).slab;
        self.extents.link(&mut self.slabs[slab as usize].mirrored_head, number);
    }

    /// Makes an extent a mirrored one, if it is not: its free list is discarded.
    #[cold]
    fn mirror(&mut self, number: u32) {
        let extent = self.extents.get_mut(number);
        if extent.is_mirrored {
            return;
        }
        extent.is_mirrored = true;
        extent.free_head = END;
        if extent.has_room() {
            let slab = extent.slab as usize;
            let Slab { room_head, mirrored_head, .. } = &mut self.slabs[slab];
            self.extents.unlink(room_head, number);
            self.extents.link(mirrored_head, number);
            self.note_next(slab);
        }
    }

    /// Frees an allocated record as if it had never been put: the same version may be put again.
    ///
    /// # Panics
    /// Panics as [`Slabs::free`] does.
    pub fn forget(&mut self, id: RecordId) {
        self.free(id);
        let record = &mut self.records[id.0 as usize];
        record.set_version(previous_version(record.version()));
    }

    /// Notes that a free slot has had this version: neither it nor an earlier one is put or
    /// allocated there again, as long as the slab has the extent.
    pub fn bury(&mut self, slab: SlabId, slot: u32, version: u32) {
        self.raise_floor(slab, version);
        let Some(id) = self.id_of(slab, slot) else { return };
        let record = &mut self.records[id.0 as usize];
        debug_assert!(!record.is_live(), "the slot is free");
        if is_later_version(version, record.version()) {
            record.set_version(version);
            let extent = self.extents.get_mut(parts(id).0);
            extent.high_version = later_version(extent.high_version, version);
        }
    }

    /// Notes that no slot of this slab has had a later version, as far as its owner knows.
    pub fn raise_floor(&mut self, slab: SlabId, version: u32) {
        let floor = &mut self.slabs[slab.0 as usize].floor_version;
        *floor = later_version(*floor, version);
    }

    /// Returns the slab's floor: no slot of an extent that the slab gave back had a later version.
    pub fn floor(&self, slab: SlabId) -> u32 {
        self.slabs[slab.0 as usize].floor_version
    }

    /// Returns an upper bound of the versions of the extent at this position, or if there is none,
    /// of any extent that was there.
    pub fn ceiling(&self, slab: SlabId, position: u32) -> u32 {
        let floor = self.slabs[slab.0 as usize].floor_version;
        let number = self.extent_at(slab, position);
        number.map_or(floor, |number| later_version(self.extents.get(number).high_version, floor))
    }

    /// Makes this table the writer of the slab: records are allocated here from then on. Their
    /// versions are later than any that the former owner is known to have assigned, by a leap, so
    /// that they differ from versions that it assigned and did not report.
    pub fn take_over(&mut self, slab: SlabId) {
        let mut from = 0;
        while let Some(position) = self.next_extent(slab, from) {
            let number = self.extent_at(slab, position).expect("a position in use has an extent");
            self.mirror(number);
            self.raise_floor(slab, self.extents.get(number).high_version);
            from = position + 1;
        }
        let floor = &mut self.slabs[slab.0 as usize].floor_version;
        *floor = floor.wrapping_add(LEAP).max(1);
    }

    /// Makes the free list of a mirrored extent with room; the versions of its free slots continue
    /// from the slab's floor.
    #[cold]
    pub(crate) fn adopt(&mut self, number: u32) {
        let slab = self.extents.get(number).slab as usize;
        let Slab { room_head, mirrored_head, floor_version: floor, .. } = &mut self.slabs[slab];
        self.extents.unlink(mirrored_head, number);
        self.extents.link(room_head, number);
        let (floor, extent) = (*floor, self.extents.get_mut(number));
        extent.is_mirrored = false;
        extent.base_version = floor;
        extent.high_version = floor;
        extent.free_head = END;
        for offset in (0..extent.fresh).rev() {
            let record = &mut self.records[(number << OFFSET_BITS) as usize + usize::from(offset)];
            if !record.is_live() {
                record.set_version(floor);
                record.set_next_free(u32::from(extent.free_head));
                extent.free_head = offset;
            }
        }
        self.note_next(slab);
    }
}
