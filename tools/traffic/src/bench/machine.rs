//! The machine of the benchmark, for the report.

use std::fs;
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{BenchError, BenchPlan};

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    /// Frequency of the clock that counts cycles.
    pub(super) tsc_mhz: f64,
    pub(super) memory_gb: f64,
    pub(super) kernel: String,
    /// Mean number of busy threads in the last minute, all processes together.
    pub(super) load: f64,
}

/// With more load than this the rounds share their cores with other processes.
const QUIET_LOAD_MAX: f64 = 0.5;

impl Machine {
    /// Examines the machine. Refuses one without the cores of the plan: two busy loops on one core
    /// measure the scheduler.
    pub(super) fn look(plan: &BenchPlan) -> Result<Self, BenchError> {
        let cores = cores();
        let core = plan.generator_core.max(plan.device_core);
        if core >= cores || plan.generator_core == plan.device_core {
            return Err(BenchError::Cores { core, count: cores });
        }
        Ok(Machine {
            cpu: first_line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".into()),
            cores,
            tsc_mhz: tsc_mhz(),
            memory_gb: memory("MemTotal") as f64 / 1e9,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            load: load().unwrap_or_default(),
        })
    }

    /// Returns a warning if the machine is not idle, as a benchmark needs it.
    pub(super) fn warning(&self) -> Option<String> {
        (self.load > QUIET_LOAD_MAX).then(|| {
            format!("the machine was not quiet (load {:.2}): figures may be too low", self.load)
        })
    }
}

pub(super) fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns the memory that is available without swapping, free huge pages included.
pub(super) fn available_bytes() -> u64 {
    memory("MemAvailable") + ((weir_dpdk::free_huge_pages_mb() as u64) << 20)
}

/// Returns a line of `/proc/meminfo`, in bytes; 0 if it is missing.
fn memory(key: &str) -> u64 {
    let line = first_line("/proc/meminfo", key).unwrap_or_default();
    line.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Measured against the system's clock: DPDK's own figure would need an EAL.
fn tsc_mhz() -> f64 {
    let (start, cycles) = (Instant::now(), weir_dpdk::tsc());
    thread::sleep(Duration::from_millis(50));
    (weir_dpdk::tsc() - cycles) as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Returns the value of `key` in a file of `key : value` lines.
fn first_line(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}
