//! Events of a lane's port blocks, logged by the lane's owner: a ring of fixed size between the
//! data path and its reader.
//!
//! ```text
//!   Taken   Held Held Allocated Held Released Held   Listed   Allocated Released ...
//!   index 1 2    3    4         5    6        7      8        9
//!           (each hour again: Held .. Listed)
//! ```
//!
//! Only the owner of a lane logs its events. It counts them from 1 when it takes the lane in
//! another epoch than before (in the same epoch the count goes on), those that the ring has no room
//! for included, so that a reader sees where one is missing.

use std::collections::{BTreeMap, VecDeque};

use weir_flow::SlabId;
use weir_ids::{Epoch, LANES, ShardId};

use crate::endpoint::{OuterAddress, ShardIndex, Tick};
use crate::replication::lane::{ALL_LANES, slab_of};

/// Events that can wait to be read. Reading once per burst, the ring never fills: a packet opens
/// one block at most.
const EVENTS_MAX: usize = 16_384;

/// Every lane is looked at once in this time.
const ROUND_SEC: usize = 60;

/// A port block and the home it belongs to; without translation an address with all its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HomeBlock {
    /// Outer address of the home; its inside address where homes have no tunnel.
    pub subscriber: OuterAddress,
    /// Present if it tells homes apart.
    pub gre_key: Option<u32>,
    pub public_address: u32,
    /// First and last port, both included, for TCP, UDP and ICMP identifiers alike.
    pub port_first: u16,
    pub port_last: u16,
}

/// A /64 of inside IPv6 addresses and the home that has claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HomePrefix {
    /// Outer address of the home.
    pub subscriber: OuterAddress,
    /// Present if it tells homes apart.
    pub gre_key: Option<u32>,
    /// The first 64 bits of the addresses.
    pub prefix64: u64,
}

/// What has become of something that a home has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldingChange {
    Taken,
    Released,
    /// Part of a listing: the home has it at present.
    Listed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEventKind {
    /// This worker has taken the lane; a listing of what the lane holds follows. The first event of
    /// an ownership.
    Taken {
        /// Epoch of the ownership before this one, if it is known.
        before: Option<Epoch>,
    },
    /// This worker has given up the lane.
    Left,
    Allocated(HomeBlock),
    Released(HomeBlock),
    /// Part of a listing: the home has the block at present.
    Held(HomeBlock),
    /// A home's IPv6 prefix, from which it has flows in the lane.
    Prefix(HoldingChange, HomePrefix),
    /// A listing is complete.
    Listed {
        /// Blocks and prefixes that it named.
        blocks: u32,
        /// Index of the last event before the listing.
        from: u64,
    },
}

/// An event of a lane, logged by its owner. All events together answer which home had a public
/// endpoint at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    pub shard: ShardId,
    pub lane: u8,
    /// Epoch of the shard's map entry since which this worker owns the lane; 0 on a node of its
    /// own.
    pub epoch: Epoch,
    /// 1, 2, 3, ... over the events of this ownership.
    pub index: u64,
    pub kind: BlockEventKind,
}

/// State of the log of one lane.
#[derive(Clone, Copy, Debug)]
struct LaneLog {
    epoch: Epoch,
    /// Index of the last event.
    index: u64,
    /// When its last listing was due.
    listed: Tick,
    /// Whether the log says that this worker owns the lane.
    is_taken: bool,
}

impl LaneLog {
    const NEW: Self = Self { epoch: Epoch(0), index: 0, listed: Tick(0), is_taken: false };
}

/// A listing under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockListing {
    pub(crate) slab: SlabId,
    from: u64,
    pub(crate) blocks: u32,
    /// Position from which the walk continues.
    pub(crate) position: u32,
    /// Whether the walk has come to the prefixes that homes have claimed.
    pub(crate) is_at_prefixes: bool,
}

#[derive(Debug)]
pub(crate) struct BlockEvents {
    ring: VecDeque<BlockEvent>,
    lost_total: u64,
    /// Indexed by slab.
    lanes: Box<[LaneLog]>,
    /// Shards, their indexes here, and the lanes that this worker owns, a bit each.
    shards: BTreeMap<ShardId, (ShardIndex, u8)>,
    /// Lanes to be listed.
    unlisted: VecDeque<SlabId>,
    listing: Option<BlockListing>,
    /// The lane that is looked at next, and when lanes were last looked at.
    looked_at: u32,
    looked: Tick,
}

