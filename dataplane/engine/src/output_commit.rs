//! Output commit: packets that depend on changes which are not on enough replicas yet wait here, as
//! finished frames.
//!
//! ```text
//!   slow path, new flows --frames--> output: they stay there if they have nothing to wait for
//!                                      |  depends on a batch of changes: taken out again
//!                                      +--> list of that batch --committed--> output
//!                                                              \--given up--> output, or dropped
//! ```
//!
//! - The NAT determines the dependency of a packet once the packet is processed
//!   (`weir_nat::Dependency`). The fast path never meets an uncommitted mapping, so it never asks.
//! - Batches end in order, and a batch's frames leave in their order before its mappings are live
//!   again: packets of a flow keep their order. A packet that changes nothing waits for the last
//!   change of its mapping, not for later ones.
//! - Held frames are bounded in number and in time. Frames beyond either limit are released, the
//!   oldest first, or dropped together with the flows that they began, as configured; both are
//!   counted.
//!
//! This module does not know which replica has which change: the caller passes the position up to
//! which the journal is on replicas.

use weir_nat::{Batch, Dependency};
use weir_wire::frame::{Frame, Pool};

use crate::counters::Early;
use crate::engine::{Context, Engine, Now};
use crate::output::Lengths;
use crate::{DropReason, Output, Side};

/// Handling of packets that cannot be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncommitted {
    /// They are sent: forwarding goes on.
    Release,
    /// They are dropped, and the flows that they began are ended: no flow is used that could be
    /// lost.
    Drop,
}

/// Limits of what waits for replicas.
#[derive(Clone, Copy, Debug)]
pub struct CommitLimits {
    /// Frames held at once.
    pub held_max: usize,
    /// Changed records that wait at once.
    pub changes_max: usize,
    /// Longest wait, milliseconds.
    pub timeout_ms: u64,
    pub policy: Uncommitted,
}

impl<F: Frame> Engine<F> {
    /// Returns the number of frames that wait for replicas.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Ends a turn of the loop: replicas have the NAT's journal up to `committed`, so frames that
    /// depend on nothing beyond it are sent; frames that have waited for too long are sent or
    /// dropped.
    pub fn release_committed(&mut self, committed: u64, now: Now, out: &mut Output<F>) {
        if !self.held.is_on() {
            return;
        }
        self.nat.replica_mut().close_batch();
        while let Some(batch) = self.nat.replica().next_committed(committed) {
            // Frames without room in the output leave in the next turn, before any frame behind
            // them.
            while let Some(side) = self.held.peek(batch) {
                if !out.has_room(side) {
                    return;
                }
                self.let_out(batch, out);
            }
            self.nat.replica_mut().commit(batch);
        }
        if self.held.looked_ms != now.ms {
            self.held.looked_ms = now.ms;
            self.end_overdue(now, out);
        }
    }

    /// Ends all waits because the worker stops: waiting frames are sent or dropped, as configured.
    /// True if there are more than the output has room for.
    pub fn release_all(&mut self, now: Now, out: &mut Output<F>) -> bool {
        while let Some(batch) = self.next_batch() {
            if !(out.has_room(Side::Access) && out.has_room(Side::Internet)) {
                return true;
            }
            self.end_batch(batch, Early::Timeout, now, out);
        }
        false
    }

    /// Drops all waiting frames as out of date: other workers serve their flows. Returns the number
    /// of these frames.
    pub fn discard_held(&mut self, now: Now) -> usize {
        let discarded = self.held.len();
        while let Some(batch) = self.next_batch() {
            self.drop_held(batch, DropReason::CommitTimeout);
            match self.held.policy() {
                Uncommitted::Release => self.nat.replica_mut().commit(batch),
                Uncommitted::Drop => self.nat.replica_mut().give_up(batch, now.tick()),
            }
        }
        discarded
    }

    /// Returns the oldest batch, after closing it if necessary.
    fn next_batch(&mut self) -> Option<Batch> {
        if self.nat.replica().oldest_batch().is_none() {
            self.nat.replica_mut().close_batch();
        }
        self.nat.replica().oldest_batch()
    }

