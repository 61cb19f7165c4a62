//! Copies and the scrub, advanced by a bounded step with each poll.

use weir_ids::{LANES, Lane};

use crate::copy::{CopyId, CopyPhase, CopyRoom, CopyState};
use crate::endpoint::{StreamEndpoint, StreamPeer};
use crate::identity::PeerIndex;
use crate::record::Item;
use crate::scrub::{ScrubTarget, Stage};
use crate::traits::Source;

/// Slots that beginning, ending or skipping a copy counts for.
const SLOTS_PER_STEP: u32 = 8;

impl StreamEndpoint {
    /// Advances the copies under way, stream by stream, in pieces, within the budget of slots and
    /// bytes.
    pub(crate) fn advance_copies<S: Source>(&mut self, now_us: u64, source: &mut S) {
        if !self.is_copying || !self.pace.has_piece(now_us) {
            return;
        }
        let mut slots = self.setting.options.copy_slots_per_poll;
        let streams = self.by_worker.len() * LANES;
        let turn = if self.copy_turn < streams { self.copy_turn } else { 0 };
        for stream in (turn..streams).chain(0..turn) {
            let ((_, index), lane) = (self.by_worker[stream / LANES], Lane::ALL[stream % LANES]);
            let may_copy = |peer: &mut StreamPeer| {
                peer.lanes[lane.index()].is_copying() && peer.accepts.has_piece(now_us)
            };
            if !self.peers[index.index()].as_mut().is_some_and(may_copy) {
                continue;
            }
            while slots > 0 {
                if self.pace.bytes(now_us) <= 0 {
                    self.copy_turn = stream;
                    return;
                }
                let used = self.advance_copy(index, lane, slots, now_us, source);
                if used == 0 {
                    break;
                }
                slots = slots.saturating_sub(used);
            }
            if slots == 0 {
                self.copy_turn = (stream + 1) % streams;
                return;
            }
        }
        self.copy_turn = turn + 1;
        if slots == self.setting.options.copy_slots_per_poll {
            self.pace.found_nothing();
        }
    }

    /// Advances the stream's copy, or begins the next. Returns the slots that this counts for; 0 if
    /// there was nothing to do.
    fn advance_copy<S: Source>(
        &mut self,
        index: PeerIndex,
        lane: Lane,
        budget: u32,
        now_us: u64,
        source: &mut S,
    ) -> u32 {
        let Some(peer) = self.peers[index.index()].as_mut() else { return 0 };
        let own = &mut peer.lanes[lane.index()];
        let is_accepted = peer.accepts.fill(now_us) > 0;
        if !is_accepted || !own.stream.has_room_for_copy(&self.buffers) {
            return 0;
        }
        if own.copying.is_none() {
            let epoch = own.stream.epoch();
            let next = self.copies.begin(&mut own.waiting, &mut own.begun, epoch);
            let Some(copy) = next.and_then(|id| self.copies.get(id)) else { return 0 };
            if peer.boot != Some(copy.boot) {
                return SLOTS_PER_STEP;
            }
            own.copying = next;
        }
        let Some(copy) = own.copying.and_then(|id| self.copies.get_mut(id)) else { return 0 };
        let mut room = CopyRoom {
            stream: &mut own.stream,
            buffers: &mut self.buffers,
            counters: &mut peer.link.counters,
            now_us,
            bytes: self.pace.bytes(now_us).min(peer.accepts.fill(now_us)),
        };
        let bytes = room.bytes;
        let mut looked_at = 0;
        match copy.phase {
            CopyPhase::Waiting => {
                let shard = copy.shard;
                let slots = source.slots(shard, lane);
                let lineage = source.lineage(shard, lane);
                if room.append(&Item::CopyStart { shard, slots, lineage }).is_some() {
                    (copy.phase, copy.cursor, copy.total) = (CopyPhase::Walking, 0, slots);
                }
            }
            CopyPhase::Walking if copy.cursor == u32::MAX => {
                if let Some(sequence) = room.append(&Item::CopyEnd { shard: copy.shard }) {
                    copy.phase = CopyPhase::Ended(sequence);
                    own.copying = None;
                }
            }
            CopyPhase::Walking => {
                let from = copy.cursor;
                copy.cursor = source.walk(copy.shard, lane, from..u32::MAX, budget, &mut room);
                let last = if copy.cursor == u32::MAX { copy.total } else { copy.cursor };
                looked_at = last.saturating_sub(from).min(budget);
            }
            CopyPhase::Ended(_) => own.copying = None,
        }
        let spent = bytes - room.bytes;
        peer.accepts.spend(spent);
        self.pace.spend(spent, looked_at);
        self.mark(index);
        looked_at.max(SLOTS_PER_STEP)
    }

