//! Compares the index with a naive multimap, under random operations up to the full table.

use std::collections::HashMap;

use bolero::{TypeGenerator, check};
use weir_flow::{Candidate, Hash, HashKey, Index};

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Step {
    /// Insertions are twice as likely as removals, so that tables fill up.
    Insert(Key),
    InsertAgain(Key),
    Remove(Key),
    Find(Key),
}

/// Few primary buckets, few tags, and few values of the other hash bits: collisions of every kind.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Key {
    #[generator(0..40_u8)]
    home: u8,
    #[generator(0..12_u8)]
    tag: u8,
    #[generator(0..3_u8)]
    rest: u8,
    #[generator(0..6_u8)]
    id: u8,
}

impl Key {
    fn hash(self) -> Hash {
        let home = (u64::from(self.home) * (u64::from(u32::MAX) / 40)) << 32;
        Hash(home | u64::from(self.rest) << 16 | u64::from(self.tag))
    }

    /// The id identifies the hash too, as a record contains its key: the closure can distinguish
    /// entries of equal tags.
    fn id(self) -> u32 {
        u32::from_le_bytes([self.home, self.tag, self.rest, self.id])
    }
}

#[derive(Default)]
struct Model {
    ids: HashMap<u64, Vec<u32>>,
    len: usize,
}

fn run(steps: &[Step]) {
    let mut index = Index::new(100).unwrap();
    let mut model = Model::default();
    for &step in steps {
        match step {
            Step::Insert(key) | Step::InsertAgain(key) => {
                let is_second = model.ids.get(&key.hash().0).is_some_and(|ids| !ids.is_empty());
                if let Ok(may_be_second) = index.insert_noting(key.hash(), key.id()) {
                    assert!(may_be_second || !is_second, "an entry with this hash is there");
                    model.ids.entry(key.hash().0).or_default().push(key.id());
                    model.len += 1;
                } else {
                    // Full happens when a few buckets or equal hashes overflow, never in an empty
                    // table.
                    assert!(index.len() >= 16);
                    assert_same(&index, &model);
                }
            }
            Step::Remove(key) => {
                let ids = model.ids.entry(key.hash().0).or_default();
                let position = ids.iter().position(|&id| id == key.id());
                assert_eq!(index.remove(key.hash(), key.id()), position.is_some());
                if let Some(position) = position {
                    ids.swap_remove(position);
                    model.len -= 1;
                }
            }
            Step::Find(key) => {
                let found = index.find(key.hash(), |id| id == key.id());
                let ids = model.ids.get(&key.hash().0);
                let is_there = ids.is_some_and(|ids| ids.contains(&key.id()));
                assert_eq!(found, is_there.then_some(key.id()));
            }
        }
        assert_eq!(index.len(), model.len);
    }
    assert_same(&index, &model);
    assert_steps_agree(&index);
}

/// For all possible keys: the steps of a look-up find the first entry with the key's tag.
fn assert_steps_agree(index: &Index) {
    for number in 0..40 * 36 {
        let [home, tag, rest] = [number / 36, number / 3 % 12, number % 3].map(|part| part as u8);
        let hash = Key { home, tag, rest, id: (number % 6) as u8 }.hash();
        let first = index.find(hash, |_| true);
        let candidate = match index.candidate(hash) {
            Candidate::Found(id) => Some(id),
            Candidate::Elsewhere => index.candidate_elsewhere(hash),
            Candidate::Absent => None,
        };
        assert_eq!(candidate, first, "the first entry with this tag");
    }
}

/// Asserts that the closure sees each entry under its hash as often as it was inserted.
fn assert_same(index: &Index, model: &Model) {
    for (&hash, ids) in &model.ids {
        let mut seen = Vec::new();
        index.find(Hash(hash), |id| {
            seen.push(id);
            false
        });
        for &id in ids {
            let count = |ids: &[u32]| ids.iter().filter(|&&other| other == id).count();
            assert_eq!(count(&seen), count(ids), "entry {id:#x} of {hash:#x}");
        }
    }
}

#[test]
fn index_agrees_with_a_multimap() {
    check!().with_type::<Vec<Step>>().for_each(|steps| run(steps));
}

/// Long runs fill the table, which a fuzzer's short inputs seldom do.
#[test]
fn index_agrees_with_a_multimap_when_full() {
    let key = HashKey::new([3, 4]);
    for seed in 0..30 {
        let steps: Vec<Step> = (0..4000)
            .map(|number| {
                let draw = key.hash([seed, number, 0]).0;
                let [kind, home, tag, rest, id, ..] = draw.to_le_bytes();
                let key = Key { home: home % 40, tag: tag % 12, rest: rest % 3, id: id % 6 };
                match kind % 8 {
                    0..4 => Step::Insert(key),
                    4..6 => Step::Remove(key),
                    _ => Step::Find(key),
                }
            })
            .collect();
        run(&steps);
    }
}

/// The promise of `Index::new`, over sizes from one entry to more buckets than tags.
#[test]
fn random_keys_fill_an_index_to_its_capacity() {
    for (entries, seeds) in [(1, 100), (16, 100), (100, 100), (5000, 20), (1_000_000, 1)] {
        for seed in 0..seeds {
            let key = HashKey::new([seed, 9]);
            let mut index = Index::new(entries).unwrap();
            for number in 0..entries as u32 {
                let hash = key.hash([u64::from(number), 0, 0]);
                assert_eq!(index.insert(hash, number), Ok(()), "{number} of {entries}");
            }
            for number in 0..entries as u32 {
                let hash = key.hash([u64::from(number), 0, 0]);
                assert_eq!(index.find(hash, |id| id == number), Some(number));
            }
        }
    }
}
