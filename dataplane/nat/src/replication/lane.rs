//! Lanes: which worker may write which part of a shard.
//!
//! A shard's ports are dealt to eight lanes, block by block, and so are its records: a slab is one
//! lane of one shard. A lane has one writer in the cluster, its owner. Only the owner opens blocks
//! in it and makes, ends, refreshes and versions its records; all other workers hold copies of them
//! and translate packets that hit them. A worker on its own owns every lane and replicates none.
//!
//! With a mapping of a lane that it does not own, a worker does the following:
//! - it translates, both ways, whatever the mapping's timers say: they run at the owner, which
//!   learns of traffic from *owner updates* ([`OwnerUpdate`](crate::ChangeKind::OwnerUpdate));
//! - it records the TCP state and the time of packets in its own copy, until the owner's next
//!   change overwrites them;
//! - it keeps further remotes as sessions of its own, in a slab that is not replicated.

use weir_flow::SlabId;

use crate::endpoint::{Protocol, ShardIndex, Tick};
use crate::sessions::class_timeouts::ClassTimeouts;
use crate::sessions::mapping::Remote;

/// Lanes of a shard, in the type of a slab's number.
pub(crate) const LANES: u32 = weir_ids::LANES as u32;
/// The longest time that ports rest for a copy that is behind, in quarantine periods: without a
/// limit the ports would run out.
const BEHIND_MAX: u32 = 5;
/// All lanes of a shard, a bit each: a node on its own writes in all of them.
pub(crate) const ALL_LANES: u8 = 0xff;

/// State of one lane of one shard, indexed by the number of its slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneState {
    /// Whether the lane's shard is here and is not being removed.
    pub(crate) is_present: bool,
    /// Whether this worker owns the lane; true where there is no shard.
    pub(crate) is_owned: bool,
    /// Whether changes of the lane go to the journal.
    pub(crate) is_replicated: bool,
    /// Whether changes must be on replicas before the packets that depend on them leave.
    pub(crate) is_awaited: bool,
    /// Set while changes cannot reach the replicas they must be on: nothing begins in the lane.
    pub(crate) is_short: bool,
    /// Set when a change found no room in the journal, until [`Lanes::take`] reports it.
    has_lost: bool,
    /// Whether a record found no room in the tables here.
    pub(crate) is_full: bool,
    /// As `is_full`, until [`Lanes::take`] reports it.
    has_filled: bool,
    /// Time of the last change of owner: timers count from here at the earliest. None: owned from
    /// the start.
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

    /// Returns the seconds that a record of this lane has been idle, by the owner's count.
    #[inline]
    pub(crate) fn idle_sec(&self, last_seen: Tick, now: Tick) -> u32 {
        let idle_sec = now.since(last_seen);
        self.owned_since.map_or(idle_sec, |since| idle_sec.min(now.since(since)))
    }

    /// True if the session has been silent for too long; never true for a worker that does not own
    /// the lane.
    #[inline]
    pub(crate) fn has_run_out(
        &self,
        remote: &Remote,
        protocol: Protocol,
        timeouts: &ClassTimeouts,
        now: Tick,
    ) -> bool {
        remote.is_expired(protocol, timeouts, now)
            && self.is_owned
            && self.idle_sec(remote.last_seen, now) >= remote.timeout_sec(protocol, timeouts)
    }
}

/// All lanes of all shards, and one more for the sessions that only this worker has.
#[derive(Debug)]
pub(crate) struct Lanes {
    all: Box<[LaneState]>,
    /// Indexed by shard: the time since when some worker has a copy of a lane owned here and does
    /// not receive its changes.
    behind_since: Box<[Option<Tick>]>,
    /// True if any lane is replicated, is owned by another worker, or has changes that must wait
    /// for replicas.
    pub(crate) is_any_marked: bool,
    /// True if no lane is owned by another worker.
    pub(crate) are_all_owned: bool,
    replicated: usize,
    awaited: usize,
    owned: usize,
    /// Indexed by [`LaneFault`]: whether some lane may have lost changes, or have become full,
    /// since the last [`Lanes::take`].
    may_have_fault: [bool; 2],
}

/// The lane faults that can happen to any lane at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneFault {
    Lost = 0,
    Filled = 1,
}

