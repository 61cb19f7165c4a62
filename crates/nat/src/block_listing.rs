//! Listings for the block log: what a lane of ours holds, told a piece at a time.

use weir_flow::SlabId;
use weir_ids::{Epoch, ShardId};

use crate::block_event::{ADDRESS_LANE, BlockEventKind, Listing};
use crate::endpoint::{ShardIndex, Tick};
use crate::lane::{lane_of, slab_of};
use crate::nat::Nat;

/// A lane is listed when it is taken and once in this time, so that a log that begins anywhere stands alone after it.
const LISTING_SEC: u32 = 3600;

impl Nat {
    /// Tells the block log that a lane, which has just become ours, is so since this epoch of its shard's map entry,
    /// and which epoch the ownership before it had, if that is known.
    ///
    /// # Panics
    /// If the lane is not ours.
    pub fn tell_taken(&mut self, shard: ShardIndex, lane: u8, epoch: Epoch, before: Option<Epoch>) {
        let slab = slab_of(shard, lane.into());
        assert!(self.lanes.get(slab).is_owned, "a lane is told of by its owner");
        if self.is_told_of(slab) {
            self.events.begin((self.shards.id(shard), shard), lane.into(), epoch, before);
        }
    }

    /// Tells the block log what lanes of ours hold, as far as a listing is due: of a lane that was taken, and of each
    /// lane once an hour. Looks at `budget` blocks at most, and at one lane to see whether it is due.
    pub fn list_blocks(&mut self, budget: u32) {
        let Self { lanes, now, .. } = self;
        let (is_translating, now) = (self.policy.enabled, *now);
        let is_due = |slab: SlabId, listed: Tick| {
            let lane = lanes.get(slab);
            let is_told_of = is_translating || lane_of(slab).1 == ADDRESS_LANE as u8;
            lane.is_present && lane.is_owned && is_told_of && now.since(listed) >= LISTING_SEC
        };
        let Some(listing) = self.events.next_listing(now, is_due) else { return };
        let shard = self.shards.id(lane_of(listing.slab).0);
        let (listing, is_done) = match is_translating {
            true => self.list_ports(listing, budget),
            false => self.list_addresses(listing, shard, budget),
        };
        match is_done {
            true => self.events.finish_listing(listing, shard),
            false => self.events.note_listing(listing),
        }
    }

    /// Of what the log tells by this lane: without translation one lane speaks for all.
    pub(crate) fn is_told_of(&self, slab: SlabId) -> bool {
        self.policy.enabled || lane_of(slab).1 == ADDRESS_LANE as u8
    }

    fn list_ports(&mut self, mut listing: Listing, budget: u32) -> (Listing, bool) {
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

    fn list_addresses(
        &mut self,
        mut listing: Listing,
        shard: ShardId,
        budget: u32,
    ) -> (Listing, bool) {
        let Self { owners, events, .. } = self;
        let from = listing.position;
        let (position, told, is_done) = owners.list(shard, from, budget, events);
        listing.position = position;
        listing.blocks += told;
        (listing, is_done)
    }
}
