//! The benchmark: weir and raw packet I/O under the same flood, in alternating rounds.
//!
//! ```text
//!   core 0: generator (a process per round)          core 1: the device of this round
//!      access port  ◀── memif ──▶  testpmd io  or  weir run  ◀── memif ──▶  internet port
//!
//!   rounds:   raw  weir  raw  weir  raw ...          a weir round counts when the raw rounds around it agree
//! ```
//!
//! The raw figure is what the machine, memif and the generator can move at all: the same packets handed through by testpmd. A
//! machine that changes its speed between rounds changes both, so the ratio is the result, with the busy cycles per packet of
//! both devices beside it. Nothing but memif and the two processes takes part: no NIC, no kernel network.

mod error;
mod flood_process;
mod huge_pages;
mod machine;
mod metrics;
mod process;
mod report;
mod rounds;
mod testpmd;
mod weir;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use self::error::BenchError;
use self::huge_pages::HugePageReserve;
use self::machine::Machine;
use self::metrics::Busy;
pub use self::report::Report;
use self::rounds::{Measurement, Series};
use crate::generator::FloodPlan;
use crate::run::Event;
use crate::scenario::Scenario;
use crate::table::Device;

#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// One series of rounds each.
    pub scenarios: Vec<Scenario>,
    /// Weir rounds that count, per series.
    pub pairs: usize,
    pub flood: FloodPlan,
    pub generator_core: usize,
    pub device_core: usize,
    /// The `weir` binary: the device, and the generator's process.
    pub weir: PathBuf,
    /// Huge pages of 2 MiB to have while it runs; 0 leaves the machine as it is.
    pub huge_pages: u64,
    /// Set from outside to end early and clean up.
    pub interrupted: Arc<AtomicBool>,
}

/// What all rounds of a benchmark share.
#[derive(Debug)]
struct Place<'a> {
    plan: &'a BenchPlan,
    folder: &'a Path,
}

impl BenchPlan {
    fn check_interrupted(&self) -> Result<(), BenchError> {
        if self.interrupted.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

/// Runs all rounds; `progress` gets a line per round. Needs two cores, `dpdk-testpmd`, and root for huge pages (it runs without).
pub fn bench(plan: &BenchPlan, mut progress: impl FnMut(&str)) -> Result<Report, BenchError> {
    let machine = Machine::look(plan)?;
    testpmd::check_installed()?;
    if let Some(warning) = machine.warning() {
        progress(&warning);
    }
    let reserve = HugePageReserve::take(plan.huge_pages);
    progress(&format!("huge pages: {}", reserve.sentence()));
    let folder = tempfile::Builder::new()
        .prefix("weir-bench-")
        .tempdir()
        .map_err(|source| BenchError::io("a temporary folder", source))?;
    let place = Place { plan, folder: folder.path() };
    let mut all = Vec::new();
    for scenario in &plan.scenarios {
        all.push(place.series(scenario, &mut progress)?);
    }
    Ok(Report::new(plan, machine, reserve.sentence(), all))
}

impl Place<'_> {
    /// Alternates raw and weir until enough weir rounds count, or twice as many have run.
    fn series(
        &self,
        scenario: &Scenario,
        progress: &mut impl FnMut(&str),
    ) -> Result<Series, BenchError> {
        let mut series = Series::new(scenario);
        series.raw.push(self.round(Device::PassesThrough, scenario, progress)?);
        while series.kept().count() < self.plan.pairs && series.weir.len() < 2 * self.plan.pairs {
            series.weir.push(self.round(Device::Translates, scenario, progress)?);
            series.raw.push(self.round(Device::PassesThrough, scenario, progress)?);
        }
        Ok(series)
    }

    fn round(
        &self,
        device: Device,
        scenario: &Scenario,
        progress: &mut impl FnMut(&str),
    ) -> Result<Measurement, BenchError> {
        self.plan.check_interrupted()?;
        let (name, measurement) = match device {
            Device::PassesThrough => ("testpmd", self.raw_round(scenario)?),
            Device::Translates => ("weir", self.weir_round(scenario)?),
        };
        let flood = &measurement.flood;
        progress(&format!(
            "{:>9} flows  {name:<8} {:6.2} Mpps  {:6.1} cycles/packet  lost {:.3} %  wrong {}",
            scenario.flows(),
            flood.rate_mpps(),
            measurement.cycles_per_packet,
            100.0 * flood.lost() as f64 / flood.sent().max(1) as f64,
            flood.wrong(),
        ));
        Ok(measurement)
    }

    fn raw_round(&self, scenario: &Scenario) -> Result<Measurement, BenchError> {
        let mut testpmd = testpmd::Testpmd::start(self)?;
        let mut cycles_per_packet = 0.0;
        let flood = flood_process::run(self, scenario, Device::PassesThrough, |event| {
            // testpmd forgets its counters when the generator disconnects, and prints them when it ends: it ends first.
            if let Event::Finished(_) = event {
                cycles_per_packet = testpmd.stop()?;
            }
            Ok(())
        })?;
        Ok(Measurement { flood, cycles_per_packet })
    }

    /// The busy cycles are those of the flood alone: the counters are read once all flows are established and again at the end.
    fn weir_round(&self, scenario: &Scenario) -> Result<Measurement, BenchError> {
        let weir = weir::Weir::start(self, scenario)?;
        let (mut before, mut after) = (Busy::default(), Busy::default());
        let flood = flood_process::run(self, scenario, Device::Translates, |event| {
            match event {
                Event::Learned { .. } => before = weir.busy()?,
                Event::Finished(_) => after = weir.busy()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(Measurement { flood, cycles_per_packet: after.since(before) })
    }

    fn access_socket(&self) -> PathBuf {
        self.folder.join("access.sock")
    }

    fn internet_socket(&self) -> PathBuf {
        self.folder.join("internet.sock")
    }

    /// Device arguments of the end that listens: the device under test.
    fn server(&self, index: usize, socket: &Path) -> String {
        format!("net_memif{index},role=server,socket-abstract=no,socket={}", socket.display())
    }

    /// Device arguments of the end that connects: the generator.
    fn client(&self, index: usize, socket: &Path) -> String {
        format!("net_memif{index},role=client,socket-abstract=no,socket={}", socket.display())
    }

    fn file_prefix(&self, of: &str) -> String {
        format!("weir-bench-{of}-{}", std::process::id())
    }
}

/// How long a device may take to be ready: a large table has to be made.
const START_PATIENCE: Duration = Duration::from_secs(60);
