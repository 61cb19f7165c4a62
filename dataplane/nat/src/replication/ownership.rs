//! Which lanes this worker owns, and which of them other workers copy: set at run time by the
//! holder of the shard map.

use crate::endpoint::{ShardIndex, Tick};
use crate::replication::facet::{Replica, ReplicaMut};
use crate::replication::lane::{LANES, LaneFault, lane_of, slab_of};

impl Replica<'_> {
    /// Returns the lanes of the shard that this worker owns, a bit each.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn owned_lanes(self, shard: ShardIndex) -> u8 {
        self.nat.ports.lanes(shard)
    }

    /// True if the copy of the lane here lacks records because a table had no room for them.
    #[inline]
    pub fn is_copy_full(self, shard: ShardIndex, lane: u8) -> bool {
        self.nat.lanes.get(slab_of(shard, lane.into())).is_full
    }
}

impl ReplicaMut<'_> {
    /// Sets the lanes of the shard that this worker owns, a bit each. At the start it owns all. For
    /// a shard that is being removed, this call and the ones below change nothing.
    ///
    /// Blocks and mappings may be allocated in a lane at once when it is taken over: quarantines
    /// are kept and all timers start again in full. A lane that is given up is served as before,
    /// but nothing begins or ends in it. Drain its journalled changes first, see
    /// [`next_change`](Self::next_change).
    ///
    /// The caller ensures that a lane has one owner in the cluster at a time, and that a lane is
    /// taken over only with a complete copy: a copy that is full or not finished does not know all
    /// ports that are taken.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn set_owned_lanes(&mut self, shard: ShardIndex, lanes: u8, now: Tick) {
        let nat = &mut *self.nat;
        if !nat.shards.is_staying(shard) {
            return;
        }
        for lane in 0..LANES {
            let (slab, is_owned) = (slab_of(shard, lane), lanes >> lane & 1 != 0);
            if nat.lanes.get(slab).is_owned == is_owned {
                continue;
            }
            if is_owned {
                nat.mappings.take_over(slab);
                nat.sessions.take_over(slab);
            }
            nat.lanes.set_owned(slab, is_owned, now);
            let shard_ids = (nat.shards.id(shard), shard);
            match is_owned {
                true => nat.events.own(shard_ids, lane),
                false => nat.events.end(shard_ids, lane),
            }
        }
        let is_any_gained = lanes & !nat.ports.lanes(shard) != 0;
        nat.ports.set_lanes(shard, lanes);
        if is_any_gained {
            // The former owner may not have asked about all of its flows.
            nat.begin_rematch();
        }
    }

    /// Sets the replicated lanes of the shard, a bit each: changes are journalled in those that
    /// this worker owns, owner updates in the others. At the start no lane is replicated.
    ///
    /// # Panics
    /// If there is no such shard, or if any bit is set and [`replicas`](crate::NatConfig::replicas)
    /// is 0.
    pub fn set_replicated_lanes(&mut self, shard: ShardIndex, lanes: u8) {
        let nat = &mut *self.nat;
        assert!(nat.policy.is_replicated || lanes == 0, "without replicas there is no journal");
        if !nat.shards.is_staying(shard) {
            return;
        }
        for lane in 0..LANES {
            nat.lanes.set_replicated(slab_of(shard, lane), lanes >> lane & 1 != 0);
        }
    }

    /// Sets whether another worker is known or feared to have a copy of an owned lane of the shard
    /// without receiving its changes. Such a worker would translate packets to a port that was
    /// given again as if they were for the port's former holder. While `are_behind` holds, but for
    /// at most five times `quarantine_sec`, and while a quarter of the table is free, ports
    /// therefore rest, those of TCP connections that both sides have closed included.
    ///
    /// # Panics
    /// If there is no such shard.
    #[inline]
    pub fn set_copies_behind(&mut self, shard: ShardIndex, are_behind: bool, now: Tick) {
        self.nat.lanes.set_behind(shard, are_behind, now);
    }

    /// Returns a lane whose changes were lost since the last call because the journal was not read
    /// in time: its copies must be made again. None if there is no further one.
    #[inline]
    pub fn take_lost(&mut self) -> Option<(ShardIndex, u8)> {
        self.nat.lanes.take(LaneFault::Lost).map(lane_of)
    }

    /// Returns a lane of another worker whose copy has become full since the last call. None if
    /// there is no further one.
    #[inline]
    pub fn take_filled(&mut self) -> Option<(ShardIndex, u8)> {
        self.nat.lanes.take(LaneFault::Filled).map(lane_of)
    }

    /// Prepares for a new copy of another worker's lane from its first slot: clears the flag that
    /// records are missing.
    #[inline]
    pub fn begin_copy(&mut self, shard: ShardIndex, lane: u8) {
        self.nat.lanes.get_mut(slab_of(shard, lane.into())).is_full = false;
    }
}
