//! Hot: the records. An arena of extents that slabs borrow while they have records in them.

use crate::error::OutOfMemory;
use crate::extent::{END, Extent, Extents, NONE, OFFSET_BITS, RECORDS};
use crate::hash::{Hash, HashKey};
use crate::index::Index;
use crate::page_size::PageSize;
use crate::positions::Positions;
use crate::prefetch::prefetch;
use crate::record::{Record, RecordId, SlabId, later_version, next_version};
use crate::region::Region;

/// Records in slabs. Nothing is allocated after [`Slabs::new`]; all operations take constant time.
#[derive(Debug)]
pub struct Slabs<R: Record> {
    pub(crate) records: Region<R>,
    pub(crate) extents: Extents,
    pub(crate) slabs: Region<Slab>,
    pub(crate) positions: Positions,
    /// Finds the extent at (slab, position).
    extent_index: Index,
    /// Guesses of that look-up, which the extent itself confirms: each is the extent used last
    /// whose (slab, position) maps to this index.
    guesses: Box<[u32; GUESSES]>,
    pub(crate) live: usize,
    pub(crate) capacity: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slab {
    /// The record that is allocated next, to be prefetched; where `room_head` is `NONE`, any.
    pub(crate) next: u32,
    /// First of the slab's extents with room.
    pub(crate) room_head: u32,
    /// First of its mirrored extents that have room and are not empty.
    pub(crate) mirrored_head: u32,
    /// Floor: no slot of an extent that was given back, or of a mirrored one, had a later version.
    pub(crate) floor_version: u32,
}

/// Slab and position are numbers that this program assigns, so a fixed hash key is safe.
const POSITIONS_KEY: HashKey = HashKey::new([0x7765_6972, 0x666C_6F77]);

/// More than the number of extents to which a worker that mirrors other slabs writes at a time.
const GUESSES: usize = 1024;

fn guess_index(slab: SlabId, position: u32) -> usize {
    slab.0.wrapping_add(position << 6) as usize % GUESSES
}

fn position_hash(slab: u32, position: u32) -> Hash {
    POSITIONS_KEY.hash([u64::from(slab), u64::from(position), 0])
}

pub(crate) fn parts(id: RecordId) -> (u32, u32) {
    (id.0 >> OFFSET_BITS, id.0 % RECORDS)
}

fn extents_for(records_max: usize, slabs: usize) -> usize {
    records_max.div_ceil(RECORDS as usize).saturating_add(slabs.saturating_sub(1)).max(1)
}

impl<R: Record> Slabs<R> {
    /// Makes room for `records_max` records, however they are spread over `slabs` slabs numbered
    /// from 0: each slab may leave one extent partly unused, so the arena has `slabs` - 1 extents
    /// more than the records fill.
    ///
    /// # Errors
    /// [`OutOfMemory`], or more records than 32 bits can number.
    pub fn new(records_max: usize, slabs: usize) -> Result<Slabs<R>, OutOfMemory> {
        let count = extents_for(records_max, slabs);
        let records = count.saturating_mul(RECORDS as usize);
        // The last extent number is not used: RecordId::NONE is in it.
        if count >= 1 << (u32::BITS - OFFSET_BITS) {
            let bytes = records.saturating_mul(size_of::<R>());
            return Err(OutOfMemory { bytes });
        }
        let slab = Slab { next: NONE, room_head: NONE, mirrored_head: NONE, floor_version: 0 };
        Ok(Slabs {
            records: Region::new(records, R::EMPTY)?,
            extents: Extents::new(Region::new(count, Extent::DETACHED)?),
            slabs: Region::new(slabs, slab)?,
            positions: Positions::new(slabs, count)?,
            // Half empty, so an insertion cannot fail to find a slot.
            extent_index: Index::new(2 * count)?,
            guesses: Box::new([0; GUESSES]),
            live: 0,
            capacity: records_max,
        })
    }

    /// Prefetches the record that the next [`Slabs::alloc`] of `slab` returns, if the slab has an
    /// extent with room. That call in turn prefetches the next record, so a burst of creations
    /// needs one call per slab.
    #[inline(always)]
    pub fn prefetch_next(&self, slab: SlabId) {
        if let Some(slab) = self.slabs.get(slab.0 as usize) {
            prefetch(&self.records, slab.next as usize);
        }
    }

