//! The plan: the next transitions, and what an operator should know.

use weir_ids::{Epoch, Incarnation, NodeId, ShardId, WorkerId};

use super::fleet::{FleetIndex, MemberStanding, WorkerFleet};
use super::input::{AllocateOptions, NodeView, ShardView};
use super::layout::{BalanceEffect, Layouts};
use super::next::{Price, Urgent, towards};
use super::tally::shares_rack;
use crate::map::{MemberState, ShardEntry, Transition};

/// One change, for one compare and swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    pub shard: ShardId,
    pub change: PlannedChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedChange {
    /// The shard has no entry: [`ShardEntry::create`].
    Create(Incarnation),
    /// [`ShardEntry::after`] of the entry at this epoch.
    Apply { at: Epoch, transition: Transition },
}

/// A fault that no transition mends at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// So many nodes look gone that the fault may lie with the observer: nothing moves.
    Halted { gone: usize, nodes: usize },
    /// Too few nodes are there to hold this many copies.
    TooFewNodes { wanted: usize, nodes: usize },
    /// Two members are in one rack, since there is no worker in another.
    SameRack(ShardId),
    /// The primary is gone, and no member has a full copy: the shard waits for a fence.
    Stuck(ShardId),
    /// This many shards lack a member, and no worker that could be one has room for one more.
    Full { shards: usize },
    /// If the node is lost, the worker has to carry more than it can.
    NoRoom { lost: NodeId, worker: WorkerId, load: u64, load_max: u64 },
}

/// The next steps, at most one per shard in the order of shard numbers, and notes on faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<PlanStep>,
    pub notes: Vec<Note>,
}

/// Returns the next transitions for all shards.
///
/// `shards` are in the order of their numbers, each once; nodes are in any order.
pub fn allocate(nodes: &[NodeView], shards: &[ShardView], options: &AllocateOptions) -> Plan {
    let fleet = WorkerFleet::new(nodes, 1 + usize::from(options.replicas));
    let mut layouts = Layouts::new(&fleet, shards, options);
    let mut plan = Plan::default();
    let (gone, all) = fleet.gone(shards);
    let is_halted = gone >= 2 && gone * 3 > all;
    let copies_under_way = copies_under_way(&fleet, shards);
    let mut moves_left = options.moves_max.saturating_sub(copies_under_way);
    if is_halted {
        plan.notes.push(Note::Halted { gone, nodes: all });
        moves_left = 0;
    }
    let mut is_done = vec![false; shards.len()];
    for (index, shard) in shards.iter().enumerate() {
        let target = &layouts.all[index].target;
        let change = match &shard.entry {
            None if is_halted => None,
            None => target
                .first()
                .map(|&slot| PlannedChange::Create(fleet.slots[slot].incarnation.clone())),
            // The shard is left alone until its entry names the incarnation that resumed the member
            // slot.
            Some(entry) if entry.members().iter().any(|it| fleet.is_resumed(&it.incarnation)) => {
                is_done[index] = true;
                None
            }
            Some(entry) => {
                let wanted = layouts.wanted;
                let rooms = &layouts.rooms;
                let urgent =
                    Urgent { fleet: &fleet, shard, entry, target, wanted, is_halted, rooms };
                let transition =
                    urgent.fence().or_else(|| urgent.hand_over()).or_else(|| urgent.follow());
                if transition.is_none() && urgent.is_primary_silent() {
                    plan.notes.push(Note::Stuck(shard.id));
                    is_done[index] = true;
                }
                let again = transition.as_ref().and_then(|it| begun_anew(&fleet, it));
                if let Some(slot) = again.filter(|slot| !target.contains(slot)) {
                    layouts.rooms.take(slot);
                }
                transition.map(|transition| apply(entry, transition))
            }
        };
        is_done[index] |= change.is_some();
        plan.steps.extend(change.map(|change| PlanStep { shard: shard.id, change }));
    }
    if !is_halted {
        take_steps(&mut plan, &fleet, shards, &layouts, &mut is_done, &mut moves_left);
        // Balance comes when nothing else is to be done: roles first, since they cost least, and
        // copies only when no other copy is under way, since those copies may restore the balance.
        if plan.steps.is_empty() && !fleet.is_any_stopping() && !fleet.is_any_resuming() {
            let swaps = layouts.balance(BalanceEffect::Roles, moves_left);
            if swaps == 0 && copies_under_way == 0 {
                layouts.balance(BalanceEffect::Copies, moves_left);
            }
            take_steps(&mut plan, &fleet, shards, &layouts, &mut is_done, &mut moves_left);
        }
    }
    plan.steps.sort_by_key(|step| step.shard);
    note(&mut plan, &fleet, shards, &layouts, options);
    plan
}

