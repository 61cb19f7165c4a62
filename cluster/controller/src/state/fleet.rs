//! All nodes at one moment: their liveness, the allocator's input, and the admission of drains.

use std::collections::{BTreeMap, BTreeSet};

use weir_map::allocate::{Liveness, NodeView, WorkerView};
use weir_map::{BootId, Incarnation, Member, MemberState, NodeId, ShardEntry};

use super::lives::{Lives, NodeStanding, worker_views};
use super::options::ControllerOptions;
use super::time::ControllerTime;
use super::view::View;

/// The nodes that are registered, and those that entries name.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) nodes: Vec<NodeView>,
    pub(super) standings: BTreeMap<NodeId, NodeStanding>,
    /// Reasons that drains do not begin, by node.
    pub(super) waiting_drains: BTreeMap<NodeId, String>,
    /// Nodes that run although the operator stated that they had ended.
    pub(super) undead: BTreeSet<NodeId>,
    /// Number of members that each shard is to have, given the nodes available.
    pub(super) wanted: usize,
}

impl Fleet {
    /// Collects the nodes. `copies` is the number of members that the operator wants of each shard.
    pub(super) fn of(
        view: &View,
        lives: &Lives,
        copies: usize,
        options: &ControllerOptions,
        now: ControllerTime,
    ) -> Self {
        let named = named(view);
        let mut fleet = Self {
            nodes: Vec::new(),
            standings: BTreeMap::new(),
            waiting_drains: BTreeMap::new(),
            undead: BTreeSet::new(),
            wanted: 0,
        };
        // An operator that asks for a rebalance wants the node used at once, for example because it
        // has just been repaired.
        let ends_trials = view.control().is_some_and(|control| control.rebalance.is_some());
        let names: BTreeSet<&NodeId> = view.nodes.keys().chain(named.keys()).collect();
        for node in names {
            let lost = named.get(node).map_or(&[][..], |lost| lost);
            let registered = view.nodes.get(node).and_then(|held| held.value.as_ref());
            let standing = match registered.and_then(|record| worker_views(&record.workers)) {
                Some(_) if registered.is_some_and(|record| record.is_stopping) => NodeStanding {
                    liveness: Liveness::Stopping,
                    why: "it says that it is about to end".into(),
                },
                Some(_) => NodeStanding { liveness: Liveness::Alive, why: lives.why_cut_off(node) },
                None if is_fenced(view, node, lost) => NodeStanding {
                    liveness: Liveness::Fenced,
                    why: "the operator says that it has ended".into(),
                },
                None => lives.standing(node, &peers(view, node), options, now),
            };
            let workers = lives.workers(node).unwrap_or_else(|| workers_of(lost));
            if standing.liveness == Liveness::Alive && is_undead(view, node, &workers) {
                fleet.undead.insert(node.clone());
            }
            fleet.nodes.push(NodeView {
                name: node.clone(),
                rack: lives.rack(node),
                liveness: standing.liveness,
                is_drained: fleet.undead.contains(node),
                is_on_trial: !ends_trials && lives.is_on_trial(node, now),
                has_copies: registered.is_some_and(|record| record.has_copies),
                workers,
            });
            fleet.standings.insert(node.clone(), standing);
        }
        fleet.admit_drains(view, copies);
        fleet.wanted = copies.min(fleet.open(None));
        fleet
    }

    /// Number of nodes that can hold shards, except `but`.
    fn open(&self, but: Option<&NodeId>) -> usize {
        let is_open = |node: &&NodeView| {
            let has_worker = node.workers.iter().any(|worker| worker.weight > 0);
            node.liveness.runs() && !node.is_drained && has_worker && Some(&node.name) != but
        };
        self.nodes.iter().filter(is_open).count()
    }

