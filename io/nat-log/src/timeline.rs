//! Replays the records of one lane: which home held a block or prefix from when to when, and which
//! times the logs do not cover.
//!
//! ```text
//!   ownerships in the order of epochs    n1, epoch 3              n2, epoch 7
//!   records in the order of `index`      1 2 3 4 . . 7 8 9        1 2 3 4 5
//!                                             gap     end without a record of it
//!   one block                          --held--|?|--held--|? ? ?|--held (listed)--
//! ```
//!
//! The order never comes from times: these only place the result on the clock. A doubt begins where
//! records may be missing and ends with the next statement about the block, or with a complete
//! listing, which is a statement about every block of the lane. A block that the listing names for
//! the home that held it before was held throughout, if the listing states since when, or if no
//! other home can have had it meanwhile.

use crate::answer::{Begin, Reason, TenancyEnd};
use crate::history::{LifeId, LoggedListing, Statement, StatementKind};
use crate::holding::HomeHolding;
use crate::lineage::{LineageKind, LoggedLineage};
use crate::runs::{Point, Run};
use crate::tenancy::{LogDoubt, Tenancy};

/// Longest time from the last mark of a log that was cut off to the next listing in which a home
/// with the same block before and after counts as having held it throughout. For another home to
/// hold it in between, the block would have had to be released, rest for `quarantine_sec`, serve
/// the other home, be released and rest again; a prefix would have had to be another home's for
/// `claim_hold_sec`. A node that lost its state skips the first rest, so `quarantine_sec` must not
/// be below this time; it may have assigned the block to the same home in an incarnation whose log
/// is missing, and then the block was free for a moment.
const SHORT_MS: u64 = 30_000;
/// Within this time no process starts or rejoins, gets a lane back, and loses it to another.
const LIFE_MS: u64 = 2000;

/// What the records of a lane show about a block.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) tenancies: Vec<Tenancy>,
    pub(crate) doubts: Vec<LogDoubt>,
    /// The end of the time that is known.
    pub(crate) end_ms: Option<u64>,
}

/// The condition under which a home that held the block before and after a doubt held it
/// throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// No block was assigned meanwhile: always.
    Clean,
    /// A log was cut off, and the next owner is known: if the doubt is short.
    Short,
    /// Only if a listing states since when.
    Proof,
}

#[derive(Clone, Debug)]
enum HolderState {
    Free,
    /// Held by the home of this tenancy.
    Held(usize),
    Unknown(Open),
}

/// A doubt that has not ended.
#[derive(Clone, Debug)]
struct Open {
    /// Index of its first part in `doubts`.
    first: usize,
    since_ms: Option<u64>,
    /// The tenancy that held the block when the doubt began.
    held: Option<usize>,
    trust: Trust,
    /// The part that has not ended; earlier parts have other reasons.
    part: LogDoubt,
}

impl Open {
    fn is_short(&self, at_ms: u64) -> bool {
        self.since_ms.is_some_and(|since_ms| at_ms.abs_diff(since_ms) <= SHORT_MS)
    }
}

/// A home that has the block when a doubt ends.
#[derive(Clone, Copy, Debug)]
struct FoundHome {
    statement: Statement,
    since_ms: Option<u64>,
    is_listed: bool,
}

impl FoundHome {
    /// Returns the home that had the block just before this statement; `None` if it was free.
    fn by(statement: &Statement) -> Option<Self> {
        let statement = *statement;
        match statement.kind {
            StatementKind::Allocated => None,
            StatementKind::Released => Some(Self { statement, since_ms: None, is_listed: false }),
            StatementKind::Held(since_ms) => Some(Self { statement, since_ms, is_listed: true }),
        }
    }
}