    /// Notes which record of a slab is allocated next, after its first extent with room changed.
    pub(crate) fn note_next(&mut self, slab: usize) {
        let Slab { next, room_head, .. } = &mut self.slabs[slab];
        if let Some(extent) = self.extents.all.get(*room_head as usize) {
            *next = *room_head << OFFSET_BITS | u32::from(extent.next_offset());
        }
    }

    /// Returns the bytes of memory that `Slabs::new(records_max, slabs)` takes, bookkeeping
    /// included.
    pub fn bytes_for(records_max: usize, slabs: usize) -> usize {
        let count = extents_for(records_max, slabs);
        Self::record_bytes_for(records_max, slabs)
            + Region::<Extent>::bytes_for(count)
            + Region::<Slab>::bytes_for(slabs)
            + Positions::bytes_for(slabs, count)
            + Index::bytes_for(2 * count)
    }

    /// Returns the part of [`Slabs::bytes_for`] that the records alone take, in one region.
    pub fn record_bytes_for(records_max: usize, slabs: usize) -> usize {
        Region::<R>::bytes_for(extents_for(records_max, slabs).saturating_mul(RECORDS as usize))
    }

    /// Allocates a record in `slab`: [`Record::EMPTY`] except for its version, which is later than
    /// any version that this slot of this slab ever had. `None` if `capacity` records are
    /// allocated, or if this slab's extents are full and no extent is free: frees in random order
    /// leave holes that only their own slab can fill.
    ///
    /// # Panics
    /// If `slab` is not below the number of slabs.
    #[inline]
    pub fn alloc(&mut self, slab: SlabId) -> Option<RecordId> {
        self.alloc_mut(slab).map(|(id, _)| id)
    }

    /// As [`alloc`](Self::alloc); returns the record too.
    #[inline(always)]
    pub fn alloc_mut(&mut self, slab: SlabId) -> Option<(RecordId, &mut R)> {
        if self.live == self.capacity {
            return None;
        }
        let room_head = self.slabs[slab.0 as usize].room_head;
        if room_head == NONE {
            return self.alloc_in_new_extent(slab);
        }
        self.alloc_in(slab, room_head)
    }

    #[cold]
    #[inline(never)]
    fn alloc_in_new_extent(&mut self, slab: SlabId) -> Option<(RecordId, &mut R)> {
        let number = self.attach(slab)?;
        self.alloc_in(slab, number)
    }

    /// Allocates a record in the first extent with room.
    #[inline(always)]
    fn alloc_in(&mut self, slab: SlabId, number: u32) -> Option<(RecordId, &mut R)> {
        let extent = self.extents.get_mut(number);
        let is_fresh = extent.free_head == END;
        let first = number << OFFSET_BITS;
        let id = first | u32::from(if is_fresh { extent.fresh } else { extent.free_head });
        let before = if is_fresh {
            extent.fresh += 1;
            extent.base_version
        } else {
            let record = &self.records[id as usize];
            extent.free_head = record.next_free() as u16;
            record.version()
        };
        let version = next_version(before);
        // No slot is ahead of high_version, so it can grow in this way only, also past the wrap.
        if before == extent.high_version {
            extent.high_version = version;
        }
        extent.live += 1;
        self.live += 1;
        if extent.has_room() {
            let next = first | u32::from(extent.next_offset());
            self.slabs[slab.0 as usize].next = next;
            prefetch(&self.records, next as usize);
        } else {
            self.leave_room_list(slab, number);
        }
        let record = &mut self.records[id as usize];
        // A free record is EMPTY except for its version and its link: the rest is written once, by
        // its owner.
        record.set_next_free(R::EMPTY.next_free());
        record.set_version(version);
        Some((RecordId(id), record))
    }

    /// Takes a full extent out of the list of those with room.
    #[cold]
    #[inline(never)]
    fn leave_room_list(&mut self, slab: SlabId, number: u32) {
        let head = &mut self.slabs[slab.0 as usize].room_head;
        self.extents.unlink(head, number);
        self.note_next(slab.0 as usize);
        self.prefetch_next(slab);
    }

