//! The blocks that a question is about, and the lanes they lie in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::event::{AssignedBlock, BlockRecordKind};
use crate::history::LaneId;
use crate::line::{ADDRESS_LANE, BlockLogLine, Content, LANES};
use crate::search::About;

/// The system that assigns the ports of an address: a shard of a cluster, or a standalone node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    Shard(u32),
    Node(String),
}

/// The address and ports of a block, whichever home holds it.
pub(crate) type BlockPorts = (Ipv4Addr, u16, u16);

#[derive(Debug)]
pub(crate) struct Mentions {
    about: About,
    systems: BTreeMap<System, Mentioned>,
}

/// What the records of a system name of the address, or of the home.
#[derive(Debug, Default)]
pub(crate) struct Mentioned {
    /// The blocks asked for, each with the lanes in which records name it.
    pub(crate) blocks: BTreeMap<BlockPorts, BTreeSet<LaneId>>,
    pub(crate) shards: BTreeSet<u32>,
    /// Numbers of ports per block in all its records.
    sizes: BTreeSet<u32>,
}

impl Mentions {
    pub(crate) fn new(about: About) -> Self {
        Self { about, systems: BTreeMap::new() }
    }

    /// Takes a line that names the address.
    pub(crate) fn note(&mut self, line: &BlockLogLine) {
        let Some((block, shard)) = block_of(line) else { return };
        let is_named = match self.about {
            About::Port(public, _) => block.public == public,
            about => about.is_named_by(block),
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
        named.shards.insert(shard);
        named.sizes.insert(u32::from(block.port_last - block.port_first) + 1);
        if self.about.is_named_by(block) {
            let lanes = named.blocks.entry(ports(block)).or_default();
            lanes.extend(lane.map(|lane| (shard, lane)));
        }
    }

    pub(crate) fn systems(&self) -> impl Iterator<Item = (&System, &Mentioned)> {
        self.systems.iter()
    }

    /// Returns every lane that a block asked for may lie in.
    pub(crate) fn lanes(&self) -> BTreeSet<LaneId> {
        self.systems.values().flat_map(Mentioned::all_lanes).collect()
    }

    pub(crate) fn publics(&self) -> BTreeSet<Ipv4Addr> {
        self.systems.values().flat_map(|named| named.blocks.keys()).map(|block| block.0).collect()
    }

    /// Whether the line is about a block that was asked for. For a question about a home: also if
    /// another home holds the block.
    pub(crate) fn is_subject(&self, line: &BlockLogLine) -> bool {
        let Some((block, _)) = block_of(line) else { return false };
        match self.about {
            About::Home(..) => {
                self.systems.values().any(|named| named.blocks.contains_key(&ports(block)))
            }
            about => about.is_named_by(block),
        }
    }
}

impl Mentioned {
    /// Returns the lanes in which one of these blocks may lie: a block lies in one lane, unless the
    /// block size was changed.
    pub(crate) fn lanes<'a>(
        &'a self,
        blocks: impl Iterator<Item = &'a BlockPorts>,
    ) -> BTreeSet<LaneId> {
        let lanes: BTreeSet<LaneId> =
            blocks.filter_map(|block| self.blocks.get(block)).flatten().copied().collect();
        let is_settled = self.sizes.len() == 1;
        if lanes.is_empty() || !is_settled { self.all_lanes().collect() } else { lanes }
    }

    /// Returns all lanes of its shards; without translation one lane is for all addresses.
    fn all_lanes(&self) -> impl Iterator<Item = LaneId> {
        let is_whole = self.sizes.len() == 1 && self.sizes.contains(&(1 << 16));
        let lanes = if is_whole { ADDRESS_LANE..ADDRESS_LANE + 1 } else { 0..LANES };
        self.shards.iter().flat_map(move |&shard| lanes.clone().map(move |lane| (shard, lane)))
    }
}

pub(crate) fn ports(block: &AssignedBlock) -> BlockPorts {
    (block.public, block.port_first, block.port_last)
}

fn block_of(line: &BlockLogLine) -> Option<(&AssignedBlock, u32)> {
    match &line.content {
        Content::Old { shard, block, .. } => Some((block, *shard)),
        Content::Lane(event) => match &event.kind {
            BlockRecordKind::Allocated(block)
            | BlockRecordKind::Released(block)
            | BlockRecordKind::Held { block, .. } => Some((block, event.shard)),
            BlockRecordKind::Taken { .. }
            | BlockRecordKind::Left
            | BlockRecordKind::Listed { .. } => None,
        },
        Content::Opened { .. } | Content::Closed | Content::Mark | Content::Lost(_) => None,
    }
}
