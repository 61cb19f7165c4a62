//! The addresses of homes, for operators to list, for the log and for audits.

use std::collections::HashMap;

use weir_ids::ShardId;

use crate::logs::block_event::{BlockEvents, HoldingChange};
use crate::replication::lane::LANES;

use super::{AddressOwners, HeldAddress, NONE, Owner};

impl AddressOwners {
    /// Returns the number of entries, resting ones included.
    pub(crate) fn used(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of entries that there is room for.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Hands over what a home has, with its number of records, of up to `budget` slots from this
    /// one on. Returns the slot to continue from: the capacity, if there are no more.
    pub(crate) fn each_of(
        &self,
        owner: Owner,
        from: u32,
        budget: u32,
        mut each: impl FnMut(HeldAddress, u32),
    ) -> u32 {
        let until = self.capacity().min(from.saturating_add(budget));
        for slot in from..until {
            let entry = &self.slots[slot as usize];
            if entry.owner == owner && entry.is_used {
                each(entry.held, entry.records);
            }
        }
        until
    }

    /// Logs for up to `budget` slots, from this one on, which home of the shard has which address,
    /// of those with flows in this lane. Returns the slot to continue from, how many addresses were
    /// logged, and whether there are no more.
    pub(crate) fn list(
        &mut self,
        (shard, lane): (ShardId, u8),
        from: u32,
        budget: u32,
        events: &mut BlockEvents,
    ) -> (u32, u32, bool) {
        let all = self.slots.len() as u32;
        if self.in_lane[usize::from(lane)] == 0 {
            return (all, 0, true);
        }
        let until = all.min(from.saturating_add(budget));
        let mut logged = 0;
        for slot in from..until {
            let entry = &mut self.slots[slot as usize];
            if entry.lanes >> lane & 1 != 0 && entry.owner.shard == shard {
                events.push_claim(shard, 1 << lane, entry.event(HoldingChange::Listed));
                entry.logged |= 1 << lane;
                logged += 1;
            }
        }
        (until, logged, until == all)
    }

    /// For tests; `records` holds by slot the number of mapping records, and the lanes they lie in,
    /// a bit each.
    ///
    /// # Panics
    /// If an address is lost or counted wrongly.
    #[cfg_attr(not(any(test, feature = "audit")), expect(dead_code, reason = "for audits"))]
    pub(crate) fn audit(&self, records: &HashMap<u32, (u32, u8)>) {
        let (mut resting, mut slot, mut previous) = (0, self.oldest, NONE);
        while slot != NONE {
            let entry = &self.slots[slot as usize];
            assert!(entry.records == 0 && entry.previous == previous && entry.is_used);
            resting += 1;
            (previous, slot) = (slot, entry.next);
        }
        assert_eq!(self.newest, previous);
        for (&slot, &(records, lanes)) in records {
            let entry = &self.slots[slot as usize];
            assert_eq!(entry.records, records, "records of an address");
            assert_eq!(
                entry.lanes & lanes,
                lanes,
                "the lanes of its records are lanes of an address"
            );
        }
        assert_eq!(self.index.len(), records.len() + resting, "an address has records or rests");
        let mut in_lane = [0; LANES as usize];
        for entry in self.slots.iter().filter(|entry| entry.lanes != 0) {
            assert_eq!(
                entry.lanes & entry.logged,
                entry.logged,
                "an address is logged in its lanes"
            );
            for (lane, count) in in_lane.iter_mut().enumerate() {
                *count += u32::from(entry.lanes >> lane & 1);
            }
        }
        assert_eq!(self.in_lane, in_lane, "addresses with flows in each lane");
    }
}
