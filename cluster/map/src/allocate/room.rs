//! The room that each worker has beside what it holds: a new copy is planned only where there is
//! room.

use super::fleet::{FleetIndex, WorkerFleet};
use super::input::ShardView;
use crate::map::ShardEntry;

/// By slot: shards that the worker could still take. A worker that has not reported its room takes
/// any number.
#[derive(Debug)]
pub(super) struct Rooms(Vec<i64>);

impl Rooms {
    /// A member takes its worker's room until it is removed, also while it leaves.
    pub(super) fn new(fleet: &WorkerFleet, shards: &[ShardView]) -> Self {
        let room = |shards_max: Option<u32>| shards_max.map_or(i64::from(u32::MAX), i64::from);
        let mut rooms = Self(fleet.slots.iter().map(|slot| room(slot.shards_max)).collect());
        let entries = shards.iter().filter_map(|shard| shard.entry.as_ref());
        for member in entries.flat_map(|entry| entry.members()) {
            let slot = fleet.slot_of(&member.incarnation.worker);
            if let Some(slot) = slot.filter(|&it| fleet.slots[it].incarnation == member.incarnation)
            {
                rooms.take(slot);
            }
        }
        rooms
    }

    pub(super) fn has_room(&self, slot: FleetIndex) -> bool {
        self.0[slot] > 0
    }

    pub(super) fn take(&mut self, slot: FleetIndex) {
        self.0[slot] -= 1;
    }

    /// Moves a shard's claims from `before` to `after`: each slot that is not a member yet needs
    /// room.
    pub(super) fn claim(
        &mut self,
        fleet: &WorkerFleet,
        entry: Option<&ShardEntry>,
        before: &[FleetIndex],
        after: &[FleetIndex],
    ) {
        let is_new = |slot: &&FleetIndex| {
            entry.is_none_or(|entry| entry.member(&fleet.slots[**slot].incarnation).is_none())
        };
        before.iter().filter(is_new).for_each(|&slot| self.0[slot] += 1);
        after.iter().filter(is_new).for_each(|&slot| self.0[slot] -= 1);
    }
}
