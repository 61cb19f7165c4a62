//! The benchmark: weir, raw packet I/O, Linux and VPP under the same load, in alternating rounds.
//!
//! ```text
//!   core 0: generator (a process per round)          core 1: the device of this round
//!      access port  ◀── memif ──▶  testpmd io  or  weir-node  ◀── memif ──▶  internet port
//!
//!   rounds:   raw  weir  raw  weir  raw ...   a round counts when the raw rounds around it agree
//!
//!   catalogue ─▶ experiments ─▶ points ─▶ rounds ─▶ figures ─▶ report.md, report.json, plots
//! ```
//!
//! The raw figure is an upper bound of what the machine, memif and the generator can move: the same
//! packets forwarded by testpmd. A machine that changes its speed between rounds changes both, so
//! the ratio is the result, with the busy cycles per packet of both devices beside it. Only memif
//! and the two processes take part: no NIC, no kernel network.
//!
//! The generator listens on the memif sockets and starts first; the device connects, so the packets
//! lie in the generator's memory and the generator does not copy them. Everything runs in child
//! processes; a point that this machine cannot measure is skipped with a reason.

mod address_plan;
mod attacks;
mod capacity;
mod catalogue;
mod collector;
mod context;
mod durations;
mod error;
mod experiment;
mod family_experiments;
mod family_rounds;
mod figure;
mod generator_process;
mod huge_pages;
mod ipfix_stream;
mod linux;
mod listener_garbage;
mod load;
mod machine;
mod markdown;
mod metrics;
mod plot;
mod probe;
mod process;
mod progress;
mod promises;
mod rate_search;
mod report;
mod rounds;
mod rule_change;
mod rule_experiments;
mod rules;
mod session_log;
mod testpmd;
mod turns;
mod vpp;
mod weir;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::context::BenchContext;
pub use self::error::BenchError;
use self::experiment::{Experiment, Probe};
pub use self::figure::{Figure, Spread};
use self::huge_pages::HugePageReserve;
use self::machine::Machine;
use self::progress::Progress;
use self::report::ExperimentResult;
pub use self::report::Report;
use self::rounds::{Baseline, Measured, Round, State};

#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The everyday benchmark: fewer experiments, fewer and shorter rounds.
    pub is_short: bool,
    /// Names of experiments. Empty: all.
    pub only: Vec<String>,
    /// Number of rounds of each point that must count, and measured time of floods. None: as each
    /// experiment defines them.
    pub rounds: Option<usize>,
    pub measured: Option<Duration>,
    /// Core of the first generator; further generators use every second core after it.
    pub generator_core: usize,
    /// The same for the workers of the device.
    pub device_core: usize,
    /// Path of the `weir-node` binary, which is the device.
    pub node: PathBuf,
    /// Path of the `weir-lab` binary, which is the generator's process.
    pub generator: PathBuf,
    /// Path of another build: each flood is measured with both builds, in turn.
    pub against: Option<PathBuf>,
    /// Path of the program `vpp`, for the experiment of that name. `vppctl` lies beside it.
    pub vpp: Option<PathBuf>,
    /// Whether to reserve the huge pages that a point needs while it is measured.
    pub takes_huge_pages: bool,
    /// Folder of the report.
    pub output: PathBuf,
    /// Command line that repeats the benchmark, for the report.
    pub command: String,
    /// Set by the caller to end early and clean up.
    pub interrupted: Arc<AtomicBool>,
}

impl BenchPlan {
    fn check_interrupted(&self) -> Result<(), BenchError> {
        if self.interrupted.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    fn experiments(&self) -> Result<Vec<Experiment>, BenchError> {
        let mut all = catalogue::experiments(self.is_short);
        if !self.only.is_empty() {
            all.extend(catalogue::on_request(self.is_short));
        }
        let names: Vec<&str> = all.iter().map(|experiment| experiment.name).collect();
        if let Some(name) = self.only.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(BenchError::Unknown { name: name.clone(), known: names.join(", ") });
        }
        all.retain(|experiment| {
            self.only.is_empty() || self.only.iter().any(|name| name == experiment.name)
        });
        let mut points = all.iter().flat_map(|experiment| &experiment.points);
        let has_vpp = points.clone().any(|point| point.probe == Probe::FloodBesideVpp);
        match (has_vpp, &self.vpp) {
            (true, None) => return Err(BenchError::NoVpp),
            (false, Some(_)) => return Err(BenchError::NoVppExperiment),
            _ => {}
        }
        match &self.against {
            Some(against) if !points.any(|point| point.probe.compares_builds()) => {
                return Err(BenchError::NothingToCompare { against: against.clone() });
            }
            _ => {}
        }
        Ok(all.into_iter().map(|known| known.with(self.rounds, self.measured)).collect())
    }
}

