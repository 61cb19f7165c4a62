//! All workers as numbered slots, in the order of their names, and the standing of each member.

use std::collections::BTreeMap;

use weir_ids::{BootId, Incarnation, NodeId, WorkerId};

use super::input::{Liveness, NodeView, ShardView, WorkerView};

/// A worker, by its position in the fleet.
pub(super) type FleetIndex = usize;

#[derive(Debug)]
pub(super) struct FleetWorker {
    pub(super) incarnation: Incarnation,
    pub(super) resumes: Option<BootId>,
    /// Position of its node.
    pub(super) node: usize,
    pub(super) rack: Option<usize>,
    /// Liveness of its node.
    pub(super) liveness: Liveness,
    pub(super) weight: u32,
    pub(super) load_max: Option<u64>,
    pub(super) shards_max: Option<u32>,
    pub(super) is_cut_off: bool,
    /// Whether it has copies of shards that may name only a former incarnation of it.
    pub(super) has_copies: bool,
    /// Whether shards belong on it: its node runs and is not drained, and its weight is not 0.
    is_open: bool,
    /// Whether its shards may stay: it is open, and not cut off.
    pub(super) may_stay: bool,
    /// Whether it may get more shards: it may stay, its node is alive and not stopping, and not on
    /// trial unless the other nodes are too few.
    pub(super) takes_more: bool,
}

/// The standing of an entry's member in the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberStanding {
    /// The member runs; it may stay or is to be moved away.
    Running(FleetIndex),
    /// No worker hears the member, but it may still run.
    Silent,
    /// This incarnation has certainly ended.
    Ended,
}

#[derive(Debug)]
pub(super) struct WorkerFleet {
    pub(super) slots: Vec<FleetWorker>,
    pub(super) nodes: usize,
    liveness: BTreeMap<NodeId, Liveness>,
    by_worker: BTreeMap<WorkerId, FleetIndex>,
}

impl WorkerFleet {
    /// `copies` is the number of members that each shard is to have.
    pub(super) fn new(nodes: &[NodeView], copies: usize) -> Self {
        let is_tried = |node: &&NodeView| {
            let is_well = |worker: &WorkerView| worker.weight > 0 && !worker.is_cut_off;
            let is_open = node.liveness == Liveness::Alive && !node.is_drained;
            is_open && !node.is_on_trial && node.workers.iter().any(is_well)
        };
        let is_trial_held = nodes.iter().filter(is_tried).count() >= copies;
        let mut sorted: Vec<&NodeView> = nodes.iter().collect();
        sorted.sort_by(|one, other| one.name.cmp(&other.name));
        let mut racks: Vec<&String> = nodes.iter().filter_map(|node| node.rack.as_ref()).collect();
        racks.sort();
        racks.dedup();
        let mut slots = Vec::new();
        for (position, node) in sorted.iter().enumerate() {
            let rack = node.rack.as_ref().map(|rack| racks.partition_point(|other| *other < rack));
            let runs = node.liveness.runs();
            let mut workers: Vec<_> = node.workers.iter().collect();
            workers.sort_by_key(|worker| worker.index);
            slots.extend(workers.into_iter().map(|worker| {
                let is_open = runs && !node.is_drained && worker.weight > 0;
                let may_stay = is_open && !worker.is_cut_off;
                let is_held_back = node.is_on_trial && is_trial_held;
                FleetWorker {
                    incarnation: Incarnation {
                        worker: WorkerId { node: node.name.clone(), index: worker.index },
                        boot_id: worker.boot_id,
                    },
                    resumes: worker.resumes,
                    node: position,
                    rack,
                    liveness: node.liveness,
                    weight: worker.weight.max(1),
                    load_max: worker.load_max,
                    shards_max: worker.shards_max,
                    is_cut_off: worker.is_cut_off,
                    has_copies: node.has_copies,
                    is_open,
                    may_stay,
                    takes_more: may_stay && node.liveness == Liveness::Alive && !is_held_back,
                }
            }));
        }
        let by_worker = slots.iter().enumerate();
        Self {
            by_worker: by_worker.map(|(slot, it)| (it.incarnation.worker.clone(), slot)).collect(),
            liveness: nodes.iter().map(|node| (node.name.clone(), node.liveness)).collect(),
            nodes: nodes.len(),
            slots,
        }
    }

