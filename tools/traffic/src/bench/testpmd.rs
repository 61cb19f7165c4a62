//! The baseline: DPDK's testpmd forwards packets from one memif port to the other and does nothing
//! else.

use std::env;
use std::process::Command;
use std::time::Duration;

use super::BenchError;
use super::context::{BenchContext, EAL_OF_DEVICE};
use super::load::Load;
use super::process::{Process, tail};

const PROGRAM: &str = "dpdk-testpmd";
/// Packet memory without huge pages, MB.
const MEMORY_MB: u32 = 256;
/// Printed when the ports are started and forwarding begins.
const FORWARDS: &str = "packets/burst=";
const BUFFERS: u32 = 16_384;
const START_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Testpmd {
    process: Process,
}

/// Checks whether the baseline is installed.
pub(super) fn check_installed() -> Result<(), BenchError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_installed = env::split_paths(&path).any(|folder| folder.join(PROGRAM).is_file());
    if is_installed { Ok(()) } else { Err(BenchError::NoBaseline { program: PROGRAM }) }
}

impl Testpmd {
    /// Starts forwarding between the ports of as many generators as the load has workers, with a
    /// core for each pair.
    pub(super) fn start(context: &BenchContext<'_>, load: &Load) -> Result<Self, BenchError> {
        let workers = load.workers;
        let main = context.plan.generator_core;
        let devices: Vec<String> =
            (0..workers).map(|worker| context.plan.device_core_of(worker).to_string()).collect();
        // stdbuf: line-buffered, otherwise the line that it forwards would stay in a buffer.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", PROGRAM]);
        // Files that it leaves there are removed with the folder.
        command.env("RUNTIME_DIRECTORY", context.folder);
        command.args([
            "-l",
            &format!("{main},{}", devices.join(",")),
            "--main-lcore",
            &main.to_string(),
            "--no-pci",
        ]);
        command.args(["--file-prefix", &context.file_prefix("testpmd")]);
        if weir_dpdk::free_huge_pages_mb() >= MEMORY_MB as usize {
            // No mounted hugetlbfs is needed this way.
            command.arg("--in-memory");
        } else {
            command.args(["--no-huge", "-m", &MEMORY_MB.to_string()]);
        }
        command.arg(EAL_OF_DEVICE);
        for worker in 0..workers {
            for side in ["access", "internet"] {
                command.args(["--vdev", &context.device_port(load, worker, side)]);
            }
        }
        // Without a terminal testpmd ends at once, unless it has statistics to print.
        command.args(["--", "--forward-mode=io", "--stats-period=3600", "--record-core-cycles"]);
        command.arg(format!("--nb-cores={workers}"));
        command.arg(format!("--total-num-mbufs={}", BUFFERS * workers as u32));
        let mut process = Process::start(PROGRAM, command, context.folder.join("testpmd.log"))?;
        process.wait_until(context.plan, START_PATIENCE, |process| {
            process.printed().contains(FORWARDS)
        })?;
        Ok(Testpmd { process })
    }

    /// Ends testpmd; returns its busy TSC cycles per packet, which count the polls that returned
    /// packets.
    pub(super) fn stop(&mut self) -> Result<f64, BenchError> {
        let printed = self.process.stop();
        cycles_per_packet(&printed).ok_or_else(|| BenchError::Silent {
            name: PROGRAM.into(),
            what: "how many cycles a packet took",
            tail: tail(&printed),
        })
    }
}

/// Parses `CPU cycles/packet=70.52 (total cycles=...`.
fn cycles_per_packet(printed: &str) -> Option<f64> {
    let (_, rest) = printed.rsplit_once("CPU cycles/packet=")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycles_are_read_from_the_last_statistics() {
        let printed = "x\n  CPU cycles/packet=1.5 (total\n  CPU cycles/packet=70.52 (total cycles=1 / total RX packets=2)\n";
        assert_eq!(cycles_per_packet(printed), Some(70.52));
        assert_eq!(cycles_per_packet("no packets"), None);
    }
}
