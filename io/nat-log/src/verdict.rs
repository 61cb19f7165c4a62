//! Combines the timelines of all lanes and systems into an answer.

use std::collections::BTreeSet;

use crate::answer::{Begin, BlockHolder, LogAnswer, LogVerdict, Missing, Reason};
use crate::history::{History, LaneId, LifeId, LoggedIncarnation};
use crate::holding::HomeHolding;
use crate::line::system_time;
use crate::lineage::{LineageKind, LoggedLineage};
use crate::mentions::{Mentioned, Mentions, System};
use crate::search::{About, LogQuestion};
use crate::tenancy::{LogDoubt, Tenancy};
use crate::timeline::{Timeline, play};

pub(crate) struct Court<'a> {
    pub(crate) question: &'a LogQuestion,
    pub(crate) mentions: &'a Mentions,
    pub(crate) history: &'a History,
}

/// What one lane shows about a block, or about a home's claim.
struct Testimony {
    lane: LaneId,
    /// The claim that it is about; `None`: blocks, or what no record names.
    claim: Option<HomeHolding>,
    timeline: Timeline,
}

/// The interval asked about.
#[derive(Clone, Copy)]
struct Interval {
    from_ms: u64,
    until_ms: u64,
    /// True if it is the last moment that the logs cover: what is unknown after it does not matter.
    is_end: bool,
}

impl LogAnswer {
    /// Whether other logs could add neither to the holders nor to the start of a tenancy.
    pub(crate) fn is_complete(&self) -> bool {
        let is_dated = |holder: &BlockHolder| holder.begin != Begin::Unknown;
        self.verdict != LogVerdict::CannotSay && self.holders.iter().all(is_dated)
    }
}

