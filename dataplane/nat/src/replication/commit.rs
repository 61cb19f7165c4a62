//! Output commit: which records have changed and are not yet on as many replicas as wanted, and
//! what a packet depends on.
//!
//! ```text
//!   change of a record  -->  Kind::Uncommitted, in the open batch      one batch per turn
//!   close_batch         -->  the batch ends where the journal ends now
//!   next_committed      -->  replicas have the journal up to there: the batch is over,
//!                            its records are Live again
//! ```
//!
//! A packet depends on the newest batch of every mapping that it asked for; a session's changes
//! count as its mapping's. The fast path takes live mappings only, so packets of an uncommitted one
//! come to the slow path, which notes what they depend on. Batches are over in their order, and so
//! are the packets that wait for them.
//!
//! A mapping keeps the lower byte of its batch's number, so at most as many batches are open at
//! once as that byte can tell apart: beyond that, the newest batch takes all further changes. Which
//! packets wait, where, and for how long is decided by the caller.

use std::collections::VecDeque;

use weir_flow::{Record, RecordId, SlabId};

use crate::endpoint::{ShardIndex, Tick};
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::replication::change::RecordTable;
use crate::replication::facet::{Replica, ReplicaMut};
use crate::replication::lane::{LANES, slab_of};
use crate::sessions::mapping::{Mapping, MappingKind};

/// Batches that the lower byte of their numbers tells apart.
const NUMBERS: usize = 256;

/// Batches that may be open at once; one number stays unused.
const OPEN_MAX: u64 = NUMBERS as u64 - 1;

/// Changes that are sent to replicas together. Batches are numbered upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch(pub(crate) u64);

impl Batch {
    /// Returns the n-th batch; the first is 1.
    pub const fn numbered(number: u64) -> Self {
        Self(number)
    }

    /// Returns an index that differs from those of all other batches that are open at the same
    /// time.
    pub fn index(self) -> usize {
        self.0 as usize % NUMBERS
    }

    /// Number of indexes that [`index`](Self::index) returns.
    pub const INDEXES: usize = NUMBERS;
}

/// What a packet must wait for before it may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    Nothing,
    /// All changes of this batch, and of those before it, must be on replicas.
    Batch(Batch),
    /// The packet changed something that cannot be known to be on replicas: too few have the shard,
    /// or too much waits already.
    Unknowable,
}

/// Maximum number of records that change before the room is checked again: those of a burst of new
/// flows and of a hairpinned packet.
const MARGIN: usize = 128;

/// The packet depends on no batch. The highest value counts, so `UNKNOWABLE` is above all batches.
const NOTHING: u64 = 0;
const UNKNOWABLE: u64 = u64::MAX;

/// A record that a batch has changed.
#[derive(Clone, Copy, Debug)]
struct ChangedRecord {
    id: RecordId,
    version: u32,
    table: RecordTable,
    /// The record did not exist before the batch.
    has_begun: bool,
    number: u8,
}

#[derive(Debug)]
pub(crate) struct Commits {
    /// Changed records in the order of their batches.
    changed: VecDeque<ChangedRecord>,
    changed_max: usize,
    /// Set if an uncommitted change must not be used: a shard with too few replicas then gets no
    /// new state.
    is_strict: bool,
    /// The batch that takes changes, and the last one that is over.
    open: u64,
    over: u64,
    /// Where each closed batch ends in the journal, by the batch's index.
    ends: [u64; NUMBERS],
    /// The highest batch that the packet in hand depends on.
    relies_on: u64,
    /// Changes of shards that no worker copies.
    pub(crate) alone: u64,
}

impl Commits {
    pub(crate) fn new() -> Self {
        Self {
            changed: VecDeque::new(),
            changed_max: 0,
            is_strict: false,
            open: 1,
            over: 0,
            ends: [0; NUMBERS],
            relies_on: NOTHING,
            alone: 0,
        }
    }

    /// Returns the batch of an uncommitted mapping; `NOTHING` if that batch is over.
    fn batch_of(&self, mapping: &Mapping) -> u64 {
        let age = (self.open as u8).wrapping_sub(mapping.batch());
        match self.open - u64::from(age).min(self.open) {
            batch if batch > self.over => batch,
            _ => NOTHING,
        }
    }

    /// Makes the packet in hand depend on a change of which it cannot be known when it is
    /// committed.
    pub(crate) fn cannot_know(&mut self) {
        self.rely_on(UNKNOWABLE);
    }

    #[inline]
    fn rely_on(&mut self, batch: u64) {
        self.relies_on = self.relies_on.max(batch);
    }
}

