//! Examines the machine before promises about milliseconds are made on it. Parsing the texts of
//! `/proc`, and judging whether the machine is too small or too busy, is pure.

use std::fmt;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::need_root;
use crate::load::{Clock, EXPLAINS_LOSS_MIN, Micros, Pause, PauseWatch, Window};

const STAT: &str = "/proc/stat";
const LOADAVG: &str = "/proc/loadavg";
const MEMINFO: &str = "/proc/meminfo";
const CORES_MIN: usize = 2;
/// Above this, workers and senders wait for a core again and again.
const BUSY_MAX_PERCENT: f64 = 40.0;
const STOLEN_MAX_PERCENT: f64 = 2.0;
/// Memory for processes, etcd's files in memory, and packets in flight.
const MEMORY_MIN_BYTES: u64 = 1 << 30;
const HUGE_PAGE_KIB: u64 = 2048;

/// Requirements of a laboratory besides processor time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Bytes of all tables and packet buffers.
    pub table_bytes: u64,
    /// Whether these are in huge pages of 2 MiB, reserved for the lifetime of the laboratory.
    pub has_huge_pages: bool,
}

/// The state of the machine during an examination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// Time of all cores that was used.
    pub busy_percent: f64,
    /// Time of all cores that the host of a virtual machine gave to other guests.
    pub stolen_percent: f64,
    /// Threads that ran or were ready to run, the mean of the last minute.
    pub load: f64,
    /// The longest time for which a core did not run a real-time thread.
    pub core_pause: Micros,
    /// Memory that is available without swapping.
    pub available_bytes: u64,
    /// Size of a huge page in KiB; 0: the kernel has none.
    pub huge_page_kib: u64,
}

/// Times of all cores together, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Ticks {
    /// Parses the line of proc(5): user, nice, system, idle, iowait, irq, softirq, steal; times of
    /// guests are part of user.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Option<Vec<u64>> =
            line.split_whitespace().take(8).map(|word| word.parse().ok()).collect();
        let ticks = ticks.filter(|ticks| ticks.len() == 8)?;
        let idle = ticks[3] + ticks[4];
        Some(Self { all: ticks.iter().sum(), idle, stolen: ticks[7] })
    }
}

