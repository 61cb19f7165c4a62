//! The rounds of each probe: the processes that run, and the figures that they give.

use std::thread;
use std::time::{Duration, Instant};

use super::capacity::CapacitySearch;
use super::context::BenchContext;
use super::experiment::{Point, Probe};
use super::figure::{Figure, Figures};
use super::generator_process::{Flooded, Generator, HeldGenerator};
use super::linux;
use super::load::{Load, count};
use super::metrics::Reading;
use super::rate_search::RateSearch;
use super::rounds::{Raw, Round};
use super::testpmd::Testpmd;
use super::turns::{enter_turns, longest_turn};
use super::weir::{Build, Settings, Weir};
use super::{BenchError, address_plan, vpp};
use crate::table::Device;

/// Halvings of the zero-loss search: the rate is known to within 1/64 of the flood.
pub(super) const ZERO_LOSS_STEPS: u32 = 6;
/// A rate passes if one of this many trials loses nothing: a machine that pauses briefly makes any
/// device lose.
pub(super) const ZERO_LOSS_TRIALS: usize = 3;
/// The capacity is known to within this share.
const CAPACITY_PRECISION: f64 = 0.01;
/// Time between two checks of a table that empties itself. weir updates its gauges ten times a
/// second.
const POLL: Duration = Duration::from_millis(20);
const GAUGE_PATIENCE: Duration = Duration::from_secs(1);
/// Timers expire within this time after the last packet, plus the idle time itself.
const EXPIRY_PATIENCE: Duration = Duration::from_secs(120);
/// Idle time with which tables are emptied: longer than filling them takes.
const EXPIRY_SEC: u64 = 5;
const EXPIRY_FLOWS_PER_SEC: u64 = 1_000_000;

/// Attempts at a round: a memif client asks once, and on a busy core the answer is sometimes lost;
/// such a round starts again.
const LINK_ATTEMPTS: usize = 3;

/// A round of weir.
#[derive(Debug)]
pub(super) struct WeirRun {
    pub(super) flooded: Flooded,
    pub(super) figures: Figures,
}

/// A running weir with full tables, still connected to its generators.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) weir: Weir,
    generators: Vec<Generator>,
    /// Flows per second while filling, all generators together.
    rate: Option<f64>,
}

impl Filled {
    /// Waits until all generators have settled their flows, if the load asks for it: what follows
    /// is about settled flows alone.
    fn wait_settled(&mut self, load: &Load) -> Result<(), BenchError> {
        let mut settling = self.generators.iter_mut().filter(|_| load.settles);
        settling.try_for_each(Generator::settled).map_err(|error| self.weir.explain(error))
    }

    /// Waits for the floods of all generators.
    pub(super) fn finished(&mut self) -> Result<Flooded, BenchError> {
        let finished: Result<Vec<_>, _> =
            self.generators.iter_mut().map(Generator::finished).collect();
        Ok(Flooded::of(&finished.map_err(|error| self.weir.explain(error))?))
    }

    pub(super) fn close(self) -> Result<(), BenchError> {
        close(self.generators)
    }
}