/// The benchmark that runs an experiment unless it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsIn {
    Short,
    Full,
    /// In neither benchmark: only when named.
    None,
}

/// Returns names and titles of all experiments, and the benchmark that has them.
pub fn experiments() -> Vec<(&'static str, &'static str, RunsIn)> {
    let short = catalogue::experiments(true);
    let is_short = |name| short.iter().any(|experiment| experiment.name == name);
    let full = catalogue::experiments(false).into_iter().map(|known| {
        let runs_in = if is_short(known.name) { RunsIn::Short } else { RunsIn::Full };
        (known.name, known.title, runs_in)
    });
    let others = catalogue::on_request(false);
    full.chain(others.into_iter().map(|known| (known.name, known.title, RunsIn::None))).collect()
}

/// Runs the experiments and writes the report after each; `print` is called with a line per round.
/// Needs two cores and `dpdk-testpmd`, and root for huge pages (it runs without them).
///
/// # Errors
/// When nothing can be measured at all, or when interrupted: the report then has the results so
/// far. A point that fails is a fault in the report, and no error.
pub fn bench(plan: &BenchPlan, mut print: impl FnMut(&str)) -> Result<Report, BenchError> {
    let experiments = plan.experiments()?;
    let machine = Machine::look(plan)?;
    testpmd::check_installed()?;
    if let Some(warning) = machine.warning() {
        print(&warning);
    }
    let folder = tempfile::Builder::new()
        .prefix("weir-bench-")
        .tempdir()
        .map_err(|source| BenchError::io("a temporary folder", source))?;
    let mut report = Report::new(plan, machine);
    let mut run = Run {
        context: BenchContext { plan, folder: folder.path() },
        progress: Progress::new(experiments.iter().map(Experiment::seconds).sum()),
        harmless_pps: None,
        print: &mut print,
    };
    for experiment in &experiments {
        let mut result = ExperimentResult::new(experiment);
        let done = run.experiment(experiment, &mut result);
        report.enter(result);
        report.write(&plan.output)?;
        done?;
    }
    Ok(report)
}

/// A running benchmark.
struct Run<'a> {
    context: BenchContext<'a>,
    progress: Progress,
    /// The last rate at which harmless packets of an attacker's home cost the other homes nothing,
    /// packets per second.
    harmless_pps: Option<f64>,
    print: &'a mut dyn FnMut(&str),
}

