//! Hot: finds record ids by hash. A bucketised cuckoo table whose entries move without their keys.

use crate::bucket::{Bucket, BucketEntry, HashTag, SLOTS};
use crate::displace;
use crate::error::{Full, OutOfMemory};
use crate::hash::Hash;
use crate::page_size::PageSize;
use crate::prefetch::prefetch;
use crate::region::Region;

/// A multimap from hash to record id. It keeps 16 bits of the hash per entry, not the key: the
/// caller's closure decides whether a record is the one sought.
#[derive(Debug)]
pub struct Index {
    buckets: Region<Bucket>,
    geometry: Geometry,
    len: usize,
    capacity: usize,
}

/// What the primary bucket says about the entry of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// The id of an entry with a matching tag. It may be the wrong one.
    Found(u32),
    /// The entry may be in the alternate bucket, which was prefetched: see
    /// [`Index::candidate_elsewhere`].
    Elsewhere,
    /// There is no entry with this hash.
    Absent,
}

impl Candidate {
    /// Returns the id that was found.
    #[inline(always)]
    pub fn found(self) -> Option<u32> {
        match self {
            Self::Found(id) => Some(id),
            Self::Elsewhere | Self::Absent => None,
        }
    }
}

/// Computes the two buckets of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Number of buckets, even.
    buckets: u32,
}

impl Geometry {
    #[inline(always)]
    fn home(self, hash: Hash) -> usize {
        (((hash.0 >> 32) * u64::from(self.buckets)) >> 32) as usize
    }

    /// Returns the second bucket of an entry with this tag in `bucket`: (h(tag) - bucket) mod n,
    /// its own inverse, for any n. h is odd and n even, so the two buckets differ.
    #[inline(always)]
    pub(crate) fn other(self, bucket: usize, tag: HashTag) -> usize {
        let spread = u64::from(u32::from(tag.0).wrapping_mul(0x9E37_79B9));
        let offset = ((spread * u64::from(self.buckets)) >> 32) as usize | 1;
        if offset >= bucket { offset - bucket } else { offset + self.buckets as usize - bucket }
    }
}

/// Returns the number of buckets for `entries_max` entries, which is even.
fn buckets_for(entries_max: usize) -> usize {
    // A tenth stays free; eight more buckets give small tables a margin.
    (entries_max.saturating_mul(10).div_ceil(9 * SLOTS) + 8).next_multiple_of(2)
}

#[inline(always)]
fn tag_of(hash: Hash) -> HashTag {
    HashTag((hash.0 as u16).max(1))
}

impl Index {
    /// Makes an index with room for `entries_max` entries with random hashes at a load of at most
    /// 0.9. At most 16 entries can have the same hash.
    ///
    /// # Errors
    /// [`OutOfMemory`], or more buckets than 32 bits can number.
    pub fn new(entries_max: usize) -> Result<Index, OutOfMemory> {
        let buckets = buckets_for(entries_max);
        let buckets = u32::try_from(buckets)
            .map_err(|_| OutOfMemory { bytes: buckets.saturating_mul(size_of::<Bucket>()) })?;
        Ok(Index {
            buckets: Region::new(buckets as usize, Bucket::EMPTY)?,
            geometry: Geometry { buckets },
            len: 0,
            capacity: entries_max,
        })
    }

    /// Returns the bytes of memory that `Index::new(entries_max)` takes.
    pub fn bytes_for(entries_max: usize) -> usize {
        Region::<Bucket>::bytes_for(buckets_for(entries_max))
    }

    /// Prefetches the primary bucket: step 1 of a look-up, an insertion or a removal. Do it for a
    /// whole burst, then step 2 for the whole burst, and so on.
    #[inline(always)]
    pub fn prefetch(&self, hash: Hash) {
        prefetch(&self.buckets, self.geometry.home(hash));
    }

