//! The reader's side of the block log: the events one by one, and listings of what a lane owned
//! here holds, logged a piece at a time.

use weir_flow::SlabId;
use weir_ids::{Epoch, ShardId};

use crate::admin::facet::{Admin, AdminMut};
use crate::endpoint::{ShardIndex, Tick};
use crate::logs::block_event::{BlockEvent, BlockEventKind, BlockListing};
use crate::nat::Nat;
use crate::replication::facet::ReplicaMut;
use crate::replication::lane::{lane_of, slab_of};

/// A lane is listed when it is taken and again after this time. With the minute until it is looked
/// at, and its turn behind others, a log that is read from any point is complete after an hour.
const LISTING_SEC: u32 = 3000;

impl ReplicaMut<'_> {
    /// Logs that this worker has owned a lane, which it has just taken, since this epoch of its
    /// shard's map entry, and which epoch the ownership before it had, if that is known.
    ///
    /// # Panics
    /// If this worker does not own the lane.
    pub fn log_taken(&mut self, shard: ShardIndex, lane: u8, epoch: Epoch, before: Option<Epoch>) {
        let slab = slab_of(shard, lane.into());
        let nat = &mut *self.nat;
        assert!(nat.lanes.get(slab).is_owned, "only the owner of a lane logs that it was taken");
        let shard = (nat.shards.id(shard), shard);
        nat.events.begin(shard, lane.into(), epoch, before, nat.now);
    }
}

impl Admin<'_> {
    /// Returns the number of block events that were not read in time.
    #[inline]
    pub fn events_lost(self) -> u64 {
        self.nat.events.lost_total()
    }
}

impl AdminMut<'_> {
    /// Returns the oldest block event that has not been read.
    #[inline]
    pub fn next_event(&mut self) -> Option<BlockEvent> {
        self.nat.events.pop()
    }

    /// True if a listing is due or under way: of a lane that was taken, and of each owned lane
    /// every hour.
    pub fn is_listing_due(&mut self) -> bool {
        let Nat { lanes, now, events, .. } = &mut *self.nat;
        let is_due = |slab: SlabId, listed: Tick| {
            let lane = lanes.get(slab);
            lane.is_present && lane.is_owned && now.since(listed) >= LISTING_SEC
        };
        events.is_listing_due(*now, is_due)
    }

    /// Logs a piece of the listing that is due. Looks at `budget` blocks at most.
    pub fn list_blocks(&mut self, budget: u32) {
        let Some(listing) = self.nat.events.next_listing() else { return };
        let shard = self.nat.shards.id(lane_of(listing.slab).0);
        let (mut listing, is_done) = match (listing.is_at_prefixes, self.nat.policy.enabled) {
            (true, _) => self.nat.list_owners(listing, shard, budget),
            (false, true) => self.nat.list_ports(listing, budget),
            (false, false) => self.nat.list_owners(listing, shard, budget),
        };
        match is_done {
            true if !listing.is_at_prefixes => {
                (listing.position, listing.is_at_prefixes) = (0, true);
                self.nat.events.note_listing(listing);
            }
            true => self.nat.events.finish_listing(listing, shard),
            false => self.nat.events.note_listing(listing),
        }
    }
}

impl Nat {
    fn list_ports(&mut self, mut listing: BlockListing, budget: u32) -> (BlockListing, bool) {
        let (shard, lane) = lane_of(listing.slab);
        for _ in 0..budget {
            let Some(block) = self.ports.block_of_lane(shard, lane.into(), listing.position) else {
                return (listing, true);
            };
            listing.position += 1;
            if let Some(subscriber) = self.ports.logged_owner(block) {
                self.push_block_event(BlockEventKind::Held, subscriber, block);
                listing.blocks += 1;
            }
        }
        (listing, false)
    }

    fn list_owners(
        &mut self,
        mut listing: BlockListing,
        shard: ShardId,
        budget: u32,
    ) -> (BlockListing, bool) {
        let Self { owners, claims, events, .. } = self;
        let owners = if listing.is_at_prefixes { claims } else { owners };
        let (lane, from) = (lane_of(listing.slab).1, listing.position);
        let (position, logged, is_done) = owners.list((shard, lane), from, budget, events);
        listing.position = position;
        listing.blocks += logged;
        (listing, is_done)
    }
}