    /// Processes a packet with `step`; its frames leave when its dependency is committed. A packet
    /// that turns around during the step waits together with the outer one.
    #[inline(always)]
    pub(crate) fn commit_first<P: Pool<Frame = F>, R>(
        &mut self,
        cx: &mut Context<'_, P>,
        step: impl FnOnce(&mut Self, &mut Context<'_, P>) -> R,
    ) -> R {
        let before = if self.held.is_on() { self.begin_packet(cx) } else { None };
        let done = step(self, cx);
        if let Some(before) = before {
            self.end_packet(before, cx);
        }
        done
    }

    /// Returns the position in the output from which the packet's frames will follow; `None`: this
    /// packet is processed inside another one.
    #[inline(never)]
    fn begin_packet<P: Pool<Frame = F>>(&mut self, cx: &mut Context<'_, P>) -> Option<Lengths> {
        if self.held.is_in_packet {
            return None;
        }
        self.make_room_for_changes(cx);
        self.held.is_in_packet = true;
        self.nat.begin_packet();
        Some(cx.out.lengths())
    }

    /// Leaves the frames behind `before` in the output if they need not wait.
    #[inline(never)]
    fn end_packet<P: Pool<Frame = F>>(&mut self, before: Lengths, cx: &mut Context<'_, P>) {
        self.held.is_in_packet = false;
        match self.nat.dependency() {
            Dependency::Nothing => {}
            Dependency::Batch(batch) => self.hold(batch, before, cx),
            Dependency::Unknowable => self.place_unknowable(before, cx.out),
        }
    }

    #[cold]
    fn place_unknowable(&mut self, before: Lengths, out: &mut Output<F>) {
        match self.held.policy() {
            Uncommitted::Release => self.counters.count_early(Early::Limit, out.count(before)),
            Uncommitted::Drop => self.drop_frames(before, DropReason::TooFewReplicas, out),
        }
    }

    fn drop_frames(&self, before: Lengths, reason: DropReason, out: &mut Output<F>) {
        self.counters.count_drops(reason, out.count(before));
        Side::ALL.into_iter().for_each(|side| _ = out.drain(side, before));
    }

    fn put_out(&self, side: Side, frame: F, out: &mut Output<F>) {
        if !out.push(side, frame) {
            self.discard(DropReason::NoBuffer);
        }
    }

    /// Takes the packet's frames out of the output and holds them.
    #[inline]
    fn hold<P: Pool<Frame = F>>(
        &mut self,
        batch: Batch,
        mut before: Lengths,
        cx: &mut Context<'_, P>,
    ) {
        let frames = cx.out.count(before);
        if !self.held.has_room(frames) && !self.make_room(batch, &mut before, cx) {
            return;
        }
        self.counters.count_held(frames);
        for side in Side::ALL {
            if !cx.out.has_more(side, before) {
                continue;
            }
            for frame in cx.out.drain(side, before) {
                self.held.push(batch, side, frame, cx.now.ms);
            }
        }
    }

    /// Makes room for the frames behind `before`. True if they are to wait and have room. Under
    /// `Release` the oldest batches are ended, whose frames leave first. If the packet's own batch
    /// is ended too, it has nothing left to wait for.
    #[cold]
    fn make_room<P: Pool<Frame = F>>(
        &mut self,
        batch: Batch,
        before: &mut Lengths,
        cx: &mut Context<'_, P>,
    ) -> bool {
        let frames = cx.out.count(*before);
        let mut is_over = false;
        let mut aside = std::mem::replace(&mut self.held.aside, Output::empty());
        for side in Side::ALL {
            aside.side_mut(side).extend(cx.out.drain(side, *before));
        }
        while !(is_over || self.held.has_room(frames)) {
            let Some(oldest) = self.oldest_to_release() else { break };
            self.end_batch(oldest, Early::Limit, cx.now, cx.out);
            is_over = oldest >= batch;
        }
        *before = cx.out.lengths();
        for side in Side::ALL {
            aside.drain(side, Lengths::ZERO).for_each(|frame| self.put_out(side, frame, cx.out));
        }
        self.held.aside = aside;
        if self.held.policy() == Uncommitted::Drop {
            self.drop_frames(*before, DropReason::CommitLimit, cx.out);
        }
        !is_over && self.held.has_room(frames)
    }

    /// Makes room so that every change of the next packet can be tracked.
    #[inline]
    fn make_room_for_changes<P: Pool<Frame = F>>(&mut self, cx: &mut Context<'_, P>) {
        while self.nat.are_commits_full() {
            let Some(oldest) = self.oldest_to_release() else { return };
            self.end_batch(oldest, Early::Limit, cx.now, cx.out);
        }
    }

    /// Returns the oldest batch, if it may be ended to make room.
    #[cold]
    fn oldest_to_release(&mut self) -> Option<Batch> {
        if self.held.policy() == Uncommitted::Drop {
            return None;
        }
        self.next_batch()
    }

    /// Ends each batch with a frame that has waited for too long, and all batches before it. All
    /// batches are checked: one whose own packet left no frame may have got its first frame after
    /// those of later batches.
    fn end_overdue(&mut self, now: Now, out: &mut Output<F>) {
        let (mut next, mut last_late) = (self.nat.replica().oldest_batch(), None);
        while let Some(batch) = next {
            if self.held.deadline_ms(batch).is_some_and(|deadline_ms| deadline_ms <= now.ms) {
                last_late = Some(batch);
            }
            next = self.nat.replica().batch_behind(batch);
        }
        let Some(last_late) = last_late else { return };
        while let Some(batch) =
            self.nat.replica().oldest_batch().filter(|&batch| batch <= last_late)
        {
            self.end_batch(batch, Early::Timeout, now, out);
        }
    }

    /// Ends the oldest batch without a commit.
    #[cold]
    fn end_batch(&mut self, batch: Batch, why: Early, now: Now, out: &mut Output<F>) {
        match self.held.policy() {
            Uncommitted::Release => {
                while self.let_out(batch, out) {
                    self.counters.count_early(why, 1);
                }
                self.nat.replica_mut().commit(batch);
            }
            Uncommitted::Drop => {
                self.drop_held(batch, DropReason::CommitTimeout);
                self.nat.replica_mut().give_up(batch, now.tick());
            }
        }
    }

    /// Sends the batch's oldest frame; false if there is none.
    fn let_out(&mut self, batch: Batch, out: &mut Output<F>) -> bool {
        let Some((side, frame)) = self.held.pop(batch) else { return false };
        self.put_out(side, frame, out);
        true
    }

    fn drop_held(&mut self, batch: Batch, reason: DropReason) {
        while self.held.pop(batch).is_some() {
            self.discard(reason);
        }
    }
}
