//! Which lanes are ours to write, and which of them others mirror: told at run time, by whoever holds the shard map.

use crate::endpoint::{ShardIndex, Tick};
use crate::lane::{LANES, Mishap, lane_of, slab_of};
use crate::nat::Nat;

impl Nat {
    /// From now on exactly these lanes of the shard are ours, a bit each. At the start all are. Of a shard that is being
    /// removed nothing changes, as with the calls below.
    ///
    /// A lane that is taken may be allocated in at once: quarantines are kept and
    /// all timers start again in full. A lane that is given up is served as before, but nothing begins or ends in it.
    /// Tell what is journalled of it before, see [`next_change`](Self::next_change).
    ///
    /// There is one owner of a lane in the cluster at a time, and a copy that is full or not finished knows not all
    /// ports that are taken: that is the caller's to know.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn set_owned_lanes(&mut self, shard: ShardIndex, lanes: u8, now: Tick) {
        if !self.shards.is_staying(shard) {
            return;
        }
        for lane in 0..LANES {
            let (slab, is_owned) = (slab_of(shard, lane), lanes >> lane & 1 != 0);
            if self.lanes.get(slab).is_owned == is_owned {
                continue;
            }
            if is_owned {
                self.mappings.take_over(slab);
                self.sessions.take_over(slab);
            }
            self.lanes.set_owned(slab, is_owned, now);
            let told = (self.shards.id(shard), shard);
            match is_owned {
                true => self.events.own(told, lane),
                false => self.events.end(told, lane),
            }
        }
        self.ports.set_lanes(shard, lanes);
    }

    /// The lanes of the shard that are ours, a bit each.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn owned_lanes(&self, shard: ShardIndex) -> u8 {
        self.ports.lanes(shard)
    }

    /// From now on changes of exactly these lanes of the shard are journalled as far as they are ours, and touches of
    /// them as far as they are not. At the start none are.
    ///
    /// # Panics
    /// If there is no such shard, or any lane and [`replicas`](crate::NatConfig::replicas) is 0.
    pub fn set_replicated_lanes(&mut self, shard: ShardIndex, lanes: u8) {
        assert!(self.policy.is_replicated || lanes == 0, "without replicas there is no journal");
        if !self.shards.is_staying(shard) {
            return;
        }
        for lane in 0..LANES {
            self.lanes.set_replicated(slab_of(shard, lane), lanes >> lane & 1 != 0);
        }
    }

    /// Whether somebody has a copy of a lane of ours of the shard and does not hear of its changes, as we know or must
    /// fear. He would translate what comes to a port that has been given again as if it were its former holder's. So as
    /// long as that is so, but for no more than five times `quarantine_sec`, and while a quarter of the table is free, ports
    /// rest, those of TCP connections too that both sides have closed.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn set_copies_behind(&mut self, shard: ShardIndex, are_behind: bool, now: Tick) {
        self.lanes.set_behind(shard, are_behind, now);
    }

    /// A lane whose changes were lost since the last call, because nobody read the journal in time: its copies are to
    /// be made anew. None if there is no other.
    pub fn take_lost(&mut self) -> Option<(ShardIndex, u8)> {
        self.lanes.take(Mishap::Lost).map(lane_of)
    }

    /// A lane of another's whose copy has become full since the last call. None if there is no other.
    pub fn take_filled(&mut self) -> Option<(ShardIndex, u8)> {
        self.lanes.take(Mishap::Filled).map(lane_of)
    }

    /// Does our copy of the lane lack records that no table had room for?
    pub fn is_copy_full(&self, shard: ShardIndex, lane: u8) -> bool {
        self.lanes.get(slab_of(shard, lane.into())).is_full
    }

    /// Another worker's lane is about to be copied here from its beginning: what was lacking is forgotten.
    pub fn begin_copy(&mut self, shard: ShardIndex, lane: u8) {
        self.lanes.get_mut(slab_of(shard, lane.into())).is_full = false;
    }
}