    /// Step 2 of a look-up: returns the first entry of the primary bucket with a matching tag, so
    /// that its record can be prefetched. If there is none and the entry may be in its alternate
    /// bucket, prefetches that bucket.
    #[inline]
    pub fn candidate(&self, hash: Hash) -> Candidate {
        let (home, tag) = (self.geometry.home(hash), tag_of(hash));
        let bucket = &self.buckets[home];
        if let Some(slot) = bucket.at_home(tag).next() {
            return Candidate::Found(bucket.id(slot));
        }
        if !bucket.overflows(tag) {
            return Candidate::Absent;
        }
        prefetch(&self.buckets, self.geometry.other(home, tag));
        Candidate::Elsewhere
    }

    /// Step 3 of a look-up, for a hash that is [`Candidate::Elsewhere`], as about one miss of
    /// twelve is at full load: returns the first entry of the alternate bucket with a matching tag.
    #[inline]
    pub fn candidate_elsewhere(&self, hash: Hash) -> Option<u32> {
        let (home, tag) = (self.geometry.home(hash), tag_of(hash));
        if !self.buckets[home].overflows(tag) {
            return None;
        }
        let bucket = &self.buckets[self.geometry.other(home, tag)];
        Some(bucket.id(bucket.away(tag).next()?))
    }

    /// Step 2 of an insertion: prefetches what [`Index::insert`] will read besides the primary
    /// bucket, which is nothing unless that is full.
    #[inline]
    pub fn prefetch_insert(&self, hash: Hash) {
        let home = self.geometry.home(hash);
        let bucket = &self.buckets[home];
        if bucket.free_slot().is_none() {
            prefetch(&self.buckets, self.geometry.other(home, tag_of(hash)));
            for slot in bucket.all_away() {
                prefetch(&self.buckets, self.geometry.other(home, bucket.entry(slot).tag));
            }
        }
    }

    /// Returns the first entry with this hash that `is_it` accepts. `is_it` also sees entries of
    /// other hashes with the same primary bucket and tag, in about one of 8,000 look-ups.
    #[inline]
    pub fn find(&self, hash: Hash, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (home, tag) = (self.geometry.home(hash), tag_of(hash));
        let bucket = &self.buckets[home];
        for slot in bucket.at_home(tag) {
            if is_it(bucket.id(slot)) {
                return Some(bucket.id(slot));
            }
        }
        if !bucket.overflows(tag) {
            return None;
        }
        let bucket = &self.buckets[self.geometry.other(home, tag)];
        for slot in bucket.away(tag) {
            if is_it(bucket.id(slot)) {
                return Some(bucket.id(slot));
            }
        }
        None
    }

    /// Adds an entry. The same id may be added under several hashes, and several ids under one.
    ///
    /// # Errors
    /// [`Full`] if no slot was found in a bounded search; nothing has changed then.
    #[inline]
    pub fn insert(&mut self, hash: Hash, id: u32) -> Result<(), Full> {
        self.insert_noting(hash, id).map(|_| ())
    }

    /// Adds an entry as [`insert`](Self::insert) does, and returns whether an entry may have had
    /// this hash before. False is certain; true is rarely wrong.
    ///
    /// # Errors
    /// [`Full`], as there.
    #[inline(always)]
    pub fn insert_noting(&mut self, hash: Hash, id: u32) -> Result<bool, Full> {
        let (home, tag) = (self.geometry.home(hash), tag_of(hash));
        let bucket = &mut self.buckets[home];
        let may_be_second = bucket.at_home(tag).next().is_some() || bucket.overflows(tag);
        let Some(slot) = bucket.free_slot() else {
            return self.insert_into_full(hash, id).map(|()| may_be_second);
        };
        bucket.put(slot, BucketEntry { tag, id, is_away: false });
        self.len += 1;
        Ok(may_be_second)
    }

