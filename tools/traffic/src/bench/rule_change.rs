//! One of many rules is changed while packets flow, alternating with the same flood without a
//! change.
//!
//! ```text
//!   device's core:     weir's worker                  swaps, between two turns
//!                           ▲                              ▲
//!   generator's core:  generator     weir's control thread: reads and compiles at a low priority
//! ```

use std::thread;
use std::time::{Duration, Instant};

use super::BenchError;
use super::context::BenchContext;
use super::figure::{Figure, Figures};
use super::generator_process::Flooded;
use super::load::Load;
use super::metrics::Reading;
use super::probe::Filled;
use super::rounds::Round;
use super::turns::enter_turns;
use super::weir::Settings;

/// Time of the flood before the rule is changed.
const BEFORE: Duration = Duration::from_secs(2);

/// A flood, with or without a change in it.
struct ChangedFlood {
    flooded: Flooded,
    figures: Figures,
    dropped: f64,
}

impl BenchContext<'_> {
    /// Runs a flood in which a rule is changed and one in which none is, in turn.
    pub(super) fn rule_change(
        &self,
        load: &Load,
        is_changed_first: bool,
        round: &mut Round,
    ) -> Result<(), BenchError> {
        let (changed, plain) = if is_changed_first {
            let changed = self.changed_flood(load, true)?;
            (changed, self.changed_flood(load, false)?)
        } else {
            let plain = self.changed_flood(load, false)?;
            (self.changed_flood(load, true)?, plain)
        };
        round.wrong += changed.flooded.wrong + plain.flooded.wrong;
        enter(&changed, &plain, &mut round.figures);
        Ok(())
    }

    fn changed_flood(&self, load: &Load, is_changed: bool) -> Result<ChangedFlood, BenchError> {
        let mut filled: Filled = self.fill(load, Settings::default())?;
        let mut figures = Figures::default();
        let before = filled.weir.reading()?;
        if is_changed {
            thread::sleep(load.warm_up + BEFORE);
            let began = Instant::now();
            filled.weir.change_rule(load.rules.count / 2)?;
            figures.set(Figure::ChangeSeconds, began.elapsed().as_secs_f64());
        }
        let flooded = filled.finished()?;
        let after = filled.weir.reading()?;
        filled.close()?;
        if is_changed {
            figures.set(Figure::CompileSeconds, after.compile_seconds);
            figures.set(Figure::SwapSeconds, after.swap_seconds);
        }
        enter_turns(&before, &after, after.longest_turn, &mut figures);
        figures.set(Figure::WeirMpps, flooded.mpps);
        figures.set(Figure::LossPercent, flooded.loss_percent());
        Ok(ChangedFlood { flooded, figures, dropped: dropped(&before, &after) })
    }
}

/// Returns the packets that weir dropped between two readings.
fn dropped(before: &Reading, after: &Reading) -> f64 {
    let sum = |reading: &Reading| reading.drops.values().sum::<f64>();
    sum(after) - sum(before)
}

/// Enters the figures of a flood with a change beside those of one without.
fn enter(changed: &ChangedFlood, plain: &ChangedFlood, figures: &mut Figures) {
    *figures = changed.figures.clone();
    figures.set(Figure::DroppedByWeir, changed.dropped);
    let of_plain = [
        (Figure::LossPercent, Figure::UnchangedLossPercent),
        (Figure::LongestTurnMs, Figure::UnchangedLongestTurnMs),
        (Figure::LongTurnsPercent, Figure::UnchangedLongTurnsPercent),
    ];
    for (of, beside) in of_plain {
        figures.set(beside, plain.figures.get(of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_with_a_change_is_shown_beside_one_without() {
        let flood = |dropped, longest| {
            let mut figures = Figures::default();
            figures.set(Figure::LongestTurnMs, longest);
            figures.set(Figure::LossPercent, 0.5);
            ChangedFlood { flooded: Flooded::default(), figures, dropped }
        };
        let mut figures = Figures::default();
        enter(&flood(3.0, 0.25), &flood(0.0, 0.125), &mut figures);
        let figure = |figure| figures.get(figure).unwrap();
        assert_eq!(
            (figure(Figure::LongestTurnMs), figure(Figure::UnchangedLongestTurnMs)),
            (0.25, 0.125)
        );
        assert_eq!(
            (figure(Figure::DroppedByWeir), figure(Figure::UnchangedLossPercent)),
            (3.0, 0.5)
        );
    }

    #[test]
    fn packets_dropped_are_those_of_all_reasons_since_the_first_reading() {
        let reading = |rule: f64, ttl: f64| {
            let mut reading = Reading::default();
            reading.drops = [("rule-drop".to_owned(), rule), ("ttl".to_owned(), ttl)].into();
            reading
        };
        assert_eq!(dropped(&reading(1.0, 2.0), &reading(4.0, 2.0)), 3.0);
    }
}
