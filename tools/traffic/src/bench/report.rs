//! The results of a benchmark so far, and the files that hold them.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::experiment::{Experiment, Scale};
use super::figure::{Figure, Spread};
use super::machine::Machine;
use super::promises::{self, Line};
use super::rounds::{Measured, State};
use super::{BenchError, BenchPlan, markdown, plot};

/// The content of a report.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(super) command: String,
    pub(super) machine: Machine,
    pub(super) generator_core: usize,
    pub(super) device_core: usize,
    promises: Vec<Line>,
    pub(super) results: Results,
}

/// The experiments that have run.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Results(pub(super) Vec<ExperimentResult>);

#[derive(Clone, Debug, Serialize)]
pub(super) struct ExperimentResult {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    #[serde(skip)]
    pub(super) axis: Option<(&'static str, Scale)>,
    /// Number of rounds that must count.
    pub(super) rounds: usize,
    /// How huge pages were obtained, as a sentence.
    pub(super) huge_pages: String,
    pub(super) points: Vec<Measured>,
}

impl ExperimentResult {
    pub(super) fn new(experiment: &Experiment) -> Self {
        ExperimentResult {
            name: experiment.name,
            title: experiment.title,
            about: experiment.about,
            axis: experiment.axis,
            rounds: experiment.rounds,
            huge_pages: String::new(),
            points: Vec::new(),
        }
    }

    /// Returns the figures that any point has, in the order of the columns.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> =
            self.points.iter().flat_map(|point| point.figures.keys().copied()).collect();
        figures.sort();
        figures.dedup();
        figures
    }
}

impl Results {
    pub(super) fn median(&self, experiment: &str, label: &str, figure: Figure) -> Option<f64> {
        let experiment = self.0.iter().find(|result| result.name == experiment)?;
        experiment.points.iter().find(|point| point.point.label == label)?.median(figure)
    }

    /// Returns the greatest of a figure's values, as extracted by `of`, over all points of an
    /// experiment; `None` unless every point that this machine can measure has the figure.
    pub(super) fn greatest(
        &self,
        experiment: &str,
        figure: Figure,
        of: impl Fn(&Spread) -> f64,
    ) -> Option<f64> {
        let experiment = self.0.iter().find(|result| result.name == experiment)?;
        let is_measured = |point: &&Measured| !matches!(point.state, State::Skipped(_));
        let values: Option<Vec<f64>> = experiment
            .points
            .iter()
            .filter(is_measured)
            .map(|point| point.figures.get(&figure).map(&of))
            .collect();
        values?.into_iter().reduce(f64::max)
    }

    fn points(&self) -> impl Iterator<Item = &Measured> {
        self.0.iter().flat_map(|experiment| &experiment.points)
    }
}

impl Report {
    pub(super) fn new(plan: &BenchPlan, machine: Machine) -> Self {
        Report {
            command: plan.command.clone(),
            machine,
            generator_core: plan.generator_core,
            device_core: plan.device_core,
            promises: Vec::new(),
            results: Results::default(),
        }
    }

    /// Enters an experiment, complete or not, in place of its earlier results.
    pub(super) fn enter(&mut self, result: ExperimentResult) {
        match self.results.0.iter_mut().find(|known| known.name == result.name) {
            Some(known) => *known = result,
            None => self.results.0.push(result),
        }
        self.promises = promises::lines(&self.results);
    }

    /// Returns the number of wrong packets that came back, over all rounds.
    pub fn wrong(&self) -> u64 {
        self.results.points().map(Measured::wrong).sum()
    }

    /// Returns the faults, a sentence each: points that failed, and points without a round that
    /// counts.
    pub fn faults(&self) -> Vec<String> {
        let fault = |point: &Measured| match &point.state {
            State::Failed(why) => Some(format!("{}: {why}", point.point.label)),
            State::Measured if point.kept() == 0 => Some(format!(
                "{}: no round counts, the machine changed its speed all the time",
                point.point.label
            )),
            State::Measured | State::Skipped(_) => None,
        };
        self.results.points().filter_map(fault).collect()
    }

