//! The lineage of a lane's owner in the logs that were read: where it begins and ends, and what may
//! be missing around it.

use crate::answer::Reason;
use crate::history::{LifeId, LoggedIncarnation, Ownership};
use crate::line::MARK_MARGIN_MS;
use crate::runs::Point;

/// An ownership of a lane, or an incarnation of a standalone node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedLineage<'a> {
    pub(crate) owner: &'a Ownership,
    pub(crate) life: &'a LoggedIncarnation,
    pub(crate) kind: LineageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineageKind {
    /// In a cluster.
    Member,
    /// A standalone node, whose restart releases all blocks.
    Own,
    /// An incarnation in a cluster of a node that was standalone before: as a standalone node it
    /// assigns no blocks.
    Elsewhere,
}

/// The end of the time for which a lineage is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// Until this time it owned the lane, and no record is missing.
    pub(crate) ms: u64,
    /// Until this time no record of its process about the lane is missing, even if the process no
    /// longer owned it.
    pub(crate) log_ms: u64,
    /// True if the process ended then in an orderly way.
    pub(crate) is_closed: bool,
}

impl LoggedLineage<'_> {
    pub(crate) fn name(&self) -> (LifeId, u64) {
        (self.owner.life, self.owner.epoch)
    }

    fn last(&self) -> Option<Point> {
        self.owner.runs.all().last().map(|run| run.last)
    }

    /// Whether no record of this lane is missing at its start; for an incarnation of a standalone
    /// node.
    pub(crate) fn is_from_its_start(&self) -> bool {
        self.owner.runs.all().is_empty() || self.owner.begin().is_some()
    }

    /// Returns the time of its first record, of those that were read.
    pub(crate) fn first_ms(&self) -> u64 {
        let first = self.owner.runs.all().first();
        first.map_or(self.life.first_ms, |run| run.first.time_ms)
    }

    /// True if its last record that was read is the one that gives the lane away.
    pub(crate) fn has_left(&self) -> bool {
        let left = self.owner.left.last();
        self.last().is_some_and(|last| left.is_some_and(|left| left.number == last.number))
    }

    /// Returns why it may not be the next owner after `before`, and the epoch to which that refers;
    /// `None` if it is the next owner.
    pub(crate) fn gap_behind(&self, before: &Self) -> Option<(Reason, u64)> {
        let (epoch, last) = (self.owner.epoch, before.owner.epoch);
        if epoch == last {
            // A site was started without its store: a worker resumed the lane that its node had
            // before.
            let boot_before = self.life.opened.and_then(|opened| opened.boot_before);
            let is_next = self.life.node == before.life.node && boot_before == before.life.boot;
            return (!is_next).then_some((Reason::LifeMissing, epoch));
        }
        match self.owner.before {
            Some(before) => (before != last).then_some((Reason::OwnerMissing, before)),
            None => (last.checked_add(1) != Some(epoch)).then_some((Reason::OwnerUnknown, epoch)),
        }
    }

    /// Whether its node wrote records after a gap behind the last record of this lane.
    pub(crate) fn goes_on(&self) -> bool {
        let last = self.life.runs.all().last().map(|run| run.first.number);
        let here = self.last().map_or(1, |last| last.sequence);
        last.is_some_and(|first| first > here)
    }

    /// Returns when the gap between two of its records begins: at the last mark before it, if the
    /// node counts its lost records and owned the lane.
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

/// Returns until when a lane is known by its last record and a mark behind it. The mark may have
/// the earlier time, since it is dated back; if it is earlier than that explains, the clock was set
/// back, and the time between occurs twice.
fn complete_ms(last: Point, mark: Point) -> u64 {
    let is_dated_back = mark.time_ms.saturating_add(MARK_MARGIN_MS) >= last.time_ms;
    if is_dated_back { mark.time_ms.max(last.time_ms) } else { mark.time_ms }
}
