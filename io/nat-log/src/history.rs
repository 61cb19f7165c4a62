//! The data kept from the logs: the incarnations of the nodes, and the ownerships of the lanes that
//! a question is about.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::event::{BlockRecord, BlockRecordKind};
use crate::glance::{Glimpse, WriterName};
use crate::holding::{Holding, HomeHolding};
use crate::line::{BlockLogLine, Content, unix_ms};
use crate::runs::{Point, Runs};

/// An incarnation of a node's process, as its index in [`History::lives`].
pub(crate) type LifeId = usize;
/// Shard and lane.
pub(crate) type LaneId = (u32, u8);

#[derive(Clone, Debug)]
pub(crate) struct LoggedIncarnation {
    pub(crate) node: String,
    /// Boot id; `None` if an older version wrote the log.
    pub(crate) boot: Option<u128>,
    pub(crate) opened: Option<Opened>,
    pub(crate) closed: Option<Point>,
    /// Runs of its records by `sequence`.
    pub(crate) runs: Runs,
    /// The earliest time of its records.
    pub(crate) first_ms: u64,
    /// Whether it is a standalone node, by its records; `None` before the first record that shows
    /// it.
    is_own: Option<bool>,
    /// The records of an older version, which name no lane.
    pub(crate) old: Ownership,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) time_ms: u64,
    pub(crate) is_clustered: bool,
    pub(crate) boot_before: Option<u128>,
}

/// The records of one worker about a lane that it owned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ownership {
    pub(crate) epoch: u64,
    pub(crate) life: LifeId,
    /// Runs of its records by `index`; by `sequence` for an older version.
    pub(crate) runs: Runs,
    /// The epoch of the previous ownership, if the worker knew it.
    pub(crate) before: Option<u64>,
    /// Records that the lane was given away. All but the last are followed by more records: the
    /// worker got the lane back at the same epoch.
    pub(crate) left: Vec<Point>,
    pub(crate) listings: Vec<LoggedListing>,
    /// Whether the worker recorded the claims of the lane's flows in this lane.
    pub(crate) has_claims: bool,
    /// For each block or prefix the first statement of a run without a gap, and the statements that
    /// change its state.
    pub(crate) statements: Vec<Statement>,
    latest: HashMap<Holding, Statement>,
}

/// A listing, complete at `at`; it began after the record `from`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedListing {
    pub(crate) from: u64,
    pub(crate) at: Point,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    pub(crate) at: Point,
    pub(crate) shard: u32,
    pub(crate) held: HomeHolding,
    pub(crate) kind: StatementKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    Allocated,
    Released,
    /// With the time since which it was held, if that is known.
    Held(Option<u64>),
}

/// The current incarnation of a node of an older version, and its last record.
#[derive(Clone, Copy, Debug)]
struct OldLife {
    life: LifeId,
    sequence: u64,
    time_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) lives: Vec<LoggedIncarnation>,
    by_boot: HashMap<u128, LifeId>,
    /// By name of the node.
    old: HashMap<String, OldLife>,
    pub(crate) lanes: BTreeMap<LaneId, BTreeMap<(u64, LifeId), Ownership>>,
    wanted: BTreeSet<LaneId>,
    last_boot: Option<(u128, LifeId)>,
    pub(crate) records_lost: u64,
}

impl History {
    /// Creates a history that keeps only the records of these lanes.
    pub(crate) fn of(wanted: BTreeSet<LaneId>) -> Self {
        Self { wanted, ..Self::default() }
    }

    pub(crate) fn is_wanted(&self, lane: LaneId) -> bool {
        self.wanted.contains(&lane)
    }

    /// Notes a line about a block or prefix that the question is not about, of an incarnation whose
    /// node is known.
    pub(crate) fn pass(&mut self, seen: &Glimpse<'_>) {
        let (time_ms, sequence) = (seen.time_ms, seen.sequence);
        match (seen.lane, seen.writer) {
            (Some((lane, epoch, index)), WriterName::Boot(boot)) => {
                let life = self.life(boot, time_ms, "");
                self.lives[life].note_epoch(epoch);
                self.lives[life].note(sequence, time_ms, false);
                if self.is_wanted((seen.shard, lane)) {
                    let point = Point { number: index, time_ms, sequence };
                    self.ownership((seen.shard, lane), epoch, life).runs.note(point, false);
                }
            }
            (_, WriterName::Node(node)) => {
                let life = self.old_life(node, sequence, time_ms, false);
                self.lives[life].note(sequence, time_ms, true);
            }
            (None, WriterName::Boot(_)) => {}
        }
    }