    /// Admits drains, the oldest order first. A drain that would leave shards with fewer copies
    /// than wanted waits, unless it is forced. The last node that can hold shards is never emptied.
    fn admit_drains(&mut self, view: &View, copies: usize) {
        let mut orders: Vec<(u64, NodeId, bool)> = view
            .intents
            .iter()
            .filter_map(|(node, held)| {
                let drain = held.value.as_ref()?.drain.as_ref()?;
                Some((drain.order.at_ms, node.clone(), drain.force))
            })
            .collect();
        orders.sort();
        for (_, name, force) in orders {
            let left = self.open(Some(&name));
            let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) else { continue };
            if left >= copies || force && left > 0 {
                node.is_drained = true;
                continue;
            }
            let why = match left {
                0 => "no other node can hold shards: start one".to_owned(),
                _ => format!(
                    "each shard is to have {copies} copies on as many nodes, and {left} would be \
                     left: start or undrain another node, or drain with --force"
                ),
            };
            self.waiting_drains.insert(name, why);
        }
    }

    pub(super) fn node(&self, name: &NodeId) -> Option<&NodeView> {
        let index = self.nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
        Some(&self.nodes[index])
    }

    fn worker(&self, who: &Incarnation) -> Option<(&NodeView, &WorkerView)> {
        let node = self.node(&who.worker.node)?;
        let worker = node.workers.iter().find(|worker| worker.index == who.worker.index)?;
        (worker.boot_id == who.boot_id).then_some((node, worker))
    }

    /// True if its node is registered with it, and it is not cut off.
    fn is_well(&self, who: &Incarnation) -> bool {
        let is_registered = |(node, _): (&NodeView, &WorkerView)| node.liveness.is_registered();
        self.serves(who) && self.worker(who).is_some_and(is_registered)
    }

    /// True if any node is suspect: not registered, but possibly running.
    pub(super) fn is_any_suspect(&self) -> bool {
        self.nodes.iter().any(|node| node.liveness == Liveness::Suspect)
    }

    /// True if it still serves, and is about to end.
    pub(super) fn is_stopping(&self, who: &Incarnation) -> bool {
        self.worker(who).is_some_and(|(node, _)| node.liveness == Liveness::Stopping)
    }

    /// True if it runs, and is not cut off.
    pub(super) fn serves(&self, who: &Incarnation) -> bool {
        self.runs(who) && self.worker(who).is_some_and(|(_, worker)| !worker.is_cut_off)
    }

    /// True if it runs, as far as is known.
    pub(super) fn runs(&self, who: &Incarnation) -> bool {
        self.worker(who).is_some_and(|(node, _)| node.liveness.runs())
    }

    /// True if it runs, and is to be emptied.
    pub(super) fn is_unwelcome(&self, who: &Incarnation) -> bool {
        self.runs(who)
            && self.worker(who).is_some_and(|(node, worker)| node.is_drained || worker.weight == 0)
    }

    /// True if registered members on as many nodes as wanted, none of them cut off, are synced.
    pub(super) fn is_protected(&self, entry: &ShardEntry) -> bool {
        let synced = entry.members().iter().filter(|member| {
            member.state == MemberState::Synced && self.is_well(&member.incarnation)
        });
        nodes_of(synced) >= self.wanted
    }

    /// True if every registered worker states how many shards it has room for. A worker that does
    /// not is of an earlier version, which also refuses two members on one node.
    pub(super) fn knows_rooms(&self) -> bool {
        let registered = self.nodes.iter().filter(|node| node.liveness.is_registered());
        registered.flat_map(|node| &node.workers).all(|worker| worker.shards_max.is_some())
    }

    /// True if the shard is protected, has no extra member, and is not moving.
    pub(super) fn is_whole(&self, entry: &ShardEntry) -> bool {
        self.is_protected(entry) && entry.members().len() == self.wanted && !entry.is_moving()
    }
}

/// Number of nodes that these members are on: a member that moves within its node counts once.
pub(super) fn nodes_of<'a>(members: impl Iterator<Item = &'a Member>) -> usize {
    members.map(|member| &member.incarnation.worker.node).collect::<BTreeSet<_>>().len()
}

/// Returns every node that an entry names, with its incarnations there.
fn named(view: &View) -> BTreeMap<NodeId, Vec<Incarnation>> {
    let mut named: BTreeMap<NodeId, Vec<Incarnation>> = BTreeMap::new();
    for (_, entry) in view.entries() {
        for member in entry.members() {
            let lives = named.entry(member.incarnation.worker.node.clone()).or_default();
            lives.push(member.incarnation.clone());
        }
    }
    for lives in named.values_mut() {
        lives.sort();
        lives.dedup();
    }
    named
}

/// Returns the registered nodes that share a shard with `node`.
fn peers(view: &View, node: &NodeId) -> BTreeSet<NodeId> {
    let mut peers = BTreeSet::new();
    for (_, entry) in view.entries() {
        let nodes = || entry.members().iter().map(|member| &member.incarnation.worker.node);
        if nodes().any(|member| member == node) {
            let others = nodes().filter(|other| *other != node && view.nodes.contains_key(*other));
            peers.extend(others.cloned());
        }
    }
    peers
}

/// True if the operator stated that each incarnation has ended, and the node is not registered.
fn is_fenced(view: &View, node: &NodeId, lost: &[Incarnation]) -> bool {
    let fence = view.intent(node).and_then(|intent| intent.fence.as_ref());
    let is_ended = |who: &Incarnation| fence.is_some_and(|it| it.boot_ids.contains(&who.boot_id));
    !view.nodes.contains_key(node) && !lost.is_empty() && lost.iter().all(is_ended)
}

fn is_undead(view: &View, node: &NodeId, workers: &[WorkerView]) -> bool {
    let fence = view.intent(node).and_then(|intent| intent.fence.as_ref());
    fence.is_some_and(|it| workers.iter().any(|worker| it.boot_ids.contains(&worker.boot_id)))
}

/// Returns the workers that entries name on a node that has not been seen registered. Where they
/// name two incarnations of a worker, either may be the last: the conditions of a fence's write
/// protect the one that runs.
fn workers_of(lost: &[Incarnation]) -> Vec<WorkerView> {
    let last: BTreeMap<u16, BootId> =
        lost.iter().map(|who| (who.worker.index, who.boot_id)).collect();
    last.into_iter()
        .map(|(index, boot_id)| WorkerView {
            index,
            boot_id,
            resumes: None,
            weight: 1,
            load_max: None,
            shards_max: None,
            is_cut_off: false,
        })
        .collect()
}
