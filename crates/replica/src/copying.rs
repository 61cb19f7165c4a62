//! Copies and the scrub, a bounded piece with each poll.

use crate::copy::{CopyId, CopyRoom, Phase};
use crate::endpoint::Endpoint;
use crate::identity::{Lane, PeerIndex};
use crate::record::Item;
use crate::scrub::{Stage, Target};
use crate::traits::Source;

/// Slots that one walk looks at before the next stream has its turn.
const SLOTS_PER_WALK: u32 = 64;

impl Endpoint {
    /// Walks on with the copies under way, stream by stream, within the budget of slots and bytes.
    pub(crate) fn advance_copies<S: Source>(&mut self, now_us: u64, source: &mut S) {
        if !self.is_copying {
            return;
        }
        let mut slots = self.setting.options.copy_slots_per_poll;
        let peers = self.peers.len();
        let turn = self.copy_turn;
        for place in (turn..peers).chain(0..turn) {
            for lane in Lane::ALL {
                if slots == 0 || self.allowance.fill(now_us) <= 0 {
                    self.copy_turn = place;
                    return;
                }
                let budget = slots.min(SLOTS_PER_WALK);
                if self.advance_copy(PeerIndex(place as u16), lane, budget, now_us, source) {
                    slots -= budget;
                }
            }
        }
        self.copy_turn = (turn + 1) % peers;
    }

    /// Walks on with the stream's copy, or begins the next. Whether there was anything to do.
    fn advance_copy<S: Source>(
        &mut self,
        index: PeerIndex,
        lane: Lane,
        budget: u32,
        now_us: u64,
        source: &mut S,
    ) -> bool {
        let Some(peer) = self.peers[index.index()].as_mut() else { return false };
        let own = &mut peer.lanes[lane.index()];
        if !own.stream.has_room_for_copy(&self.buffers) {
            return false;
        }
        if own.copying.is_none() && own.waiting > 0 {
            let is_next = |copy: &crate::copy::Copy| {
                copy.lane == lane && copy.phase == Phase::Waiting && peer.boot == Some(copy.boot)
            };
            own.waiting -= 1;
            own.copying = self.copies.find(index, is_next);
        }
        let Some(copy) = own.copying.and_then(|id| self.copies.get_mut(id)) else { return false };
        let mut room = CopyRoom {
            stream: &mut own.stream,
            buffers: &mut self.buffers,
            counters: &mut peer.link.counters,
            now_us,
            bytes: self.allowance.fill(now_us),
        };
        let bytes = room.bytes;
        match copy.phase {
            Phase::Waiting => {
                let shard = copy.shard;
                let slots = source.slots(shard, lane);
                let reign = source.reign(shard, lane);
                if room.append(&Item::CopyStart { shard, slots, reign }).is_some() {
                    (copy.phase, copy.cursor, copy.total) = (Phase::Walking, 0, slots);
                }
            }
            Phase::Walking if copy.cursor == u32::MAX => {
                if let Some(sequence) = room.append(&Item::CopyEnd { shard: copy.shard }) {
                    copy.phase = Phase::Ending(sequence);
                }
            }
            Phase::Walking => {
                let slots = copy.cursor..u32::MAX;
                copy.cursor = source.walk(copy.shard, lane, slots, budget, &mut room);
            }
            Phase::Ending(_) | Phase::Synced => return false,
        }
        self.allowance.spend(bytes - room.bytes);
        self.mark(index);
        true
    }

    /// A stream's peer has applied more: perhaps the end of a copy.
    pub(crate) fn copy_acknowledged(&mut self, index: PeerIndex, lane: Lane) {
        let Some(peer) = self.peers[index.index()].as_mut() else { return };
        let own = &mut peer.lanes[lane.index()];
        let Some(copy) = own.copying.and_then(|id| self.copies.get_mut(id)) else { return };
        match copy.phase {
            Phase::Ending(sequence) if own.stream.acknowledged() >= sequence => {
                copy.phase = Phase::Synced;
                own.copying = None;
            }
            _ => {}
        }
    }

    /// The scrub's next step.
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
            // No verdict came: the next extent, this one again in the next round.
            Stage::Comparing { .. } => self.scrub.next_extent(now_us, &self.setting.options),
            Stage::Repairing { cursor } => self.repair(&target, cursor, now_us, source),
        }
    }

    /// Goes on to the next copy that is synced, if there is one among the next few places.
    fn next_scrubbed_copy(&mut self) {
        for _ in 0..64 {
            self.scrub.next_copy(self.copies.len());
            let copy = self.copies.get(CopyId(self.scrub.copy));
            if copy.is_some_and(|copy| copy.phase == Phase::Synced) {
                return;
            }
        }
    }

    /// What is compared now: an extent of a copy that is synced, whose stream is nearly idle.
    fn scrub_target<S: Source>(&mut self, source: &S) -> Option<Target> {
        let id = CopyId(self.scrub.copy);
        let copy = self.copies.get(id).filter(|copy| copy.phase == Phase::Synced)?;
        let own = &self.peers[copy.peer.index()].as_ref()?.lanes[copy.lane.index()];
        if own.waiting > 0 || own.copying.is_some() || !own.stream.has_room_for_scrub() {
            return None;
        }
        let slots = self.scrub.slots(source.slots(copy.shard, copy.lane))?;
        Some(Target { peer: copy.peer, lane: copy.lane, shard: copy.shard, slots })
    }

    fn send_sum<S: Source>(&mut self, target: &Target, is_again: bool, now_us: u64, source: &S) {
        let Target { peer: index, lane, shard, slots } = target.clone();
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
        target: &Target,
        cursor: Option<u32>,
        now_us: u64,
        source: &mut S,
    ) {
        let Target { peer: index, lane, shard, slots } = target.clone();
        let Some(peer) = self.peers[index.index()].as_mut() else { return };
        peer.link.counters.scrub_differences += u64::from(cursor.is_none());
        let from = cursor.unwrap_or(slots.start);
        let mut room = CopyRoom {
            stream: &mut peer.lanes[lane.index()].stream,
            buffers: &mut self.buffers,
            counters: &mut peer.link.counters,
            now_us,
            bytes: self.allowance.fill(now_us),
        };
        let bytes = room.bytes;
        let budget = self.setting.options.copy_slots_per_poll;
        let next = source.walk(shard, lane, from..slots.end, budget, &mut room);
        self.allowance.spend(bytes - room.bytes);
        self.mark(index);
        if next >= slots.end {
            self.scrub.next_extent(now_us, &self.setting.options);
        } else {
            self.scrub.stage = Stage::Repairing { cursor: Some(next) };
        }
    }
}