/// Replays lineages in their order. `is_subject` chooses the statements about the block.
pub(crate) fn play(
    lineages: &[LoggedLineage<'_>],
    clock_error_ms: u64,
    is_subject: impl Fn(&HomeHolding) -> bool,
) -> Timeline {
    let is_known = !lineages.is_empty();
    let part = LogDoubt {
        from_ms: None,
        until_ms: None,
        reason: if is_known { Reason::BeforeLogs } else { Reason::LaneMissing },
        owner: lineages.first().map(LoggedLineage::name),
        is_outside: is_known,
        is_brief: false,
    };
    let open = Open { first: 0, since_ms: None, held: None, trust: Trust::Proof, part };
    let (out, state) = (Timeline::default(), HolderState::Unknown(open));
    let mut player = Player { out, state, confirmed_ms: 0, clock_error_ms, is_subject };
    let mut before: Option<&LoggedLineage<'_>> = None;
    for lineage in lineages {
        match lineage.kind {
            LineageKind::Member => player.enter(before, lineage),
            LineageKind::Own | LineageKind::Elsewhere => player.enter_own(before, lineage),
        }
        player.play(lineage);
        before = Some(lineage);
    }
    player.finish(before)
}

struct Player<F> {
    out: Timeline,
    state: HolderState,
    /// The last time at which the state was certain.
    confirmed_ms: u64,
    clock_error_ms: u64,
    is_subject: F,
}

impl<F: Fn(&HomeHolding) -> bool> Player<F> {
    /// Moves on to the next ownership of a lane of a cluster.
    fn enter(&mut self, before: Option<&LoggedLineage<'_>>, next: &LoggedLineage<'_>) {
        let Some(before) = before else { return };
        let (tail, first_ms) = (before.tail(), next.first_ms());
        let at = tail.ms.min(first_ms);
        if next.owner.begin().is_none() {
            return self.doubt(at, Reason::BeginMissing, Trust::Proof, Some(next.name()));
        }
        if let Some((reason, epoch)) = next.gap_behind(before) {
            let (life, _) = next.name();
            return self.doubt(at, reason, Trust::Proof, Some((life, epoch)));
        }
        let has_ended = tail.is_closed || before.has_left();
        let is_known = if next.owner.epoch == before.owner.epoch {
            tail.is_closed
        } else {
            // Meanwhile the previous owner, or a later incarnation of its node, may have had the
            // lane again at its epoch; and if the next owner does not know the previous one, an
            // earlier incarnation of the next owner's node may have had it at the epoch that was
            // resumed.
            let knows = next.owner.before.is_some();
            let is_outlived = tail.log_ms >= first_ms.saturating_add(self.clock_error_ms);
            let ended_ms = if tail.is_closed && knows { tail.log_ms } else { tail.ms };
            let is_at_once = first_ms.saturating_sub(ended_ms) <= LIFE_MS;
            is_outlived && knows || is_at_once && has_ended
        };
        if is_known {
            return self.hand_over(at, next);
        }
        let (reason, trust, owner) = match (has_ended, next.owner.before) {
            (true, None) => (Reason::LifeMissing, Trust::Proof, next),
            (true, Some(_)) if tail.is_closed => (Reason::LifeMissing, Trust::Proof, before),
            _ => (Reason::CutOff, Trust::Short, before),
        };
        self.doubt(at, reason, trust, Some(owner.name()));
    }

    /// Continues the lane with another owner, or with the same one after it gave it away; no block
    /// was assigned meanwhile.
    fn hand_over(&mut self, at_ms: u64, next: &LoggedLineage<'_>) {
        if matches!(self.state, HolderState::Held(_)) {
            self.doubt(at_ms, Reason::NotListed, Trust::Clean, Some(next.name()));
        }
    }

    /// Moves on to the next incarnation of a standalone node, or to its first in a cluster.
    fn enter_own(&mut self, before: Option<&LoggedLineage<'_>>, next: &LoggedLineage<'_>) {
        let opened = next.life.opened.filter(|_| next.is_from_its_start());
        if let Some(before) = before.filter(|before| before.kind == LineageKind::Own) {
            let is_old = before.life.boot.is_none();
            let is_next =
                is_old || opened.is_some_and(|opened| opened.boot_before == before.life.boot);
            let tail = before.tail();
            if tail.is_closed {
                self.end_all(tail.ms, TenancyEnd::NodeStopped);
                if !is_next {
                    self.doubt(tail.ms, Reason::LifeMissing, Trust::Proof, Some(next.name()));
                }
            } else if !is_old || opened.is_none() {
                // The versions without marks showed no difference between a log that ended and one
                // that continues.
                self.doubt(tail.ms, Reason::CutOff, Trust::Proof, Some(before.name()));
            }
        }
        match opened.map(|opened| opened.time_ms) {
            Some(opened_ms) => self.end_all(opened_ms, TenancyEnd::NodeRestarted),
            None if next.kind == LineageKind::Elsewhere => {
                self.end_all(next.first_ms(), TenancyEnd::NodeRestarted);
            }
            None => {
                let at = before.map_or(next.first_ms(), |before| before.tail().ms);
                self.doubt(at, Reason::BeginMissing, Trust::Proof, Some(next.name()));
                if let Some(begin) = next.owner.begin().filter(|_| next.life.boot.is_some()) {
                    self.resolve(begin.time_ms, None, next);
                }
            }
        }
    }

    /// Ends every block that a standalone node had assigned, then or earlier.
    fn end_all(&mut self, at_ms: u64, end: TenancyEnd) {
        match std::mem::replace(&mut self.state, HolderState::Free) {
            HolderState::Free => {}
            HolderState::Held(tenancy) => self.end(tenancy, at_ms, end),
            HolderState::Unknown(open) => {
                self.close_part(open.part, at_ms);
                self.may_last(open.held, at_ms);
            }
        }
        self.confirmed_ms = at_ms;
    }

    fn may_last(&mut self, tenancy: Option<usize>, until_ms: u64) {
        if let Some(tenancy) = tenancy {
            self.out.tenancies[tenancy].may_last_ms = Some(until_ms);
        }
    }

    fn play(&mut self, lineage: &LoggedLineage<'_>) {
        let owner = lineage.owner;
        for (number, run) in owner.runs.all().iter().enumerate() {
            if number > 0 {
                let at_ms = lineage.gap_ms(owner.runs.all()[number - 1].last, run.first);
                self.doubt(at_ms, Reason::RecordsMissing, Trust::Proof, Some(lineage.name()));
            }
            // If it gave the lane away and continues, it got the lane back at the same epoch: no
            // other worker had it, and a listing follows.
            let mut part = *run;
            let left = within(&owner.left, run, |left| *left).iter();
            for left in left.filter(|left| left.number < run.last.number) {
                self.play_run(&Run { last: *left, ..part }, lineage);
                self.hand_over(left.time_ms, lineage);
                part.first = Point { number: left.number + 1, ..*left };
            }
            self.play_run(&part, lineage);
        }
    }

    /// Replays records of one ownership without a gap.
    fn play_run(&mut self, run: &Run, lineage: &LoggedLineage<'_>) {
        let statements = within(&lineage.owner.statements, run, |statement| statement.at);
        let is_subject = &self.is_subject;
        let statements: Vec<&Statement> =
            statements.iter().filter(|statement| is_subject(&statement.held)).collect();
        if matches!(self.state, HolderState::Unknown(_)) {
            let listings = within(&lineage.owner.listings, run, |listing| listing.at);
            self.look_up(run, listings, statements.first().copied(), lineage);
        }
        for statement in statements {
            self.take(statement, lineage);
        }
    }

    /// Ends a doubt at the start of a run: no record is missing within a run, so the state before
    /// its first statement about a block, or before its first complete listing, has lasted since
    /// the run began.
    fn look_up(
        &mut self,
        run: &Run,
        listings: &[LoggedListing],
        first: Option<&Statement>,
        lineage: &LoggedLineage<'_>,
    ) {
        let is_complete =
            |listing: &&LoggedListing| listing.from.saturating_add(1) >= run.first.number;
        let listed = listings.iter().find(is_complete).map(|listing| listing.at.number);
        let begin_ms = run.first.time_ms;
        match first.filter(|first| listed.is_none_or(|listed| first.at.number < listed)) {
            Some(first) => self.resolve(begin_ms, FoundHome::by(first), lineage),
            None if listed.is_some() => self.resolve(begin_ms, None, lineage),
            None => {}
        }
    }

    fn take(&mut self, statement: &Statement, lineage: &LoggedLineage<'_>) {
        let (at_ms, held) = (statement.at.time_ms, statement.held);
        let is_held =
            matches!(&self.state, HolderState::Held(it) if self.out.tenancies[*it].held == held);
        match (&self.state, statement.kind) {
            (HolderState::Free, StatementKind::Allocated) => {}
            (HolderState::Held(tenancy), StatementKind::Allocated) if !is_held => {
                // The record of its release is missing: it was over by then.
                let tenancy = *tenancy;
                self.out.doubts.push(LogDoubt {
                    from_ms: Some(self.confirmed_ms),
                    until_ms: Some(at_ms),
                    reason: Reason::Contradiction,
                    owner: Some(lineage.name()),
                    is_outside: false,
                    is_brief: false,
                });
                self.end(tenancy, at_ms, TenancyEnd::GivenToAnother);
                self.state = HolderState::Free;
            }
            _ if is_held => {}
            _ => {
                // The block was thought to be free, or another home's: a statement is missing
                // without a gap in the numbers.
                let owner = Some(lineage.name());
                self.doubt(self.confirmed_ms, Reason::Contradiction, Trust::Proof, owner);
                self.resolve(at_ms, FoundHome::by(statement), lineage);
            }
        }
        match (&self.state, statement.kind) {
            (HolderState::Free, StatementKind::Allocated) => {
                self.begin(statement, at_ms, Begin::Allocated)
            }
            (HolderState::Held(tenancy), StatementKind::Released) => {
                let tenancy = *tenancy;
                self.joined(tenancy, lineage);
                self.end(tenancy, at_ms, TenancyEnd::Released);
                self.state = HolderState::Free;
            }
            _ => {}
        }
        if let HolderState::Held(tenancy) = self.state {
            self.joined(tenancy, lineage);
        }
        self.confirmed_ms = at_ms;
    }

    /// Begins a doubt: from `at_ms` on, records may be missing.
    fn doubt(&mut self, at_ms: u64, reason: Reason, trust: Trust, owner: Option<(LifeId, u64)>) {
        let part = LogDoubt {
            from_ms: Some(at_ms),
            until_ms: None,
            reason,
            owner,
            is_outside: false,
            is_brief: false,
        };
        let first = self.out.doubts.len();
        let held = match std::mem::replace(&mut self.state, HolderState::Free) {
            HolderState::Free => None,
            HolderState::Held(tenancy) => {
                self.end(tenancy, at_ms, TenancyEnd::Unknown);
                Some(tenancy)
            }
            HolderState::Unknown(open) => {
                self.close_part(open.part.clone(), at_ms);
                self.state = HolderState::Unknown(Open { trust: Trust::Proof, part, ..open });
                return;
            }
        };
        self.state = HolderState::Unknown(Open { first, since_ms: Some(at_ms), held, trust, part });
    }

    /// Ends a doubt: the block is free, or held, at `at_ms`.
    fn resolve(&mut self, at_ms: u64, found: Option<FoundHome>, lineage: &LoggedLineage<'_>) {
        let open = match std::mem::replace(&mut self.state, HolderState::Free) {
            HolderState::Unknown(open) => open,
            known => return self.state = known,
        };
        let is_brief = open.trust == Trust::Short && open.is_short(at_ms);
        self.close_part(LogDoubt { is_brief, ..open.part.clone() }, at_ms);
        self.confirmed_ms = at_ms;
        let Some(found) = found else {
            if let Some(tenancy) = open.held.filter(|_| open.trust == Trust::Clean) {
                self.out.doubts.truncate(open.first);
                self.end(tenancy, at_ms, TenancyEnd::NotListed);
            } else {
                self.may_last(open.held, at_ms);
            }
            return;
        };
        let is_same = |tenancy: &usize| self.out.tenancies[*tenancy].held == found.statement.held;
        let begin_ms = match found.since_ms {
            Some(since_ms) => since_ms.min(at_ms).max(open.since_ms.unwrap_or(0)),
            None => at_ms,
        };
        match open.held.filter(is_same).filter(|_| self.is_throughout(&open, &found, at_ms)) {
            Some(tenancy) => {
                self.out.doubts.truncate(open.first);
                let tenancy_of = &mut self.out.tenancies[tenancy];
                (tenancy_of.end_ms, tenancy_of.end) = (None, TenancyEnd::Open);
                self.state = HolderState::Held(tenancy);
            }
            None => {
                let is_later = |doubt: &LogDoubt| doubt.from_ms.is_some_and(|from| from > begin_ms);
                while self.out.doubts.len() > open.first + 1
                    && self.out.doubts.last().is_some_and(is_later)
                {
                    self.out.doubts.pop();
                }
                if let Some(last) = self.out.doubts.last_mut() {
                    last.until_ms = Some(begin_ms);
                }
                self.may_last(open.held, begin_ms);
                let is_dated = found.since_ms.is_some();
                let begin = if is_dated { Begin::Listed } else { Begin::Unknown };
                self.begin(&found.statement, begin_ms, begin);
            }
        }
        if let HolderState::Held(tenancy) = self.state {
            self.joined(tenancy, lineage);
        }
    }

    fn is_throughout(&self, open: &Open, found: &FoundHome, at_ms: u64) -> bool {
        let Some(doubted_ms) = open.since_ms else { return false };
        match (open.trust, found.since_ms) {
            (Trust::Clean, _) => true,
            (_, Some(since_ms)) => since_ms.saturating_add(self.clock_error_ms) <= doubted_ms,
            (Trust::Short, None) => found.is_listed && open.is_short(at_ms),
            (Trust::Proof, None) => false,
        }
    }

    fn close_part(&mut self, part: LogDoubt, at_ms: u64) {
        self.out.doubts.push(LogDoubt { until_ms: Some(at_ms), ..part });
    }

    fn begin(&mut self, statement: &Statement, begin_ms: u64, begin: Begin) {
        self.state = HolderState::Held(self.out.tenancies.len());
        self.out.tenancies.push(Tenancy {
            shard: statement.shard,
            held: statement.held,
            lives: Vec::new(),
            begin_ms,
            begin,
            end_ms: None,
            end: TenancyEnd::Open,
            may_last_ms: None,
        });
    }

    fn joined(&mut self, tenancy: usize, lineage: &LoggedLineage<'_>) {
        let lives = &mut self.out.tenancies[tenancy].lives;
        if lives.last() != Some(&lineage.owner.life) {
            lives.push(lineage.owner.life);
        }
    }

    fn end(&mut self, tenancy: usize, at_ms: u64, end: TenancyEnd) {
        let tenancy = &mut self.out.tenancies[tenancy];
        (tenancy.end_ms, tenancy.end) = (Some(at_ms), end);
    }

    /// Ends the timeline at the end of the logs.
    fn finish(mut self, last: Option<&LoggedLineage<'_>>) -> Timeline {
        let mut reason = Reason::EndOfLog;
        let (mut from_ms, mut is_outside) = (None, false);
        if let Some(last) = last {
            let tail = last.tail();
            from_ms = Some(tail.ms);
            match last.kind {
                LineageKind::Member if last.has_left() => reason = Reason::NextOwnerMissing,
                LineageKind::Own if tail.is_closed => {
                    self.end_all(tail.ms, TenancyEnd::NodeStopped);
                    is_outside = true;
                }
                LineageKind::Elsewhere => is_outside = true,
                _ if last.goes_on() => reason = Reason::RecordsMissing,
                _ => {}
            }
        }
        let owner = last.map(LoggedLineage::name);
        match (&self.state, from_ms) {
            (HolderState::Unknown(open), Some(from_ms)) => {
                let (part, held) = (open.part.clone(), open.held);
                self.close_part(part, from_ms);
                self.may_last(held, u64::MAX);
            }
            (HolderState::Unknown(open), None) => self.out.doubts.push(open.part.clone()),
            _ => {}
        }
        if from_ms.is_some() {
            self.out.doubts.push(LogDoubt {
                from_ms,
                until_ms: None,
                reason,
                owner,
                is_outside,
                is_brief: false,
            });
        }
        self.out.end_ms = from_ms;
        self.out
    }
}

/// Returns the elements of a run from a slice that is sorted by their numbers.
fn within<'a, T>(things: &'a [T], run: &Run, at: impl Fn(&T) -> Point) -> &'a [T] {
    let from = things.partition_point(|thing| at(thing).number < run.first.number);
    let to = things.partition_point(|thing| at(thing).number <= run.last.number);
    &things[from..to]
}