impl Replica<'_> {
    /// Returns the next batch in turn, if it is closed and replicas have all of the journal up to
    /// `committed`.
    ///
    /// # Panics
    /// If `committed` lies beyond the end of the journal.
    #[inline]
    pub fn next_committed(self, committed: u64) -> Option<Batch> {
        assert!(
            committed <= self.journal_end(),
            "replicas have acknowledged more than the journal holds"
        );
        self.oldest_batch().filter(|batch| self.nat.commits.ends[batch.index()] <= committed)
    }

    /// Returns the oldest batch that is closed and not over.
    #[inline]
    pub fn oldest_batch(self) -> Option<Batch> {
        let next = self.nat.commits.over + 1;
        (next < self.nat.commits.open).then_some(Batch(next))
    }

    /// Returns the closed batch after this one.
    #[inline]
    pub fn batch_behind(self, batch: Batch) -> Option<Batch> {
        (batch.0 + 1 < self.nat.commits.open).then_some(Batch(batch.0 + 1))
    }

    /// Returns the end of the part of the journal that no packet waits for any more.
    #[inline]
    pub fn journal_unawaited(self) -> u64 {
        match self.nat.commits.changed.is_empty() {
            true => self.journal_end(),
            false => self.nat.commits.ends[Batch(self.nat.commits.over).index()],
        }
    }
}

impl ReplicaMut<'_> {
    /// Makes room for `changed_max` changed records that wait for replicas. To be called once,
    /// before the first packet.
    ///
    /// `is_strict`: a shard that [has too few replicas](Self::set_short) gets no new flows.
    pub fn keep_commits(&mut self, changed_max: usize, is_strict: bool) {
        let changed = VecDeque::with_capacity(changed_max);
        self.nat.commits = Commits { changed, changed_max, is_strict, ..Commits::new() };
    }

    /// Sets whether changes of the shard must be on replicas before a packet that depends on them
    /// leaves.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn set_commit(&mut self, shard: ShardIndex, is_awaited: bool) {
        if self.nat.shards.is_staying(shard) {
            (0..LANES)
                .for_each(|lane| self.nat.lanes.set_awaited(slab_of(shard, lane), is_awaited));
        }
    }

    /// Sets whether fewer replicas than wanted have the shard. Without `is_strict` it has no
    /// effect.
    pub fn set_short(&mut self, shard: ShardIndex, is_short: bool) {
        for slab in (0..LANES).map(|lane| slab_of(shard, lane)) {
            self.nat.lanes.get_mut(slab).is_short = is_short && self.nat.commits.is_strict;
        }
    }

    /// Closes the open batch at the end of a turn. Does nothing if nothing has changed, or if too
    /// many batches are open.
    pub fn close_batch(&mut self) {
        let end = self.read().journal_end();
        let commits = &mut self.nat.commits;
        let has_changes =
            commits.changed.back().is_some_and(|last| last.number == commits.open as u8);
        if has_changes && commits.open - commits.over < OPEN_MAX {
            commits.ends[Batch(commits.open).index()] = end;
            commits.open += 1;
        }
    }

    /// Commits the oldest batch, which is over: packets need not wait for it any more.
    ///
    /// # Panics
    /// If it is not the oldest.
    pub fn commit(&mut self, batch: Batch) {
        while let Some(changed) = self.nat.take_changed(batch) {
            if changed.table == RecordTable::Mappings {
                self.nat.settle(changed.id, changed.number);
            }
        }
    }

    /// Gives up the oldest batch, which is over although replicas may lack it: ends the records
    /// that began with it, as far as this worker owns them. Records that only changed keep their
    /// changes.
    ///
    /// # Panics
    /// If it is not the oldest.
    pub fn give_up(&mut self, batch: Batch, now: Tick) {
        while let Some(changed) = self.nat.take_changed(batch) {
            match changed.table {
                RecordTable::Mappings => self.nat.give_up_mapping(&changed, now),
                RecordTable::Sessions => self.nat.give_up_session(&changed),
            }
        }
    }
}

impl Nat {
    /// Begins the next packet: it depends on nothing yet.
    #[inline]
    pub fn begin_packet(&mut self) {
        self.commits.relies_on = NOTHING;
    }

    /// Returns what the packet in hand depends on so far.
    #[inline]
    pub fn dependency(&self) -> Dependency {
        match self.commits.relies_on {
            NOTHING => Dependency::Nothing,
            UNKNOWABLE => Dependency::Unknowable,
            batch => Dependency::Batch(Batch(batch)),
        }
    }

    /// Makes the packet in hand depend on what an earlier one depends on: a later fragment on its
    /// first.
    pub fn depend_on(&mut self, earlier: Dependency) {
        match earlier {
            Dependency::Batch(Batch(batch)) if batch > self.commits.over => {
                self.commits.rely_on(batch);
            }
            Dependency::Unknowable if self.commits.is_strict => self.commits.rely_on(UNKNOWABLE),
            _ => {}
        }
    }

    /// Makes the packet in hand depend on a mapping.
    #[inline]
    pub(crate) fn rely_on(&mut self, id: RecordId) {
        let mapping = self.mappings.get(id);
        if mapping.kind.is_uncommitted() {
            let batch = self.commits.batch_of(mapping);
            self.commits.rely_on(batch);
        }
    }

    /// Checks whether something may begin in the shard: not if it could not be known when it is
    /// committed. To be called before a mapping is prepared; a session that begins on an existing
    /// mapping is checked inside.
    ///
    /// # Errors
    /// [`Refusal::TooFewReplicas`].
    #[inline]
    pub fn check_replicas(&self, shard: ShardIndex) -> Result<(), Refusal> {
        // All lanes of a shard are alike.
        let lane = self.lanes.get(slab_of(shard, 0));
        if lane.is_short || (lane.is_awaited && self.commits.is_strict && self.commits.is_full()) {
            return Err(Refusal::TooFewReplicas);
        }
        Ok(())
    }