    /// Takes a parsed line. `is_subject`: the question is about its block or prefix.
    pub(crate) fn take(&mut self, line: &BlockLogLine, is_subject: bool) {
        let (sequence, time_ms) = (line.sequence, line.time_ms);
        let is_opened = matches!(line.content, Content::Opened { .. });
        let life = match line.boot {
            Some(boot) => {
                if is_opened {
                    self.old.remove(&line.node);
                }
                self.life(boot, time_ms, &line.node)
            }
            None => self.old_life(&line.node, sequence, time_ms, is_opened),
        };
        // The record of a loss has the number of the last lost record.
        if let Content::Lost(count) = line.content {
            self.records_lost = self.records_lost.saturating_add(count);
            return;
        }
        // In the log of an older version every record belongs to the only lane there is.
        let is_mark = line.boot.is_none() || matches!(line.content, Content::Mark);
        self.lives[life].note(sequence, time_ms, is_mark);
        let point = Point { number: sequence, time_ms, sequence };
        match &line.content {
            Content::Opened { is_clustered, boot_before } => {
                let (is_clustered, boot_before) = (*is_clustered, *boot_before);
                self.lives[life].opened = Some(Opened { time_ms, is_clustered, boot_before });
            }
            Content::Closed => self.lives[life].closed = Some(point),
            Content::Mark | Content::Lost(_) => {}
            Content::Old { shard, block, is_release } if is_subject => {
                let kind =
                    if *is_release { StatementKind::Released } else { StatementKind::Allocated };
                let held = HomeHolding::from(block);
                let statement = Statement { at: point, shard: *shard, held, kind };
                self.lives[life].old.statements.push(statement);
            }
            Content::Old { .. } => {}
            Content::Lane(event) => self.take_lane(event, life, point, is_subject),
        }
    }

    fn take_lane(&mut self, event: &BlockRecord, life: LifeId, point: Point, is_subject: bool) {
        self.lives[life].note_epoch(event.epoch);
        let lane = (event.shard, event.lane);
        if !self.is_wanted(lane) {
            return;
        }
        let at = Point { number: event.index, ..point };
        let owner = self.ownership(lane, event.epoch, life);
        owner.runs.note(at, false);
        let (kind, held) = match &event.kind {
            BlockRecordKind::Taken { before } => return owner.before = *before,
            BlockRecordKind::Left => return owner.leave(at),
            BlockRecordKind::Listed { from, are_claims_by_lane, .. } => {
                owner.has_claims |= are_claims_by_lane;
                return owner.listings.push(LoggedListing { from: *from, at });
            }
            BlockRecordKind::Allocated(block) => (StatementKind::Allocated, block.into()),
            BlockRecordKind::Released(block) => (StatementKind::Released, block.into()),
            BlockRecordKind::Held { block, since } => {
                (StatementKind::Held(since.map(unix_ms)), block.into())
            }
            BlockRecordKind::PrefixClaimed(claim) => (StatementKind::Allocated, claim.into()),
            BlockRecordKind::PrefixReleased(claim) => (StatementKind::Released, claim.into()),
            BlockRecordKind::PrefixHeld(claim) => (StatementKind::Held(None), claim.into()),
        };
        if is_subject {
            owner.state(Statement { at, shard: event.shard, held, kind });
        }
    }

    fn ownership(&mut self, lane: LaneId, epoch: u64, life: LifeId) -> &mut Ownership {
        let owners = self.lanes.entry(lane).or_default();
        owners.entry((epoch, life)).or_insert_with(|| Ownership {
            epoch,
            life,
            ..Ownership::default()
        })
    }

    fn life(&mut self, boot: u128, time_ms: u64, node: &str) -> LifeId {
        let life = match self.last_boot {
            Some((last, life)) if last == boot => life,
            _ => match self.by_boot.get(&boot) {
                Some(life) => *life,
                None => {
                    let life = self.begin_life(node, Some(boot), time_ms);
                    self.by_boot.insert(boot, life);
                    life
                }
            },
        };
        self.last_boot = Some((boot, life));
        life
    }