impl Court<'_> {
    pub(crate) fn answer(&self) -> LogAnswer {
        let mut systems: Vec<Vec<Testimony>> = self
            .mentions
            .systems()
            .map(|(system, named)| self.testimonies(system, named))
            .collect();
        let mut answer = LogAnswer {
            verdict: LogVerdict::CannotSay,
            asked: None,
            holders: Vec::new(),
            missing: Vec::new(),
            records_lost: self.history.records_lost,
            lines_unreadable: 0,
            files_skipped: 0,
        };
        let Some(interval) = self.interval(&systems) else {
            answer.missing = vec![Missing::not_named()];
            return answer;
        };
        answer.asked = Some((system_time(interval.from_ms), system_time(interval.until_ms)));
        if systems.is_empty() {
            answer.missing = vec![Missing::not_named()];
            return answer;
        }
        systems.iter_mut().for_each(|system| leave_out_doubts_of_holders(system, interval));
        let (mut holders, mut missing) = (BTreeSet::new(), BTreeSet::new());
        let is_holding = |system: &Vec<Testimony>| {
            system.iter().all(|it| !it.is_in_doubt(interval))
                && system.iter().any(|it| it.timeline.tenancies.iter().any(|it| interval.has(it)))
        };
        let has_holder = systems.iter().any(is_holding);
        for testimony in systems.iter().flatten() {
            let tenancies = testimony.timeline.tenancies.iter();
            let tenancies = tenancies.filter(|it| interval.has(it) && self.is_asked(&it.held));
            holders.extend(tenancies.map(|it| self.holder(it)));
            // If a home of one system has the block, another system whose records had not begun, or
            // had ended, did not have the address.
            let doubts = testimony.timeline.doubts.iter();
            let doubts = doubts.filter(|it| interval.meets(it) && !(has_holder && it.is_outside));
            missing.extend(doubts.map(|it| self.missing(it, testimony.lane)));
        }
        answer.holders = joined(holders);
        answer.missing = missing.into_iter().collect();
        answer.verdict = self.verdict(&answer);
        answer
    }

    fn verdict(&self, answer: &LogAnswer) -> LogVerdict {
        let homes: BTreeSet<_> =
            answer.holders.iter().map(|holder| (holder.subscriber, holder.gre_key)).collect();
        let is_of_one = matches!(self.question.about, About::Port(..) | About::Ipv6(_));
        let is_one = homes.len() == 1 || !is_of_one;
        match (answer.missing.is_empty(), homes.is_empty()) {
            (true, true) => LogVerdict::Nobody,
            (true, false) if is_one => LogVerdict::Held,
            _ => LogVerdict::CannotSay,
        }
    }

    /// Returns the interval asked about, or the last moment for which a system knows all of its
    /// lanes.
    fn interval(&self, systems: &[Vec<Testimony>]) -> Option<Interval> {
        if let Some((from_ms, until_ms)) = self.question.interval_ms() {
            return Some(Interval { from_ms, until_ms, is_end: false });
        }
        let end = |system: &Vec<Testimony>| system.iter().filter_map(|it| it.timeline.end_ms).min();
        let end_ms = systems.iter().filter_map(end).max()?;
        Some(Interval { from_ms: end_ms, until_ms: end_ms, is_end: true })
    }

    /// Returns the timelines of the blocks and prefixes asked for, in every lane of the system in
    /// which they may lie.
    fn testimonies(&self, system: &System, named: &Mentioned) -> Vec<Testimony> {
        let about = self.question.about;
        let is_of_port = matches!(about, About::Port(..));
        let (mut all, mut of_claims) = (Vec::new(), Vec::new());
        let blocks = || named.holdings.keys().filter(|holding| !holding.is_claim());
        if is_of_port {
            let is_it = |held: &HomeHolding| about.is_named_by(held) && !held.holding.is_claim();
            if !named.may_be_claimed() || blocks().next().is_some() {
                let lanes = named.lanes_of_blocks(system, blocks());
                self.add(&mut all, system, lanes, &Subject::Blocks(&is_it));
            }
        } else {
            for block in blocks() {
                let lanes = named.lanes_of_blocks(system, std::iter::once(block));
                let is_it = |held: &HomeHolding| held.holding == *block;
                self.add(&mut all, system, lanes, &Subject::Blocks(&is_it));
            }
        }
        for (&holding, naming) in named.holdings.iter().filter(|(it, _)| it.is_claim()) {
            for &home in &naming.homes {
                let claim = Subject::Claim(HomeHolding { home, holding });
                self.add(&mut of_claims, system, named.all_lanes(system), &claim);
            }
        }
        // Blocks that no record names, and homes that no record names with what they claimed.
        if named.may_be_claimed() {
            self.add(&mut of_claims, system, named.all_lanes(system), &Subject::UnnamedClaims);
        } else if !is_of_port {
            self.add(&mut all, system, named.all_lanes(system), &Subject::Blocks(&|_| false));
        }
        if is_of_port || matches!(about, About::Ipv6(_)) {
            leave_out_brief_doubts(&mut of_claims);
        }
        all.append(&mut of_claims);
        all
    }

    fn add(
        &self,
        all: &mut Vec<Testimony>,
        system: &System,
        lanes: impl IntoIterator<Item = LaneId>,
        subject: &Subject<'_>,
    ) {
        for lane in lanes {
            let is_of_claims = !matches!(subject, Subject::Blocks(_));
            let lineages = self.lineages(system, lane, is_of_claims);
            let timeline =
                play(&lineages, self.question.clock_error_ms(), |held| subject.is_it(held));
            let claim = match subject {
                Subject::Claim(claim) => Some(*claim),
                Subject::Blocks(_) | Subject::UnnamedClaims => None,
            };
            all.push(Testimony { lane, claim, timeline });
        }
    }

    /// Returns the owners of a lane, one after the other. For claims without the members that did
    /// not record them by lane, as if their logs were missing.
    fn lineages(
        &self,
        system: &System,
        lane: LaneId,
        is_of_claims: bool,
    ) -> Vec<LoggedLineage<'_>> {
        let owners = self.history.lanes.get(&lane);
        let node = match system {
            System::Shard(_) => {
                let owners = owners.into_iter().flat_map(|owners| owners.values());
                let owners =
                    owners.filter(|owner| owner.epoch > 0 && (owner.has_claims || !is_of_claims));
                let lineages = owners.map(|owner| LoggedLineage {
                    owner,
                    life: self.life(owner.life),
                    kind: LineageKind::Member,
                });
                let mut lineages: Vec<LoggedLineage<'_>> = lineages.collect();
                // Incarnations of one node that share an epoch are in the order of its clock.
                lineages.sort_by_key(|lineage| (lineage.owner.epoch, lineage.life.first_ms));
                return lineages;
            }
            System::Node(node) => node,
        };
        let lives = self.history.lives.iter().enumerate().filter(|(_, life)| life.node == *node);
        let mut lineages: Vec<LoggedLineage<'_>> = lives
            .map(|(id, life)| {
                let of_lane = owners.and_then(|owners| owners.get(&(0, id)));
                let is_elsewhere = life.is_of_its_own() == Some(false);
                let kind = if is_elsewhere { LineageKind::Elsewhere } else { LineageKind::Own };
                LoggedLineage { owner: of_lane.unwrap_or(&life.old), life, kind }
            })
            .collect();
        lineages.sort_by_key(|lineage| lineage.life.first_ms);
        lineages
    }

    fn life(&self, life: LifeId) -> &LoggedIncarnation {
        &self.history.lives[life]
    }

    fn is_asked(&self, held: &HomeHolding) -> bool {
        match self.question.about {
            About::Home(..) => self.question.about.is_named_by(held),
            About::Port(..) | About::Address(_) | About::Ipv6(_) => true,
        }
    }

    fn holder(&self, tenancy: &Tenancy) -> BlockHolder {
        let HomeHolding { home: (subscriber, gre_key), holding } = tenancy.held;
        let mut nodes: Vec<String> =
            tenancy.lives.iter().map(|life| self.life(*life).node.clone()).collect();
        nodes.dedup();
        BlockHolder {
            from: Some(system_time(tenancy.begin_ms)),
            begin: tenancy.begin,
            // Differing clocks may have put the end before the beginning.
            until: tenancy.end_ms.map(|end_ms| system_time(end_ms.max(tenancy.begin_ms))),
            end: tenancy.end,
            nodes,
            shard: tenancy.shard,
            subscriber,
            gre_key,
            holding,
        }
    }

    fn missing(&self, doubt: &LogDoubt, (shard, lane): LaneId) -> Missing {
        let (mut from_ms, mut until_ms) = (doubt.from_ms, doubt.until_ms);
        // Differing clocks may have put the end before the beginning.
        if until_ms.is_some_and(|until_ms| from_ms.is_some_and(|from_ms| until_ms < from_ms)) {
            std::mem::swap(&mut from_ms, &mut until_ms);
        }
        Missing {
            from: from_ms.map(system_time),
            until: until_ms.map(system_time),
            shard: Some(shard),
            lane: Some(lane),
            reason: doubt.reason,
            node: doubt.owner.map(|(life, _)| self.life(life).node.clone()),
            epoch: doubt.owner.map(|(_, epoch)| epoch).filter(|epoch| *epoch > 0),
        }
    }
}

