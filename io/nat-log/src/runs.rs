//! Keeps which numbers of a count 1, 2, 3, ... have been read, as runs without a gap.

/// A record with its number in a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) number: u64,
    pub(crate) time_ms: u64,
    /// Its number among all records of its incarnation.
    pub(crate) sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: Point,
    pub(crate) last: Point,
    /// The last record that states that all records before it are there.
    pub(crate) mark: Option<Point>,
}

/// Runs, in order once [`Runs::sort`] was called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// Adds a record; files are read in their order, so nearly every record extends the last run.
    pub(crate) fn note(&mut self, point: Point, is_mark: bool) {
        let mark = is_mark.then_some(point);
        match self.0.last_mut() {
            Some(run) if run.last.number.checked_add(1) == Some(point.number) => {
                run.last = point;
                run.mark = mark.or(run.mark);
            }
            _ => self.0.push(Run { first: point, last: point, mark }),
        }
    }

    /// Sorts the runs and joins those that touch or overlap: a log may be given twice.
    pub(crate) fn sort(&mut self) {
        self.0.sort_by_key(|run| (run.first.number, run.last.number));
        let mut joined: Vec<Run> = Vec::with_capacity(self.0.len());
        for run in self.0.drain(..) {
            match joined.last_mut() {
                Some(before) if run.first.number <= before.last.number.saturating_add(1) => {
                    if run.last.number > before.last.number {
                        before.last = run.last;
                    }
                    before.mark =
                        before.mark.into_iter().chain(run.mark).max_by_key(|mark| mark.number);
                }
                _ => joined.push(run),
            }
        }
        self.0 = joined;
    }

    pub(crate) fn all(&self) -> &[Run] {
        &self.0
    }

    pub(crate) fn with(&self, number: u64) -> Option<&Run> {
        let after = self.0.partition_point(|run| run.first.number <= number);
        self.0[..after].last().filter(|run| number <= run.last.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(numbers: &[u64]) -> Vec<(u64, u64, Option<u64>)> {
        let mut runs = Runs::default();
        for number in numbers {
            let point = Point { number: *number, time_ms: 0, sequence: 0 };
            runs.note(point, number % 10 == 0);
        }
        runs.sort();
        let numbers =
            |run: &Run| (run.first.number, run.last.number, run.mark.map(|mark| mark.number));
        runs.all().iter().map(numbers).collect()
    }

    #[test]
    fn numbers_in_any_order_are_joined_to_runs() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[1, 2, 3]), [(1, 3, None)]);
        assert_eq!(runs(&[10, 11, 1, 2, 12]), [(1, 2, None), (10, 12, Some(10))]);
        assert_eq!(runs(&[20, 21, 9, 10, 11]), [(9, 11, Some(10)), (20, 21, Some(20))]);
        assert_eq!(runs(&[3, 4, 1, 2]), [(1, 4, None)]);
        assert_eq!(runs(&[1, 2, 3, 1, 2, 3, 4]), [(1, 4, None)]);
        assert_eq!(runs(&[u64::MAX, u64::MAX]), [(u64::MAX, u64::MAX, None)]);
    }

    #[test]
    fn a_number_is_found_in_its_run() {
        let mut runs = Runs::default();
        for number in [2, 3, 4, 8] {
            runs.note(Point { number, time_ms: 0, sequence: 0 }, false);
        }
        runs.sort();
        let first = |number| runs.with(number).map(|run| run.first.number);
        assert_eq!([1, 2, 4, 5, 8, 9].map(first), [None, Some(2), Some(2), None, Some(8), None]);
    }
}