fn apply(entry: &ShardEntry, transition: Transition) -> PlannedChange {
    PlannedChange::Apply { at: entry.epoch(), transition }
}

/// Returns the worker that becomes a member for an ended one.
fn begun_anew(fleet: &WorkerFleet, transition: &Transition) -> Option<FleetIndex> {
    match transition {
        Transition::Restart { ended, .. } | Transition::Resume { ended, .. } => {
            fleet.slot_of(&ended.worker)
        }
        Transition::TakeSlot { to, .. } => fleet.slot_of(&to.worker),
        _ => None,
    }
}

/// Returns the number of running members that copy. A lost worker's copy would never end.
fn copies_under_way(fleet: &WorkerFleet, shards: &[ShardView]) -> usize {
    let members = shards.iter().filter_map(|shard| shard.entry.as_ref());
    let members = members.flat_map(|entry| entry.members());
    let copies = members.filter(|member| {
        let runs = matches!(fleet.standing(&member.incarnation), MemberStanding::Running(_));
        member.state == MemberState::Syncing && runs
    });
    copies.count()
}

fn take_steps(
    plan: &mut Plan,
    fleet: &WorkerFleet,
    shards: &[ShardView],
    layouts: &Layouts<'_>,
    is_done: &mut [bool],
    moves_left: &mut usize,
) {
    // The shard with the fewest copies goes first.
    let copies = |index: usize| {
        let entry: Option<&ShardEntry> = shards[index].entry.as_ref();
        let members = entry.map_or(&[][..], |entry| entry.members());
        members.iter().filter(|member| member.state == MemberState::Synced).count()
    };
    let mut order: Vec<usize> = (0..shards.len()).filter(|&index| !is_done[index]).collect();
    order.sort_by_cached_key(|&index| copies(index));
    for index in order {
        let Some(entry) = &shards[index].entry else { continue };
        let next = towards(fleet, entry, &layouts.all[index].target, layouts.wanted);
        let Some((transition, price)) = next else { continue };
        if price == Price::Move {
            if *moves_left == 0 {
                continue;
            }
            *moves_left -= 1;
        }
        is_done[index] = true;
        plan.steps.push(PlanStep { shard: shards[index].id, change: apply(entry, transition) });
    }
}

fn note(
    plan: &mut Plan,
    fleet: &WorkerFleet,
    shards: &[ShardView],
    layouts: &Layouts<'_>,
    options: &AllocateOptions,
) {
    let wanted = 1 + usize::from(options.replicas);
    if layouts.wanted < wanted {
        plan.notes.push(Note::TooFewNodes { wanted, nodes: fleet.nodes_open() });
    }
    let full = layouts.all.iter().filter(|layout| layout.lacks_room).count();
    if full > 0 {
        plan.notes.push(Note::Full { shards: full });
    }
    let in_one_rack = shards.iter().zip(&layouts.all);
    let in_one_rack = in_one_rack.filter(|(_, layout)| shares_rack(fleet, &layout.target));
    plan.notes.extend(in_one_rack.map(|(shard, _)| Note::SameRack(shard.id)));
    if options.room_for_loss {
        note_room(plan, fleet, shards, layouts);
    }
}

/// Notes, for each node, the workers that could not carry what its loss would put on them.
fn note_room(plan: &mut Plan, fleet: &WorkerFleet, shards: &[ShardView], layouts: &Layouts<'_>) {
    let slots = fleet.slots.len();
    let mut own = vec![0u64; slots];
    let mut taken_over = vec![0u64; slots * fleet.nodes];
    for (shard, layout) in shards.iter().zip(&layouts.all) {
        let Some(&primary) = layout.target.first() else { continue };
        own[primary] = own[primary].saturating_add(shard.load);
        if let Some(&next) = layout.target.get(1) {
            let sum = &mut taken_over[fleet.slots[primary].node * slots + next];
            *sum = sum.saturating_add(shard.load);
        }
    }
    for lost in 0..fleet.nodes {
        for (slot, worker) in fleet.slots.iter().enumerate().filter(|(_, it)| it.node != lost) {
            let load = own[slot].saturating_add(taken_over[lost * slots + slot]);
            let Some(load_max) = worker.load_max.filter(|&load_max| load > load_max) else {
                continue;
            };
            let mut on_lost = fleet.slots.iter().filter(|other| other.node == lost);
            let Some(lost) = on_lost.next().map(|it| it.incarnation.worker.node.clone()) else {
                continue;
            };
            let worker = worker.incarnation.worker.clone();
            plan.notes.push(Note::NoRoom { lost, worker, load, load_max });
        }
    }
}
