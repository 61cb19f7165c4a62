//! Hot. The NAT as streams see it: lanes to copy from, and lanes to copy to.
//!
//! Records of a peer are accepted from the start of its copy on, and only if its versions continue
//! those here. One uninterrupted history of one writer of a lane is a *lineage* (`Lineage`). A
//! worker that takes a lane over with all of the former lineage continues it, and so do its copies.
//! A worker that begins with nothing, or with less, may give lower versions to newer records: a
//! worker that holds more then empties the lane before it accepts the copy. A relay that takes the
//! lane over notifies the peers that it has copied it to: their copies continue in its own lineage.
//!
//! A lane whose writer has ended is given by the members that heard the writer; they mark their
//! copies as relayed. From a relayed copy the taker adds records that are newer or missing, and
//! discards nothing in its favour. A member that has begun to give a lane accepts no late records
//! of the writer, since it would not relay them.

use std::ops::Range;

use weir_map::{Epoch, Term};
use weir_nat::{ChangeKind, LaneChange, ReplicaMut, ShardIndex, Tick};
use weir_stream::{
    Comeback, CopyRoom, Lane, Lineage, Origin, PeerIndex, Provenance, RecordKind, ShardId, Sink,
    Source, StreamRecord,
};

use super::sending::read_pair;
use super::state::ReplicationState;

/// Shards that are notified at once of a restarted stream.
const LOST_AT_ONCE: usize = 8;

pub(super) struct World<'a> {
    pub(super) nat: ReplicaMut<'a>,
    pub(super) state: &'a mut ReplicationState,
    pub(super) now_us: u64,
}

/// Converts microseconds to seconds of the same clock.
pub(super) fn tick(now_us: u64) -> Tick {
    Tick((now_us / 1_000_000) as u32)
}

impl World<'_> {
    fn index(&self, shard: ShardId) -> Option<ShardIndex> {
        self.state.index(shard)
    }

    /// Applies consecutive changes of one shard.
    #[inline]
    fn apply_changes(&mut self, origin: Origin, shard: ShardIndex, records: &[StreamRecord<'_>]) {
        let copies = self.state.copies(shard).expect("a numbered shard has its copies");
        let own = &copies.lanes[origin.lane.index()];
        let is_fed = own.is_fed_by(origin.peer);
        let is_relayed = own.lineage_of(origin.peer).is_some_and(Lineage::is_relayed);
        let is_wanted = |kind| is_fed || kind == RecordKind::OwnerUpdate;
        if !is_fed {
            let unwanted = records.iter().filter(|record| !is_wanted(record.kind)).count();
            self.state.counters.records_unwanted_total += unwanted as u64;
        }
        let changes = records.iter().filter_map(|record| {
            let StreamRecord { kind, slot, version, body, .. } = *record;
            let kind = change_of(kind).filter(|_| is_wanted(kind))?;
            Some((LaneChange { kind, slot, version }, body))
        });
        let lane = (shard, origin.lane.number());
        self.nat.apply_burst(lane, changes, is_relayed, tick(self.now_us));
    }

    /// Takes a record that concerns a lane or a shard as a whole.
    #[cold]
    fn take_message(&mut self, origin: Origin, shard: ShardIndex, record: &StreamRecord<'_>) {
        let word = record.body.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        match (record.kind, word) {
            (RecordKind::Grant, Some(since)) => self.take_grant(origin, shard, Epoch(since)),
            (RecordKind::Announced, Some(term)) if u32::try_from(term).is_ok() => {
                self.state.report_announced(shard, Term(term as u32));
            }
            (RecordKind::Want, _) => self.state.note_want(origin.peer, shard, origin.lane.index()),
            (kind, _) => match (kind, read_pair(record.body)) {
                (RecordKind::Lineage, Some((now, before))) => {
                    self.begin_lineage(
                        origin,
                        shard,
                        Lineage { now, before, provenance: Provenance::Writer },
                    );
                }
                (RecordKind::Followed, Some(copy)) => self.state.note_followed(origin, shard, copy),
                _ => self.state.counters.records_invalid_total += 1,
            },
        }
    }

    /// Takes a grant. It counts if everything before it is here: otherwise the giver repeats it.
    fn take_grant(&mut self, origin: Origin, shard: ShardIndex, since: Epoch) {
        let lane = origin.lane.index();
        let copies = self.state.copies(shard).expect("a numbered shard has its copies");
        let is_complete = copies.lanes[lane].may_be_taken_from(origin.peer)
            && !self.nat.read().is_copy_full(shard, origin.lane.number());
        if is_complete {
            self.state.report_granted(shard, lane, since);
        } else {
            self.state.counters.grants_early_total += 1;
        }
    }

    /// Notes that the peer writes a lane that it only relayed before.
    fn begin_lineage(&mut self, origin: Origin, shard: ShardIndex, lineage: Lineage) {
        let is_ours = self.nat.read().owned_lanes(shard) >> origin.lane.number() & 1 != 0;
        let lane = origin.lane.index();
        let Some(copies) = self.state.copies_mut(shard) else { return };
        if !is_ours {
            copies.lanes[lane].begin_lineage(origin.peer, lineage);
            self.state.confirm(origin, shard);
            self.state.forget_if_foreign(shard, lane);
            self.state.review(shard, self.nat.read());
        }
    }

    fn begin_feed(&mut self, shard: ShardIndex, lane: Lane, peer: PeerIndex, lineage: Lineage) {
        let is_ours = self.nat.read().owned_lanes(shard) >> lane.number() & 1 != 0;
        let number = lane.index();
        let Some(copies) = self.state.copies_mut(shard) else { return };
        let own = &mut copies.lanes[number];
        own.begin_feed(peer, lineage, is_ours, self.now_us);
        if is_ours {
            return;
        }
        if own.is_fed_by(peer) {
            self.nat.begin_copy(shard, lane.number());
        }
        self.state.forget_if_foreign(shard, number);
    }
}

