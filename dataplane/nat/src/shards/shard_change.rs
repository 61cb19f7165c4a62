//! Shards that are added and removed while packets pass.
//!
//! ```text
//!   add_shard  -->  lanes are owned, copied, served  -->  begin_removal
//!              --expire, piece by piece-->  is_removed
//! ```
//!
//! - The tables were made with room for added shards ([`ShardRoom`](crate::ShardRoom)); what does
//!   not fit is refused.
//! - A shard that is being removed keeps its index, its addresses and its part in the checks until
//!   nothing of it is left: no record, no home, no port. Then its index and its addresses are used
//!   again.
//! - Versions belong to a lane of a shard in the whole cluster, not to an index here. A lane that
//!   another worker writes begins without any: copies bring its owner's versions, and those of the
//!   index's former shard do not block them. A lane that this worker owns from the start continues
//!   above all versions that its index has had.

use weir_flow::{RECORDS, RecordId, SlabId};

use crate::config::NatShardConfig;
use crate::config_check::{self, NatError};
use crate::endpoint::{ShardIndex, Tick};
use crate::nat::{Nat, WALK_STEP};
use crate::replication::facet::{Replica, ReplicaMut};
use crate::replication::lane::{LANES, slab_of};
use crate::replication::mirror::CopyRemoval;

impl Replica<'_> {
    /// True if nothing is left of the shard that had this index. To be asked before a further shard
    /// is added, which may get the index.
    #[inline]
    pub fn is_removed(self, shard: ShardIndex) -> bool {
        self.nat.shards.is_free(shard)
    }
}

impl ReplicaMut<'_> {
    /// Adds a shard without any flow; this worker owns its `owned_lanes`, a bit each. In a cluster
    /// these are none until lanes are assigned to this worker
    /// ([`set_owned_lanes`](Self::set_owned_lanes)). No lane is replicated yet. Allocates a little.
    ///
    /// # Errors
    /// [`NatError`] as at the start, or that there is no room; nothing is changed then. A shard
    /// that is still being removed cannot be added again, nor one with its addresses.
    pub fn add_shard(
        &mut self,
        shard: &NatShardConfig,
        owned_lanes: u8,
        now: Tick,
    ) -> Result<ShardIndex, NatError> {
        let nat = &mut *self.nat;
        let index = nat.check_new(shard)?;
        for lane in 0..LANES {
            let (slab, is_owned) = (slab_of(index, lane), owned_lanes >> lane & 1 != 0);
            if !is_owned {
                nat.mappings.forget_versions(slab);
                nat.sessions.forget_versions(slab);
            }
            nat.lanes.begin(slab, is_owned, now);
            if is_owned {
                nat.events.own((shard.id, index), lane);
            }
        }
        nat.ports.add(index, &shard.public, owned_lanes);
        nat.note_out_of_service(index);
        nat.subscribers.set_max(index, shard.subscribers_max);
        nat.public.insert(&shard.public, index);
        nat.prefixes.insert(&shard.public6, index);
        nat.shards.insert(index, shard.clone());
        Ok(index)
    }

    /// Begins to remove the shard: no change of it is sent or taken, its addresses cease to be
    /// public addresses here, and no home becomes a subscriber of it. [`Nat::expire`]
    /// removes what it holds, piece by piece and without quarantine, whichever worker owns its
    /// lanes; releases of blocks in lanes that this worker owns are logged.
    ///
    /// No packet of its homes may be passed in from here on: a flow that begins would be removed,
    /// too.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn begin_removal(&mut self, shard: ShardIndex) {
        self.nat.shards.leave(shard);
        self.nat.subscribers.set_max(shard, 0);
        self.nat.public.remove(shard);
        self.nat.prefixes.remove(shard);
        self.nat.lanes.leave(shard);
    }
}