    #[inline(never)]
    pub(crate) fn await_begun(&mut self, slab: SlabId, id: RecordId) {
        if self.lanes.get(slab).is_awaited {
            self.await_mapping(slab, id, true);
        }
    }

    /// Records that an owned mapping, or a session of it, has begun or changed in a shard whose
    /// changes are awaited.
    #[inline(never)]
    pub(crate) fn await_mapping(&mut self, slab: SlabId, id: RecordId, has_begun: bool) {
        let lane = self.lanes.get(slab);
        if lane.is_short {
            return self.commits.cannot_know();
        }
        if !lane.is_replicated {
            self.commits.alone += 1;
            return;
        }
        let (open, number) = (self.commits.open, self.commits.open as u8);
        let mapping = self.mappings.get_mut(id);
        match mapping.kind {
            kind if kind.is_uncommitted() && mapping.batch() == number => {}
            kind if kind.is_in_use() => {
                let version = mapping.version();
                let table = RecordTable::Mappings;
                let changed = ChangedRecord { id, version, table, has_begun, number };
                if !self.commits.push(changed) {
                    return;
                }
                mapping.kind = mapping.kind.committed(false);
                mapping.set_batch(number);
            }
            // The mapping ended: no packet made it.
            _ => return,
        }
        self.commits.rely_on(open);
    }

    /// Records that a session has begun or changed, see [`await_mapping`](Self::await_mapping).
    pub(crate) fn await_session(&mut self, slab: SlabId, id: RecordId, has_begun: bool) {
        let session = self.sessions.get(id);
        let (mapping, version) = (session.mapping, session.version());
        self.await_mapping(slab, mapping, false);
        let is_awaited = self.mappings.get(mapping).kind == MappingKind::Uncommitted;
        // Only a strict worker gives up records that have begun, and looks for them.
        if has_begun && is_awaited && self.commits.is_strict {
            let number = self.commits.open as u8;
            let table = RecordTable::Sessions;
            self.commits.push(ChangedRecord { id, version, table, has_begun, number });
        }
    }

    /// True if another burst may change more records than there is room for.
    #[inline]
    pub fn are_commits_full(&self) -> bool {
        self.commits.is_full()
    }

    /// Takes the next record of a batch that is over.
    fn take_changed(&mut self, batch: Batch) -> Option<ChangedRecord> {
        let commits = &mut self.commits;
        assert!(batch.0 == commits.over + 1 || batch.0 == commits.over, "batches end in order");
        commits.over = batch.0;
        let is_its = |changed: &&ChangedRecord| usize::from(changed.number) == batch.index();
        commits.changed.front().filter(is_its)?;
        commits.changed.pop_front()
    }

    /// Makes the mapping live again, unless a later batch has it.
    fn settle(&mut self, id: RecordId, number: u8) {
        let mapping = self.mappings.get(id);
        // Its slot may be free by now, or hold another mapping.
        if !mapping.kind.is_uncommitted() {
            return;
        }
        // If the lane was given up meanwhile, an owner update may be noted where the batch number
        // was.
        if mapping.batch() == number || !self.is_mapping_ours(id) {
            let mapping = self.mappings.get_mut(id);
            mapping.kind = mapping.kind.committed(true);
        }
    }

    fn give_up_mapping(&mut self, changed: &ChangedRecord, now: Tick) {
        self.settle(changed.id, changed.number);
        let mapping = self.mappings.get(changed.id);
        let is_it = mapping.version() == changed.version && mapping.kind.is_in_use();
        if !(changed.has_begun && is_it && self.is_mapping_ours(changed.id)) {
            return;
        }
        if self.mappings.get(changed.id).kind.is_ipv6() {
            return self.end_flow6(changed.id);
        }
        while self.mappings.get(changed.id).sessions > 0 {
            self.end_session(self.mappings.get(changed.id).sessions_head);
        }
        self.end_mapping(changed.id, now);
    }

    fn give_up_session(&mut self, changed: &ChangedRecord) {
        let session = self.sessions.get(changed.id);
        let is_it = session.version() == changed.version && session.is_live();
        if is_it && self.is_mapping_ours(session.mapping) {
            self.end_session(changed.id);
        }
    }

    /// True if this worker owns the lane of a mapping that is in use.
    fn is_mapping_ours(&self, id: RecordId) -> bool {
        self.lanes.get(self.mappings.slab_of(id)).is_owned
    }
}

impl Commits {
    fn is_full(&self) -> bool {
        self.changed.len() + MARGIN > self.changed_max
    }

    /// Adds a changed record. Without room it returns false, and it cannot be known when the change
    /// is on replicas.
    fn push(&mut self, changed: ChangedRecord) -> bool {
        let has_room = self.changed.len() < self.changed_max;
        match has_room {
            true => self.changed.push_back(changed),
            false => self.cannot_know(),
        }
        has_room
    }
}
