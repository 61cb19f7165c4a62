//! How evenly the shards lie: sums per worker, and what one more shard would cost.
//!
//! The cost of a map is a sum of squares, each divided by the worker's weight, so that it is lowest
//! when the shares are proportional to the weights: 4 x primaries^2 + copies^2 + (what a lost node
//! would hand over)^2. The first term counts most since primaries carry the traffic. A rack that is
//! used twice for a shard costs more than all of that.

use super::fleet::{FleetIndex, WorkerFleet};

const PRIMARY: i64 = 4;
const SAME_RACK: i64 = 1 << 58;
/// Reciprocal of the largest weight. A weight below a 64th of the largest counts as a 64th.
const RECIPROCAL: u64 = 1 << 16;
const RECIPROCAL_MAX: u64 = RECIPROCAL * 64;

#[derive(Debug)]
pub(super) struct PlacementTally {
    /// By slot: (largest weight / weight) * 2^16.
    reciprocal: Vec<i64>,
    primaries: Vec<i64>,
    copies: Vec<i64>,
    /// By node and slot: what the slot takes over when the node is lost.
    taken_over: Vec<i64>,
}

impl PlacementTally {
    pub(super) fn new(fleet: &WorkerFleet) -> Self {
        let slots = fleet.slots.len();
        let largest = fleet.slots.iter().map(|slot| slot.weight).max().unwrap_or(1);
        let reciprocal = fleet.slots.iter().map(|slot| {
            let ratio = u64::from(largest) * RECIPROCAL / u64::from(slot.weight);
            ratio.min(RECIPROCAL_MAX) as i64
        });
        Self {
            reciprocal: reciprocal.collect(),
            primaries: vec![0; slots],
            copies: vec![0; slots],
            taken_over: vec![0; slots * fleet.nodes],
        }
    }

    /// Adds a shard of this size that lies on `target`, the primary first; a negated size removes
    /// it.
    pub(super) fn add(&mut self, fleet: &WorkerFleet, target: &[FleetIndex], size: i64) {
        let Some(&primary) = target.first() else { return };
        self.primaries[primary] += size;
        for &slot in target {
            self.copies[slot] += size;
        }
        if let Some(&next) = target.get(1) {
            let index = self.handover(fleet, primary, next);
            self.taken_over[index] += size;
        }
    }

    fn handover(&self, fleet: &WorkerFleet, primary: FleetIndex, next: FleetIndex) -> usize {
        fleet.slots[primary].node * self.copies.len() + next
    }

    /// Returns by how much the cost of the map grows with a shard of this size on `target`.
    pub(super) fn cost(&self, fleet: &WorkerFleet, target: &[FleetIndex], size: i64) -> i64 {
        let Some(&primary) = target.first() else { return 0 };
        let growth =
            |sum: i64, slot: FleetIndex| (2 * sum + size) * self.reciprocal[slot] / 64 * size;
        let mut cost = PRIMARY * growth(self.primaries[primary], primary);
        for (rank, &slot) in target.iter().enumerate() {
            cost += growth(self.copies[slot], slot);
            let rack = fleet.slots[slot].rack;
            let is_used = |&other: &FleetIndex| rack.is_some() && fleet.slots[other].rack == rack;
            cost += SAME_RACK * target[..rank].iter().filter(|other| is_used(other)).count() as i64;
        }
        if let Some(&next) = target.get(1) {
            cost += growth(self.taken_over[self.handover(fleet, primary, next)], next);
        }
        cost
    }
}

/// Returns the least gain that is worth a move: that of a shard between two workers of the largest
/// weight, of which one has two more than the other. `slack` raises it where a small gain is not
/// worth a move.
pub(super) fn gain_min(size: i64, slack: i64) -> i64 {
    2 * (size + slack) * (RECIPROCAL as i64 / 64) * size
}

/// True if the shard on these slots uses a rack twice.
pub(super) fn shares_rack(fleet: &WorkerFleet, target: &[FleetIndex]) -> bool {
    let racks = target.iter().filter_map(|&slot| fleet.slots[slot].rack);
    let mut racks: Vec<usize> = racks.collect();
    racks.sort_unstable();
    racks.windows(2).any(|pair| pair[0] == pair[1])
}
