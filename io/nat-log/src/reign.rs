//! One ownership of a lane in the logs that were read: where it begins and ends, and what may be missing around it.

use crate::answer::Reason;
use crate::history::{Life, LifeId, Ownership};
use crate::line::MARK_MARGIN_MS;
use crate::runs::Point;

/// An ownership, or a life of a node of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reign<'a> {
    pub(crate) owner: &'a Ownership,
    pub(crate) life: &'a Life,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In a cluster.
    Member,
    /// Of a node of its own, whose restart ends all.
    Own,
    /// A life in a cluster of a node that was one of its own: as such it gives nothing out.
    Elsewhere,
}

/// The end of what is known of a reign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// Up to here it owned the lane, and nothing is missing.
    pub(crate) ms: u64,
    /// Up to here nothing is missing of what its process wrote of the lane, be it that it had left.
    pub(crate) log_ms: u64,
    /// Then the process ended, in order.
    pub(crate) is_closed: bool,
}

impl Reign<'_> {
    pub(crate) fn name(&self) -> (LifeId, u64) {
        (self.owner.life, self.owner.epoch)
    }

    fn last(&self) -> Option<Point> {
        self.owner.runs.all().last().map(|run| run.last)
    }

    /// Of a life of a node of its own: nothing of this lane is missing at its start.
    pub(crate) fn is_from_its_start(&self) -> bool {
        self.owner.runs.all().is_empty() || self.owner.begin().is_some()
    }

    /// When its first record was written, of those that were read.
    pub(crate) fn first_ms(&self) -> u64 {
        let first = self.owner.runs.all().first();
        first.map_or(self.life.first_ms, |run| run.first.time_ms)
    }

    /// Nothing that was read of it comes after the word that it left.
    pub(crate) fn has_left(&self) -> bool {
        let left = self.owner.left.last();
        self.last().is_some_and(|last| left.is_some_and(|left| left.number == last.number))
    }

    /// Why it may not be the next owner after `before`, and the epoch that is about.
    pub(crate) fn gap_behind(&self, before: &Self) -> Option<(Reason, u64)> {
        let (epoch, last) = (self.owner.epoch, before.owner.epoch);
        if epoch == last {
            // A site was started without its store: a worker resumed the lane that its node had before.
            let boot_before = self.life.opened.and_then(|opened| opened.boot_before);
            let is_next = self.life.node == before.life.node && boot_before == before.life.boot;
            return (!is_next).then_some((Reason::LifeMissing, epoch));
        }
        match self.owner.before {
            Some(before) => (before != last).then_some((Reason::OwnerMissing, before)),
            None => (last.checked_add(1) != Some(epoch)).then_some((Reason::OwnerUnknown, epoch)),
        }
    }

    /// Its node wrote records after a gap behind the last one of this lane.
    pub(crate) fn goes_on(&self) -> bool {
        let last = self.life.runs.all().last().map(|run| run.first.number);
        let here = self.last().map_or(1, |last| last.sequence);
        last.is_some_and(|first| first > here)
    }

    /// When the gap between two of its records begins: at the last mark before it, where the node counts what it lost and
    /// the lane was its own.
    pub(crate) fn gap_ms(&self, last: Point, next: Point) -> u64 {
        if self.owner.left.iter().any(|left| left.number == last.number) {
            return last.time_ms;
        }
        let run = self.life.runs.with(last.sequence);
        let run = run.filter(|run| run.last.number < next.sequence);
        let mark = run.and_then(|run| run.mark).filter(|mark| mark.number >= last.sequence);
        mark.map_or(last.time_ms, |mark| complete_ms(last, mark))
    }

    pub(crate) fn tail(&self) -> Tail {
        let last = match (self.last(), self.life.opened) {
            (Some(last), _) => last,
            (None, Some(opened)) => Point { number: 0, time_ms: opened.time_ms, sequence: 1 },
            (None, None) => {
                let ms = self.life.first_ms;
                return Tail { ms, log_ms: ms, is_closed: false };
            }
        };
        let run = self.life.runs.with(last.sequence);
        let is_behind = |point: &Point| {
            run.is_some_and(|run| (last.sequence..=run.last.number).contains(&point.number))
        };
        let closed = self.life.closed.filter(is_behind);
        let mark = run.and_then(|run| run.mark).filter(is_behind);
        let log_ms = match (closed, mark) {
            (Some(closed), _) => closed.time_ms,
            (None, Some(mark)) => complete_ms(last, mark),
            (None, None) => last.time_ms,
        };
        let ms = if self.has_left() { last.time_ms } else { log_ms };
        Tail { ms, log_ms, is_closed: closed.is_some() }
    }
}

/// How far a lane is known by its last record and a mark behind it. The mark may bear the earlier time, since it is dated
/// back; where it is earlier than that, the clock was set back, and the time between comes twice.
fn complete_ms(last: Point, mark: Point) -> u64 {
    let is_dated_back = mark.time_ms.saturating_add(MARK_MARGIN_MS) >= last.time_ms;
    if is_dated_back { mark.time_ms.max(last.time_ms) } else { mark.time_ms }
}
