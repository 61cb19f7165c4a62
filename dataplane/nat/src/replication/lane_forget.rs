//! Forgets a lane whose writer lost all its state and began a new lineage: all records here are of
//! a lineage that is over.

use crate::endpoint::ShardIndex;
use crate::replication::facet::ReplicaMut;
use crate::replication::lane::slab_of;

impl ReplicaMut<'_> {
    /// Removes about `budget` copies of another worker's lane, and with the last of them all
    /// knowledge of versions: whatever is applied afterwards is new. Returns whether the lane is
    /// empty.
    ///
    /// # Panics
    /// If this worker owns the lane, or there is no such shard.
    pub fn forget_lane(&mut self, shard: ShardIndex, lane: u8, budget: usize) -> bool {
        let slab = slab_of(shard, lane.into());
        assert!(!self.nat.lanes.get(slab).is_owned, "an owned lane is never forgotten");
        let mut left = budget.max(1);
        while self.nat.mappings.next_extent(slab, 0).is_some() {
            left = left.saturating_sub(self.nat.remove_of_lane(slab, left));
            if left == 0 {
                return false;
            }
        }
        // Sessions go with their mappings; extents of copied records stay.
        if !self.nat.sessions.give_back(slab, left) {
            return false;
        }
        self.nat.mappings.forget_versions(slab);
        self.nat.sessions.forget_versions(slab);
        self.nat.lanes.get_mut(slab).is_full = false;
        true
    }
}
