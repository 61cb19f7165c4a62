//! Hot. Index of shards by number: open addressing, at most half full.

use weir_nat::ShardIndex;

/// Indexes of shards by the number that all nodes know them by. The operator chooses the numbers,
/// so no secret is mixed in.
#[derive(Debug)]
pub(super) struct ShardIndexes {
    /// Slots; their count is a power of two.
    slots: Box<[Option<(u32, ShardIndex)>]>,
}

impl ShardIndexes {
    /// Returns an empty table for at most `shards_max` shards.
    pub(super) fn new(shards_max: usize) -> Self {
        let slots = (2 * shards_max).next_power_of_two().max(2);
        Self { slots: vec![None; slots].into() }
    }

    /// Slots of a number, the likeliest first. Fibonacci hashing (Knuth, volume 3, section 6.4).
    #[inline]
    fn probe(&self, number: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        let first = (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (0..=mask).map(move |step| (first + step) & mask)
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<ShardIndex> {
        for slot in self.probe(number) {
            match self.slots[slot] {
                Some((found, index)) if found == number => return Some(index),
                Some(_) => {}
                None => return None,
            }
        }
        None
    }

    /// # Panics
    /// If the number is there already, or there are more than were planned for.
    pub(super) fn insert(&mut self, number: u32, index: ShardIndex) {
        let is_free = |&slot: &usize| {
            assert!(
                self.slots[slot].is_none_or(|(known, _)| known != number),
                "a number is inserted once"
            );
            self.slots[slot].is_none()
        };
        let slot = self.probe(number).find(is_free).expect("half of the slots are free");
        self.slots[slot] = Some((number, index));
    }

    /// Removes a number. Those behind it move up, so that no probe ends too early.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(gone) = self
            .probe(number)
            .find(|&slot| self.slots[slot].is_none_or(|(known, _)| known == number))
        else {
            return;
        };
        self.slots[gone] = None;
        let mask = self.slots.len() - 1;
        let mut next = (gone + 1) & mask;
        while let Some((moved, index)) = self.slots[next].take() {
            self.insert(moved, index);
            next = (next + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn numbers_agree_with_a_map() {
        let mut seed = 7_u64;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u32 % below
        };
        let (mut numbers, mut map) = (ShardIndexes::new(16), BTreeMap::new());
        for _ in 0..20_000 {
            let number = random(64) * 0x0100_0001;
            assert_eq!(numbers.get(number), map.get(&number).copied());
            if map.remove(&number).is_some() {
                numbers.remove(number);
            } else if map.len() < 16 {
                let index = ShardIndex(random(1000) as u16);
                map.insert(number, index);
                numbers.insert(number, index);
            }
        }
        numbers.remove(u32::MAX);
        assert_eq!(numbers.get(u32::MAX), None);
    }
}
