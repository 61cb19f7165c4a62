//! A binary search for the highest rate that passes.

/// The interval that contains the highest passing rate.
#[derive(Clone, Copy, Debug)]
pub struct Bisection {
    passed: f64,
    failed: f64,
    /// The rate under trial.
    rate: f64,
    left: u32,
}

impl Bisection {
    /// Starts a search between 0 and `rate_max`, down to an interval of `precision * rate_max`. The
    /// first step tries `rate_max` itself.
    pub fn new(rate_max: f64, precision: f64) -> Self {
        Bisection { passed: 0.0, failed: rate_max, rate: rate_max, left: Self::steps(precision) }
    }

    /// Returns the largest number of steps that a search takes.
    pub fn steps(precision: f64) -> u32 {
        1 + (1.0 / precision.clamp(1e-6, 1.0)).log2().ceil() as u32
    }

    /// Returns the next rate to try; `None` when the search is over.
    pub fn next_rate(&mut self) -> Option<f64> {
        self.left = self.left.checked_sub(1)?;
        Some(self.rate)
    }

    /// Enters the outcome of the last tried rate.
    pub fn enter(&mut self, has_passed: bool) {
        if has_passed {
            self.passed = self.rate;
        } else {
            self.failed = self.rate;
        }
        if self.passed >= self.failed {
            // The highest rate passed.
            self.left = 0;
        }
        self.rate = (self.passed + self.failed) / 2.0;
    }

    /// Returns the highest rate that passed, 0 if none did.
    pub fn found(&self) -> f64 {
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(limit: f64) -> (f64, u32) {
        let mut search = Bisection::new(1000.0, 0.01);
        let mut steps = 0;
        while let Some(rate) = search.next_rate() {
            steps += 1;
            search.enter(rate <= limit);
        }
        (search.found(), steps)
    }

    #[test]
    fn bisection_ends_within_the_precision_below_the_limit() {
        for limit in [15.0, 333.0, 500.0, 998.0] {
            let (found, steps) = search(limit);
            assert!(found <= limit && found > limit - 10.0, "{limit}: {found}");
            assert_eq!(steps, Bisection::steps(0.01));
        }
    }

    #[test]
    fn a_device_that_passes_everything_takes_one_step() {
        assert_eq!(search(2000.0), (1000.0, 1));
    }

    #[test]
    fn a_device_that_passes_nothing_has_rate_zero() {
        assert_eq!(search(-1.0).0, 0.0);
    }
}