impl BenchContext<'_> {
    /// Runs testpmd under this load.
    pub(super) fn raw_round(&self, load: &Load) -> Result<Raw, BenchError> {
        self.until_linked(|| self.raw_flood(load)).map(|(raw, _)| raw)
    }

    pub(super) fn until_linked<T>(
        &self,
        run: impl Fn() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        for _ in 1..LINK_ATTEMPTS {
            match run() {
                Err(error) if error.is_no_link() => self.plan.check_interrupted()?,
                done => return done,
            }
        }
        run()
    }

    fn raw_flood(&self, load: &Load) -> Result<(Raw, Flooded), BenchError> {
        let generators = self.generators(load, Device::PassesThrough)?;
        let mut testpmd = Testpmd::start(self, load)?;
        let mut generators = release(generators);
        let finished: Result<Vec<_>, _> = generators.iter_mut().map(Generator::finished).collect();
        // testpmd clears its counters when a generator disconnects, and prints them when it ends:
        // so it ends first.
        let flooded = Flooded::of(&finished?);
        let cycles = testpmd.stop()?;
        close(generators)?;
        Ok((Raw { mpps: flooded.mpps, cycles }, flooded))
    }

    /// Runs round `number` of a point; `notes` gets what could not be measured.
    pub(super) fn round(
        &self,
        point: &Point,
        number: usize,
        notes: &mut Vec<String>,
    ) -> Result<Round, BenchError> {
        let load = &point.load;
        let mut round = Round::default();
        match point.probe {
            Probe::Flood
            | Probe::FloodBesideLinux
            | Probe::FloodBesideLinuxRules { .. }
            | Probe::FloodBesideVpp => {
                let is_other_first = number.is_multiple_of(2);
                let before = self.other_build(load, is_other_first)?;
                let run = self.weir_flood(load)?;
                let other = before.or(self.other_build(load, !is_other_first)?);
                round = Round { figures: run.figures, wrong: run.flooded.wrong, ..round };
                if let Some(other) = other {
                    round.figures.enter_other_build(other.figures.get(Figure::WeirCycles));
                    round.wrong += other.flooded.wrong;
                }
                let figures = &mut round.figures;
                match point.probe {
                    Probe::FloodBesideLinux => notes.extend(linux::round(self, load, figures)?),
                    Probe::FloodBesideLinuxRules { are_sets } => {
                        notes.extend(linux::opening_round(self, load, are_sets, figures)?);
                    }
                    Probe::FloodBesideVpp => round.wrong += vpp::round(self, load, figures)?,
                    _ => {}
                }
            }
            Probe::FloodOfEachFamily => round = self.each_family(load, number)?,
            Probe::FloodOfEachTunnel => round = self.each_tunnel(load, number)?,
            Probe::HalfLoad => self.half_load(load, &mut round)?,
            Probe::ZeroLoss => self.zero_loss(load, &mut round)?,
            Probe::Expiry => self.expiry(load, &mut round.figures)?,
            Probe::Flush => self.flush(load, &mut round.figures)?,
            Probe::Capacity => self.capacity(load, &mut round.figures, notes)?,
            Probe::SessionLogRate => self.session_log_rate(load, &mut round, notes)?,
            Probe::SessionLogCost => {
                self.session_log_cost(load, number.is_multiple_of(2), &mut round)?;
            }
            Probe::RuleChange => self.rule_change(load, number.is_multiple_of(2), &mut round)?,
            Probe::Attack(_) => unreachable!("attacks run their own rounds"),
        }
        Ok(round)
    }

    /// Runs `fill`, and reads the full tables. weir updates its gauges only ten times a second.
    fn fill_and_read(
        &self,
        load: &Load,
        settings: Settings,
    ) -> Result<(Filled, Reading), BenchError> {
        let filled = self.fill(load, settings)?;
        let expected = f64::from(load.flows) * load.workers as f64;
        let give_up = Instant::now() + GAUGE_PATIENCE;
        let mut full = filled.weir.reading()?;
        while full.flows < expected && Instant::now() < give_up {
            thread::sleep(POLL);
            full = filled.weir.reading()?;
        }
        Ok((filled, full))
    }

    pub(super) fn generators(
        &self,
        load: &Load,
        device: Device,
    ) -> Result<Vec<HeldGenerator>, BenchError> {
        self.plan.check_interrupted()?;
        (0..load.workers).map(|worker| Generator::start(self, load, device, worker)).collect()
    }

    pub(super) fn fill(&self, load: &Load, settings: Settings) -> Result<Filled, BenchError> {
        self.until_linked(|| self.fill_once(load, settings))
    }

    fn fill_once(&self, load: &Load, settings: Settings) -> Result<Filled, BenchError> {
        let generators = self.generators(load, Device::Translates)?;
        let mut weir = Weir::start(self, load, settings)?;
        let mut generators = release(generators);
        let learned: Result<Vec<_>, _> = generators.iter_mut().map(Generator::learned).collect();
        let learned = learned.map_err(|error| weir.explain(error))?;
        let rate = learned.iter().map(|learned| learned.rate).sum();
        Ok(Filled { weir, generators, rate })
    }

    /// Runs a flood of the other build, if there is one and it is its turn.
    fn other_build(&self, load: &Load, is_its_turn: bool) -> Result<Option<WeirRun>, BenchError> {
        if self.plan.against.is_none() || !is_its_turn {
            return Ok(None);
        }
        let settings = Settings { build: Build::Other, ..Settings::default() };
        self.flood_with(load, settings).map(Some)
    }

    pub(super) fn weir_flood(&self, load: &Load) -> Result<WeirRun, BenchError> {
        self.flood_with(load, Settings::default())
    }

    fn flood_with(&self, load: &Load, settings: Settings) -> Result<WeirRun, BenchError> {
        self.flood_then(load, settings, |_| Ok(())).map(|(run, ())| run)
    }

    /// Runs a flood, then `then` on weir. The busy cycles are those of the flood alone: the
    /// counters are read once all flows are established, or settled, and again at the end.
    pub(super) fn flood_then<T>(
        &self,
        load: &Load,
        settings: Settings,
        then: impl FnOnce(&Weir) -> Result<T, BenchError>,
    ) -> Result<(WeirRun, T), BenchError> {
        let mut filled = self.fill(load, settings)?;
        filled.wait_settled(load)?;
        let before = filled.weir.reading()?;
        let flooded = filled.finished()?;
        let after = filled.weir.reading()?;
        let of_weir = then(&filled.weir)?;
        let rate = filled.rate;
        filled.close()?;
        let mut figures = Figures::default();
        figures.set(Figure::WeirMpps, flooded.mpps);
        figures.set(Figure::WeirCycles, after.cycles_since(&before));
        figures.set(Figure::WeirPacketsPerTurn, after.packets_per_turn_since(&before));
        figures.set(Figure::LossPercent, flooded.loss_percent());
        figures.set(Figure::EstablishedMega, rate.map(|rate| rate / 1e6));
        figures.set(Figure::OpenedMega, opened(load, &flooded));
        figures.set(Figure::BytesPerFlow, after.bytes_per_flow());
        let longest = longest_turn(&before, &after, after.longest_turn);
        figures.set(Figure::LongestTurnMs, longest.map(|seconds| 1e3 * seconds));
        Ok((WeirRun { flooded, figures }, of_weir))
    }

    fn half_load(&self, load: &Load, round: &mut Round) -> Result<(), BenchError> {
        let own = self.weir_flood(load)?;
        let half = load.at(own.flooded.mpps * 1e6 / 2.0);
        let paced = self.weir_flood(&half)?;
        let (_, raw) = self.raw_flood(&half)?;
        round.wrong = own.flooded.wrong + paced.flooded.wrong + raw.wrong;
        let figures = &mut round.figures;
        figures.set(Figure::WeirMpps, own.flooded.mpps);
        figures.set(Figure::WeirCycles, own.figures.get(Figure::WeirCycles));
        figures.set(Figure::HalfLoadMpps, own.flooded.mpps / 2.0);
        figures.set(Figure::LossPercent, paced.flooded.loss_percent());
        if let Some(latency) = paced.flooded.latency {
            figures.set(Figure::P50Us, latency.p50_us);
            figures.set(Figure::P99Us, latency.p99_us);
            figures.set(Figure::P999Us, latency.p99_9_us);
        }
        if let Some(latency) = raw.latency {
            figures.set(Figure::RawP50Us, latency.p50_us);
            figures.set(Figure::RawP999Us, latency.p99_9_us);
        }
        Ok(())
    }

    fn zero_loss(&self, load: &Load, round: &mut Round) -> Result<(), BenchError> {
        let own = self.weir_flood(load)?;
        round.wrong = own.flooded.wrong;
        let highest = own.flooded.mpps * 1e6;
        let mut search = RateSearch::new(highest, ZERO_LOSS_STEPS);
        while let Some(rate) = search.next() {
            let mut passed = false;
            for _ in 0..ZERO_LOSS_TRIALS {
                let paced = self.weir_flood(&load.at(rate))?.flooded;
                round.wrong += paced.wrong;
                passed = paced.lost == 0;
                if passed {
                    break;
                }
            }
            search.enter(rate, passed);
        }
        round.figures = own.figures;
        round.figures.set(Figure::ZeroLossMpps, search.passed() / 1e6);
        round.figures.set(Figure::ZeroLossShare, search.passed() / highest);
        Ok(())
    }

    /// Fills the tables and waits until every timer has expired. The time counts from the last
    /// reading of a full table.
    fn expiry(&self, load: &Load, figures: &mut Figures) -> Result<(), BenchError> {
        let idle_sec = EXPIRY_SEC + u64::from(load.flows) / EXPIRY_FLOWS_PER_SEC;
        let settings = Settings { idle_timeout_sec: Some(idle_sec), ..Settings::default() };
        let (Filled { weir, generators, rate }, full) = self.fill_and_read(load, settings)?;
        let give_up = Instant::now() + Duration::from_secs(idle_sec) + EXPIRY_PATIENCE;
        let (mut last_full, mut reading) = (Instant::now(), full.clone());
        let mut longest: Option<f64> = None;
        while reading.flows > 0.0 && Instant::now() < give_up {
            self.plan.check_interrupted()?;
            thread::sleep(POLL);
            let now = Instant::now();
            reading = weir.reading()?;
            if reading.flows >= full.flows {
                last_full = now;
            }
            longest = longest.into_iter().chain(reading.longest_turn).reduce(f64::max);
        }
        if reading.flows > 0.0 {
            return Err(BenchError::NotEmptied { flows: reading.flows as u64 });
        }
        enter_tear_down(&full, last_full.elapsed(), figures);
        enter_turns(&full, &reading, longest, figures);
        figures.set(Figure::EstablishedMega, rate.map(|rate| rate / 1e6));
        close(generators)
    }

    /// Fills the tables and flushes them home by home.
    fn flush(&self, load: &Load, figures: &mut Figures) -> Result<(), BenchError> {
        let settings = Settings { idle_timeout_sec: Some(300), ..Settings::default() };
        let (Filled { weir, generators, .. }, full) = self.fill_and_read(load, settings)?;
        let scenarios: Result<Vec<_>, _> =
            (0..load.workers).map(|worker| load.scenario(worker)).collect();
        let scenarios = scenarios?;
        let start = Instant::now();
        for scenario in &scenarios {
            for subscriber in 0..scenario.subscribers() {
                self.plan.check_interrupted()?;
                weir.flush(address_plan::home(scenario, subscriber))?;
            }
        }
        let elapsed = start.elapsed();
        let give_up = Instant::now() + GAUGE_PATIENCE;
        let mut reading = weir.reading()?;
        while reading.flows > 0.0 && Instant::now() < give_up {
            thread::sleep(POLL);
            reading = weir.reading()?;
        }
        if reading.flows > 0.0 {
            return Err(BenchError::NotEmptied { flows: reading.flows as u64 });
        }
        enter_tear_down(&full, elapsed, figures);
        enter_turns(&full, &reading, reading.longest_turn, figures);
        close(generators)
    }

    /// Searches the capacity. `load.flows` is the configured limit; the search begins at a quarter
    /// of it.
    fn capacity(
        &self,
        load: &Load,
        figures: &mut Figures,
        notes: &mut Vec<String>,
    ) -> Result<(), BenchError> {
        let settings = Settings { flows_max: Some(load.flows), ..Settings::default() };
        let mut search = CapacitySearch::new(load.flows / 4, CAPACITY_PRECISION);
        while let Some(flows) = search.next() {
            let step = Load { flows, ..*load };
            let (rate, rate_text) = match self.fill(&step, settings) {
                Ok(Filled { generators, rate, .. }) => {
                    close(generators)?;
                    let rate_text = rate.map(|rate| format!(", {:.2} M flows/s", rate / 1e6));
                    let rate_text = format!("established{}", rate_text.unwrap_or_default());
                    (Some(rate.unwrap_or(f64::INFINITY)), rate_text)
                }
                Err(error @ BenchError::Generator { .. }) => (None, error.last_line()),
                Err(error) => return Err(error),
            };
            notes.push(format!("{}: {rate_text}", count(flows.into())));
            self.plan.check_interrupted()?;
            search.enter(flows, rate);
        }
        figures.set(Figure::CapacityFlows, search.held().map(f64::from));
        figures.set(Figure::CapacityConfigured, f64::from(load.flows));
        Ok(())
    }
}

/// Lets the generators answer the device, which has opened its ports.
pub(super) fn release(generators: Vec<HeldGenerator>) -> Vec<Generator> {
    generators.into_iter().map(HeldGenerator::release).collect()
}

pub(super) fn close(generators: Vec<Generator>) -> Result<(), BenchError> {
    generators.into_iter().try_for_each(Generator::close)
}

fn opened(load: &Load, flooded: &Flooded) -> Option<f64> {
    flooded.opened_per_second.filter(|_| load.new_share > 0.0).map(|rate| rate / 1e6)
}

fn enter_tear_down(full: &Reading, elapsed: Duration, figures: &mut Figures) {
    figures.set(Figure::TearDownSeconds, elapsed.as_secs_f64());
    figures.set(Figure::TearDownMega, full.flows / elapsed.as_secs_f64() / 1e6);
    figures.set(Figure::BytesPerFlow, full.bytes_per_flow());
}
