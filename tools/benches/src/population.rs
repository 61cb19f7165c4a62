//! The flows that a table holds, in random order, and the keys of the next batches.

use crate::flow::{FlowKey, STRANGERS};

/// Keys prepared before the clock starts: 64 KiB.
pub const BATCH: usize = 4096;

/// The flows of a table.
#[derive(Clone, Debug)]
pub struct Population {
    /// Numbers of the flows in the table, shuffled.
    present: Vec<u32>,
    /// Position in `present` where the next batch starts.
    cursor: usize,
    next_new: u32,
    next_stranger: u32,
}

impl Population {
    /// Flows 0 to `len` - 1, shuffled by a fixed seed.
    pub fn new(len: usize) -> Population {
        let mut present: Vec<u32> = (0..len as u32).collect();
        let mut random = 0x853C_49E6_748F_EA9B_u64;
        for index in (1..len).rev() {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            let other = ((random >> 32) * (index as u64 + 1)) >> 32;
            present.swap(index, other as usize);
        }
        Population { present, cursor: 0, next_new: len as u32, next_stranger: STRANGERS }
    }

    pub fn len(&self) -> usize {
        self.present.len()
    }

    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    pub fn sum(&self) -> u64 {
        self.present.iter().map(|&number| u64::from(number)).sum()
    }

    fn next(&mut self) -> usize {
        let index = self.cursor;
        self.cursor = if index + 1 == self.present.len() { 0 } else { index + 1 };
        index
    }

    /// Writes a batch of keys that are in the table, in random order.
    pub fn some_present(&mut self, keys: &mut Vec<FlowKey>) {
        keys.clear();
        for _ in 0..BATCH {
            let index = self.next();
            keys.push(FlowKey::of(self.present[index]));
        }
    }

    /// Writes a batch of keys that were never in the table.
    pub fn some_absent(&mut self, keys: &mut Vec<FlowKey>) {
        keys.clear();
        for _ in 0..BATCH {
            keys.push(FlowKey::of(self.next_stranger));
            self.next_stranger = self.next_stranger.checked_add(1).unwrap_or(STRANGERS);
        }
    }

    /// Writes a batch of keys that leave, and of new ones that replace them, with their flow
    /// numbers.
    pub fn replace(
        &mut self,
        old: &mut Vec<FlowKey>,
        new: &mut Vec<FlowKey>,
        numbers: &mut Vec<u32>,
    ) {
        old.clear();
        new.clear();
        numbers.clear();
        for _ in 0..BATCH.min(self.present.len()) {
            let index = self.next();
            old.push(FlowKey::of(self.present[index]));
            let number = self.next_new;
            self.next_new += 1;
            assert!(number < STRANGERS, "the numbers of flows have run out");
            self.present[index] = number;
            new.push(FlowKey::of(number));
            numbers.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_flow_has_its_own_key() {
        let numbers = (0..200_000).chain(STRANGERS..STRANGERS + 200_000);
        let keys: HashSet<[u64; 2]> = numbers.map(|number| FlowKey::of(number).0).collect();
        assert_eq!(keys.len(), 400_000);
    }

    #[test]
    fn a_lap_of_batches_asks_for_each_flow_once_and_replaces_it() {
        let mut population = Population::new(2 * BATCH);
        let (mut keys, mut seen) = (Vec::new(), HashSet::new());
        for _ in 0..2 {
            population.some_present(&mut keys);
            seen.extend(keys.iter().map(|key| key.0));
        }
        assert_eq!(seen.len(), 2 * BATCH);
        let (mut new, mut numbers) = (Vec::new(), Vec::new());
        population.replace(&mut keys, &mut new, &mut numbers);
        assert!(keys.iter().all(|key| seen.contains(&key.0)));
        assert!(new.iter().all(|key| !seen.contains(&key.0)));
        assert_eq!(numbers[0] as usize, 2 * BATCH);
        population.some_absent(&mut new);
        assert!(new.iter().all(|key| !seen.contains(&key.0)));
    }
}
