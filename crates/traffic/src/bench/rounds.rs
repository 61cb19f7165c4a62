//! What alternating rounds say together. Pure.

use serde::Serialize;

use crate::generator::Flood;
use crate::scenario::Scenario;

/// Two raw rounds that differ by more mean that the machine changed its speed in between: the round between them does not count.
const BASELINE_CHANGE_MAX: f64 = 0.20;

/// One round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Measurement {
    pub(super) flood: Flood,
    /// Busy TSC cycles of the device per packet it received.
    pub(super) cycles_per_packet: f64,
}

/// Rounds of one scenario, in the order raw, weir, raw, weir, ..., raw.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) flows: u32,
    pub(super) subscribers: u32,
    pub(super) shards: u32,
    /// One more than `weir` when complete.
    pub(super) raw: Vec<Measurement>,
    pub(super) weir: Vec<Measurement>,
}

/// A weir round between two raw ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    /// The mean of the raw rounds before and after.
    pub(super) raw_mpps: f64,
    pub(super) raw_cycles: f64,
    pub(super) weir_mpps: f64,
    pub(super) weir_cycles: f64,
    /// Difference of the raw rounds, as a share of the faster one.
    pub(super) baseline_change: f64,
}

impl Pair {
    pub(super) fn is_kept(&self) -> bool {
        self.baseline_change <= BASELINE_CHANGE_MAX
    }

    pub(super) fn ratio(&self) -> f64 {
        self.weir_mpps / self.raw_mpps
    }
}

/// Median and extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        };
        Some(Spread { median, min, max })
    }
}

impl Series {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Series {
            flows: scenario.flows(),
            subscribers: scenario.subscribers(),
            shards: scenario.shards(),
            raw: Vec::new(),
            weir: Vec::new(),
        }
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = Pair> + '_ {
        self.weir.iter().zip(self.raw.windows(2)).map(|(weir, raw)| {
            let (before, after) = (raw[0].flood.rate_mpps(), raw[1].flood.rate_mpps());
            Pair {
                raw_mpps: f64::midpoint(before, after),
                raw_cycles: f64::midpoint(raw[0].cycles_per_packet, raw[1].cycles_per_packet),
                weir_mpps: weir.flood.rate_mpps(),
                weir_cycles: weir.cycles_per_packet,
                baseline_change: (before - after).abs() / before.max(after),
            }
        })
    }

    /// The pairs that count.
    pub(super) fn kept(&self) -> impl Iterator<Item = Pair> + '_ {
        self.pairs().filter(Pair::is_kept)
    }

    /// Wrong packets of all rounds, raw ones included: any at all is a fault.
    pub(super) fn wrong(&self) -> u64 {
        self.weir.iter().chain(&self.raw).map(|round| round.flood.wrong()).sum()
    }

    /// Share of weir's packets that were lost, over all rounds.
    pub(super) fn weir_loss(&self) -> f64 {
        let (lost, sent) = self.weir.iter().fold((0, 0), |(lost, sent), round| {
            (lost + round.flood.lost(), sent + round.flood.sent())
        });
        lost as f64 / sent.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(mpps: f64, cycles: f64) -> Measurement {
        let flood = Flood { seconds: 1.0, right_upstream: (mpps * 1e6) as u64, ..Flood::default() };
        Measurement { flood, cycles_per_packet: cycles }
    }

    fn series(raw: &[f64], weir: &[f64]) -> Series {
        let mut series = Series::new(&Scenario::new(10, 1, 1).unwrap());
        series.raw = raw.iter().map(|&mpps| round(mpps, 60.0)).collect();
        series.weir = weir.iter().map(|&mpps| round(mpps, 200.0)).collect();
        series
    }

    #[test]
    fn a_round_is_measured_by_the_raw_rounds_around_it() {
        let pairs: Vec<Pair> = series(&[20.0, 18.0, 18.0], &[9.5, 9.0]).pairs().collect();
        assert!((pairs[0].ratio() - 0.5).abs() < 1e-6);
        assert!((pairs[1].ratio() - 0.5).abs() < 1e-6);
        assert!((pairs[0].baseline_change - 0.1).abs() < 1e-6);
    }

    #[test]
    fn a_round_in_a_change_of_speed_does_not_count() {
        let series = series(&[20.0, 10.0, 9.0], &[5.0, 4.0]);
        assert_eq!(series.pairs().count(), 2);
        let kept: Vec<f64> = series.kept().map(|pair| pair.weir_mpps).collect();
        assert_eq!(kept, [4.0]);
    }

    #[test]
    fn the_last_round_counts_only_once_it_is_enclosed() {
        assert_eq!(series(&[20.0], &[5.0]).pairs().count(), 0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(
            Spread::of([3.0, 1.0, 2.0].into_iter()),
            Some(Spread { median: 2.0, min: 1.0, max: 3.0 })
        );
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0].into_iter()).unwrap().median, 2.5);
        assert_eq!(Spread::of(std::iter::empty()), None);
    }
}
