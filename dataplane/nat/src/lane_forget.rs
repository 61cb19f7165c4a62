//! A lane whose writer has lost everything and began anew: what is here of it belongs to a history that is over.

use crate::endpoint::ShardIndex;
use crate::lane::slab_of;
use crate::nat::Nat;

impl Nat {
    /// Removes about `budget` copies of another worker's lane, and with the last of them all that is known of versions:
    /// whatever is applied then is new. Returns whether it is done.
    ///
    /// # Panics
    /// If the lane is ours, or there is no such shard.
    pub fn forget_lane(&mut self, shard: ShardIndex, lane: u8, budget: usize) -> bool {
        let slab = slab_of(shard, lane.into());
        assert!(!self.lanes.get(slab).is_owned, "a lane of ours is not forgotten");
        let mut left = budget.max(1);
        while self.mappings.next_extent(slab, 0).is_some() {
            left = left.saturating_sub(self.remove_of_lane(slab, left));
            if left == 0 {
                return false;
            }
        }
        // Sessions go with their mappings; mirrored extents stay.
        if !self.sessions.give_back(slab, left) {
            return false;
        }
        self.mappings.forget_versions(slab);
        self.sessions.forget_versions(slab);
        self.lanes.get_mut(slab).is_full = false;
        true
    }
}
