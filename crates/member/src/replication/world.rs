//! Hot. The NAT as streams see it: lanes to copy from, and lanes to copy to.
//!
//! What a peer says of a lane is taken from the start of its copy on, and only if its versions go on where those here
//! end. Each time in which one worker writes a lane is a *reign*. Who takes a lane over with all of the reign before goes
//! on from it, and so do his copies. Who begins with nothing, or with less, may give lower versions to newer records:
//! whoever has more than he then empties the lane before he takes the copy.

use std::ops::Range;

use weir_nat::{Change, ChangeKind, Nat, ShardIndex, Tick};
use weir_replica::{CopyRoom, Kind, Lane, Origin, PeerIndex, Record, Reign, ShardId, Sink, Source};
use weir_shard::{Epoch, Term};

use super::state::State;

/// Copies that may wait for their index entries when a grant is taken: what is attached at once for it.
const GRANT_BACKLOG_MAX: usize = 1024;

/// Records whose lines are asked for together.
const BURST: usize = 32;

/// The shard that one record or several in a row are about. No record changes what is known of it.
struct Subject {
    number: ShardId,
    index: Option<ShardIndex>,
    /// What the sender says of the lane is taken.
    is_fed: bool,
}

pub(super) struct World<'a> {
    pub(super) nat: &'a mut Nat,
    pub(super) state: &'a mut State,
    pub(super) now_us: u64,
}

pub(super) fn lane_index(lane: Lane) -> usize {
    usize::from(lane.number())
}

fn number_of(shard: ShardId) -> weir_shard::ShardId {
    weir_shard::ShardId(shard.0)
}

/// Seconds of the same clock.
pub(super) fn tick(now_us: u64) -> Tick {
    Tick((now_us / 1_000_000) as u32)
}

impl World<'_> {
    fn index(&self, shard: ShardId) -> Option<ShardIndex> {
        self.state.index(number_of(shard))
    }

    #[inline]
    fn subject(&self, origin: Origin, number: ShardId) -> Subject {
        let index = self.index(number);
        let part =
            index.map(|index| self.state.part(index).expect("a numbered shard has its part"));
        let is_fed =
            part.is_some_and(|part| part.lanes[lane_index(origin.lane)].is_fed_by(origin.peer));
        Subject { number, index, is_fed }
    }

    /// The change that a record tells of a lane that its sender is followed in. None: nothing is to be applied, and
    /// all else is done.
    #[inline]
    fn change(&mut self, origin: Origin, of: &Subject, record: &Record<'_>) -> Option<Change> {
        let Some(shard) = of.index else {
            self.state.counters.records_unknown_total += 1;
            return None;
        };
        let kind = match record.kind {
            Kind::Create => ChangeKind::Create,
            Kind::Change => ChangeKind::Change,
            Kind::Delete => ChangeKind::Delete,
            Kind::Clear => ChangeKind::Clear,
            Kind::Touch => ChangeKind::Touch,
            Kind::Grant | Kind::Announced | Kind::Want | Kind::Block => {
                self.take_message(origin, shard, record);
                return None;
            }
        };
        if kind != ChangeKind::Touch && !of.is_fed {
            self.state.counters.records_unwanted_total += 1;
            return None;
        }
        let (slot, version) = (record.slot, record.version);
        Some(Change { kind, shard, lane: origin.lane.number(), slot, version })
    }

    /// What is said of a lane or a shard as a whole.
    #[cold]
    fn take_message(&mut self, origin: Origin, shard: ShardIndex, record: &Record<'_>) {
        let word = record.body.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        match (record.kind, word) {
            (Kind::Grant, Some(since)) => self.take_grant(origin, shard, Epoch(since)),
            (Kind::Announced, Some(term)) if u32::try_from(term).is_ok() => {
                self.state.tell_announced(shard, Term(term as u32));
            }
            (Kind::Want, _) => self.state.note_want(origin.peer, shard, lane_index(origin.lane)),
            _ => self.state.counters.records_invalid_total += 1,
        }
    }

    /// A grant counts if everything before it is here: otherwise the giver repeats it.
    fn take_grant(&mut self, origin: Origin, shard: ShardIndex, since: Epoch) {
        let lane = lane_index(origin.lane);
        let part = self.state.part(shard).expect("a numbered shard has its part");
        let is_complete = part.lanes[lane].has_all_of(origin.peer)
            && self.nat.drain_backlog(GRANT_BACKLOG_MAX) == 0
            && !self.nat.is_copy_full(shard, origin.lane.number());
        if is_complete {
            self.state.tell_granted(shard, lane, since);
        } else {
            self.state.counters.grants_early_total += 1;
        }
    }

    fn begin_feed(&mut self, shard: ShardIndex, lane: Lane, peer: PeerIndex, reign: Reign) {
        let is_ours = self.nat.owned_lanes(shard) >> lane.number() & 1 != 0;
        let number = lane_index(lane);
        let Some(part) = self.state.part_mut(shard) else { return };
        let own = &mut part.lanes[number];
        own.begin_feed(peer, reign, is_ours, self.now_us);
        if is_ours {
            return;
        }
        if own.is_fed_by(peer) {
            self.nat.begin_copy(shard, lane.number());
        }
        self.state.forget_if_foreign(shard, number);
    }

    /// Applies changes that were looked at.
    #[inline]
    fn apply_all(&mut self, records: &[Record<'_>], changes: &mut [Option<Change>; BURST]) {
        let now = tick(self.now_us);
        for (record, change) in records.iter().zip(changes) {
            if let Some(change) = change.take() {
                self.nat.apply(&change, record.body, now);
            }
        }
    }
}