impl BlockEvents {
    /// Builds the log for `shards`, all of whose lanes this worker owns, with room for
    /// `shards_max`.
    pub(crate) fn new(shards: impl Iterator<Item = ShardId>, shards_max: usize) -> Self {
        Self {
            ring: VecDeque::with_capacity(EVENTS_MAX),
            lost_total: 0,
            lanes: vec![LaneLog::NEW; shards_max * LANES].into(),
            shards: shards.zip((0..).map(|index| (ShardIndex(index), ALL_LANES))).collect(),
            unlisted: VecDeque::with_capacity(shards_max * LANES),
            listing: None,
            looked_at: 0,
            looked: Tick(0),
        }
    }

    /// Counts the event, and keeps it or counts it as lost: the data path does not wait for a
    /// reader.
    pub(crate) fn push(&mut self, slab: SlabId, shard: ShardId, kind: BlockEventKind) {
        let log = &mut self.lanes[slab.0 as usize];
        log.index += 1;
        let (epoch, index) = (log.epoch, log.index);
        if self.ring.len() == EVENTS_MAX {
            self.lost_total += 1;
        } else {
            let lane = (slab.0 % LANES as u32) as u8;
            self.ring.push_back(BlockEvent { shard, lane, epoch, index, kind });
        }
    }

    /// Returns the lanes of these that this worker owns, a bit each.
    pub(crate) fn owned(&self, shard: ShardId, lanes: u8) -> u8 {
        self.shards.get(&shard).map_or(0, |(_, owned)| owned & lanes)
    }

    /// Logs an event of what a home has claimed in these lanes, a bit each, all of them owned by
    /// this worker.
    pub(crate) fn push_claim(&mut self, shard: ShardId, lanes: u8, kind: BlockEventKind) {
        let Some(&(index, _)) = self.shards.get(&shard) else { return };
        let from_first_to_last = lanes.trailing_zeros()..u8::BITS - lanes.leading_zeros();
        for lane in from_first_to_last.filter(|lane| lanes >> lane & 1 != 0) {
            self.push(slab_of(index, lane), shard, kind);
        }
    }

    /// Records that this worker owns a lane and logs what happens in it.
    pub(crate) fn own(&mut self, (shard, index): (ShardId, ShardIndex), lane: u32) {
        let (_, lanes) = self.shards.entry(shard).or_insert((index, 0));
        *lanes |= 1 << lane;
    }

    /// Begins the log of a lane that this worker has owned since this epoch. If it has owned the
    /// lane since that epoch before, no other worker had it meanwhile, and the same count
    /// continues.
    pub(crate) fn begin(
        &mut self,
        (shard, index): (ShardId, ShardIndex),
        lane: u32,
        epoch: Epoch,
        before: Option<Epoch>,
        now: Tick,
    ) {
        let slab = slab_of(index, lane);
        let log = &mut self.lanes[slab.0 as usize];
        (log.is_taken, log.listed) = (true, now);
        if log.index == 0 || log.epoch != epoch {
            (log.epoch, log.index) = (epoch, 0);
            self.push(slab, shard, BlockEventKind::Taken { before });
        }
        self.unlisted.push_back(slab);
    }

    /// Ends the log of a lane that this worker does not own any more.
    pub(crate) fn end(&mut self, (shard, index): (ShardId, ShardIndex), lane: u32) {
        let slab = slab_of(index, lane);
        if let Some((_, lanes)) = self.shards.get_mut(&shard) {
            *lanes &= !(1 << lane);
        }
        self.unlisted.retain(|&unlisted| unlisted != slab);
        self.listing = self.listing.filter(|listing| listing.slab != slab);
        if std::mem::take(&mut self.lanes[slab.0 as usize].is_taken) {
            self.push(slab, shard, BlockEventKind::Left);
        }
    }

    /// Forgets a shard that is gone: another may get its index.
    pub(crate) fn forget(&mut self, (shard, index): (ShardId, ShardIndex)) {
        for lane in 0..LANES as u32 {
            self.end((shard, index), lane);
            self.lanes[slab_of(index, lane).0 as usize] = LaneLog::NEW;
        }
        self.shards.remove(&shard);
    }

    /// Looks once a second at a part of the lanes, so that each is looked at every minute: given a
    /// lane and the time its last listing was due, `is_due` decides whether another is due. Returns
    /// whether a listing is under way or to begin.
    pub(crate) fn is_listing_due(
        &mut self,
        now: Tick,
        is_due: impl Fn(SlabId, Tick) -> bool,
    ) -> bool {
        if self.looked != now && !self.lanes.is_empty() {
            self.looked = now;
            for _ in 0..self.lanes.len().div_ceil(ROUND_SEC) {
                let slab = SlabId(self.looked_at);
                let log = &mut self.lanes[self.looked_at as usize];
                if is_due(slab, log.listed) {
                    log.listed = now;
                    self.unlisted.push_back(slab);
                }
                self.looked_at = (self.looked_at + 1) % self.lanes.len() as u32;
            }
        }
        self.listing.is_some() || !self.unlisted.is_empty()
    }

