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

/// Lanes of a shard, as wide as the number of a slab.
pub(crate) const LANES: u32 = weir_ids::LANES as u32;
/// Ports rest for a copy that is behind, but not for more quarantines than this: they would run out.
const BEHIND_MAX: u32 = 5;
/// A node on its own writes in all lanes.
pub(crate) const ALL_LANES: u8 = 0xff;

/// A lane of a shard, by the number of its slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneState {
    /// Its shard is here and is to stay.
    pub(crate) is_present: bool,
    /// True where there is no shard.
    pub(crate) is_owned: bool,
    /// Its changes are to be journalled.
    pub(crate) is_replicated: bool,
    /// Its changes are to be on replicas before packets that depend on them leave.
    pub(crate) is_awaited: bool,
    /// As that cannot be, nothing begins in it.
    pub(crate) is_short: bool,
    /// A change found no place in the journal, until it is asked.
    has_lost: bool,
    /// A record found no place in our tables.
    pub(crate) is_full: bool,
    /// The same, until it is asked.
    has_filled: bool,
    /// When it was taken over: timers count from here at the earliest. None: ours from the start.
    owned_since: Option<Tick>,
}

impl LaneState {
    const ABSENT: Self = Self {
        is_present: false,
        is_owned: true,
        is_replicated: false,
        is_awaited: false,
        is_short: false,
        has_lost: false,
        is_full: false,
        has_filled: false,
        owned_since: None,
    };

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
    all: Box<[LaneState]>,
    /// Of each shard: since when somebody has a copy of a lane of ours and does not hear of its changes.
    behind_since: Box<[Option<Tick>]>,
    /// Is any lane replicated or another's, or are changes of any to wait for replicas?
    pub(crate) are_any_told: bool,
    /// Is none another's?
    pub(crate) are_all_owned: bool,
    replicated: usize,
    awaited: usize,
    owned: usize,
    /// Some lane may have lost changes, or have become full, since that was asked.
    has_news: [bool; 2],
}

/// What may happen to any lane at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    Lost = 0,
    Filled = 1,
}

impl Lanes {
    /// `shards` of `shards_max` shards are here, and all their lanes ours.
    pub(crate) fn new(shards: usize, shards_max: usize) -> Self {
        let mut all = vec![LaneState::ABSENT; shards_max * LANES as usize + 1];
        let present = all.iter_mut().take(shards * LANES as usize);
        present.for_each(|lane| lane.is_present = true);
        Self {
            owned: all.len(),
            all: all.into(),
            behind_since: vec![None; shards_max].into(),
            are_any_told: false,
            are_all_owned: true,
            replicated: 0,
            awaited: 0,
            has_news: [false; 2],
        }
    }

    #[inline]
    pub(crate) fn get(&self, slab: SlabId) -> &LaneState {
        &self.all[slab.0 as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slab: SlabId) -> &mut LaneState {
        &mut self.all[slab.0 as usize]
    }

    pub(crate) fn set_behind(&mut self, shard: ShardIndex, are_copies_behind: bool, now: Tick) {
        let since = &mut self.behind_since[usize::from(shard.0)];
        *since = are_copies_behind.then(|| since.unwrap_or(now));
    }

    /// Whether no port of a mapping's lane is to be given again: in a copy it could still be another's.
    pub(crate) fn keeps_ports(&self, slab: SlabId, quarantine_sec: u32, now: Tick) -> bool {
        let behind_max_sec = quarantine_sec.saturating_mul(BEHIND_MAX);
        let since = self.behind_since[usize::from(lane_of(slab).0.0)];
        since.is_some_and(|since| now.since(since) < behind_max_sec)
    }

    /// The slab of sessions that only this worker knows.
    pub(crate) fn local(&self) -> SlabId {
        SlabId(self.all.len() as u32 - 1)
    }

    /// A change of the lane found no place in the journal, or a record none in our tables.
    #[cold]
    pub(crate) fn note(&mut self, mishap: Mishap, slab: SlabId) {
        let lane = self.get_mut(slab);
        match mishap {
            Mishap::Lost => lane.has_lost = true,
            Mishap::Filled if lane.is_full => return,
            Mishap::Filled => (lane.is_full, lane.has_filled) = (true, true),
        }
        self.has_news[mishap as usize] = true;
    }

    /// A lane that this has happened to; asked once.
    #[inline]
    pub(crate) fn take(&mut self, mishap: Mishap) -> Option<SlabId> {
        if self.has_news[mishap as usize] { self.find(mishap) } else { None }
    }

    #[cold]
    fn find(&mut self, mishap: Mishap) -> Option<SlabId> {
        let flag = |lane: &mut LaneState| match mishap {
            Mishap::Lost => std::mem::take(&mut lane.has_lost),
            Mishap::Filled => std::mem::take(&mut lane.has_filled),
        };
        let found = self.all.iter_mut().position(flag);
        self.has_news[mishap as usize] = found.is_some();
        found.map(|slab| SlabId(slab as u32))
    }

    pub(crate) fn set_owned(&mut self, slab: SlabId, is_owned: bool, now: Tick) {
        let lane = self.get_mut(slab);
        let was_owned = std::mem::replace(&mut lane.is_owned, is_owned);
        lane.owned_since = Some(now);
        self.owned = self.owned + usize::from(is_owned) - usize::from(was_owned);
        self.are_all_owned = self.owned == self.all.len();
        self.look_who_is_told();
    }

    /// A lane of a shard that comes, where there was none.
    pub(crate) fn begin(&mut self, slab: SlabId, is_owned: bool, now: Tick) {
        *self.get_mut(slab) = LaneState { is_present: true, ..LaneState::ABSENT };
        self.set_owned(slab, is_owned, now);
    }

    /// A shard leaves. Who owns its lanes is known until it is gone.
    pub(crate) fn leave(&mut self, shard: ShardIndex) {
        for slab in (0..LANES).map(|lane| slab_of(shard, lane)) {
            self.set_replicated(slab, false);
            self.set_awaited(slab, false);
            self.get_mut(slab).is_present = false;
        }
    }

    /// A shard is gone.
    pub(crate) fn end(&mut self, shard: ShardIndex) {
        self.behind_since[usize::from(shard.0)] = None;
        for slab in (0..LANES).map(|lane| slab_of(shard, lane)) {
            self.set_owned(slab, true, Tick(0));
            *self.get_mut(slab) = LaneState::ABSENT;
        }
    }

    pub(crate) fn set_replicated(&mut self, slab: SlabId, is_replicated: bool) {
        let lane = self.get_mut(slab);
        let was_replicated = std::mem::replace(&mut lane.is_replicated, is_replicated);
        lane.has_lost &= is_replicated;
        self.replicated =
            self.replicated + usize::from(is_replicated) - usize::from(was_replicated);
        self.look_who_is_told();
    }

    pub(crate) fn set_awaited(&mut self, slab: SlabId, is_awaited: bool) {
        let lane = self.get_mut(slab);
        let was_awaited = std::mem::replace(&mut lane.is_awaited, is_awaited);
        lane.is_short &= is_awaited;
        self.awaited = self.awaited + usize::from(is_awaited) - usize::from(was_awaited);
        self.look_who_is_told();
    }

    fn look_who_is_told(&mut self) {
        self.are_any_told = self.replicated + self.awaited > 0 || !self.are_all_owned;
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
