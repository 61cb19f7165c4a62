//! Lanes: who may write which part of a shard.
//!
//! A shard's ports are dealt to eight lanes, block by block, and so are its records: a slab is one lane of one shard.
//! A lane has one writer in the cluster, its owner. He alone opens blocks, makes, ends, refreshes and versions records
//! in it; all others mirror them and translate what hits them. A worker on its own owns every lane and replicates none.
//!
//! What a worker does with a mapping of a lane that is not its own:
//! - translate, both ways, whatever its timers say: they run at the owner, who is told of traffic by *touches*;
//! - note the state of TCP and the time of packets in its own copy, until the owner's next change overwrites them;
//! - keep further remotes as sessions of its own, in a slab that nobody mirrors.

use weir_flow::SlabId;

use crate::endpoint::{Protocol, ShardIndex, Tick};
use crate::mapping::Remote;
use crate::timeouts::Timeouts;

/// Lanes of a shard. A lane has one writer in the cluster.
pub const LANES: u32 = 8;
/// A node on its own writes in all lanes.
pub(crate) const ALL_LANES: u8 = 0xff;

/// A lane of a shard, by the number of its slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) is_owned: bool,
    /// Its changes are to be journalled.
    pub(crate) is_replicated: bool,
    /// A change found no place in the journal.
    pub(crate) has_lost: bool,
    /// A record found no place in our tables.
    pub(crate) is_full: bool,
    /// When it was taken over: timers count from here at the earliest. None: ours from the start.
    owned_since: Option<Tick>,
}

impl Lane {
    /// Seconds that a record of this lane has been idle, for its owner.
    #[inline]
    pub(crate) fn idle_sec(&self, last_seen: Tick, now: Tick) -> u32 {
        let idle_sec = now.since(last_seen);
        self.owned_since.map_or(idle_sec, |since| idle_sec.min(now.since(since)))
    }

    /// Has the session been silent for too long? Never, for whoever does not own it.
    #[inline]
    pub(crate) fn has_run_out(
        &self,
        remote: &Remote,
        protocol: Protocol,
        timeouts: &Timeouts,
        now: Tick,
    ) -> bool {
        remote.is_expired(protocol, timeouts, now)
            && self.is_owned
            && self.idle_sec(remote.last_seen, now) >= remote.timeout_sec(protocol, timeouts)
    }
}

/// All lanes of all shards, and one more for sessions that are nobody else's.
#[derive(Debug)]
pub(crate) struct Lanes {
    all: Box<[Lane]>,
    /// Is any lane replicated?
    pub(crate) is_any_replicated: bool,
    /// Is none another's?
    pub(crate) are_all_owned: bool,
}

impl Lanes {
    pub(crate) fn new(shards: usize) -> Self {
        let lane = Lane {
            is_owned: true,
            is_replicated: false,
            has_lost: false,
            is_full: false,
            owned_since: None,
        };
        Self {
            all: vec![lane; shards * LANES as usize + 1].into(),
            is_any_replicated: false,
            are_all_owned: true,
        }
    }

    #[inline]
    pub(crate) fn get(&self, slab: SlabId) -> &Lane {
        &self.all[slab.0 as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slab: SlabId) -> &mut Lane {
        &mut self.all[slab.0 as usize]
    }

    /// The slab of sessions that only this worker knows.
    pub(crate) fn local(&self) -> SlabId {
        SlabId(self.all.len() as u32 - 1)
    }

    /// A lane that has lost changes; asked once.
    pub(crate) fn take_lost(&mut self) -> Option<SlabId> {
        let slab = self.all.iter().position(|lane| lane.has_lost)?;
        self.all[slab].has_lost = false;
        Some(SlabId(slab as u32))
    }

    pub(crate) fn set_owned(&mut self, slab: SlabId, is_owned: bool, now: Tick) {
        let lane = self.get_mut(slab);
        lane.is_owned = is_owned;
        lane.owned_since = Some(now);
        self.are_all_owned = self.all.iter().all(|lane| lane.is_owned);
    }

    pub(crate) fn set_replicated(&mut self, slab: SlabId, is_replicated: bool) {
        let lane = self.get_mut(slab);
        lane.is_replicated = is_replicated;
        lane.has_lost &= is_replicated;
        self.is_any_replicated = self.all.iter().any(|lane| lane.is_replicated);
    }
}

/// The slab of a lane of a shard.
#[inline]
pub(crate) fn slab_of(shard: ShardIndex, lane: u32) -> SlabId {
    SlabId(u32::from(shard.0) * LANES + lane)
}

/// The lane of a slab and its shard.
#[inline]
pub(crate) fn lane_of(slab: SlabId) -> (ShardIndex, u8) {
    (ShardIndex((slab.0 / LANES) as u16), (slab.0 % LANES) as u8)
}