impl Nat {
    /// Returns the index that a new shard would get.
    fn check_new(&self, shard: &NatShardConfig) -> Result<ShardIndex, NatError> {
        let id = shard.id;
        config_check::check_shards(&[shard])?;
        config_check::check_ipv6(self.policy.live.delegation, shard)?;
        for (_, other, is_leaving) in self.shards.all() {
            match is_leaving {
                true if other.id == id => return Err(NatError::ShardLeaving { id }),
                false if other.id == id => return Err(NatError::ShardTwice { id }),
                // Its addresses belong to no shard any more, and are not free yet.
                true => config_check::check_shards(&[other, shard])?,
                false => {}
            }
        }
        let holder = shard.public.iter().find_map(|&net| self.public.overlapping(net));
        let holder =
            holder.or_else(|| shard.public6.iter().find_map(|net| self.prefixes.overlapping(net)));
        if let Some(holder) = holder {
            config_check::check_shards(&[self.shards.config(holder), shard])?;
        }
        let no_room = NatError::NoRoomForShard { id, shards: self.shards.len() };
        let index = self.shards.free_index().ok_or(no_room)?;
        let (addresses, free) = (shard.addresses(), self.ports.addresses_free());
        if self.policy.enabled && addresses > free {
            return Err(NatError::NoRoomForAddresses { id, addresses, free });
        }
        let (subscribers, free) = (shard.subscribers_max, self.subscribers.room());
        if u64::from(subscribers) > free {
            return Err(NatError::NoRoomForSubscribers { id, subscribers, free });
        }
        Ok(index)
    }

    /// Removes a piece of a shard that is being removed: about `ends_max` mappings and further
    /// sessions.
    pub(crate) fn remove_piece(&mut self, shard: ShardIndex, ends_max: usize) {
        if ends_max == 0 {
            return;
        }
        let mut left = ends_max;
        for slab in (0..LANES).map(|lane| slab_of(shard, lane)) {
            while self.mappings.next_extent(slab, 0).is_some() {
                left = left.saturating_sub(self.remove_of_lane(slab, left));
                if left == 0 {
                    return;
                }
            }
            // Sessions go with their mappings; extents of copied records stay.
            if !self.sessions.give_back(slab, left) {
                return;
            }
        }
        self.finish_removal(shard);
    }

    /// Removes up to `left`, which is not 0, of the records in the first extent of a lane, or the
    /// empty extent. Returns how much that was.
    pub(crate) fn remove_of_lane(&mut self, slab: SlabId, left: usize) -> usize {
        let Self { mappings, due, .. } = self;
        mappings.walk_slab(slab, 0, RECORDS as usize, |id, _| {
            if due.len() < left.min(WALK_STEP) {
                due.push(id);
            }
        });
        if due.is_empty() {
            mappings.give_back(slab, 1);
            return 1;
        }
        let mut done = 0;
        while let Some(id) = self.due.pop() {
            if done < left {
                done += self.remove_with_sessions(id, left - done);
            }
        }
        done
    }

    /// Removes a mapping, or as many of its further sessions as `left` allows; returns how much
    /// that was.
    fn remove_with_sessions(&mut self, id: RecordId, left: usize) -> usize {
        let mut done = 0;
        while !self.mappings.get(id).kind.is_ipv6() && self.mappings.get(id).sessions > 0 {
            if done == left {
                return done;
            }
            self.end_copy(self.mappings.get(id).sessions_head, CopyRemoval::Ended);
            done += 1;
        }
        self.remove_mapping(id, CopyRemoval::Ended);
        done + 1
    }

    fn finish_removal(&mut self, shard: ShardIndex) {
        // Waiting marks name records by slot, and a later shard of this index uses the slots again.
        self.journal.forget(shard);
        self.events.forget((self.shards.id(shard), shard));
        self.ports.remove(shard);
        self.lanes.end(shard);
        assert_eq!(self.subscribers.held(shard), 0, "a home goes with its last record");
        self.shards.remove(shard);
    }
}
