//! A slab without records that gets another use: its empty extents go back to the arena, and the
//! versions that it remembers belong to a lineage that has ended.

use crate::record::{Record, SlabId};
use crate::slabs::Slabs;

impl<R: Record> Slabs<R> {
    /// Gives back up to `limit` extents of a slab without records; these are mirrored extents,
    /// which stay with the slab while they are empty. The versions of their slots are forgotten;
    /// only the slab's floor is kept. Returns true if the slab has no extents left.
    ///
    /// # Panics
    /// Panics if one of the extents has a record, or if `slab` is not below the number of slabs.
    pub fn give_back(&mut self, slab: SlabId, limit: usize) -> bool {
        for _ in 0..limit {
            let Some(position) = self.next_extent(slab, 0) else { return true };
            let number = self.extent_at(slab, position).expect("a position in use has an extent");
            assert!(self.extents.get(number).is_idle(), "an extent that is given back is empty");
            self.detach_idle(number);
        }
        self.next_extent(slab, 0).is_none()
    }

    /// Forgets all versions of a slab whose slots get another lineage, which another table writes.
    /// Versions are serial numbers, so an old floor could look later than any version of the new
    /// lineage.
    ///
    /// # Panics
    /// Panics if the slab has an extent, or is not below the number of slabs.
    pub fn forget_versions(&mut self, slab: SlabId) {
        assert!(self.next_extent(slab, 0).is_none(), "the slab has no extents");
        self.slabs[slab.0 as usize].floor_version = 0;
    }
}
