//! hashbrown's table with the 64-byte record in the slot.

use hashbrown::HashTable;
use weir_flow::HashKey;

use crate::flow::{FlowKey, FlowRecord};
use crate::huge_allocator::HugePages;
use crate::subject::Table;

#[derive(Debug)]
pub struct HashbrownTable {
    table: HashTable<FlowRecord, HugePages>,
    key: HashKey,
}

impl HashbrownTable {
    /// Makes a table with room for `entries`, in as many slots as hashbrown takes for them: a power
    /// of two, filled to 7/8 at most.
    pub fn new(entries: usize) -> HashbrownTable {
        HashbrownTable {
            table: HashTable::with_capacity_in(entries, HugePages),
            key: HashKey::new([0x1234_5678, 0x9ABC_DEF0]),
        }
    }

    fn slots(&self) -> usize {
        self.table.num_buckets()
    }
}

impl Table for HashbrownTable {
    fn find(&mut self, keys: &[FlowKey], _burst: usize) -> usize {
        let hit = |key: &&FlowKey| {
            self.table.find(key.hash(&self.key).0, |record| record.key == **key).is_some()
        };
        keys.iter().filter(hit).count()
    }

    fn insert(&mut self, keys: &[FlowKey], numbers: &[u32], _burst: usize) {
        for (&key, &number) in keys.iter().zip(numbers) {
            let hash = key.hash(&self.key).0;
            let found = self.table.find(hash, |record| record.key == key);
            assert!(found.is_none(), "flow {number} is new");
            self.table.insert_unique(hash, FlowRecord::of(key, number), |record| {
                record.key.hash(&self.key).0
            });
        }
    }

    fn remove(&mut self, keys: &[FlowKey], _burst: usize) {
        for &key in keys {
            let hash = key.hash(&self.key).0;
            let entry = self.table.find_entry(hash, |record| record.key == key);
            entry.expect("the flow is there").remove();
        }
    }

    fn sweep(&mut self, class: u32, ended: &mut Vec<u32>) -> bool {
        self.table.retain(|record| {
            let is_due = record.is_due(class);
            if is_due {
                ended.push(record.number);
            }
            !is_due
        });
        true
    }

    fn walk(&mut self) -> Option<u64> {
        Some(self.table.iter().map(|record| u64::from(record.number)).sum())
    }

    fn bytes(&self) -> usize {
        self.table.allocation_size()
    }

    fn load(&self, entries: usize) -> f64 {
        entries as f64 / self.slots() as f64
    }
}