    pub(super) fn standing(&self, who: &Incarnation) -> MemberStanding {
        let slot = self.slot_of(&who.worker);
        let is_same = slot.is_some_and(|slot| self.slots[slot].incarnation == *who);
        match (self.liveness.get(&who.worker.node).copied(), slot) {
            _ if self.is_resumed(who) => MemberStanding::Silent,
            (Some(liveness), Some(slot)) if is_same && liveness.runs() => {
                MemberStanding::Running(slot)
            }
            // A node registers all its workers: an incarnation that it does not name has ended.
            (Some(Liveness::Alive | Liveness::Stopping | Liveness::Fenced), _) => {
                MemberStanding::Ended
            }
            (Some(Liveness::Suspect), Some(_)) => MemberStanding::Ended,
            (Some(Liveness::Suspect | Liveness::Dead) | None, _) => MemberStanding::Silent,
        }
    }

    /// True if some node is about to report resumed member slots: a balance struck before that
    /// would not count them.
    pub(super) fn is_any_resuming(&self) -> bool {
        self.slots.iter().any(|slot| slot.liveness.runs() && slot.resumes.is_some())
    }

    /// True if its worker has resumed the member slot of this incarnation, and the entry is about
    /// to say so.
    pub(super) fn is_resumed(&self, who: &Incarnation) -> bool {
        let slot = self.slot_of(&who.worker).map(|slot| &self.slots[slot]);
        slot.is_some_and(|slot| slot.liveness.runs() && slot.resumes == Some(who.boot_id))
    }

    /// Returns the slot of a worker, whatever its incarnation.
    pub(super) fn slot_of(&self, worker: &WorkerId) -> Option<FleetIndex> {
        self.by_worker.get(worker).copied()
    }

    /// True if some node is about to end: a balance struck before that would change when it is
    /// back.
    pub(super) fn is_any_stopping(&self) -> bool {
        self.slots.iter().any(|slot| slot.liveness == Liveness::Stopping)
    }

    /// Returns the number of nodes on which a shard may be. A cut-off node counts: its copy is
    /// missing until another node has one.
    pub(super) fn nodes_open(&self) -> usize {
        let mut nodes: Vec<usize> =
            self.slots.iter().filter(|slot| slot.is_open).map(|slot| slot.node).collect();
        nodes.dedup();
        nodes.len()
    }

    /// True if every worker of the node at this position is cut off.
    fn is_cut_off(&self, node: usize) -> bool {
        let mut workers = self.slots.iter().filter(|slot| slot.node == node).peekable();
        workers.peek().is_some()
            && workers.all(|slot| slot.is_cut_off && slot.liveness.is_registered())
    }

    /// Returns (nodes that look gone or are cut off, all nodes), without fenced nodes: those are
    /// settled.
    pub(super) fn gone(&self, shards: &[ShardView]) -> (usize, usize) {
        let is_unknown = |node: &&NodeId| !self.liveness.contains_key(*node);
        let members = shards.iter().filter_map(|shard| shard.entry.as_ref());
        let members = members.flat_map(|entry| entry.members());
        let mut unknown: Vec<&NodeId> =
            members.map(|member| &member.incarnation.worker.node).filter(is_unknown).collect();
        unknown.sort();
        unknown.dedup();
        let count = |wanted: &[Liveness]| {
            self.liveness.values().filter(|liveness| wanted.contains(liveness)).count()
        };
        let gone = count(&[Liveness::Suspect, Liveness::Dead]);
        let gone = gone + unknown.len();
        let cut_off = (0..self.nodes).filter(|&node| self.is_cut_off(node)).count();
        (gone + cut_off, gone + count(&[Liveness::Alive, Liveness::Stopping]))
    }
}
