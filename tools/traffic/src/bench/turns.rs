//! The duration of the turns of a worker's loop between two readings. Pure.

use super::durations::Durations;
use super::figure::{Figure, Figures};
use super::metrics::Reading;

/// Turns and ticks beyond this are too long: packets must not wait longer.
const LONG_SEC: f64 = 1e-3;
/// The share of turns for which a bound is reported.
const BOUND_SHARE: f64 = 0.9999;

/// Returns the longest turn between two readings, s. weir reports the longest turn of a minute,
/// which may lie before the first reading: then the bucket of the longest turn since then is the
/// better bound.
pub(super) fn longest_turn(
    before: &Reading,
    after: &Reading,
    reported: Option<f64>,
) -> Option<f64> {
    let bound = after.turns.since(&before.turns).bound_of(1.0);
    reported.into_iter().chain(bound).reduce(f64::min)
}

/// Enters the durations of the loop's turns, and of the housekeeping in them, between two readings.
/// `reported` is the longest turn that weir reported.
pub(super) fn enter_turns(
    before: &Reading,
    after: &Reading,
    reported: Option<f64>,
    figures: &mut Figures,
) {
    let longest = longest_turn(before, after, reported);
    figures.set(Figure::LongestTurnMs, longest.map(|seconds| 1e3 * seconds));
    let turns = after.turns.since(&before.turns);
    let ticks = after.ticks.since(&before.ticks);
    let bound = |durations: &Durations| {
        let bound = durations.bound_of(BOUND_SHARE)?;
        Some(1e3 * longest.map_or(bound, |longest| bound.min(longest)))
    };
    figures.set(Figure::TurnsBoundMs, bound(&turns));
    figures.set(Figure::LongTurnsPercent, turns.percent_above(LONG_SEC));
    figures.set(Figure::TicksBoundMs, bound(&ticks));
    figures.set(Figure::LongTicksPercent, ticks.percent_above(LONG_SEC));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a reading with these numbers of turns within 1 ms and of all turns; ticks likewise.
    fn reading(turns: [u32; 2], ticks: [u32; 2]) -> Reading {
        let buckets = |name: &str, [short, all]: [u32; 2]| {
            let text = format!(
                "{name}_bucket{{le=\"0.001\"}} {short}\n{name}_bucket{{le=\"+Inf\"}} {all}\n"
            );
            Durations::parse(&text, name)
        };
        let mut reading = Reading::default();
        (reading.turns, reading.ticks) = (buckets("turns", turns), buckets("ticks", ticks));
        reading
    }

    #[test]
    fn turns_before_the_expiry_do_not_count() {
        let (full, empty) = (reading([10, 11], [0, 1]), reading([20_010, 20_011], [100, 101]));
        let mut figures = Figures::default();
        enter_turns(&full, &empty, Some(0.05), &mut figures);
        assert_eq!(figures.get(Figure::LongestTurnMs), Some(1.0));
        assert_eq!(figures.get(Figure::TurnsBoundMs), Some(1.0));
        assert_eq!(figures.get(Figure::LongTurnsPercent), Some(0.0));
        assert_eq!(figures.get(Figure::LongTicksPercent), Some(0.0));
    }

    #[test]
    fn reported_longest_turn_counts_beyond_all_bounds() {
        let (full, empty) = (reading([0, 0], [0, 0]), reading([99, 100], [100, 100]));
        let mut figures = Figures::default();
        enter_turns(&full, &empty, Some(0.05), &mut figures);
        assert_eq!(figures.get(Figure::LongestTurnMs), Some(50.0));
        assert_eq!(figures.get(Figure::TurnsBoundMs), Some(50.0));
        assert!((figures.get(Figure::LongTurnsPercent).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(figures.get(Figure::TicksBoundMs), Some(1.0));
    }
}
