//! The blocks and prefixes that a question is about, and the lanes they lie in.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::BlockRecordKind;
use crate::history::LaneId;
use crate::holding::{Holding, HomeHolding, HomeKey};
use crate::line::{BlockLogLine, Content, LANES, PORTLESS_LANE};
use crate::search::About;

/// The system that assigns the ports of an address: a shard of a cluster, or a standalone node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    Shard(u32),
    Node(String),
}

#[derive(Debug)]
pub(crate) struct Mentions {
    about: About,
    systems: BTreeMap<System, Mentioned>,
}

/// What the records of a system name of the address, or of the home.
#[derive(Debug, Default)]
pub(crate) struct Mentioned {
    /// The blocks and prefixes asked for.
    pub(crate) holdings: BTreeMap<Holding, Naming>,
    pub(crate) shards: BTreeSet<u32>,
    /// Numbers of ports per block in all its records.
    sizes: BTreeSet<u32>,
    /// True if the question is about a prefix.
    is_of_prefix: bool,
}

/// Number of ports of an address without translation.
const ALL_PORTS: u32 = 1 << 16;

/// How records name a block or a prefix.
#[derive(Debug, Default)]
pub(crate) struct Naming {
    lanes: BTreeSet<LaneId>,
    /// The homes asked for that are named with it.
    pub(crate) homes: BTreeSet<HomeKey>,
}

impl Mentions {
    pub(crate) fn new(about: About) -> Self {
        Self { about, systems: BTreeMap::new() }
    }

    /// Takes a line that names the address, prefix or home.
    pub(crate) fn note(&mut self, line: &BlockLogLine) {
        let Some((held, shard)) = held_in(line) else { return };
        let is_named = match (self.about, held.holding) {
            (About::Port(address, _), Holding::Ports { public, .. }) => public == address,
            (about, _) => about.is_named_by(&held),
        };
        if !is_named {
            return;
        }
        let (system, lane) = match &line.content {
            Content::Lane(event) if event.epoch > 0 => (System::Shard(shard), Some(event.lane)),
            Content::Lane(event) => (System::Node(line.node.clone()), Some(event.lane)),
            _ => (System::Node(line.node.clone()), None),
        };
        let named = self.systems.entry(system).or_default();
        named.is_of_prefix = matches!(self.about, About::Ipv6(_));
        named.shards.insert(shard);
        if let Holding::Ports { first, last, .. } = held.holding {
            named.sizes.insert(u32::from(last - first) + 1);
        }
        if self.about.is_named_by(&held) {
            let naming = named.holdings.entry(held.holding).or_default();
            naming.lanes.extend(lane.map(|lane| (shard, lane)));
            naming.homes.insert(held.home);
        }
    }

    pub(crate) fn systems(&self) -> impl Iterator<Item = (&System, &Mentioned)> {
        self.systems.iter()
    }

    /// Returns every lane that a block asked for may lie in.
    pub(crate) fn lanes(&self) -> BTreeSet<LaneId> {
        self.systems.iter().flat_map(|(system, named)| named.all_lanes(system)).collect()
    }

    /// Returns the addresses and prefixes of what was asked for, as lines have them.
    pub(crate) fn subjects(&self) -> BTreeSet<Vec<u8>> {
        let holdings = self.systems.values().flat_map(|named| named.holdings.keys());
        holdings.map(|holding| holding.subject().into_bytes()).collect()
    }

    /// Whether the line is about a block or prefix that was asked for. For a question about a home:
    /// also if another home holds it.
    pub(crate) fn is_subject(&self, line: &BlockLogLine) -> bool {
        let Some((held, _)) = held_in(line) else { return false };
        match self.about {
            About::Home(..) => {
                self.systems.values().any(|named| named.holdings.contains_key(&held.holding))
            }
            about => about.is_named_by(&held),
        }
    }
}

impl Mentioned {
    /// Returns the lanes in which one of these blocks may lie: a block lies in one lane, unless the
    /// block size was changed.
    pub(crate) fn lanes_of_blocks<'a>(
        &'a self,
        system: &System,
        blocks: impl Iterator<Item = &'a Holding>,
    ) -> BTreeSet<LaneId> {
        let namings = blocks.filter_map(|block| self.holdings.get(block));
        let lanes: BTreeSet<LaneId> = namings.flat_map(|naming| &naming.lanes).copied().collect();
        let is_settled = self.sizes.len() <= 1;
        if lanes.is_empty() || !is_settled { self.all_lanes(system).collect() } else { lanes }
    }

    /// Returns all lanes of its shards in which there may be records of what was asked for. A
    /// standalone node has all claims in one lane.
    pub(crate) fn all_lanes(&self, system: &System) -> impl Iterator<Item = LaneId> {
        let is_whole = self.sizes.len() == 1 && self.sizes.contains(&ALL_PORTS);
        let is_of_claims = is_whole || self.is_of_prefix;
        let lanes = match system {
            System::Node(_) if is_of_claims => PORTLESS_LANE..PORTLESS_LANE + 1,
            System::Node(_) | System::Shard(_) => 0..LANES,
        };
        self.shards.iter().flat_map(move |&shard| lanes.clone().map(move |lane| (shard, lane)))
    }

    /// Whether what was asked for may be something that homes claim.
    pub(crate) fn may_be_claimed(&self) -> bool {
        self.is_of_prefix
            || self.sizes.contains(&ALL_PORTS)
            || self.holdings.keys().any(|holding| holding.is_claim())
    }
}

fn held_in(line: &BlockLogLine) -> Option<(HomeHolding, u32)> {
    match &line.content {
        Content::Old { shard, block, .. } => Some((block.into(), *shard)),
        Content::Lane(event) => {
            let held = match &event.kind {
                BlockRecordKind::Allocated(block)
                | BlockRecordKind::Released(block)
                | BlockRecordKind::Held { block, .. } => block.into(),
                BlockRecordKind::PrefixClaimed(claim)
                | BlockRecordKind::PrefixReleased(claim)
                | BlockRecordKind::PrefixHeld(claim) => claim.into(),
                BlockRecordKind::Taken { .. }
                | BlockRecordKind::Left
                | BlockRecordKind::Listed { .. } => return None,
            };
            Some((held, event.shard))
        }
        Content::Opened { .. } | Content::Closed | Content::Mark | Content::Lost(_) => None,
    }
}
