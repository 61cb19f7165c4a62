//! weir's own table: an index of record ids over slabs of records.

use weir_flow::{Cursor, Hash, HashKey, Index, OutOfMemory, RecordId, SlabId, Slabs};

use crate::BURST_MAX;
use crate::flow::{FlowKey, FlowRecord};
use crate::subject::Table;

const SLAB: SlabId = SlabId(0);

/// Slots that a sweep examines before it removes the records found, as the NAT does.
const STEP: usize = 64;

#[derive(Debug)]
pub struct WeirTable {
    index: Index,
    records: Slabs<FlowRecord>,
    key: HashKey,
    slots: usize,
}

impl WeirTable {
    /// Makes an index of about `slots` slots, and records for `entries`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(slots: usize, entries: usize) -> Result<WeirTable, OutOfMemory> {
        Ok(WeirTable {
            index: Index::new(slots / 10 * 9)?,
            records: Slabs::new(entries, 1)?,
            key: HashKey::new([0x1234_5678, 0x9ABC_DEF0]),
            slots,
        })
    }

    /// Step 1 of every operation: hashes the keys and prefetches their index lines.
    #[inline(always)]
    fn hash_and_prefetch(&self, keys: &[FlowKey], hashes: &mut [Hash]) {
        for (key, hash) in keys.iter().zip(hashes) {
            *hash = key.hash(&self.key);
            self.index.prefetch(*hash);
        }
    }

    fn insert_burst(&mut self, keys: &[FlowKey], numbers: &[u32]) {
        let mut hashes = [Hash(0); BURST_MAX];
        self.hash_and_prefetch(keys, &mut hashes);
        self.records.prefetch_next(SLAB);
        for (&hash, _) in hashes.iter().zip(keys) {
            if let Some(id) = self.index.candidate(hash).found() {
                self.records.prefetch(RecordId(id));
            }
            self.index.prefetch_insert(hash);
        }
        for ((&key, &number), &hash) in keys.iter().zip(numbers).zip(&hashes) {
            let found = self.index.find(hash, |id| self.records.get(RecordId(id)).key == key);
            assert_eq!(found, None, "flow {number} is new");
            let id = self.records.alloc(SLAB).expect("the slab has room for the entries");
            let record = self.records.get_mut(id);
            *record = FlowRecord { version: record.version, ..FlowRecord::of(key, number) };
            self.index.insert(hash, id.0).expect("the index has room for the entries");
        }
    }

    fn remove_burst(&mut self, keys: &[FlowKey]) {
        let mut hashes = [Hash(0); BURST_MAX];
        let mut found = [None; BURST_MAX];
        let (hashes, found) = (&mut hashes[..keys.len()], &mut found[..keys.len()]);
        self.find_burst(keys, hashes, found);
        for (&hash, found) in hashes.iter().zip(found) {
            let id = found.expect("a removed flow is in the table");
            let was_there = self.index.remove(hash, id);
            assert!(was_there, "a record that was found can be removed");
            self.records.free(RecordId(id));
        }
    }

    /// Runs the steps of a look-up, each for the whole burst, as the data path takes them.
    #[inline(always)]
    fn find_burst(&self, keys: &[FlowKey], hashes: &mut [Hash], found: &mut [Option<u32>]) {
        self.hash_and_prefetch(keys, hashes);
        let prefetch = |id: &u32| self.records.prefetch(RecordId(*id));
        for (&hash, found) in hashes.iter().zip(&mut *found) {
            *found = self.index.candidate(hash).found().inspect(prefetch);
        }
        for (&hash, found) in hashes.iter().zip(&mut *found).filter(|(_, found)| found.is_none()) {
            *found = self.index.candidate_elsewhere(hash).inspect(prefetch);
        }
        for ((key, &hash), found) in keys.iter().zip(&*hashes).zip(found) {
            let is_it = |id: u32| self.records.get(RecordId(id)).key == *key;
            if found.is_some_and(|id| !is_it(id)) {
                *found = self.index.find(hash, is_it);
            }
        }
    }
}

impl Table for WeirTable {
    fn find(&mut self, keys: &[FlowKey], burst: usize) -> usize {
        let mut hashes = [Hash(0); BURST_MAX];
        let mut found = [None; BURST_MAX];
        let mut hits = 0;
        for keys in keys.chunks(burst) {
            let (hashes, found) = (&mut hashes[..keys.len()], &mut found[..keys.len()]);
            self.find_burst(keys, hashes, found);
            hits += found.iter().flatten().count();
        }
        hits
    }

    fn insert(&mut self, keys: &[FlowKey], numbers: &[u32], burst: usize) {
        for (keys, numbers) in keys.chunks(burst).zip(numbers.chunks(burst)) {
            self.insert_burst(keys, numbers);
        }
    }

    fn remove(&mut self, keys: &[FlowKey], burst: usize) {
        for keys in keys.chunks(burst) {
            self.remove_burst(keys);
        }
    }

    fn sweep(&mut self, class: u32, ended: &mut Vec<u32>) -> bool {
        let mut cursor = Cursor::default();
        let mut due: [(RecordId, Hash); STEP] = [(RecordId::NONE, Hash(0)); STEP];
        loop {
            let mut count = 0;
            let has_wrapped = self.records.walk(&mut cursor, STEP, |id, _, record| {
                if record.is_due(class) {
                    let hash = record.key.hash(&self.key);
                    self.index.prefetch(hash);
                    due[count] = (id, hash);
                    count += 1;
                }
            });
            for &(id, hash) in &due[..count] {
                ended.push(self.records.get(id).number);
                assert!(self.index.remove(hash, id.0), "a live record is in the index");
                self.records.free(id);
            }
            if has_wrapped {
                return true;
            }
        }
    }

    fn walk(&mut self) -> Option<u64> {
        let (mut sum, mut from) = (0, Some(0));
        while let Some(slot) = from {
            let visit = |_, record: &FlowRecord| sum += u64::from(record.number);
            from = self.records.walk_slab(SLAB, slot, STEP, visit);
        }
        Some(sum)
    }

    fn bytes(&self) -> usize {
        self.index.bytes() + self.records.bytes()
    }

    fn load(&self, entries: usize) -> f64 {
        entries as f64 / self.slots as f64
    }
}