    /// Returns the incarnation that a record of an older version belongs to. Files are read in the
    /// order of time. A number that does not rise belongs to another incarnation, whose beginning
    /// is missing, or to a log that is given twice.
    fn old_life(&mut self, node: &str, sequence: u64, time_ms: u64, is_opened: bool) -> LifeId {
        let going_on = self.old.get_mut(node).filter(|old| !is_opened && sequence > old.sequence);
        let going_on = going_on.map(|old| {
            let is_later = time_ms >= old.time_ms;
            (old.sequence, old.time_ms) = (sequence, time_ms);
            (old.life, is_later)
        });
        if let Some((life, true)) = going_on {
            return life;
        }
        let is_again = |life: &LoggedIncarnation| {
            life.boot.is_none() && life.node == node && life.has(sequence, time_ms, is_opened)
        };
        let again = self.lives.iter().position(is_again);
        let life = again.or(going_on.map(|(life, _)| life)).unwrap_or_else(|| {
            let life = self.begin_life(node, None, time_ms);
            self.lives[life].note_epoch(0);
            life
        });
        self.old.insert(node.to_owned(), OldLife { life, sequence, time_ms });
        life
    }

    fn begin_life(&mut self, node: &str, boot: Option<u128>, time_ms: u64) -> LifeId {
        let life = self.lives.len();
        self.lives.push(LoggedIncarnation {
            node: node.to_owned(),
            boot,
            opened: None,
            closed: None,
            runs: Runs::default(),
            first_ms: time_ms,
            is_own: None,
            old: Ownership { life, ..Ownership::default() },
        });
        life
    }

    /// Whether the node of this writer is known: an incarnation of which no line was parsed
    /// completely has no node name.
    pub(crate) fn is_named(&self, writer: WriterName<'_>) -> bool {
        match (writer, self.last_boot) {
            (WriterName::Node(_), _) => true,
            (WriterName::Boot(boot), Some((last, _))) if boot == last => true,
            (WriterName::Boot(boot), _) => self.by_boot.contains_key(&boot),
        }
    }

    /// Sorts all records that were read.
    pub(crate) fn sort(&mut self) {
        for life in &mut self.lives {
            life.runs.sort();
            if life.boot.is_none() {
                life.old.runs = life.runs.clone();
            }
            life.old.sort();
        }
        self.lanes.values_mut().flat_map(BTreeMap::values_mut).for_each(Ownership::sort);
    }
}

impl LoggedIncarnation {
    fn note(&mut self, sequence: u64, time_ms: u64, is_mark: bool) {
        self.first_ms = self.first_ms.min(time_ms);
        self.runs.note(Point { number: sequence, time_ms, sequence }, is_mark);
    }

    /// Whether this record was read before, for an older version.
    fn has(&self, sequence: u64, time_ms: u64, is_opened: bool) -> bool {
        if is_opened {
            return self.opened.is_some_and(|opened| opened.time_ms == time_ms);
        }
        self.runs.all().iter().any(|run| {
            (run.first.number..=run.last.number).contains(&sequence)
                && (run.first.time_ms..=run.last.time_ms).contains(&time_ms)
        })
    }

    /// Notes an epoch: a standalone node has epoch 0 in all its records.
    fn note_epoch(&mut self, epoch: u64) {
        self.is_own.get_or_insert(epoch == 0);
    }

    /// Whether it is a standalone node; `None` if no record that was read shows it.
    pub(crate) fn is_of_its_own(&self) -> Option<bool> {
        self.is_own.or(self.opened.map(|opened| !opened.is_clustered))
    }
}

impl Ownership {
    /// Adds a statement, unless it is a listing's and repeats a known one: so a year of hourly
    /// listings takes no space.
    fn state(&mut self, statement: Statement) {
        let (held, run) = (statement.held, self.runs.all().last());
        let before = self.latest.insert(held.holding, statement);
        let is_known = before.zip(run).is_some_and(|(before, run)| {
            (run.first.number..=run.last.number).contains(&before.at.number)
                && before.held == held
                && before.kind != StatementKind::Released
        });
        if !is_known || !matches!(statement.kind, StatementKind::Held(_)) {
            self.statements.push(statement);
        }
    }

    /// Notes that the worker gave the lane away; a listing that follows does not count as a
    /// repetition.
    fn leave(&mut self, at: Point) {
        self.left.push(at);
        self.latest.clear();
    }

    fn sort(&mut self) {
        self.runs.sort();
        self.left.sort_by_key(|left| left.number);
        self.left.dedup_by_key(|left| left.number);
        self.statements.sort_by_key(|statement| statement.at.number);
        self.statements.dedup_by_key(|statement| statement.at.number);
        self.listings.sort_by_key(|listing| listing.at.number);
        self.listings.dedup_by_key(|listing| listing.at.number);
    }

    /// Returns its first record, if that is the first one the worker wrote.
    pub(crate) fn begin(&self) -> Option<Point> {
        self.runs.all().first().map(|run| run.first).filter(|first| first.number == 1)
    }
}