impl Lanes {
    /// Lanes of `shards` shards that are here, all owned by this worker, with room for `shards_max`
    /// shards.
    pub(crate) fn new(shards: usize, shards_max: usize) -> Self {
        let mut all = vec![LaneState::ABSENT; shards_max * LANES as usize + 1];
        let present = all.iter_mut().take(shards * LANES as usize);
        present.for_each(|lane| lane.is_present = true);
        Self {
            owned: all.len(),
            all: all.into(),
            behind_since: vec![None; shards_max].into(),
            is_any_marked: false,
            are_all_owned: true,
            replicated: 0,
            awaited: 0,
            may_have_fault: [false; 2],
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

    /// True if no port of a mapping's lane may be given again yet: a lagging copy could still hold
    /// it for its former holder.
    pub(crate) fn keeps_ports(&self, slab: SlabId, quarantine_sec: u32, now: Tick) -> bool {
        let behind_max_sec = quarantine_sec.saturating_mul(BEHIND_MAX);
        let since = self.behind_since[usize::from(lane_of(slab).0.0)];
        since.is_some_and(|since| now.since(since) < behind_max_sec)
    }

    /// Returns the slab of the sessions that only this worker has.
    pub(crate) fn local(&self) -> SlabId {
        SlabId(self.all.len() as u32 - 1)
    }

    /// Records that a change of the lane found no room in the journal, or that a record found none
    /// in the tables.
    #[cold]
    pub(crate) fn note(&mut self, fault: LaneFault, slab: SlabId) {
        let lane = self.get_mut(slab);
        match fault {
            LaneFault::Lost => lane.has_lost = true,
            LaneFault::Filled if lane.is_full => return,
            LaneFault::Filled => (lane.is_full, lane.has_filled) = (true, true),
        }
        self.may_have_fault[fault as usize] = true;
    }

    /// Returns a lane that has suffered this fault, and clears its flag: each fault is reported
    /// once.
    #[inline]
    pub(crate) fn take(&mut self, fault: LaneFault) -> Option<SlabId> {
        if self.may_have_fault[fault as usize] { self.find(fault) } else { None }
    }

    #[cold]
    fn find(&mut self, fault: LaneFault) -> Option<SlabId> {
        let flag = |lane: &mut LaneState| match fault {
            LaneFault::Lost => std::mem::take(&mut lane.has_lost),
            LaneFault::Filled => std::mem::take(&mut lane.has_filled),
        };
        let found = self.all.iter_mut().position(flag);
        self.may_have_fault[fault as usize] = found.is_some();
        found.map(|slab| SlabId(slab as u32))
    }

    pub(crate) fn set_owned(&mut self, slab: SlabId, is_owned: bool, now: Tick) {
        let lane = self.get_mut(slab);
        let was_owned = std::mem::replace(&mut lane.is_owned, is_owned);
        lane.owned_since = Some(now);
        self.owned = self.owned + usize::from(is_owned) - usize::from(was_owned);
        self.are_all_owned = self.owned == self.all.len();
        self.look_whether_any_is_marked();
    }

    /// Begins a lane of a new shard at a slab that had no shard.
    pub(crate) fn begin(&mut self, slab: SlabId, is_owned: bool, now: Tick) {
        *self.get_mut(slab) = LaneState { is_present: true, ..LaneState::ABSENT };
        self.set_owned(slab, is_owned, now);
    }

    /// Marks a shard's lanes as being removed. Their owner stays known until the shard is gone.
    pub(crate) fn leave(&mut self, shard: ShardIndex) {
        for slab in (0..LANES).map(|lane| slab_of(shard, lane)) {
            self.set_replicated(slab, false);
            self.set_awaited(slab, false);
            self.get_mut(slab).is_present = false;
        }
    }

    /// Resets the lanes of a shard that is gone.
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
        self.look_whether_any_is_marked();
    }

    pub(crate) fn set_awaited(&mut self, slab: SlabId, is_awaited: bool) {
        let lane = self.get_mut(slab);
        let was_awaited = std::mem::replace(&mut lane.is_awaited, is_awaited);
        lane.is_short &= is_awaited;
        self.awaited = self.awaited + usize::from(is_awaited) - usize::from(was_awaited);
        self.look_whether_any_is_marked();
    }

    fn look_whether_any_is_marked(&mut self) {
        self.is_any_marked = self.replicated + self.awaited > 0 || !self.are_all_owned;
    }
}

/// Returns the slab of a lane of a shard.
#[inline]
pub(crate) fn slab_of(shard: ShardIndex, lane: u32) -> SlabId {
    SlabId(u32::from(shard.0) * LANES + lane)
}

/// Returns the shard of a slab, and its lane.
#[inline]
pub(crate) fn lane_of(slab: SlabId) -> (ShardIndex, u8) {
    (ShardIndex((slab.0 / LANES) as u16), (slab.0 % LANES) as u8)
}
