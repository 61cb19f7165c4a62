//! Combines the timelines of all lanes and systems into an answer.

use std::collections::BTreeSet;

use crate::answer::{Begin, BlockHolder, LogAnswer, LogVerdict, Missing, Reason};
use crate::history::{History, LaneId, LifeId, LoggedIncarnation};
use crate::holding::{Holding, HomeHolding};
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

/// What one lane shows about a block, or about a home's claim of a prefix.
struct Testimony {
    lane: LaneId,
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
        let systems: Vec<Vec<Testimony>> = self
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
        answer.holders = holders.into_iter().collect();
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
        let mut all = Vec::new();
        if let About::Port(..) = about {
            let is_it = |held: &HomeHolding| about.is_named_by(held);
            self.add(&mut all, system, named.lanes(named.holdings.keys()), &is_it);
            return all;
        }
        for (holding, naming) in &named.holdings {
            let lanes = named.lanes(std::iter::once(holding));
            if let Holding::Prefix(_) = holding {
                // Two homes may hold it at a time.
                for home in &naming.homes {
                    let is_it = |held: &HomeHolding| (held.home, held.holding) == (*home, *holding);
                    self.add(&mut all, system, lanes.clone(), &is_it);
                }
            } else {
                self.add(&mut all, system, lanes, &|held| held.holding == *holding);
            }
        }
        // Blocks that no record names, and homes that no record names with the prefix.
        let lanes = named.lanes(std::iter::empty());
        self.add(&mut all, system, lanes, &|_| false);
        if let About::Ipv6(_) = about {
            leave_out_brief_doubts(&mut all);
        }
        all
    }

    fn add(
        &self,
        all: &mut Vec<Testimony>,
        system: &System,
        lanes: BTreeSet<LaneId>,
        is_subject: &dyn Fn(&HomeHolding) -> bool,
    ) {
        for lane in lanes {
            let lineages = self.lineages(system, lane);
            let timeline = play(&lineages, self.question.clock_error_ms(), is_subject);
            all.push(Testimony { lane, timeline });
        }
    }

    /// Returns the owners of a lane, one after the other.
    fn lineages(&self, system: &System, lane: LaneId) -> Vec<LoggedLineage<'_>> {
        let owners = self.history.lanes.get(&lane);
        let node = match system {
            System::Shard(_) => {
                let owners = owners.into_iter().flat_map(|owners| owners.values());
                let lineages = owners.filter(|owner| owner.epoch > 0).map(|owner| LoggedLineage {
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

/// Leaves out the doubts about a home of a prefix that are too short for it if another home held
/// the prefix throughout, and this one neither before nor after.
fn leave_out_brief_doubts(all: &mut [Testimony]) {
    let held: Vec<_> = all.iter().map(|it| (it.lane, it.timeline.tenancies.clone())).collect();
    for (Testimony { lane, timeline }, (_, own)) in all.iter_mut().zip(&held) {
        timeline.doubts.retain(|doubt| {
            let (true, Some(from_ms), Some(until_ms)) =
                (doubt.is_brief, doubt.from_ms, doubt.until_ms)
            else {
                return true;
            };
            let others = held.iter().filter(|(held_in, _)| held_in == lane);
            let is_throughout = others.flat_map(|(_, tenancies)| tenancies).any(|it| {
                it.begin_ms <= from_ms && it.end_ms.is_none_or(|end_ms| until_ms <= end_ms)
            });
            let is_near = own.iter().any(|it| {
                let end_ms = it.may_last_ms.or(it.end_ms);
                it.begin_ms <= until_ms && end_ms.is_none_or(|end_ms| from_ms <= end_ms)
            });
            !is_throughout || is_near
        });
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
