//! Alternating rounds and their evaluation. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::experiment::Point;
use super::figure::{Figure, Figures, Spread, summary};

/// Largest difference of two raw rounds: beyond it the machine changed its speed in between, and
/// the rounds between them do not count.
const BASELINE_CHANGE_MAX: f64 = 0.20;

/// A raw round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Raw {
    pub(super) mpps: f64,
    /// Busy TSC cycles per packet.
    pub(super) cycles: f64,
}

/// The two raw rounds around other rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    pub(super) before: Raw,
    pub(super) after: Raw,
}

impl Baseline {
    /// Returns the difference of the raw rates, as a share of the faster one.
    pub(super) fn change(&self) -> f64 {
        let (before, after) = (self.before.mpps, self.after.mpps);
        (before - after).abs() / before.max(after)
    }

    /// Enters the raw figures, which are the means of before and after, and the ratios to them.
    fn complete(&self, figures: &mut Figures) {
        let mpps = f64::midpoint(self.before.mpps, self.after.mpps);
        let cycles = f64::midpoint(self.before.cycles, self.after.cycles);
        figures.set(Figure::RawMpps, mpps);
        figures.set(Figure::RawCycles, cycles);
        figures.set(Figure::MppsRatio, figures.get(Figure::WeirMpps).map(|weir| weir / mpps));
        figures.set(Figure::CyclesRatio, figures.get(Figure::WeirCycles).map(|weir| weir / cycles));
    }
}

/// One round of a point.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Round {
    pub(super) figures: Figures,
    /// Packets that came back although they should not, or not in this form: any of them is a
    /// fault.
    pub(super) wrong: u64,
    /// See [`Baseline::change`]. None if no raw rounds are needed.
    pub(super) baseline_change: Option<f64>,
    /// Why the round does not count, if the machine spoilt it.
    pub(super) spoilt: Option<&'static str>,
}

impl Round {
    pub(super) fn enclose(&mut self, baseline: Baseline) {
        baseline.complete(&mut self.figures);
        self.baseline_change = Some(baseline.change());
    }

    /// Returns its figures, with their titles.
    pub(super) fn sentence(&self) -> String {
        let mut text = format!("wrong {}", self.wrong);
        for (figure, value) in &self.figures.0 {
            let _ = write!(text, ", {} {value:.*}", figure.title(), figure.digits());
        }
        if let Some(why) = self.spoilt {
            let _ = write!(text, "; does not count: {why}");
        }
        text
    }

    pub(super) fn is_kept(&self) -> bool {
        self.spoilt.is_none()
            && self.baseline_change.is_none_or(|change| change <= BASELINE_CHANGE_MAX)
    }
}

/// The state of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    Measured,
    /// This machine cannot measure it, with the reason.
    Skipped(String),
    /// It failed although it should work, with the reason.
    Failed(String),
}

/// A point with all its rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    pub(super) point: Point,
    pub(super) state: State,
    pub(super) rounds: Vec<Round>,
    /// Spread over the rounds that count.
    pub(super) figures: BTreeMap<Figure, Spread>,
    /// Figures that could not be measured, with the reasons.
    pub(super) notes: Vec<String>,
}

impl Measured {
    pub(super) fn new(point: &Point) -> Self {
        Measured {
            point: point.clone(),
            state: State::Measured,
            rounds: Vec::new(),
            figures: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Enters a complete round.
    pub(super) fn enter(&mut self, round: Round) {
        self.rounds.push(round);
        self.figures = summary(self.rounds.iter().filter(|r| r.is_kept()).map(|r| &r.figures));
    }

    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn kept(&self) -> usize {
        self.rounds.iter().filter(|round| round.is_kept()).count()
    }

    pub(super) fn median(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure).map(|spread| spread.median)
    }

    pub(super) fn wrong(&self) -> u64 {
        self.rounds.iter().map(|round| round.wrong).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::experiment::Probe;
    use crate::bench::load::Load;

    fn measured(rounds: &[(f64, f64, f64)]) -> Measured {
        let load = Load::new(1, Duration::from_secs(1));
        let point = Point { label: "p".into(), x: 0.0, load, probe: Probe::Flood };
        let mut measured = Measured::new(&point);
        for &(before, weir, after) in rounds {
            let mut round = Round::default();
            round.figures.set(Figure::WeirMpps, weir);
            round.figures.set(Figure::WeirCycles, 200.0);
            let raw = |mpps| Raw { mpps, cycles: 80.0 };
            round.enclose(Baseline { before: raw(before), after: raw(after) });
            measured.enter(round);
        }
        measured
    }

    #[test]
    fn a_round_is_measured_by_the_raw_rounds_around_it() {
        let measured = measured(&[(20.0, 9.5, 18.0), (18.0, 9.0, 18.0)]);
        let ratio = measured.figures[&Figure::MppsRatio];
        assert!((ratio.median - 0.5).abs() < 1e-9 && (ratio.max - 0.5).abs() < 1e-9);
        assert!((measured.median(Figure::CyclesRatio).unwrap() - 2.5).abs() < 1e-9);
        assert!((measured.rounds[0].baseline_change.unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_round_in_a_change_of_speed_does_not_count() {
        let measured = measured(&[(20.0, 5.0, 10.0), (10.0, 4.0, 9.0)]);
        assert_eq!((measured.rounds.len(), measured.kept()), (2, 1));
        assert_eq!(measured.median(Figure::WeirMpps), Some(4.0));
    }

    #[test]
    fn without_a_round_that_counts_there_is_no_figure() {
        let measured = measured(&[(20.0, 5.0, 10.0)]);
        assert_eq!((measured.kept(), measured.median(Figure::WeirMpps)), (0, None));
    }

    #[test]
    fn a_round_that_needs_no_baseline_counts_unless_it_was_spoilt() {
        assert!(Round::default().is_kept());
        let spoilt = Round { spoilt: Some("the machine paused"), ..Round::default() };
        assert!(!spoilt.is_kept() && spoilt.sentence().contains("the machine paused"));
    }
}
