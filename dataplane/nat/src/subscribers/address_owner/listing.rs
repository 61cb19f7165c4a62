//! The addresses of a home, for operators to list.

use super::{AddressOwners, HeldAddress, Owner};

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
}
