//! Combines the timelines of all lanes and systems into an answer.

use std::collections::BTreeSet;

use crate::answer::{Begin, BlockHolder, LogAnswer, LogVerdict, Missing, Reason};
use crate::event::AssignedBlock;
use crate::history::{History, LaneId, LifeId, LoggedIncarnation};
use crate::line::system_time;
use crate::lineage::{LineageKind, LoggedLineage};
use crate::mentions::{BlockPorts, Mentioned, Mentions, System, ports};
use crate::search::{About, LogQuestion};
use crate::timeline::{LogDoubt, Tenancy, Timeline, play};

pub(crate) struct Court<'a> {
    pub(crate) question: &'a LogQuestion,
    pub(crate) mentions: &'a Mentions,
    pub(crate) history: &'a History,
}

/// What one lane shows about a block.
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
            let tenancies = tenancies.filter(|it| interval.has(it) && self.is_asked(&it.block));
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
        let is_one = homes.len() == 1 || !matches!(self.question.about, About::Port(..));
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

    /// Returns the timelines of the blocks asked for, in every lane of the system in which they may
    /// lie.
    fn testimonies(&self, system: &System, named: &Mentioned) -> Vec<Testimony> {
        let mut all = Vec::new();
        let mut add = |lanes: BTreeSet<LaneId>, is_subject: &dyn Fn(&AssignedBlock) -> bool| {
            for lane in lanes {
                let lineages = self.lineages(system, lane);
                let timeline = play(&lineages, self.question.clock_error_ms(), is_subject);
                all.push(Testimony { lane, timeline });
            }
        };
        let about = self.question.about;
        if let About::Port(..) = about {
            add(named.lanes(named.blocks.keys()), &|block| about.is_named_by(block));
        } else {
            for block in named.blocks.keys() {
                let is_it = |other: &AssignedBlock| ports(other) == *block;
                add(named.lanes(std::iter::once(block)), &is_it);
            }
            // Blocks that no record names.
            add(named.lanes(std::iter::empty::<&BlockPorts>()), &|_| false);
        }
        all
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

    fn is_asked(&self, block: &AssignedBlock) -> bool {
        match self.question.about {
            About::Home(..) => self.question.about.is_named_by(block),
            About::Port(..) | About::Address(_) => true,
        }
    }

    fn holder(&self, tenancy: &Tenancy) -> BlockHolder {
        let block = tenancy.block;
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
            subscriber: block.subscriber,
            gre_key: block.gre_key,
            public: block.public,
            ports: (block.port_first, block.port_last),
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