impl Run<'_> {
    fn experiment(
        &mut self,
        experiment: &Experiment,
        result: &mut ExperimentResult,
    ) -> Result<(), BenchError> {
        (self.print)(&format!(
            "{} ({}), {}",
            experiment.title,
            experiment.name,
            self.progress.left()
        ));
        for range in experiment.groups() {
            let first = result.points.len();
            result.points.extend(experiment.points[range.clone()].iter().map(Measured::new));
            let done = self.group(experiment, &mut result.points[first..], &mut result.huge_pages);
            self.progress.enter(experiment.group_seconds(&range));
            done?;
        }
        Ok(())
    }

    /// Measures points that share their raw rounds: raw, each of them, raw, each of them, ..., raw,
    /// until enough rounds of each count, or twice as many have run.
    fn group(
        &mut self,
        experiment: &Experiment,
        points: &mut [Measured],
        huge_pages: &mut String,
    ) -> Result<(), BenchError> {
        self.skip(points);
        let Some(first) = points.iter().find(|point| point.state == State::Measured) else {
            return Ok(());
        };
        let load = first.point.load;
        let first_probe = first.point.probe;
        let needs_raw = first_probe.needs_raw();
        let pages = points.iter().map(|measured| measured.point.huge_pages()).max();
        let wanted = if self.context.plan.takes_huge_pages { pages.unwrap_or(0) } else { 0 };
        let reserve = HugePageReserve::take(wanted);
        reserve.sentence().clone_into(huge_pages);
        // An attack has no raw rounds, so it stands alone.
        if let (Probe::Attack(attack), [measured]) = (first_probe, &mut *points) {
            return self.attack(attack, experiment.rounds, measured);
        }

        let mut before = if needs_raw { self.raw(&load, points)? } else { None };
        for _ in 0..2 * experiment.rounds {
            let wanting = wanting(points, experiment.rounds);
            if wanting.is_empty() || (needs_raw && before.is_none()) {
                break;
            }
            let mut rounds = Vec::new();
            for position in wanting {
                rounds.extend(self.round(&mut points[position])?.map(|round| (position, round)));
            }
            let after = if needs_raw { self.raw(&load, points)? } else { None };
            for (position, mut round) in rounds {
                match (before, after) {
                    (Some(before), Some(after)) => round.enclose(Baseline { before, after }),
                    _ if needs_raw => continue,
                    _ => {}
                }
                points[position].enter(round);
            }
            before = after;
        }
        Ok(())
    }

    fn skip(&mut self, points: &mut [Measured]) {
        let cores = machine::cores();
        let available = machine::available_bytes();
        for measured in points {
            if let Some(why) = measured.point.why_not(cores, available) {
                (self.print)(&format!("{:>12}  skipped: {why}", measured.point.label));
                measured.state = State::Skipped(why);
            }
        }
    }

    /// Runs a raw round; its failure is a failure of all points that need it.
    fn raw(
        &mut self,
        load: &load::Load,
        points: &mut [Measured],
    ) -> Result<Option<rounds::Raw>, BenchError> {
        match self.context.raw_round(load) {
            Ok(raw) => {
                (self.print)(&format!(
                    "{:>12}  raw   {:6.2} Mpps {:6.1} cycles/packet",
                    "", raw.mpps, raw.cycles
                ));
                Ok(Some(raw))
            }
            Err(error) => {
                self.context.plan.check_interrupted()?;
                for measured in points.iter_mut().filter(|point| point.state == State::Measured) {
                    measured.state = State::Failed(error.to_string());
                }
                (self.print)(&format!("{:>12}  raw failed: {error}", ""));
                Ok(None)
            }
        }
    }

    fn round(&mut self, measured: &mut Measured) -> Result<Option<Round>, BenchError> {
        let label = measured.point.label.clone();
        let mut notes = Vec::new();
        let done = self.context.round(&measured.point, measured.rounds.len(), &mut notes);
        notes.into_iter().for_each(|note| measured.note(note));
        match done {
            Ok(round) => {
                (self.print)(&format!("{label:>12}  weir  {}", round.sentence()));
                Ok(Some(round))
            }
            Err(error) => {
                self.context.plan.check_interrupted()?;
                (self.print)(&format!("{label:>12}  failed: {error}"));
                measured.state = State::Failed(error.to_string());
                Ok(None)
            }
        }
    }
}

/// Returns the positions of the points that need another round.
fn wanting(points: &[Measured], rounds: usize) -> Vec<usize> {
    let wants = |measured: &Measured| measured.state == State::Measured && measured.kept() < rounds;
    (0..points.len()).filter(|&position| wants(&points[position])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn plan(only: &str, against: Option<PathBuf>) -> BenchPlan {
        BenchPlan {
            is_short: false,
            only: vec![only.to_owned()],
            rounds: None,
            measured: None,
            generator_core: 0,
            device_core: 1,
            node: PathBuf::new(),
            generator: PathBuf::new(),
            against,
            vpp: None,
            takes_huge_pages: false,
            output: PathBuf::new(),
            command: String::new(),
            interrupted: Arc::default(),
        }
    }

    #[test]
    fn other_build_is_refused_without_a_flood_to_run_it() {
        let other = Some(PathBuf::from("/usr/bin/weir-node"));
        assert_eq!(plan("established", other.clone()).experiments().unwrap().len(), 1);
        assert_eq!(plan("latency", None).experiments().unwrap().len(), 1);
        let refused = plan("latency", other).experiments().unwrap_err().to_string();
        assert!(
            refused.contains("/usr/bin/weir-node") && refused.contains("established"),
            "{refused}"
        );
    }

    #[test]
    fn vpp_is_named_together_with_its_program() {
        let vpp = |only, program: Option<&str>| {
            let plan = BenchPlan { vpp: program.map(PathBuf::from), ..plan(only, None) };
            plan.experiments().map(|experiments| experiments.len())
        };
        assert_eq!(vpp("vpp", Some("/usr/bin/vpp")).unwrap(), 1);
        assert!(matches!(vpp("vpp", None), Err(BenchError::NoVpp)));
        let needless = vpp("established", Some("/usr/bin/vpp"));
        assert!(matches!(needless, Err(BenchError::NoVppExperiment)));
    }
}