    /// Frees an allocated record, once. Its version stays; its extent goes back to the arena if
    /// this was its last record.
    ///
    /// # Panics
    /// Panics if no record of the extent is allocated: a record was freed twice.
    pub fn free(&mut self, id: RecordId) {
        let (number, offset) = parts(id);
        let extent = self.extents.get_mut(number);
        assert!(extent.live > 0, "record {id} was freed twice");
        if extent.is_mirrored {
            return self.free_mirrored(id);
        }
        let record = &mut self.records[id.0 as usize];
        let version = record.version();
        debug_assert!(version != 0, "the version of record {id} was overwritten");
        *record = R::EMPTY;
        record.set_version(version);
        record.set_next_free(u32::from(extent.free_head));
        let had_room = extent.has_room();
        extent.free_head = offset as u16;
        extent.live -= 1;
        let (slab, is_empty) = (extent.slab as usize, extent.live == 0);
        self.live -= 1;
        let head = &mut self.slabs[slab].room_head;
        if !had_room {
            self.extents.link(head, number);
        }
        if is_empty {
            self.extents.unlink(head, number);
            self.detach(number);
        }
        self.note_next(slab);
    }

    /// Finds an extent with room for `slab`: a mirrored one of its own, or a free one, which gets
    /// the lowest free position.
    fn attach(&mut self, slab: SlabId) -> Option<u32> {
        let mirrored = self.slabs[slab.0 as usize].mirrored_head;
        if mirrored != NONE {
            self.adopt(mirrored);
            return Some(mirrored);
        }
        if self.extents.free_head == NONE {
            self.reclaim()?;
        }
        let position = self.positions.lowest_free(slab.0 as usize);
        self.attach_at(slab, position)
    }

    /// Gives a free extent to `slab`, at this free position.
    pub(crate) fn attach_at(&mut self, slab: SlabId, position: u32) -> Option<u32> {
        if self.extents.free_head == NONE {
            self.reclaim()?;
        }
        let number = self.extents.free_head;
        self.extent_index.insert(position_hash(slab.0, position), number).ok()?;
        self.positions.take(slab.0 as usize, position);
        self.extents.pop_free();
        let Slab { room_head, floor_version, .. } = &mut self.slabs[slab.0 as usize];
        *self.extents.get_mut(number) = Extent {
            slab: slab.0,
            position,
            base_version: *floor_version,
            high_version: *floor_version,
            ..Extent::DETACHED
        };
        self.extents.link(room_head, number);
        self.guesses[guess_index(slab, position)] = number;
        self.note_next(slab.0 as usize);
        Some(number)
    }

    /// Takes an empty mirrored extent from its slab, which forgets the versions of its slots.
    fn reclaim(&mut self) -> Option<()> {
        let number = self.extents.idle_head;
        if number == NONE {
            return None;
        }
        self.detach_idle(number);
        Some(())
    }

    /// Takes an empty mirrored extent from its slab.
    pub(crate) fn detach_idle(&mut self, number: u32) {
        let mut head = self.extents.idle_head;
        self.extents.unlink(&mut head, number);
        self.extents.idle_head = head;
        self.detach(number);
    }

    /// Takes an empty extent that is in no list from its slab.
    fn detach(&mut self, number: u32) {
        let Extent { slab, position, high_version, .. } = *self.extents.get(number);
        let floor = &mut self.slabs[slab as usize].floor_version;
        *floor = later_version(high_version, *floor);
        self.positions.release(slab as usize, position);
        let was_there = self.extent_index.remove(position_hash(slab, position), number);
        debug_assert!(was_there, "extent {number} was attached");
        self.extents.push_free(number);
    }

    /// Returns the record, allocated or not.
    ///
    /// # Panics
    /// Panics if `id` is outside the arena, as [`RecordId::NONE`] is.
    #[inline(always)]
    pub fn get(&self, id: RecordId) -> &R {
        &self.records[id.0 as usize]
    }

    /// Returns the record to be changed. Only an allocated record may be changed, and never its
    /// version.
    ///
    /// # Panics
    /// Panics as [`Slabs::get`] does.
    #[inline(always)]
    pub fn get_mut(&mut self, id: RecordId) -> &mut R {
        &mut self.records[id.0 as usize]
    }

