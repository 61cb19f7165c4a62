//! Positions of the pool that no shard has, in runs: positions that are taken together are
//! consecutive where possible.

use std::ops::Range;

#[derive(Debug)]
pub(super) struct FreePositions {
    /// Sorted; between two runs lies a position that is taken.
    runs: Vec<Range<u32>>,
}

impl FreePositions {
    /// Builds the set of all positions below `count`.
    pub(super) fn new(count: u32) -> Self {
        Self { runs: Some(0..count).into_iter().filter(|all| all.end > 0).collect() }
    }

    pub(super) fn count(&self) -> u32 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Takes `wanted` positions from the shortest run that has as many, else all of the longest.
    /// None if there are none.
    pub(super) fn take(&mut self, wanted: u32) -> Option<Range<u32>> {
        let len = |at: &usize| self.runs[*at].end - self.runs[*at].start;
        let fitting = (0..self.runs.len()).filter(|at| len(at) >= wanted).min_by_key(len);
        let at = fitting.or_else(|| (0..self.runs.len()).max_by_key(len))?;
        let run = &mut self.runs[at];
        let taken = run.start..run.end.min(run.start.saturating_add(wanted));
        run.start = taken.end;
        if run.start == run.end {
            self.runs.remove(at);
        }
        Some(taken)
    }

    /// Gives positions back.
    pub(super) fn give(&mut self, run: Range<u32>) {
        let at = self.runs.partition_point(|other| other.start < run.start);
        self.runs.insert(at, run);
        self.runs.dedup_by(|next, kept| {
            let is_adjacent = kept.end == next.start;
            if is_adjacent {
                kept.end = next.end;
            }
            is_adjacent
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_consecutive_if_they_fit_and_split_otherwise() {
        let mut free = FreePositions::new(16);
        let runs: Vec<_> = [4, 2, 4, 2, 4].map(|count| free.take(count).unwrap()).into();
        assert_eq!(runs, [0..4, 4..6, 6..10, 10..12, 12..16]);
        assert_eq!((free.take(1), free.count()), (None, 0));
        [1, 2, 4_usize].iter().for_each(|&at| free.give(runs[at].clone()));
        assert_eq!(free.runs, [4..10, 12..16]);
        assert_eq!(free.take(3), Some(12..15), "the shortest run that fits");
        assert_eq!((free.take(8), free.take(2)), (Some(4..10), Some(15..16)));
        free.give(0..4);
        free.give(4..10);
        assert_eq!((free.runs.first(), free.runs.len(), free.count()), (Some(&(0..10)), 1, 10));
    }
}