/// Leaves out the doubts about a home's claim that are too short for it if, at the same worker,
/// another home held the same throughout, and this one neither before nor after.
fn leave_out_brief_doubts(all: &mut [Testimony]) {
    let held: Vec<Tenancy> = all.iter().flat_map(|it| it.timeline.tenancies.clone()).collect();
    for Testimony { claim, timeline, .. } in all {
        timeline.doubts.retain(|doubt| {
            let (true, Some(from_ms), Some(until_ms), Some((life, _))) =
                (doubt.is_brief, doubt.from_ms, doubt.until_ms, doubt.owner)
            else {
                return true;
            };
            let is_throughout = held.iter().any(|it| {
                it.lives.contains(&life)
                    && it.begin_ms <= from_ms
                    && it.end_ms.is_none_or(|end_ms| until_ms <= end_ms)
            });
            let is_near = held.iter().filter(|it| Some(it.held) == *claim).any(|it| {
                let end_ms = it.may_last_ms.or(it.end_ms);
                it.begin_ms <= until_ms && end_ms.is_none_or(|end_ms| from_ms <= end_ms)
            });
            !is_throughout || is_near
        });
    }
}

/// Leaves out the doubts whether a home had a claim in one lane if it had the same in another lane
/// all the time asked about.
fn leave_out_doubts_of_holders(all: &mut [Testimony], interval: Interval) {
    let is_throughout = |it: &&Testimony| {
        !it.is_in_doubt(interval)
            && it.timeline.tenancies.iter().any(|tenancy| interval.is_within(tenancy))
    };
    let held: Vec<HomeHolding> =
        all.iter().filter(is_throughout).filter_map(|it| it.claim).collect();
    for it in all {
        if it.claim.is_some_and(|claim| held.contains(&claim)) {
            it.timeline.doubts.clear();
        }
    }
}

