//! The target of each shard: the workers that are to hold it in the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::fleet::{FleetIndex, MemberStanding, WorkerFleet};
use super::input::{AllocateOptions, Liveness, ShardView};
use super::room::Rooms;
use super::tally::{PlacementTally, gain_min};
use crate::map::{MEMBERS_MAX, Member, MemberState, ShardEntry};

/// Size of an average shard. An idle one has subscribers too, and counts a fifth.
const SIZE: u64 = 100;
const SIZE_IDLE: u64 = SIZE / 5;
/// Largest size that a shard counts for.
const SIZE_MAX: u64 = 20 * SIZE;

#[derive(Debug)]
pub(super) struct Layout {
    pub(super) size: i64,
    /// Slots in rank order, the primary first.
    pub(super) target: Vec<FleetIndex>,
    /// Whether it has as many members as wanted, all synced and where they may stay, every lane at
    /// rest.
    pub(super) is_whole: bool,
    /// Whether members are missing only because no worker has room for them.
    pub(super) lacks_room: bool,
}

/// The targets of all shards, in the order of `shards`.
#[derive(Debug)]
pub(super) struct Layouts<'a> {
    fleet: &'a WorkerFleet,
    shards: &'a [ShardView],
    pub(super) tally: PlacementTally,
    pub(super) all: Vec<Layout>,
    /// Members wanted for each shard.
    pub(super) wanted: usize,
    /// An average worker's share of primaries.
    share: i64,
    by_load: bool,
    moves_within_nodes: bool,
    pub(super) rooms: Rooms,
}

impl<'a> Layouts<'a> {
    pub(super) fn new(
        fleet: &'a WorkerFleet,
        shards: &'a [ShardView],
        options: &AllocateOptions,
    ) -> Self {
        let wanted = 1 + usize::from(options.replicas).min(MEMBERS_MAX - 1);
        let all = sizes(shards, options.by_load);
        let all = all.into_iter().map(|size| Layout {
            size,
            target: Vec::new(),
            is_whole: false,
            lacks_room: false,
        });
        let mut layouts = Self {
            fleet,
            shards,
            tally: PlacementTally::new(fleet),
            all: all.collect(),
            wanted: wanted.min(fleet.nodes_open()),
            share: 0,
            by_load: options.by_load,
            moves_within_nodes: options.moves_within_nodes,
            rooms: Rooms::new(fleet, shards),
        };
        let total: i64 = layouts.all.iter().map(|layout| layout.size).sum();
        let open = fleet.slots.iter().filter(|slot| slot.may_stay).count();
        layouts.share = total / open.max(1) as i64;
        layouts.keep_members();
        layouts.fill();
        layouts.shed();
        layouts
    }

    fn standings(&self, entry: &ShardEntry) -> Vec<MemberStanding> {
        let members = entry.members().iter();
        members.map(|member| self.fleet.standing(&member.incarnation)).collect()
    }

    /// Keeps every member that may stay, also where that is one more than wanted.
    fn keep_members(&mut self) {
        for index in 0..self.shards.len() {
            let Some(entry) = &self.shards[index].entry else { continue };
            let stayers = self.stayers(entry);
            let has_all = stayers.len() == entry.members().len() && stayers.len() == self.wanted;
            let is_synced = entry.members().iter().all(|it| it.state == MemberState::Synced);
            self.all[index].is_whole = has_all && is_synced && !entry.is_moving();
            let target = self.with_best_primary(index, entry, stayers);
            self.set_target(index, target);
        }
    }