    /// Takes the scrub's next step.
    pub(crate) fn advance_scrub<S: Source>(&mut self, now_us: u64, source: &mut S) {
        if self.setting.options.scrub_us == 0 || now_us < self.scrub.due_us {
            return;
        }
        let Some(target) = self.scrub_target(source) else {
            self.next_scrubbed_copy();
            self.scrub.pause(now_us, &self.setting.options);
            return;
        };
        match self.scrub.stage {
            Stage::Pausing => self.send_sum(&target, false, now_us, source),
            Stage::Settling => self.send_sum(&target, true, now_us, source),
            // No verdict came: go on to the next extent, and compare this one again in the next
            // round.
            Stage::Comparing { .. } => self.scrub.next_extent(now_us, &self.setting.options),
            Stage::Repairing { cursor } => self.repair(&target, cursor, now_us, source),
        }
    }

    /// Goes on to the next copy that is synced, if there is one among the next few places.
    fn next_scrubbed_copy(&mut self) {
        for _ in 0..64 {
            self.scrub.next_copy(self.copies.len());
            let copy = self.copy_status(CopyId(self.scrub.copy));
            if copy.is_some_and(|copy| copy.state == CopyState::Synced) {
                return;
            }
        }
    }

    /// Returns the extent to compare now: one of a synced copy whose stream is nearly idle.
    fn scrub_target<S: Source>(&mut self, source: &S) -> Option<ScrubTarget> {
        let id = CopyId(self.scrub.copy);
        let copy = self.copies.get(id)?;
        let own = &self.peers[copy.peer.index()].as_ref()?.lanes[copy.lane.index()];
        let is_synced = copy.state(&own.stream) == CopyState::Synced;
        if !is_synced || own.is_copying() || !own.stream.has_room_for_scrub() {
            return None;
        }
        let slots = self.scrub.slots(source.slots(copy.shard, copy.lane))?;
        Some(ScrubTarget { peer: copy.peer, lane: copy.lane, shard: copy.shard, slots })
    }

    fn send_sum<S: Source>(
        &mut self,
        target: &ScrubTarget,
        is_again: bool,
        now_us: u64,
        source: &S,
    ) {
        let ScrubTarget { peer: index, lane, shard, slots } = target.clone();
        let Some(peer) = self.peers[index.index()].as_mut() else { return };
        let sum = source.sum(shard, lane, slots.clone());
        let number = self.scrub.compare(index, lane, is_again, now_us);
        let mut room = CopyRoom {
            stream: &mut peer.lanes[lane.index()].stream,
            buffers: &mut self.buffers,
            counters: &mut peer.link.counters,
            now_us,
            bytes: i64::MAX,
        };
        if room.append(&Item::Sum { shard, slots, number, sum }).is_some() {
            peer.link.counters.scrubbed_extents += u64::from(!is_again);
            self.mark(index);
        }
    }

    /// Copies an extent again that differed twice.
    fn repair<S: Source>(
        &mut self,
        target: &ScrubTarget,
        cursor: Option<u32>,
        now_us: u64,
        source: &mut S,
    ) {
        let ScrubTarget { peer: index, lane, shard, slots } = target.clone();
        let Some(peer) = self.peers[index.index()].as_mut() else { return };
        peer.link.counters.scrub_differences += u64::from(cursor.is_none());
        let from = cursor.unwrap_or(slots.start);
        let mut room = CopyRoom {
            stream: &mut peer.lanes[lane.index()].stream,
            buffers: &mut self.buffers,
            counters: &mut peer.link.counters,
            now_us,
            bytes: self.pace.bytes(now_us).min(peer.accepts.fill(now_us)),
        };
        let bytes = room.bytes;
        let budget = self.setting.options.copy_slots_per_poll;
        let next = source.walk(shard, lane, from..slots.end, budget, &mut room);
        let spent = bytes - room.bytes;
        peer.accepts.spend(spent);
        self.pace.spend(spent, budget);
        self.mark(index);
        if next >= slots.end {
            self.scrub.next_extent(now_us, &self.setting.options);
        } else {
            self.scrub.stage = Stage::Repairing { cursor: Some(next) };
        }
    }
}