/// Joins the tenancies of one claim that overlap: those of several lanes.
fn joined(holders: BTreeSet<BlockHolder>) -> Vec<BlockHolder> {
    let mut all: Vec<BlockHolder> = Vec::new();
    for holder in holders {
        let is_same = |it: &&mut BlockHolder| {
            let claim = |it: &BlockHolder| (it.shard, it.subscriber, it.gre_key, it.holding);
            claim(it) == claim(&holder)
                && holder.holding.is_claim()
                && it.until.is_none_or(|until| Some(until) >= holder.from)
        };
        let Some(before) = all.iter_mut().find(is_same) else {
            all.push(holder);
            continue;
        };
        if before.until.is_some_and(|until| holder.until.is_none_or(|later| until < later)) {
            (before.until, before.end) = (holder.until, holder.end);
        }
        for node in holder.nodes {
            if !before.nodes.contains(&node) {
                before.nodes.push(node);
            }
        }
    }
    all
}

/// What a testimony is about.
enum Subject<'a> {
    /// The blocks for which this holds.
    Blocks(&'a dyn Fn(&HomeHolding) -> bool),
    Claim(HomeHolding),
    /// Claims that no record names.
    UnnamedClaims,
}

impl Subject<'_> {
    fn is_it(&self, held: &HomeHolding) -> bool {
        match self {
            Self::Blocks(is_it) => is_it(held),
            Self::Claim(claim) => claim == held,
            Self::UnnamedClaims => false,
        }
    }
}

impl Testimony {
    fn is_in_doubt(&self, interval: Interval) -> bool {
        self.timeline.doubts.iter().any(|doubt| interval.meets(doubt))
    }
}

impl Missing {
    fn not_named() -> Self {
        Self {
            from: None,
            until: None,
            shard: None,
            lane: None,
            reason: Reason::NotNamed,
            node: None,
            epoch: None,
        }
    }
}

impl Interval {
    fn has(self, tenancy: &Tenancy) -> bool {
        match tenancy.may_last_ms.or(tenancy.end_ms) {
            Some(end_ms) if self.is_end => {
                tenancy.begin_ms <= self.from_ms && self.from_ms < end_ms
            }
            Some(end_ms) => self.overlaps(tenancy.begin_ms, end_ms),
            None => tenancy.begin_ms <= self.until_ms,
        }
    }

    /// Whether the tenancy lasts from its beginning to its end.
    fn is_within(self, tenancy: &Tenancy) -> bool {
        let is_after = tenancy.end_ms.is_none_or(|end_ms| self.until_ms <= end_ms);
        tenancy.begin_ms <= self.from_ms && is_after
    }

    fn meets(self, doubt: &LogDoubt) -> bool {
        match (doubt.from_ms, doubt.until_ms) {
            (Some(from_ms), None) if self.is_end => from_ms < self.from_ms,
            // A log is complete up to its last mark.
            (from_ms, None) => from_ms.is_none_or(|from_ms| from_ms < self.until_ms),
            (from_ms, Some(until_ms)) => self.overlaps(from_ms.unwrap_or(0), until_ms),
        }
    }

    /// A clock that was set back may have put the end before the beginning: the time between counts
    /// in both cases.
    fn overlaps(self, begin_ms: u64, end_ms: u64) -> bool {
        begin_ms.min(end_ms) <= self.until_ms && self.from_ms <= begin_ms.max(end_ms)
    }
}
