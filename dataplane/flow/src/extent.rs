//! An extent: 1,024 records that are assigned to a slab together. This module has the state of an
//! extent, and the lists of extents, whose links are inside the extents.

use crate::region::Region;

/// Number of records in an extent.
pub const RECORDS: u32 = 1024;
/// Bits of the offset in a record id: the id is extent << OFFSET_BITS | offset.
pub const OFFSET_BITS: u32 = RECORDS.trailing_zeros();
/// Number of no extent, no record and no slab.
pub(crate) const NONE: u32 = u32::MAX;

/// State of an extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The slab to which it is attached, or `NONE`.
    pub(crate) slab: u32,
    /// Its number within the slab.
    pub(crate) position: u32,
    /// Neighbours in the slab's list of extents with room; `next` also links the arena's free
    /// extents.
    pub(crate) next: u32,
    pub(crate) previous: u32,
    /// Version before the first use of a slot since the extent was attached.
    pub(crate) base_version: u32,
    /// The highest version of any slot since the extent was attached.
    pub(crate) high_version: u32,
    /// Offset of the first record of the free list, or `END`.
    pub(crate) free_head: u16,
    /// Records from this offset on have not been used since the extent was attached; they are in no
    /// list.
    pub(crate) fresh: u16,
    /// Number of allocated records.
    pub(crate) live: u16,
    /// Whether its slots were chosen by another table's owner, in an order of its own: the extent
    /// has no free list.
    pub(crate) is_mirrored: bool,
}

const _: () = assert!(size_of::<Extent>() == 32);

/// End mark of an extent's free list.
pub(crate) const END: u16 = u16::MAX;

impl Extent {
    /// State of an extent that belongs to no slab.
    pub(crate) const DETACHED: Extent = Extent {
        slab: NONE,
        position: 0,
        next: NONE,
        previous: NONE,
        base_version: 0,
        high_version: 0,
        free_head: END,
        fresh: 0,
        live: 0,
        is_mirrored: false,
    };

    /// Returns the offset of the record that is allocated next, if there is room.
    #[inline(always)]
    pub(crate) fn next_offset(&self) -> u16 {
        if self.free_head == END { self.fresh } else { self.free_head }
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        u32::from(self.live) < RECORDS
    }

    /// True if the extent is mirrored and empty.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.is_mirrored && self.live == 0
    }
}

/// All extents of an arena, the stack of those that are attached to no slab, and the list of those
/// that are mirrored and empty: these keep the versions of their slots as long as no slab needs the
/// room.
#[derive(Debug)]
pub(crate) struct Extents {
    pub(crate) all: Region<Extent>,
    pub(crate) free_head: u32,
    pub(crate) idle_head: u32,
}

impl Extents {
    pub(crate) fn new(mut all: Region<Extent>) -> Extents {
        let mut free_head = NONE;
        for number in (0..all.len()).rev() {
            all[number].next = free_head;
            free_head = number as u32;
        }
        Extents { all, free_head, idle_head: NONE }
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> &Extent {
        &self.all[number as usize]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Extent {
        &mut self.all[number as usize]
    }

    /// Puts a detached extent on the free stack.
    pub(crate) fn push_free(&mut self, number: u32) {
        let next = self.free_head;
        *self.get_mut(number) = Extent { next, ..Extent::DETACHED };
        self.free_head = number;
    }

    /// Takes the first extent off the free stack.
    pub(crate) fn pop_free(&mut self) {
        self.free_head = self.get(self.free_head).next;
    }

    /// Puts an extent in front of the list that starts at `head`.
    pub(crate) fn link(&mut self, head: &mut u32, number: u32) {
        let next = *head;
        let extent = self.get_mut(number);
        extent.next = next;
        extent.previous = NONE;
        if next != NONE {
            self.get_mut(next).previous = number;
        }
        *head = number;
    }

    /// Takes an extent out of the list that starts at `head`.
    pub(crate) fn unlink(&mut self, head: &mut u32, number: u32) {
        let Extent { next, previous, .. } = *self.get(number);
        match previous {
            NONE => *head = next,
            _ => self.get_mut(previous).next = next,
        }
        if next != NONE {
            self.get_mut(next).previous = previous;
        }
    }
}
