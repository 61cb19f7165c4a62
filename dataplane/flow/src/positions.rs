//! The positions of a slab that have an extent: a bitmap per slab, and above it one with a bit per
//! word.
//!
//! An extent takes the lowest free position, so a slab's slot numbers stay dense, and since a slab
//! never has more extents than the arena, positions never exceed their number. All searches read a
//! bounded number of words: 16 for 60 million records.

use crate::error::OutOfMemory;
use crate::region::Region;

const WORD: usize = u64::BITS as usize;

#[derive(Debug)]
pub(crate) struct Positions {
    /// Bit set: the position is taken.
    taken: Region<u64>,
    /// Bit set: the word of `taken` is full.
    full: Region<u64>,
    /// Bit set: the word of `taken` is not empty.
    some: Region<u64>,
    taken_words: usize,
    summary_words: usize,
}

/// Returns the number of words of a slab's bitmap and of the bitmap above it.
fn words_for(positions: usize) -> (usize, usize) {
    let taken_words = positions.div_ceil(WORD).max(1);
    (taken_words, taken_words.div_ceil(WORD))
}

impl Positions {
    /// Makes bitmaps for `slabs` slabs with positions below `positions`.
    pub(crate) fn new(slabs: usize, positions: usize) -> Result<Positions, OutOfMemory> {
        let (taken_words, summary_words) = words_for(positions);
        Ok(Positions {
            taken: Region::new(slabs.saturating_mul(taken_words), 0)?,
            full: Region::new(slabs.saturating_mul(summary_words), 0)?,
            some: Region::new(slabs.saturating_mul(summary_words), 0)?,
            taken_words,
            summary_words,
        })
    }

    /// Returns the bytes of memory that `Positions::new(slabs, positions)` takes.
    pub(crate) fn bytes_for(slabs: usize, positions: usize) -> usize {
        let (taken_words, summary_words) = words_for(positions);
        Region::<u64>::bytes_for(slabs.saturating_mul(taken_words))
            + 2 * Region::<u64>::bytes_for(slabs.saturating_mul(summary_words))
    }

    /// Returns the lowest free position. There must be one.
    pub(crate) fn lowest_free(&self, slab: usize) -> u32 {
        let summary = &self.full[slab * self.summary_words..][..self.summary_words];
        let group = summary
            .iter()
            .position(|&word| word != u64::MAX)
            .expect("a slab has fewer extents than the arena");
        let word = group * WORD + summary[group].trailing_ones() as usize;
        let bits = self.taken[slab * self.taken_words + word];
        (word * WORD) as u32 + bits.trailing_ones()
    }

    /// Takes a free position.
    pub(crate) fn take(&mut self, slab: usize, position: u32) {
        let (word, bit) = (position as usize / WORD, position as usize % WORD);
        let group = slab * self.summary_words + word / WORD;
        let bits = &mut self.taken[slab * self.taken_words + word];
        debug_assert!(*bits & 1 << bit == 0, "a position is taken once");
        *bits |= 1 << bit;
        if *bits == u64::MAX {
            self.full[group] |= 1 << (word % WORD);
        }
        self.some[group] |= 1 << (word % WORD);
    }

    /// Releases a position.
    pub(crate) fn release(&mut self, slab: usize, position: u32) {
        let (word, bit) = (position as usize / WORD, position as usize % WORD);
        let group = slab * self.summary_words + word / WORD;
        let bits = &mut self.taken[slab * self.taken_words + word];
        *bits &= !(1 << bit);
        self.full[group] &= !(1 << (word % WORD));
        if *bits == 0 {
            self.some[group] &= !(1 << (word % WORD));
        }
    }

    /// Returns the lowest position in use that is not below `from`.
    pub(crate) fn next_taken(&self, slab: usize, from: u32) -> Option<u32> {
        let (word, bit) = (from as usize / WORD, from as usize % WORD);
        if word >= self.taken_words {
            return None;
        }
        let taken = &self.taken[slab * self.taken_words..][..self.taken_words];
        let rest = taken[word] & (u64::MAX << bit);
        if rest != 0 {
            return Some((word * WORD) as u32 + rest.trailing_zeros());
        }
        let some = &self.some[slab * self.summary_words..][..self.summary_words];
        let mut above = match word % WORD {
            63 => 0,
            shift => some[word / WORD] & (u64::MAX << (shift + 1)),
        };
        let mut group = word / WORD;
        while above == 0 {
            group += 1;
            above = *some.get(group)?;
        }
        let word = group * WORD + above.trailing_zeros() as usize;
        Some((word * WORD) as u32 + taken[word].trailing_zeros())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.taken.bytes() + self.full.bytes() + self.some.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// 5,000 positions make 79 words: two groups of the summary.
    #[test]
    fn positions_agree_with_a_set_under_random_steps() {
        let count = 5000;
        let mut positions = Positions::new(2, count).unwrap();
        let mut model = BTreeSet::new();
        let mut free: BTreeSet<u32> = (0..count as u32).collect();
        let mut random = 1_u64;
        for step in 0..60_000 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let draw = (random >> 33) as usize;
            // First fill, then empty nearly all, then mix.
            let is_take = match step {
                0..5000 => true,
                5000..9900 => false,
                _ => draw.is_multiple_of(2),
            };
            if let (true, Some(lowest)) = (is_take, free.first().copied()) {
                assert_eq!(positions.lowest_free(1), lowest);
                // Sometimes not the lowest: another table chooses the slots of a mirrored slab.
                let from = if draw.is_multiple_of(5) { (draw >> 4) % count } else { 0 } as u32;
                let position = free.range(from..).next().copied().unwrap_or(lowest);
                positions.take(1, position);
                free.remove(&position);
                model.insert(position);
            } else if let Some(&position) = model.range((draw % count) as u32..).next() {
                positions.release(1, position);
                model.remove(&position);
                free.insert(position);
            }
            let from = (draw >> 8) as u32 % (count as u32 + 10);
            assert_eq!(positions.next_taken(1, from), model.range(from..).next().copied());
        }
        assert_eq!(positions.next_taken(0, 0), None, "the other slab is empty");
    }
}