    /// Inserts an entry whose primary bucket is full.
    #[inline(never)]
    fn insert_into_full(&mut self, hash: Hash, id: u32) -> Result<(), Full> {
        let (home, tag) = (self.geometry.home(hash), tag_of(hash));
        let other = self.geometry.other(home, tag);
        let (bucket, slot) =
            if let Some(slot) = displace::send_home(&mut self.buckets, self.geometry, home) {
                (home, slot)
            } else if !self.buckets[home].can_overflow(tag) {
                return Err(Full);
            } else if let Some(slot) = self.buckets[other].free_slot() {
                (other, slot)
            } else {
                displace::make_room(&mut self.buckets, self.geometry, [home, other]).ok_or(Full)?
            };
        let is_away = bucket != home;
        self.buckets[bucket].put(slot, BucketEntry { tag, id, is_away });
        if is_away {
            self.buckets[home].count_out(tag);
        }
        self.len += 1;
        Ok(())
    }

    /// Removes one entry with this hash and id; false if there is none.
    pub fn remove(&mut self, hash: Hash, id: u32) -> bool {
        let (home, tag) = (self.geometry.home(hash), tag_of(hash));
        let bucket = &mut self.buckets[home];
        if let Some(slot) = bucket.at_home(tag).find(|&slot| bucket.id(slot) == id) {
            bucket.clear(slot);
            self.len -= 1;
            return true;
        }
        if !bucket.overflows(tag) {
            return false;
        }
        let bucket = &mut self.buckets[self.geometry.other(home, tag)];
        let Some(slot) = bucket.away(tag).find(|&slot| bucket.id(slot) == id) else {
            return false;
        };
        bucket.clear(slot);
        self.buckets[home].count_in(tag);
        self.len -= 1;
        true
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the index has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of entries for which the index was sized. More may fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the bytes of memory that the index takes.
    pub fn bytes(&self) -> usize {
        self.buckets.bytes()
    }

    /// Returns the size of the pages that the buckets lie on.
    pub fn page_size(&self) -> PageSize {
        self.buckets.page_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKey;

    const KEY: HashKey = HashKey::new([1, 2]);

    fn hash(number: u64) -> Hash {
        KEY.hash([number, 0, 0])
    }

    /// Asserts that the two buckets of every entry lead to each other, and that each bucket counts
    /// its entries that are in their alternate bucket.
    fn assert_consistent(index: &Index) {
        let mut overflow = vec![0; index.buckets.len()];
        let mut len = 0;
        for (number, bucket) in index.buckets.iter().enumerate() {
            for entry in bucket.entries() {
                let other = index.geometry.other(number, entry.tag);
                assert_ne!(number, other);
                assert_eq!(index.geometry.other(other, entry.tag), number);
                overflow[other] += usize::from(entry.is_away);
                len += 1;
            }
        }
        assert_eq!(len, index.len());
        for (bucket, &overflow) in index.buckets.iter().zip(&overflow) {
            assert_eq!(bucket.overflow(), overflow);
        }
    }

    #[test]
    fn a_failed_insertion_changes_nothing() {
        for seed in 0..20 {
            let mut index = Index::new(100).unwrap();
            let numbers = seed * 1000..;
            for number in numbers {
                let before = index.buckets.to_vec();
                if index.insert(hash(number), number as u32).is_err() {
                    assert_eq!(before, index.buckets.to_vec());
                    assert!(index.len() >= 100, "only {} entries fitted", index.len());
                    break;
                }
                assert_consistent(&index);
            }
        }
    }

    #[test]
    fn sixteen_equal_hashes_fit_and_no_more() {
        let mut index = Index::new(1000).unwrap();
        let hash = hash(1);
        for id in 0..16 {
            index.insert(hash, id).unwrap();
        }
        assert_eq!(index.insert(hash, 16), Err(Full));
        for id in 0..16 {
            assert_eq!(index.find(hash, |found| found == id), Some(id));
            assert!(index.remove(hash, id));
            assert!(!index.remove(hash, id));
        }
        assert_consistent(&index);
        assert!(index.is_empty());
    }

    /// 8 entries in the primary bucket and 15 in the alternate one exhaust a count; then none of
    /// the former may be moved either.
    #[test]
    fn a_count_is_never_exceeded() {
        let mut index = Index::new(1000).unwrap();
        let hash_at = |bucket: usize, tag: u64| {
            let upper = ((bucket as u64) << 32).div_ceil(u64::from(index.geometry.buckets));
            Hash(upper << 32 | tag)
        };
        let (home, stranger) = (70, hash_at(70, 2));
        let other = index.geometry.other(home, HashTag(2));
        let alike: Vec<Hash> = (0..24).map(|n| hash_at(home, 1 + 16 * n)).collect();
        let residents: Vec<Hash> = (0..8).map(|n| hash_at(other, 3 + n)).collect();
        for (id, &hash) in alike[..23].iter().enumerate() {
            index.insert(hash, id as u32).unwrap();
        }
        assert_eq!(index.insert(alike[23], 23), Err(Full));
        for (id, &hash) in residents.iter().enumerate() {
            index.insert(hash, 100 + id as u32).unwrap();
        }
        index.insert(stranger, 200).unwrap();
        assert_consistent(&index);
        for (id, &hash) in alike[..23].iter().enumerate() {
            assert_eq!(index.find(hash, |found| found == id as u32), Some(id as u32));
        }
        assert_eq!(index.find(stranger, |_| true), Some(200));
    }

    #[test]
    fn turnover_at_full_load_keeps_most_look_ups_at_one_line() {
        let entries = 10_000;
        let mut index = Index::new(entries).unwrap();
        for number in 0..entries as u64 {
            index.insert(hash(number), number as u32).unwrap();
        }
        for number in 0..50_000 {
            assert!(index.remove(hash(number), number as u32));
            let new = number + entries as u64;
            index.insert(hash(new), new as u32).unwrap();
        }
        assert_consistent(&index);
        let away = index.buckets.iter().map(Bucket::overflow).sum::<usize>();
        assert!(away * 4 < entries, "{away} of {entries} are away from home");
        let strangers = (1 << 50..).take(10_000).map(hash);
        let second_lines = strangers
            .filter(|&h| index.buckets[index.geometry.home(h)].overflows(tag_of(h)))
            .count();
        assert!(second_lines < 1200, "{second_lines} of 10,000 misses touch two lines");
        for number in 50_000..50_000 + entries as u64 {
            assert!(index.remove(hash(number), number as u32));
        }
        assert!(index.buckets.iter().all(|bucket| *bucket == Bucket::EMPTY
            || bucket.entries().next().is_none() && bucket.overflow() == 0));
    }

    /// After a tag collision the closure sees records of other keys; the right one is found behind
    /// them.
    #[test]
    fn a_tag_collision_is_resolved_by_the_closure() {
        let mut index = Index::new(1000).unwrap();
        let (a, b) = (Hash(0x1234_5678_0000_0042), Hash(0x1234_5678_FFFF_0042));
        index.insert(a, 1).unwrap();
        index.insert(b, 2).unwrap();
        assert_eq!(index.candidate(b), Candidate::Found(1));
        let mut seen = Vec::new();
        let found = index.find(b, |id| {
            seen.push(id);
            id == 2
        });
        assert_eq!((found, seen), (Some(2), vec![1, 2]));
    }

    /// The second line is asked for only where the primary bucket counts an entry that is away.
    #[test]
    fn a_miss_names_the_alternate_bucket_only_if_the_entry_may_be_there() {
        let mut index = Index::new(100).unwrap();
        for id in 0..SLOTS as u32 {
            index.insert(Hash(u64::from(100 + id)), id).unwrap();
        }
        let (away, alike, other) = (Hash(200), Hash(216), Hash(217));
        assert_eq!(index.candidate(away), Candidate::Absent);
        index.insert(away, 50).unwrap();
        assert_eq!(index.candidate(away), Candidate::Elsewhere);
        assert_eq!(index.candidate_elsewhere(away), Some(50));
        assert_eq!(index.candidate(alike), Candidate::Elsewhere);
        assert_eq!(index.candidate_elsewhere(alike), None);
        assert_eq!(index.candidate(other), Candidate::Absent);
    }
}