    /// Returns the record, as [`Slabs::get`] does; `None` if `id` is outside the arena, as
    /// [`RecordId::NONE`] is.
    #[inline(always)]
    pub fn try_get(&self, id: RecordId) -> Option<&R> {
        self.records.get(id.0 as usize)
    }

    /// Returns the record to be changed, as [`Slabs::get_mut`] does; `None` if `id` is outside the
    /// arena, as [`RecordId::NONE`] is.
    #[inline(always)]
    pub fn try_get_mut(&mut self, id: RecordId) -> Option<&mut R> {
        self.records.get_mut(id.0 as usize)
    }

    /// Prefetches the record at a slot of a slab, and returns its id, if the slab has an extent
    /// there: the hint that [`held`](Self::held) and [`put`](Self::put) take.
    #[inline(always)]
    pub fn prefetch_slot(&mut self, slab: SlabId, slot: u32) -> RecordId {
        let (position, offset) = (slot >> OFFSET_BITS, slot % RECORDS);
        let guess = self.guesses[guess_index(slab, position)];
        let number = match self.is_extent_at(guess, slab, position) {
            true => guess,
            false => match self.find_extent(slab, position) {
                Some(number) => {
                    self.guesses[guess_index(slab, position)] = number;
                    number
                }
                None => return RecordId::NONE,
            },
        };
        let id = RecordId(number << OFFSET_BITS | offset);
        prefetch(&self.records, id.0 as usize);
        id
    }

    /// Prefetches the first cache line of the record.
    #[inline(always)]
    pub fn prefetch(&self, id: RecordId) {
        prefetch(&self.records, id.0 as usize);
    }

    /// Returns the slab of an allocated record.
    #[inline]
    pub fn slab_of(&self, id: RecordId) -> SlabId {
        SlabId(self.extents.get(parts(id).0).slab)
    }

    /// Returns the slot of an allocated record within its slab: position of its extent * 1,024 +
    /// offset. It stays the same for the record's whole life.
    #[inline]
    pub fn slot_of(&self, id: RecordId) -> u32 {
        let (number, offset) = parts(id);
        self.extents.get(number).position << OFFSET_BITS | offset
    }

    /// Returns the record at a slot of a slab, allocated or not. `None` if the slab has no such
    /// slot at present, or has not used it since it got the extent.
    pub fn id_of(&self, slab: SlabId, slot: u32) -> Option<RecordId> {
        let (position, offset) = (slot >> OFFSET_BITS, slot % RECORDS);
        let number = self.extent_at(slab, position)?;
        (offset < u32::from(self.extents.get(number).fresh))
            .then_some(RecordId(number << OFFSET_BITS | offset))
    }

    /// Returns the extent at a position of a slab.
    #[inline]
    pub(crate) fn extent_at(&self, slab: SlabId, position: u32) -> Option<u32> {
        let guess = self.guesses[guess_index(slab, position)];
        match self.is_extent_at(guess, slab, position) {
            true => Some(guess),
            false => self.find_extent(slab, position),
        }
    }

    /// Whether the extent of this number is the one at a position of a slab.
    #[inline(always)]
    pub(crate) fn is_extent_at(&self, number: u32, slab: SlabId, position: u32) -> bool {
        let extent = self.extents.all.get(number as usize);
        extent.is_some_and(|extent| extent.slab == slab.0 && extent.position == position)
    }

    #[inline(never)]
    fn find_extent(&self, slab: SlabId, position: u32) -> Option<u32> {
        self.extent_index.find(position_hash(slab.0, position), |number| {
            let extent = self.extents.get(number);
            extent.slab == slab.0 && extent.position == position
        })
    }

    /// Returns the number of allocated records.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Returns the number of records that can be allocated at once: `records_max`.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the bytes of memory, bookkeeping included.
    pub fn bytes(&self) -> usize {
        self.records.bytes()
            + self.extents.all.bytes()
            + self.slabs.bytes()
            + self.positions.bytes()
            + self.extent_index.bytes()
    }

    /// Returns the size of the pages that the records lie on.
    pub fn page_size(&self) -> PageSize {
        self.records.page_size()
    }

    /// Returns the bytes of memory that the records alone take.
    pub fn record_bytes(&self) -> usize {
        self.records.bytes()
    }
}

#[cfg(test)]
#[path = "slabs_tests.rs"]
mod tests;