impl State {
    /// If the reign of the lane's source does not go on from what is here, that has to go.
    pub(super) fn forget_if_foreign(&mut self, shard: ShardIndex, lane: usize) {
        let Some(part) = self.part_mut(shard) else { return };
        let own = &mut part.lanes[lane];
        if own.is_source_foreign() && !own.is_forgetting {
            own.is_forgetting = true;
            self.forgetting.push((shard, lane));
            self.counters.lanes_forgotten_total += 1;
        }
    }
}

impl Sink for World<'_> {
    fn room(&self) -> usize {
        self.nat.backlog_room()
    }

    fn apply(&mut self, origin: Origin, records: &[Record<'_>]) {
        let Some(first) = records.first() else { return };
        let mut subject = self.subject(origin, first.shard);
        for records in records.chunks(BURST) {
            let mut changes = [None; BURST];
            for (place, record) in records.iter().enumerate() {
                if record.shard != subject.number {
                    subject = self.subject(origin, record.shard);
                }
                // A grant is behind what came before it.
                if record.kind == Kind::Grant {
                    self.apply_all(records, &mut changes);
                }
                let change = self.change(origin, &subject, record);
                change.iter().for_each(|change| self.nat.prefetch_change(change));
                changes[place] = change;
            }
            self.apply_all(records, &mut changes);
        }
    }

    fn stream_reset(&mut self, origin: Origin) {
        for place in 0..self.state.places() {
            let shard = ShardIndex(place as u16);
            if let Some(part) = self.state.part_mut(shard) {
                part.lanes[lane_index(origin.lane)].lose(origin.peer);
                self.state.review(shard, self.nat);
            }
        }
    }

    fn copy_started(&mut self, origin: Origin, shard: ShardId, _slots: u32, reign: Reign) {
        let Some(shard) = self.index(shard) else { return };
        self.begin_feed(shard, origin.lane, origin.peer, reign);
        self.state.review(shard, self.nat);
    }

    fn copy_finished(&mut self, origin: Origin, shard: ShardId) {
        let Some(shard) = self.index(shard) else { return };
        if let Some(part) = self.state.part_mut(shard) {
            part.lanes[lane_index(origin.lane)].complete_feed(origin.peer);
        }
        self.state.review(shard, self.nat);
    }

    fn copy_stopped(&mut self, origin: Origin, shard: ShardId) {
        let Some(shard) = self.index(shard) else { return };
        if let Some(part) = self.state.part_mut(shard) {
            part.lanes[lane_index(origin.lane)].stop_feed(origin.peer, self.now_us);
        }
        self.state.review(shard, self.nat);
    }

    fn sum(&self, origin: Origin, shard: ShardId, slots: Range<u32>) -> u64 {
        self.index(shard).map_or(0, |shard| self.nat.sum_lane(shard, origin.lane.number(), slots))
    }
}

impl Source for World<'_> {
    /// Who has not all of a reign must not tell others what is not in it.
    fn reign(&self, shard: ShardId, lane: Lane) -> Reign {
        let part = self.index(shard).and_then(|shard| self.state.part(shard));
        let own = part.map(|part| &part.lanes[lane_index(lane)]);
        own.filter(|own| own.is_whole).map_or(Reign::default(), |own| own.reign)
    }

    fn slots(&self, shard: ShardId, lane: Lane) -> u32 {
        self.index(shard).map_or(0, |shard| self.nat.lane_slots(shard, lane.number()))
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
        self.nat.copy_lane(index, lane.number(), slots, budget, |change, body| {
            let kind = kind_of(change.kind);
            room.add(&Record { kind, shard, slot: change.slot, version: change.version, body })
        })
    }

    fn sum(&self, shard: ShardId, lane: Lane, slots: Range<u32>) -> u64 {
        self.index(shard).map_or(0, |shard| self.nat.sum_lane(shard, lane.number(), slots))
    }
}

/// A change of the NAT as it travels.
#[inline]
pub(super) fn kind_of(kind: ChangeKind) -> Kind {
    match kind {
        ChangeKind::Create => Kind::Create,
        ChangeKind::Change => Kind::Change,
        ChangeKind::Delete => Kind::Delete,
        ChangeKind::Touch => Kind::Touch,
        ChangeKind::Clear => Kind::Clear,
    }
}