    /// Writes `report.md`, `report.json` and the plots into `folder`.
    pub fn write(&self, folder: &Path) -> Result<(), BenchError> {
        let write = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes)
                .map_err(|source| BenchError::io(folder.join(name).display().to_string(), source))
        };
        fs::create_dir_all(folder)
            .map_err(|source| BenchError::io(folder.display().to_string(), source))?;
        let mut plots = Vec::new();
        for experiment in &self.results.0 {
            for (name, svg) in plot::of(experiment)? {
                write(&name, svg.as_bytes())?;
                plots.push((experiment.name, name));
            }
        }
        write("report.md", markdown::report(self, &plots).as_bytes())?;
        let json = serde_json::to_vec_pretty(self)
            .map_err(|error| BenchError::io("report.json", error.into()))?;
        write("report.json", &json)
    }

    /// Returns each promise with its measured figure, and how weir compares with another build, or
    /// with itself without a session log, if that was measured.
    pub fn summary(&self) -> String {
        markdown::promises(&self.promises) + &markdown::comparisons(self.results.points())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::experiment::{Point, Probe};
    use crate::bench::load::Load;
    use crate::bench::rounds::{Baseline, Raw, Round};

    /// Returns an experiment `sample` with a round of weir at each (label, Mpps), raw at 20 Mpps.
    pub(in crate::bench) fn results(points: &[(&str, f64)]) -> Results {
        let measured = points.iter().enumerate().map(|(position, &(label, mpps))| {
            let load = Load::new(10, Duration::from_secs(1));
            let x = 10_f64.powi(position as i32);
            let point = Point { label: label.into(), x, load, probe: Probe::Flood };
            let mut measured = Measured::new(&point);
            let mut round = Round::default();
            round.figures.set(Figure::WeirMpps, mpps);
            round.figures.set(Figure::WeirCycles, 200.0);
            let raw = Raw { mpps: 20.0, cycles: 80.0 };
            round.enclose(Baseline { before: raw, after: raw });
            measured.enter(round);
            measured
        });
        Results(vec![ExperimentResult {
            name: "sample",
            title: "Sample",
            about: "For tests.",
            axis: Some(("flows", Scale::Logarithmic)),
            rounds: 1,
            huge_pages: String::new(),
            points: measured.collect(),
        }])
    }

    pub(in crate::bench) fn report(points: &[(&str, f64)]) -> Report {
        let mut report = Report {
            command: "weir-lab traffic bench".into(),
            machine: Machine::default(),
            generator_core: 0,
            device_core: 1,
            promises: Vec::new(),
            results: Results::default(),
        };
        results(points).0.into_iter().for_each(|result| report.enter(result));
        report
    }

    #[test]
    fn experiment_replaces_its_earlier_results() {
        let mut report = report(&[("p", 1.0)]);
        results(&[("p", 2.0), ("q", 3.0)]).0.into_iter().for_each(|result| report.enter(result));
        assert_eq!(report.results.0.len(), 1);
        assert_eq!(report.results.median("sample", "p", Figure::WeirMpps), Some(2.0));
    }

    #[test]
    fn failures_and_points_without_a_round_are_faults_and_skips_are_not() {
        let mut report = report(&[("p", 1.0), ("q", 1.0), ("r", 1.0)]);
        let points = &mut report.results.0[0].points;
        points[0].state = State::Failed("broke".into());
        points[1].state = State::Skipped("too small".into());
        points[2].rounds.clear();
        let faults = report.faults();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert_eq!(faults[0], "p: broke");
        assert!(faults[1].starts_with("r: no round counts"));
    }

    #[test]
    fn a_report_is_written_with_its_plots() {
        let folder = tempfile::tempdir().unwrap();
        report(&[("p", 1.0), ("q", 2.0)]).write(folder.path()).unwrap();
        let json = fs::read(folder.path().join("report.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let median = &json["results"][0]["points"][1]["figures"]["weir-mpps"]["median"];
        assert_eq!(median.as_f64(), Some(2.0));
        let text = fs::read_to_string(folder.path().join("report.md")).unwrap();
        assert!(text.contains("(sample-mpps.svg)"));
        assert!(folder.path().join("sample-mpps.svg").is_file());
    }
}