impl ReplicationState {
    /// If the lineage of the lane's source does not continue the one here, begins to forget the
    /// records here.
    pub(super) fn forget_if_foreign(&mut self, shard: ShardIndex, lane: usize) {
        let Some(copies) = self.copies_mut(shard) else { return };
        let own = &mut copies.lanes[lane];
        if own.is_source_foreign() && !own.is_forgetting {
            own.is_forgetting = true;
            self.forgetting.push((shard, lane));
            self.counters.lanes_forgotten_total += 1;
        }
    }
}

impl Sink for World<'_> {
    /// Returns 0 until all shards have been notified of a restarted stream.
    fn room(&self) -> usize {
        if self.state.is_losing() { 0 } else { usize::MAX }
    }

    fn apply(&mut self, origin: Origin, records: &[StreamRecord<'_>]) {
        let is_change = |record: &StreamRecord<'_>| change_of(record.kind).is_some();
        let are_together = |one: &StreamRecord<'_>, next: &StreamRecord<'_>| {
            one.shard == next.shard && is_change(one) && is_change(next)
        };
        for records in records.chunk_by(are_together) {
            let first = &records[0];
            match self.index(first.shard) {
                None => self.state.counters.records_unknown_total += records.len() as u64,
                Some(shard) if is_change(first) => self.apply_changes(origin, shard, records),
                Some(shard) => self.take_message(origin, shard, first),
            }
        }
    }

    fn stream_reset(&mut self, origin: Origin) {
        self.state.begin_loss(origin.peer, origin.lane.index());
        self.state.lose_some(LOST_AT_ONCE, self.nat.read());
    }

    fn copy_started(&mut self, origin: Origin, shard: ShardId, _slots: u32, lineage: Lineage) {
        let Some(shard) = self.index(shard) else { return };
        self.begin_feed(shard, origin.lane, origin.peer, lineage);
        self.state.review(shard, self.nat.read());
    }

    fn copy_finished(&mut self, origin: Origin, shard: ShardId) {
        let Some(shard) = self.index(shard) else { return };
        if let Some(copies) = self.state.copies_mut(shard) {
            copies.lanes[origin.lane.index()].complete_feed(origin.peer);
            self.state.confirm(origin, shard);
        }
        self.state.review(shard, self.nat.read());
    }

    fn copy_stopped(&mut self, origin: Origin, shard: ShardId) {
        let Some(shard) = self.index(shard) else { return };
        if let Some(copies) = self.state.copies_mut(shard) {
            copies.lanes[origin.lane.index()].stop_feed(origin.peer, self.now_us);
        }
        self.state.review(shard, self.nat.read());
    }

    fn sum(&self, origin: Origin, shard: ShardId, slots: Range<u32>) -> u64 {
        self.index(shard)
            .map_or(0, |shard| self.nat.read().sum_lane(shard, origin.lane.number(), slots))
    }

    fn came_back(&mut self, peer: PeerIndex, comeback: Comeback) {
        if self.index(comeback.shard).is_some() {
            self.state.note_comeback(peer, comeback);
        }
    }
}

