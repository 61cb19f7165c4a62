//! The nodes' own actions: they report, copy, settle granted lanes, and remember what etcd has
//! forgotten.

use std::collections::BTreeMap;

use weir_controller::state::ControllerEvent;
use weir_controller::state::{BirdDown, NodeDoubts, NodeReport, NodeTroubles};
use weir_etcd::Key;
use weir_map::map::Transition;
use weir_map::*;

use super::{World, id};

pub(crate) struct Node {
    pub(crate) boots: Vec<BootId>,
    pub(crate) is_up: bool,
    /// It does not reach etcd, and its key has expired or will expire.
    pub(crate) is_cut: bool,
    /// It has announced its end.
    pub(crate) is_stopping: bool,
    /// Its streams reach no node.
    pub(crate) is_unreachable: bool,
    /// No node's streams reach it.
    pub(crate) is_deaf: bool,
    /// Workers with a side down.
    pub(crate) broken: Vec<u16>,
    /// Sides that its BIRD does not announce.
    pub(crate) bird_down: Vec<BirdDown>,
    /// Its other troubles, as it reports them.
    pub(crate) troubles: NodeTroubles,
    /// Entries that it obeys although etcd has forgotten them.
    pub(crate) seen: BTreeMap<ShardId, ShardEntry>,
}

impl Node {
    pub(super) fn new(boots: Vec<BootId>, is_up: bool) -> Self {
        Self {
            boots,
            is_up,
            is_cut: false,
            is_stopping: false,
            is_unreachable: false,
            is_deaf: false,
            broken: Vec::new(),
            bird_down: Vec::new(),
            troubles: NodeTroubles::default(),
            seen: BTreeMap::new(),
        }
    }
}

impl World {
    /// Lets every running node report to a controller.
    pub(crate) fn send_reports(&mut self, controller: usize) {
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_up {
                continue;
            }
            let others = (0..self.nodes.len()).filter(|&other| other != node);
            let is_heard = |other: usize| {
                self.nodes[other].is_up
                    && !self.nodes[other].is_unreachable
                    && !self.nodes[node].is_deaf
            };
            let report = NodeReport {
                doubts: self.doubts_of(node),
                node: id(node),
                hears: others.map(|other| (id(other), is_heard(other))).collect(),
                loads: self.loads_of(node),
                broken: self.nodes[node].broken.clone(),
                bird_down: self.nodes[node].bird_down.clone(),
                acting: Vec::new(),
                generation: None,
                troubles: self.nodes[node].troubles.clone(),
            };
            self.handle(controller, ControllerEvent::Report(report));
        }
    }

    /// Returns the loads of the shards that it is primary of.
    fn loads_of(&self, node: usize) -> Vec<(ShardId, u64)> {
        let load = |shard: &u32| self.loads.get(shard).copied().unwrap_or(0);
        let entries = self.entries();
        let own = entries.iter().filter(|(_, it)| it.primary().incarnation.worker.node == id(node));
        own.map(|(shard, _)| (ShardId(*shard), load(shard))).collect()
    }

    /// Sets the entries in etcd back to these; running nodes have seen the current ones.
    pub(crate) fn set_back(&mut self, to: &[(u32, ShardEntry)]) {
        let seen: BTreeMap<u32, ShardEntry> = self.entries().into_iter().collect();
        for (shard, entry) in to.iter().filter(|(shard, entry)| seen[shard] != *entry) {
            self.etcd.put(Key::Shard(ShardId(*shard)), entry.to_json().into_bytes());
            for node in self.nodes.iter_mut().filter(|node| node.is_up) {
                node.seen.insert(ShardId(*shard), seen[shard].clone());
            }
        }
    }

    /// Returns the entries that it has seen and etcd has forgotten.
    fn doubts_of(&self, node: usize) -> NodeDoubts {
        if self.nodes[node].seen.is_empty() {
            return NodeDoubts { are_all: true, ..NodeDoubts::default() };
        }
        let stored: BTreeMap<u32, ShardEntry> = self.entries().into_iter().collect();
        let seen = self.nodes[node].seen.iter().filter(|(shard, seen)| {
            stored.get(&shard.0).is_none_or(|it| it.rebased() <= Some(seen.epoch()))
        });
        let shards = seen.map(|(shard, seen)| (*shard, (seen.epoch(), Some(seen.clone()))));
        NodeDoubts { shards: shards.collect(), are_all: true }
    }

    /// Lets running workers finish their copies and settle granted lanes. True if anything was
    /// done.
    pub(crate) fn work(&mut self) -> bool {
        let mut is_busy = false;
        for (shard, mut entry) in self.entries() {
            let doubts = |node: usize| self.doubts_of(node).shards.contains_key(&ShardId(shard));
            if (0..self.nodes.len()).any(|node| self.nodes[node].is_up && doubts(node)) {
                continue;
            }
            let epoch = entry.epoch();
            while let Some(transition) = self.wanted_transition(&entry) {
                entry = entry.after(entry.epoch(), &transition).expect("the entry permits it");
            }
            if entry.epoch() != epoch {
                self.etcd.put(Key::Shard(ShardId(shard)), entry.to_json().into_bytes());
                is_busy = true;
            }
        }
        is_busy
    }

    fn wanted_transition(&self, entry: &ShardEntry) -> Option<Transition> {
        let member_at = |slot| &entry.at_slot(slot).expect("the slot has a member").incarnation;
        for (index, lane) in entry.lanes().iter().enumerate() {
            let Some(moving) = lane.moving else { continue };
            if self.is_in_touch(member_at(moving.from)) && self.is_in_touch(member_at(lane.owner)) {
                let by = member_at(lane.owner).clone();
                return Some(Transition::Settle { by, lanes: LaneSet::EMPTY.with(index) });
            }
        }
        if !self.is_in_touch(&entry.primary().incarnation) {
            return None;
        }
        let mut members = entry.members().iter();
        let copied = members
            .find(|it| it.state != MemberState::Synced && self.is_in_touch(&it.incarnation))?;
        Some(Transition::Synced(copied.incarnation.clone()))
    }
}
