//! The search for the number of flows that a table holds: exponential, then binary (RFC 9693,
//! connection tracking table capacity). Pure.

/// A step counts as held while its establishment rate is at least this share of the last held
/// step's (beta of the RFC).
const RATE_SHARE_MIN: f64 = 0.2;

#[derive(Clone, Copy, Debug)]
pub(super) struct CapacitySearch {
    /// Largest number held, with its establishment rate.
    low: Option<(u32, f64)>,
    /// Smallest number not held.
    high: Option<u32>,
    first: u32,
    /// The search ends when it knows the capacity to within this share.
    precision: f64,
}

impl CapacitySearch {
    /// Starts a search with `first`, a number of flows that is certainly held.
    pub(super) fn new(first: u32, precision: f64) -> Self {
        CapacitySearch { low: None, high: None, first, precision }
    }

    /// Returns the next number of flows to try; `None` when the search is over.
    pub(super) fn next(&self) -> Option<u32> {
        match (self.low, self.high) {
            (None, None) => Some(self.first),
            (None, Some(_)) => None,
            (Some((low, _)), None) => low.checked_mul(2),
            (Some((low, _)), Some(high)) => {
                let gap = high - low;
                let wide = f64::from(gap) > self.precision * f64::from(low) && gap > 1;
                wide.then(|| low + gap / 2)
            }
        }
    }

    /// Enters the outcome for `flows`: the rate at which all were established, or `None` if they
    /// were not.
    pub(super) fn enter(&mut self, flows: u32, rate: Option<f64>) {
        let least = self.low.map_or(0.0, |(_, rate)| RATE_SHARE_MIN * rate);
        match rate.filter(|rate| *rate >= least) {
            Some(rate) => self.low = Some((flows, rate)),
            None => self.high = Some(flows),
        }
    }

    /// Returns the largest number that was held.
    pub(super) fn held(&self) -> Option<u32> {
        self.low.map(|(flows, _)| flows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(capacity: u32, rate: impl Fn(u32) -> f64) -> (Option<u32>, usize) {
        let mut search = CapacitySearch::new(1000, 0.01);
        let mut steps = 0;
        while let Some(flows) = search.next() {
            search.enter(flows, (flows <= capacity).then(|| rate(flows)));
            steps += 1;
        }
        (search.held(), steps)
    }

    #[test]
    fn search_ends_within_the_precision_below_the_capacity() {
        for capacity in [1000, 1001, 7_777, 65_536, 1_000_000] {
            let (held, steps) = search(capacity, |_| 1e6);
            let held = f64::from(held.unwrap());
            assert!(held <= f64::from(capacity) && held >= 0.98 * f64::from(capacity), "{held}");
            assert!(steps < 20);
        }
    }

    #[test]
    fn collapse_of_the_rate_ends_the_capacity_search() {
        let (held, _) = search(u32::MAX, |flows| if flows > 4_000 { 1e5 } else { 1e6 });
        assert!((3_960..=4_000).contains(&held.unwrap()));
    }

    #[test]
    fn nothing_is_held_by_a_device_that_fails_at_once() {
        assert_eq!(search(10, |_| 1e6), (None, 1));
    }
}