    /// Returns the members that may stay, in rank order, one on each node: of two on a node the one
    /// that does not yield, and if both or neither do, the one with the fuller copy.
    fn stayers(&self, entry: &ShardEntry) -> Vec<FleetIndex> {
        let members = entry.members().iter().zip(self.standings(entry)).enumerate();
        let stayers = members.filter_map(|(rank, (member, standing))| match standing {
            MemberStanding::Running(slot)
                if self.fleet.slots[slot].may_stay && !member.is_leaving =>
            {
                let lack = match member.state {
                    MemberState::Synced => 0,
                    MemberState::Syncing => 1,
                    MemberState::OutOfSync => 2,
                };
                Some((slot, (member.is_yielding, lack, rank)))
            }
            _ => None,
        });
        let stayers: Vec<_> = stayers.collect();
        let node = |slot: FleetIndex| self.fleet.slots[slot].node;
        let is_best = |slot: FleetIndex, worth| {
            stayers.iter().all(|&(other, better)| node(other) != node(slot) || better >= worth)
        };
        let kept = stayers.iter().filter(|&&(slot, worth)| is_best(slot, worth));
        kept.map(|&(slot, _)| slot).collect()
    }

    fn set_target(&mut self, index: usize, target: Vec<FleetIndex>) {
        let is_twice = |(rank, slot): (usize, &FleetIndex)| target[..rank].contains(slot);
        assert!(!target.iter().enumerate().any(is_twice), "no worker has two copies of a shard");
        let size = self.all[index].size;
        let former = std::mem::replace(&mut self.all[index].target, target);
        let entry = self.shards[index].entry.as_ref();
        self.rooms.claim(self.fleet, entry, &former, &self.all[index].target);
        self.tally.add(self.fleet, &former, -size);
        self.tally.add(self.fleet, &self.all[index].target, size);
    }

    /// Takes members from shards that have more than wanted, in the midst of a move.
    fn shed(&mut self) {
        for index in 0..self.shards.len() {
            let Some(entry) = &self.shards[index].entry else { continue };
            while self.all[index].target.len() > self.wanted {
                let target = std::mem::take(&mut self.all[index].target);
                self.tally.add(self.fleet, &target, -self.all[index].size);
                let target = self.without_worst(index, entry, &target);
                self.set_target(index, target);
            }
        }
    }

    /// Returns the target with one member less. A member that yields goes first, then one that is
    /// out of sync, then the one without which the map is best.
    fn without_worst(
        &self,
        index: usize,
        entry: &ShardEntry,
        target: &[FleetIndex],
    ) -> Vec<FleetIndex> {
        let rest = (0..target.len()).rev().map(|gone| {
            let mut rest = target.to_vec();
            let gone = self.member(entry, rest.remove(gone));
            let stays = !gone.is_some_and(|gone| gone.is_yielding);
            let has_copy = gone.is_none_or(|gone| gone.state != MemberState::OutOfSync);
            let rest = self.with_best_primary(index, entry, rest);
            ((stays, has_copy, self.tally.cost(self.fleet, &rest, self.all[index].size)), rest)
        });
        rest.min_by_key(|(worth, _)| *worth).expect("a target with a surplus is not empty").1
    }

