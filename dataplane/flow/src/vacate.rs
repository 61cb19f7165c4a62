//! A slab whose records are all gone, and that gets another use: its empty extents go back to the arena, and what it
//! remembers of versions belongs to a history that is over.

use crate::record::{Record, SlabId};
use crate::slabs::Slabs;

impl<R: Record> Slabs<R> {
    /// Gives back up to `limit` extents of a slab without records: mirrored ones, which stay while they are empty. What
    /// their slots remember is forgotten but for the slab's floor. Returns whether the slab has no extent any more.
    ///
    /// # Panics
    /// If one of them has a record, or `slab` is not below the number of slabs.
    pub fn give_back(&mut self, slab: SlabId, limit: usize) -> bool {
        for _ in 0..limit {
            let Some(position) = self.next_extent(slab, 0) else { return true };
            let number = self.extent_at(slab, position).expect("a position in use has an extent");
            assert!(self.extents.get(number).is_idle(), "an extent that is given back is empty");
            self.detach_idle(number);
        }
        self.next_extent(slab, 0).is_none()
    }

    /// From now on the slab's slots have another history, which another table writes: no version is known of it. Versions
    /// are serial numbers, so an old floor could pass for a later one than any of the new history.
    ///
    /// # Panics
    /// If the slab has an extent, or is not below the number of slabs.
    pub fn forget_versions(&mut self, slab: SlabId) {
        assert!(self.next_extent(slab, 0).is_none(), "a slab that forgets has no slots");
        self.slabs[slab.0 as usize].floor_version = 0;
    }
}