/// Returns a number of `/proc/meminfo`.
fn memory(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Machine {
    /// Examines the machine for `time`.
    ///
    /// # Errors
    /// When this process does not run as root, so no thread may become a real-time thread, or
    /// `/proc` is not readable.
    pub fn look(time: Duration) -> Result<Self> {
        need_root()?;
        let read = |file: &str| fs::read_to_string(file).with_context(|| file.to_owned());
        let cores = thread::available_parallelism()?.get();
        let before = read(STAT)?;
        let clock = Clock::start();
        let watch = PauseWatch::start(clock).context("look at the cores")?;
        thread::sleep(time);
        let pauses = watch.within(Window { start: 0, end: clock.now() });
        let is_core = |pause: &&Pause| pause.of.starts_with("core ");
        let core_pause = pauses.iter().filter(is_core).map(Pause::length).max().unwrap_or_default();
        let (after, loadavg, meminfo) = (read(STAT)?, read(LOADAVG)?, read(MEMINFO)?);
        Self::of(cores, core_pause, [&before, &after], &loadavg, &meminfo)
            .with_context(|| format!("{STAT}, {LOADAVG} or {MEMINFO} is not as proc(5) has it"))
    }

    /// Computes the state from the texts of the files: `stat` from before and after.
    fn of(
        cores: usize,
        core_pause: Micros,
        stat: [&str; 2],
        loadavg: &str,
        meminfo: &str,
    ) -> Option<Self> {
        let [before, after] = stat.map(Ticks::parse);
        let (before, after) = (before?, after?);
        let all = after.all.saturating_sub(before.all).max(1) as f64;
        let stolen = after.stolen.saturating_sub(before.stolen) as f64;
        let idle = after.idle.saturating_sub(before.idle) as f64;
        Some(Self {
            cores,
            busy_percent: 100.0 * (all - idle - stolen).max(0.0) / all,
            stolen_percent: 100.0 * stolen / all,
            load: loadavg.split_whitespace().next()?.parse().ok()?,
            core_pause,
            available_bytes: memory(meminfo, "MemAvailable")? << 10,
            huge_page_kib: memory(meminfo, "Hugepagesize").unwrap_or_default(),
        })
    }

    /// Returns the obstacles to the promises, a sentence each; empty if there are none.
    pub fn faults(&self, needs: Needs) -> Vec<String> {
        let mut faults = Vec::new();
        let mut find = |is_found: bool, sentence: String| {
            if is_found {
                faults.push(sentence);
            }
        };
        find(
            self.cores < CORES_MIN,
            format!(
                "The machine has {} core, the nodes and their load need {CORES_MIN}: homes will be silent while others run.",
                self.cores
            ),
        );
        find(
            self.busy_percent > BUSY_MAX_PERCENT,
            format!(
                "The machine is too busy for the promises: others take {:.0} % of its cores. End them, or expect packets lost \
                 while a node or a sender waits for a core.",
                self.busy_percent
            ),
        );
        find(
            self.stolen_percent > STOLEN_MAX_PERCENT,
            format!(
                "The host of this virtual machine is too busy for the promises: it gives {:.0} % of its cores' time to others \
                 (steal). Expect packets lost meanwhile, or take a machine with cores of its own.",
                self.stolen_percent
            ),
        );
        find(
            self.core_pause >= EXPLAINS_LOSS_MIN,
            format!(
                "The machine pauses too long for the promises: a core stood still for {} ms, and a worker that does so for 50 ms \
                 is fenced.",
                self.core_pause / 1_000
            ),
        );
        let wanted = MEMORY_MIN_BYTES + needs.table_bytes;
        find(
            self.available_bytes < wanted,
            format!(
                "The machine has too little memory: {} can be had, about {} are needed. Take smaller tables or fewer nodes.",
                gib(self.available_bytes),
                gib(wanted)
            ),
        );
        find(
            needs.has_huge_pages && self.huge_page_kib != HUGE_PAGE_KIB,
            format!(
                "Huge pages of 2 MiB are needed, those of this kernel have {} KiB (default_hugepagesz).",
                self.huge_page_kib
            ),
        );
        faults
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cores, {:.0} % busy, {:.0} % stolen by a host, load {:.1}; a core stood still for {} ms at most; {} of memory",
            self.cores,
            self.busy_percent,
            self.stolen_percent,
            self.load,
            self.core_pause / 1_000,
            gib(self.available_bytes)
        )
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "cpu  1000 50 200 9000 100 10 20 30 7 0\ncpu0 500 25 100 4500 50 5 10 15 3 0\nctxt 4\n";
    /// A thousand ticks later: 500 of them idle, 40 stolen.
    const AFTER: &str =
        "cpu  1300 100 300 9450 150 15 25 70 9 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nctxt 9\n";
    const LOADAVG_TEXT: &str = "2.55 4.14 4.48 3/411 12345\n";
    const MEMINFO_TEXT: &str = "MemTotal:       24683468 kB\nMemFree:        15994880 kB\n\
                                MemAvailable:   8388608 kB\nHugePages_Free:        0\nHugepagesize:       2048 kB\n";

    fn machine() -> Machine {
        Machine::of(2, 3_400, [BEFORE, AFTER], LOADAVG_TEXT, MEMINFO_TEXT).unwrap()
    }

    fn quiet() -> Machine {
        Machine { busy_percent: 10.0, stolen_percent: 0.0, ..machine() }
    }

    #[test]
    fn proc_files_are_parsed() {
        let machine = machine();
        assert!((machine.busy_percent - 46.0).abs() < 1e-9, "{machine:?}");
        assert!((machine.stolen_percent - 4.0).abs() < 1e-9, "{machine:?}");
        assert_eq!(machine.available_bytes, 8 << 30);
        assert_eq!(
            machine.to_string(),
            "2 cores, 46 % busy, 4 % stolen by a host, load 2.5; a core stood still for 3 ms at most; 8.0 GiB of memory"
        );
        for stat in ["", "cpu  1 2 3\n", "cpu  a b c d e f g h\n", "intr 5\n"] {
            let broken = Machine::of(2, 0, [stat, AFTER], LOADAVG_TEXT, MEMINFO_TEXT);
            assert_eq!(broken, None, "{stat}");
        }
        assert_eq!(Machine::of(2, 0, [BEFORE, AFTER], LOADAVG_TEXT, "MemFree: 3 kB\n"), None);
    }

    #[test]
    fn a_quiet_machine_has_no_fault_and_each_lack_is_a_sentence() {
        let few = Needs::default();
        assert!(quiet().faults(few).is_empty());
        let huge = Needs { table_bytes: 0, has_huge_pages: true };
        assert!(quiet().faults(huge).is_empty());
        let large = Needs { table_bytes: 8 << 30, has_huge_pages: false };
        for (machine, needs, words) in [
            (Machine { cores: 1, ..quiet() }, few, "has 1 core"),
            (Machine { busy_percent: 63.0, ..quiet() }, few, "others take 63 %"),
            (Machine { stolen_percent: 12.0, ..quiet() }, few, "gives 12 %"),
            (Machine { core_pause: 52_000, ..quiet() }, few, "stood still for 52 ms"),
            (Machine { available_bytes: 1 << 29, ..quiet() }, few, "0.5 GiB can be had, about 1.0"),
            (quiet(), large, "8.0 GiB can be had, about 9.0 GiB"),
            (Machine { huge_page_kib: 1 << 20, ..quiet() }, huge, "have 1048576 KiB"),
        ] {
            let faults = machine.faults(needs);
            assert!(faults.len() == 1 && faults[0].contains(words), "{faults:?}, {words}");
        }
        assert_eq!(machine().faults(few).len(), 2);
    }

    #[test]
    fn this_machine_can_be_examined() {
        let machine = Machine::look(Duration::from_millis(100)).unwrap();
        assert!(machine.cores > 0 && machine.available_bytes > 0, "{machine:?}");
    }
}
