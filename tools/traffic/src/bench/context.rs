//! What all rounds of a benchmark share: sockets, cores, processes.

use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::BenchPlan;
use super::load::Load;

/// State shared by all rounds of a benchmark.
#[derive(Debug)]
pub(super) struct BenchContext<'a> {
    pub(super) plan: &'a BenchPlan,
    /// Folder of sockets, configurations and logs.
    pub(super) folder: &'a Path,
}

impl BenchPlan {
    /// Returns the core of a generator. Generators and workers alternate on the cores: generator,
    /// worker, generator, worker, ...
    pub(super) fn generator_core_of(&self, worker: usize) -> usize {
        self.generator_core + 2 * worker
    }

    pub(super) fn device_core_of(&self, worker: usize) -> usize {
        self.device_core + 2 * worker
    }
}

impl BenchContext<'_> {
    pub(super) fn socket(&self, worker: usize, side: &str) -> PathBuf {
        self.folder.join(format!("{side}-{worker}.sock"))
    }

    /// Returns the device arguments of the listening end.
    pub(super) fn generator_port(&self, worker: usize, side: &str, index: usize) -> String {
        let socket = self.socket(worker, side);
        format!("net_memif{index},role=server,socket-abstract=no,socket={}", socket.display())
    }

    /// Returns the device arguments of the connecting end. Zero-copy if the load asks for it: the
    /// packets lie in the device's memory, and the generator reads and writes them there, as a NIC
    /// would.
    pub(super) fn device_port(&self, load: &Load, worker: usize, side: &str) -> String {
        let index = 2 * worker + usize::from(side == "internet");
        let zero_copy = if load.is_zero_copy { "yes" } else { "no" };
        let socket = self.socket(worker, side);
        format!(
            "net_memif{index},role=client,zero-copy={zero_copy},socket-abstract=no,socket={}",
            socket.display()
        )
    }

    pub(super) fn file_prefix(&self, of: &str) -> String {
        format!("weir-bench-{of}-{}", std::process::id())
    }
}

/// memif shares memory by its files, and supports only a few: the device keeps its packet memory in
/// one.
pub(super) const EAL_OF_DEVICE: &str = "--single-file-segments";

/// Pins the calling thread to a core.
pub(super) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    if cores.set(core).is_ok() {
        // Without the pinning the thread runs where the kernel puts it.
        let _ = sched_setaffinity(Pid::from_raw(0), &cores);
    }
}
