//! The search for the highest rate without a loss: binary, between zero and the rate of the flood
//! (RFC 2544 section 26.1). Pure.

#[derive(Clone, Copy, Debug)]
pub(super) struct RateSearch {
    low: f64,
    high: f64,
    steps_left: u32,
}

impl RateSearch {
    /// Starts a search between 0 and `highest`, which finds the rate to within `highest / 2^steps`.
    pub(super) fn new(highest: f64, steps: u32) -> Self {
        RateSearch { low: 0.0, high: highest, steps_left: steps }
    }

    pub(super) fn next(&self) -> Option<f64> {
        (self.steps_left > 0).then(|| f64::midpoint(self.low, self.high))
    }

    pub(super) fn enter(&mut self, rate: f64, passed: bool) {
        self.steps_left = self.steps_left.saturating_sub(1);
        *(if passed { &mut self.low } else { &mut self.high }) = rate;
    }

    /// Returns the highest rate that passed; 0 if none did.
    pub(super) fn passed(&self) -> f64 {
        self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_search_finds_the_rate_to_within_its_precision() {
        for limit in [0.0, 0.3, 0.77, 1.0] {
            let mut search = RateSearch::new(1.0, 6);
            while let Some(rate) = search.next() {
                search.enter(rate, rate <= limit);
            }
            let found = search.passed();
            assert!(found <= limit && limit - found <= 1.0 / 64.0 + 1e-12, "{limit} {found}");
        }
    }
}