    fn member<'e>(&self, entry: &'e ShardEntry, slot: FleetIndex) -> Option<&'e Member> {
        Some(entry.member(&self.fleet.slots[slot].incarnation)?.1)
    }

    /// Keeps the primary if it is among the members that stay. If it yields, its successor takes
    /// its rank; if it is gone, drained or about to end, the best synced member does; if none is
    /// synced, the best of all.
    fn with_best_primary(
        &self,
        index: usize,
        entry: &ShardEntry,
        mut target: Vec<FleetIndex>,
    ) -> Vec<FleetIndex> {
        let primary = match self.fleet.standing(&entry.primary().incarnation) {
            MemberStanding::Running(slot) if self.fleet.slots[slot].may_stay => Some(slot),
            _ => None,
        };
        let primary = primary.filter(|&slot| !self.hands_over(slot, entry, &target));
        if target.len() < 2 || primary == Some(target[0]) {
            return target;
        }
        if primary.is_some() && entry.primary().is_yielding {
            // The successor was added last.
            target.rotate_right(1);
            return target;
        }
        let orders = (0..target.len()).map(|first| {
            let mut order = target.clone();
            order.swap(0, first);
            let state = self.member(entry, order[0]).map(|member| member.state);
            let waits = primary.is_none() && state != Some(MemberState::Synced);
            let cost = self.tally.cost(self.fleet, &order, self.all[index].size);
            ((waits, self.fleet.slots[order[0]].liveness != Liveness::Alive, cost), order)
        });
        orders.min_by_key(|(worth, _)| *worth).expect("the target is not empty").1
    }

    /// True if the primary is about to end and another member can take over.
    fn hands_over(&self, primary: FleetIndex, entry: &ShardEntry, target: &[FleetIndex]) -> bool {
        let liveness = |slot: FleetIndex| self.fleet.slots[slot].liveness;
        let is_heir = |&slot: &FleetIndex| {
            let state = self.member(entry, slot).map(|member| member.state);
            liveness(slot) == Liveness::Alive && state == Some(MemberState::Synced)
        };
        liveness(primary) == Liveness::Stopping && target.iter().any(is_heir)
    }

    /// Adds members to shards that have too few: the shard with the fewest copies chooses first.
    fn fill(&mut self) {
        let mut order: Vec<usize> = (0..self.shards.len()).collect();
        order.retain(|&index| self.all[index].target.len() < self.wanted);
        order.sort_by_key(|&index| self.all[index].target.len());
        for index in order {
            while self.all[index].target.len() < self.wanted {
                let target = &self.all[index].target;
                let new = self.candidates(index, target).into_iter();
                let targets = new.map(|slot| [target.as_slice(), &[slot]].concat());
                let size = self.all[index].size;
                // The members already in the target add the same to every candidate's sum.
                let best = targets.min_by_key(|target| self.tally.cost(self.fleet, target, size));
                let Some(best) = best else {
                    let target = &self.all[index].target;
                    self.all[index].lacks_room = self.free_slots(index, target).next().is_some();
                    break;
                };
                self.set_target(index, best);
            }
        }
    }

    /// Returns the slots that a copy may go to.
    fn candidates(&self, index: usize, target: &[FleetIndex]) -> Vec<FleetIndex> {
        self.free_slots(index, target).filter(|&slot| self.rooms.has_room(slot)).collect()
    }

    /// Returns the slots on nodes without a slot of the target and without a member, except a
    /// member that is to leave its worker.
    fn free_slots(
        &self,
        index: usize,
        target: &[FleetIndex],
    ) -> impl Iterator<Item = FleetIndex> + use<'a> {
        let fleet = self.fleet;
        let mut used: Vec<usize> = target.iter().map(|&slot| fleet.slots[slot].node).collect();
        for member in self.shards[index].entry.iter().flat_map(|entry| entry.members()) {
            let is_to_leave = match fleet.standing(&member.incarnation) {
                MemberStanding::Running(slot) => !fleet.slots[slot].may_stay && !member.is_leaving,
                _ => false,
            };
            let slot = fleet.slot_of(&member.incarnation.worker);
            let slot = slot.filter(|_| !is_to_leave || !self.moves_within_nodes);
            used.extend(slot.map(|slot| fleet.slots[slot].node));
        }
        (0..fleet.slots.len()).filter(move |&slot| {
            fleet.slots[slot].takes_more && !used.contains(&fleet.slots[slot].node)
        })
    }

    /// Returns the other workers on the node of a slot to which a copy there may move.
    fn neighbours(&self, slot: FleetIndex) -> Vec<FleetIndex> {
        let is_neighbour = |&other: &FleetIndex| {
            let it = &self.fleet.slots[other];
            other != slot && it.node == self.fleet.slots[slot].node && it.takes_more
        };
        let slots = (0..self.fleet.slots.len()).filter(is_neighbour);
        slots.filter(|&other| self.moves_within_nodes && self.rooms.has_room(other)).collect()
    }

    /// Moves shards that are whole as long as that makes the map better, `moves_max` of them at
    /// most, those with the greatest gain first: so every worker that has too much gives its part.
    /// Returns the number of moves.
    pub(super) fn balance(&mut self, how: BalanceEffect, moves_max: usize) -> usize {
        if moves_max == 0 {
            return 0;
        }
        let whole = (0..self.all.len()).filter(|&index| self.all[index].is_whole);
        let whole: Vec<usize> = whole.collect();
        let gains = whole
            .into_iter()
            .filter_map(|index| self.best_move(index, how).map(|(gain, _)| (gain, Reverse(index))));
        let mut gains: BinaryHeap<(i64, Reverse<usize>)> = gains.collect();
        let mut moves = 0;
        while moves < moves_max {
            let Some((_, Reverse(index))) = gains.pop() else { break };
            // Other moves have made this one worth less: is it still nearly the best?
            let Some((gain, target)) = self.best_move(index, how) else { continue };
            let next_best = gains.peek().map_or(0, |(gain, _)| *gain);
            if gain >= next_best - next_best / 16 {
                self.set_target(index, target);
                self.all[index].is_whole = false;
                moves += 1;
            } else {
                gains.push((gain, Reverse(index)));
            }
        }
        moves
    }

    /// Returns the move of a shard that makes the map better by most, if any is worth it.
    fn best_move(&mut self, index: usize, how: BalanceEffect) -> Option<(i64, Vec<FleetIndex>)> {
        let size = self.all[index].size;
        let now = self.all[index].target.clone();
        self.tally.add(self.fleet, &now, -size);
        let cost_now = self.tally.cost(self.fleet, &now, size);
        // Loads fluctuate, by a twentieth say. A copy is not moved for an imbalance of one shard,
        // unless that shard is a large part of a worker's share.
        let slack = if self.by_load { self.share / 20 } else { 0 };
        let slack_of_copy = (self.share / 25).max((2 * size).min(self.share / 8));
        let slack = if how == BalanceEffect::Copies { slack.max(slack_of_copy) } else { slack };
        let gain_min = gain_min(size, slack);
        let mut best: Option<(i64, Vec<FleetIndex>)> = None;
        let mut consider = |target: &[FleetIndex]| {
            let gain = cost_now - self.tally.cost(self.fleet, target, size);
            if gain >= gain_min && best.as_ref().is_none_or(|best| gain > best.0) {
                best = Some((gain, target.to_vec()));
            }
        };
        let mut other = now.clone();
        match how {
            BalanceEffect::Roles => {
                for rank in 1..now.len() {
                    other.swap(0, rank);
                    consider(&other);
                    other.swap(0, rank);
                }
            }
            // A full shard cannot take another member to copy to.
            BalanceEffect::Copies if now.len() == MEMBERS_MAX => {}
            BalanceEffect::Copies => {
                let new = self.candidates(index, &now);
                for rank in 0..now.len() {
                    // A new primary comes first, a new replica last.
                    let position = if rank == 0 { 0 } else { now.len() - 1 };
                    other.clone_from(&now);
                    other.remove(rank);
                    other.insert(position, now[rank]);
                    for &slot in new.iter().chain(&self.neighbours(now[rank])) {
                        other[position] = slot;
                        consider(&other);
                    }
                }
            }
        }
        self.tally.add(self.fleet, &now, size);
        best
    }
}

/// The effect of a move for balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BalanceEffect {
    /// Another member becomes the primary.
    Roles,
    /// One member is replaced by another worker.
    Copies,
}

/// Returns the size of each shard: 100 for every shard, or for one of the average load.
fn sizes(shards: &[ShardView], by_load: bool) -> Vec<i64> {
    let total: u128 = shards.iter().map(|shard| u128::from(shard.load)).sum();
    if !by_load || total == 0 {
        return vec![SIZE as i64; shards.len()];
    }
    let count = shards.len() as u128;
    let size = |load: u64| {
        let share = u128::from(SIZE - SIZE_IDLE) * u128::from(load) * count / total;
        (SIZE_IDLE + share.min(u128::from(SIZE_MAX)) as u64) as i64
    };
    shards.iter().map(|shard| size(shard.load)).collect()
}