    /// Returns the listing that is under way, or begins the next one.
    pub(crate) fn next_listing(&mut self) -> Option<BlockListing> {
        if self.listing.is_none() {
            let slab = self.unlisted.pop_front()?;
            let from = self.lanes[slab.0 as usize].index;
            self.listing =
                Some(BlockListing { slab, from, blocks: 0, position: 0, is_at_prefixes: false });
        }
        self.listing
    }

    /// Records how far the listing has come.
    pub(crate) fn note_listing(&mut self, listing: BlockListing) {
        self.listing = Some(listing);
    }

    /// Logs that the listing has named all that there was.
    pub(crate) fn finish_listing(&mut self, listing: BlockListing, shard: ShardId) {
        let BlockListing { slab, from, blocks, .. } = listing;
        self.push(slab, shard, BlockEventKind::Listed { blocks, from });
        self.listing = None;
    }

    /// Returns the epoch since which this worker owns the lane.
    pub(crate) fn epoch(&self, slab: SlabId) -> Epoch {
        self.lanes.get(slab.0 as usize).map_or(Epoch(0), |log| log.epoch)
    }

    pub(crate) fn pop(&mut self) -> Option<BlockEvent> {
        self.ring.pop_front()
    }

    pub(crate) fn lost_total(&self) -> u64 {
        self.lost_total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(1);

    fn events() -> BlockEvents {
        BlockEvents::new(std::iter::once(SHARD), 2)
    }

    fn allocated(subscriber: u32) -> BlockEventKind {
        BlockEventKind::Allocated(HomeBlock {
            subscriber: subscriber.into(),
            gre_key: None,
            public_address: 0,
            port_first: 1024,
            port_last: 1279,
        })
    }

    #[test]
    fn a_full_ring_counts_what_it_loses_and_keeps_the_order() {
        let mut events = events();
        for number in 0..EVENTS_MAX as u32 + 3 {
            events.push(SlabId(0), SHARD, allocated(number));
        }
        assert_eq!(events.lost_total(), 3);
        for number in 0..EVENTS_MAX as u32 {
            let event = events.pop().unwrap();
            assert_eq!((event.kind, event.index), (allocated(number), u64::from(number) + 1));
        }
        assert_eq!(events.pop(), None);
        events.push(SlabId(0), SHARD, BlockEventKind::Left);
        let next = EVENTS_MAX as u64 + 4;
        assert_eq!(events.pop().unwrap().index, next, "what was lost is counted");
    }

    #[test]
    fn each_ownership_of_a_lane_counts_from_one() {
        let mut events = events();
        let shard = (SHARD, ShardIndex(0));
        let mut logged = Vec::new();
        for epoch in [3, 7] {
            let before = (epoch > 3).then_some(Epoch(3));
            events.begin(shard, 2, Epoch(epoch), before, Tick(0));
            events.push(slab_of(shard.1, 2), SHARD, allocated(epoch as u32));
            events.push(slab_of(shard.1, 3), SHARD, allocated(9));
            events.end(shard, 2);
            while let Some(event) = events.pop() {
                logged.push((event.lane, event.epoch.0, event.index));
            }
        }
        let of_two = [(2, 3, 1), (2, 3, 2), (2, 3, 3), (2, 7, 1), (2, 7, 2), (2, 7, 3)];
        let logged: Vec<_> = logged.into_iter().filter(|(lane, ..)| *lane == 2).collect();
        assert_eq!(logged, of_two);
    }

    #[test]
    fn a_lane_taken_again_under_the_same_epoch_continues_its_count() {
        let mut events = events();
        let shard = (SHARD, ShardIndex(0));
        for before in [None, Some(Epoch(5))] {
            events.begin(shard, 2, Epoch(5), before, Tick(0));
            events.push(slab_of(shard.1, 2), SHARD, allocated(1));
            events.end(shard, 2);
        }
        events.forget(shard);
        events.begin(shard, 2, Epoch(5), None, Tick(0));
        let indexes: Vec<u64> = std::iter::from_fn(|| events.pop()).map(|it| it.index).collect();
        assert_eq!(indexes, [1, 2, 3, 4, 5, 1], "another shard at its place begins anew");
    }

    #[test]
    fn a_lane_that_was_given_up_is_not_listed() {
        let mut events = events();
        let shard = (SHARD, ShardIndex(0));
        events.begin(shard, 2, Epoch(3), None, Tick(0));
        events.end(shard, 2);
        assert!(events.next_listing().is_none());
        events.begin(shard, 2, Epoch(5), None, Tick(0));
        assert!(events.next_listing().is_some());
        events.end(shard, 2);
        assert!(events.next_listing().is_none());
    }
}