impl Source for World<'_> {
    /// A worker that holds only part of a lineage offers none, since its copy must not clear
    /// records that it never had. A worker that gives a lane which it did not write offers what it
    /// has, as relayed.
    fn lineage(&self, shard: ShardId, lane: Lane) -> Lineage {
        let copies = self.index(shard).and_then(|shard| self.state.copies(shard));
        match copies.map(|copies| &copies.lanes[lane.index()]) {
            Some(own) if own.is_given && !own.is_own => {
                let provenance =
                    if own.is_whole { Provenance::Relay } else { Provenance::PartialRelay };
                Lineage { provenance, ..own.lineage }
            }
            Some(own) if own.is_whole => own.lineage,
            _ => Lineage::default(),
        }
    }

    fn slots(&self, shard: ShardId, lane: Lane) -> u32 {
        self.index(shard).map_or(0, |shard| self.nat.read().lane_slots(shard, lane.number()))
    }

    fn walk(
        &mut self,
        shard: ShardId,
        lane: Lane,
        slots: Range<u32>,
        budget: u32,
        room: &mut CopyRoom<'_>,
    ) -> u32 {
        let Some(index) = self.index(shard) else { return slots.end };
        self.nat.read().copy_lane(index, lane.number(), slots, budget, |change, body| {
            let kind = kind_of(change.kind);
            room.add(&StreamRecord {
                kind,
                shard,
                slot: change.slot,
                version: change.version,
                body,
            })
        })
    }

    fn sum(&self, shard: ShardId, lane: Lane, slots: Range<u32>) -> u64 {
        self.index(shard).map_or(0, |shard| self.nat.read().sum_lane(shard, lane.number(), slots))
    }
}

/// Converts a change of the NAT to the record kind that carries it.
#[inline]
pub(super) fn kind_of(kind: ChangeKind) -> RecordKind {
    match kind {
        ChangeKind::Create => RecordKind::Create,
        ChangeKind::Change => RecordKind::Change,
        ChangeKind::Delete => RecordKind::Delete,
        ChangeKind::OwnerUpdate => RecordKind::OwnerUpdate,
        ChangeKind::Clear => RecordKind::Clear,
    }
}

/// Returns the change that a record of this kind carries. None: it concerns the lane or the shard
/// as a whole.
#[inline(always)]
fn change_of(kind: RecordKind) -> Option<ChangeKind> {
    match kind {
        RecordKind::Create => Some(ChangeKind::Create),
        RecordKind::Change => Some(ChangeKind::Change),
        RecordKind::Delete => Some(ChangeKind::Delete),
        RecordKind::OwnerUpdate => Some(ChangeKind::OwnerUpdate),
        RecordKind::Clear => Some(ChangeKind::Clear),
        RecordKind::Grant
        | RecordKind::Announced
        | RecordKind::Want
        | RecordKind::Lineage
        | RecordKind::Followed => None,
    }
}
