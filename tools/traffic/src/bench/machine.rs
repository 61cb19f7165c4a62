//! What it ran on, for the report.

use std::fs;
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{BenchError, BenchPlan};

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    /// The clock that cycles are counted in.
    pub(super) tsc_mhz: f64,
    pub(super) memory_gb: f64,
    pub(super) kernel: String,
    /// Mean number of busy threads in the minute before, all processes together.
    pub(super) load: f64,
}

/// With more load than this the rounds share their cores with somebody.
const QUIET_LOAD_MAX: f64 = 0.5;

impl Machine {
    /// Refuses a machine without the cores of the plan: two busy loops on one core measure the scheduler.
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

    /// A benchmark wants the machine for itself.
    pub(super) fn warning(&self) -> Option<String> {
        (self.load > QUIET_LOAD_MAX).then(|| {
            format!("the machine was not quiet (load {:.2}): figures may be too low", self.load)
        })
    }
}

pub(super) fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Memory that can be had without swapping, free huge pages included.
pub(super) fn available_bytes() -> u64 {
    memory("MemAvailable") + ((weir_dpdk::free_huge_pages_mb() as u64) << 20)
}

/// A line of `/proc/meminfo`, in bytes; 0 where there is none.
fn memory(key: &str) -> u64 {
    let line = first_line("/proc/meminfo", key).unwrap_or_default();
    line.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Against the system's clock: DPDK's own figure would need an EAL.
fn tsc_mhz() -> f64 {
    let (start, cycles) = (Instant::now(), weir_dpdk::tsc());
    thread::sleep(Duration::from_millis(50));
    (weir_dpdk::tsc() - cycles) as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The value of `key` in a file of `key : value` lines.
fn first_line(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}
