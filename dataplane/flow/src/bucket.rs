//! Hot: one cache line of the index, eight entries.
//!
//! ```text
//!  byte 0                  16                              48          56          64
//!       +------------------+-------------------------------+-----------+-----------+
//!       | 8 tags of 16 bit | 8 record ids of 32 bit        | 16 counts | away      |
//!       +------------------+-------------------------------+-----------+-----------+
//! ```
//!
//! Tag 0 marks an empty slot. An entry is in its primary bucket, or in its alternate bucket, which
//! its tag leads to. Bit s of `away` is 1 if slot s holds an entry whose primary bucket is another
//! one, so the two kinds are never confused. Count c, 4 bits, is the number of entries that have
//! this primary bucket, are in their alternate bucket, and have c as the lowest bits of their tag:
//! at 0 a miss needs no second line. One count for all tags would send six of ten misses to the
//! second line when the table is full; 16 counts send one of twelve.

use crate::tags::equal;

/// Entries in a bucket.
pub(crate) const SLOTS: usize = 8;

/// Largest value of a count: an insertion that would need more fails. With random hashes no count
/// comes near it.
const COUNT_MAX: u64 = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    tags: [u16; SLOTS],
    ids: [u32; SLOTS],
    counts: u64,
    away: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);

/// The 16 bits of a hash that are kept with the record id, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashTag(pub(crate) u16);

/// Content of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketEntry {
    pub(crate) tag: HashTag,
    pub(crate) id: u32,
    pub(crate) is_away: bool,
}

impl Bucket {
    pub(crate) const EMPTY: Bucket =
        Bucket { tags: [0; SLOTS], ids: [0; SLOTS], counts: 0, away: 0 };

    /// Returns the slots with this tag whose primary bucket is this one.
    #[inline(always)]
    pub(crate) fn at_home(&self, tag: HashTag) -> SlotSet {
        SlotSet(equal(&self.tags, tag.0) & !self.away)
    }

    /// Returns the slots with this tag whose alternate bucket is this one.
    #[inline(always)]
    pub(crate) fn away(&self, tag: HashTag) -> SlotSet {
        SlotSet(equal(&self.tags, tag.0) & self.away)
    }

    /// Returns the slots of all entries whose primary bucket is another one.
    pub(crate) fn all_away(&self) -> SlotSet {
        SlotSet(self.away)
    }

    /// Whether an entry with this tag and this primary bucket may be in its alternate bucket.
    #[inline(always)]
    pub(crate) fn overflows(&self, tag: HashTag) -> bool {
        self.count(tag) != 0
    }

    /// Whether one more entry with this tag and this primary bucket may be put into its alternate
    /// bucket.
    #[inline(always)]
    pub(crate) fn can_overflow(&self, tag: HashTag) -> bool {
        self.count(tag) < COUNT_MAX
    }

    #[inline(always)]
    fn count(&self, tag: HashTag) -> u64 {
        self.counts >> count_shift(tag) & 15
    }

    #[inline(always)]
    pub(crate) fn free_slot(&self) -> Option<usize> {
        SlotSet(equal(&self.tags, 0)).next()
    }

    #[inline(always)]
    pub(crate) fn id(&self, slot: usize) -> u32 {
        // Spares the check of a bound that no slot exceeds.
        self.ids[slot % SLOTS]
    }

    /// Returns the content of a slot in use.
    #[inline]
    pub(crate) fn entry(&self, slot: usize) -> BucketEntry {
        BucketEntry {
            tag: HashTag(self.tags[slot]),
            id: self.ids[slot],
            is_away: self.away & bit(slot) != 0,
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, slot: usize, entry: BucketEntry) {
        debug_assert!(self.entry(slot).tag.0 == 0, "slot {slot} is taken");
        // Spares the checks of a bound that no slot exceeds.
        let slot = slot % SLOTS;
        self.tags[slot] = entry.tag.0;
        self.ids[slot] = entry.id;
        self.away |= u32::from(entry.is_away) << slot;
    }

    #[inline]
    pub(crate) fn clear(&mut self, slot: usize) {
        self.tags[slot] = 0;
        self.away &= !bit(slot);
    }

    /// Counts an entry of this primary bucket that was put into its alternate bucket.
    #[inline]
    pub(crate) fn count_out(&mut self, tag: HashTag) {
        self.counts += 1 << count_shift(tag);
    }

    /// Uncounts an entry of this primary bucket that has left its alternate bucket.
    #[inline]
    pub(crate) fn count_in(&mut self, tag: HashTag) {
        self.counts -= 1 << count_shift(tag);
    }
}

#[inline(always)]
fn count_shift(tag: HashTag) -> u32 {
    u32::from(tag.0 % 16) * 4
}

#[inline(always)]
fn bit(slot: usize) -> u32 {
    1 << slot
}

/// A set of slots of one bucket: bit s for slot s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotSet(u32);

impl Iterator for SlotSet {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let slot = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Bucket {
        pub(crate) fn overflow(&self) -> usize {
            (0..16).map(|tag| self.count(HashTag(tag)) as usize).sum()
        }

        pub(crate) fn entries(&self) -> impl Iterator<Item = BucketEntry> {
            (0..SLOTS).map(|slot| self.entry(slot)).filter(|entry| entry.tag.0 != 0)
        }
    }

    #[test]
    fn each_slot_is_found_by_its_tag_alone() {
        let tags = [1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 2, 0x0100, 0x00FF];
        let mut bucket = Bucket::EMPTY;
        for (slot, &tag) in tags.iter().enumerate() {
            assert_eq!(bucket.free_slot(), Some(slot));
            let is_away = slot % 3 == 0;
            let (id, tag) = (slot as u32 + 100, HashTag(tag));
            bucket.put(slot, BucketEntry { tag, id, is_away });
        }
        assert_eq!(bucket.free_slot(), None);
        for tag in 1..=u16::MAX {
            let (home, away) = (bucket.at_home(HashTag(tag)), bucket.away(HashTag(tag)));
            let slot = tags.iter().position(|&other| other == tag);
            assert_eq!(home.chain(away).collect::<Vec<_>>(), Vec::from_iter(slot));
        }
        assert_eq!(bucket.away(HashTag(0x8001)).next(), Some(3));
        bucket.clear(3);
        assert_eq!(bucket.away(HashTag(0x8001)).next(), None);
        assert_eq!(bucket.free_slot(), Some(3));
        assert_eq!(bucket.entry(4).id, 104);
    }

    #[test]
    fn equal_tags_are_all_found() {
        let mut bucket = Bucket::EMPTY;
        for slot in 0..SLOTS {
            let (tag, id) = (HashTag(7), slot as u32);
            bucket.put(slot, BucketEntry { tag, id, is_away: false });
        }
        assert_eq!(bucket.at_home(HashTag(7)).count(), SLOTS);
        assert_eq!(bucket.at_home(HashTag(8)).count(), 0);
    }
}
