//! What a run leaves behind: public ports and flows after the load has ended, memory growth,
//! processor time at rest.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cluster::{ClusterLab, ClusterNode};
use crate::metrics::metric_sum;

/// Metrics that are 0 on a node without load, each summed over its labels.
const EMPTY: [&str; 4] = ["weir_flows", "weir_quarantined", "weir_ports_used", "weir_subscribers"];
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Growth of a process that is tolerated, in KiB and as a part of its first size.
const SLACK_KIB: u64 = 16 << 10;
const SLACK_PART: u64 = 10;
/// Shortest time of observation before a process is judged by its growth.
const LIFE_MIN: Duration = Duration::from_secs(120);

/// State that nodes still hold: node, metric, value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers(pub Vec<(String, &'static str, u64)>);

impl Leftovers {
    /// Waits until no node holds any state, for `patience` at most. Returns what is left then.
    ///
    /// # Errors
    /// When a node does not answer.
    pub fn wait_none(lab: &ClusterLab, patience: Duration) -> Result<Self> {
        let end = Instant::now() + patience;
        loop {
            let left = Self::of(lab)?;
            if left.0.is_empty() || Instant::now() >= end {
                return Ok(left);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn of(lab: &ClusterLab) -> Result<Self> {
        let metrics =
            |node: &ClusterNode| -> Result<(String, String)> { Ok((node.name(), node.metrics()?)) };
        let texts: Vec<(String, String)> = lab.nodes.iter().map(metrics).collect::<Result<_>>()?;
        let mut left = Vec::new();
        for name in EMPTY {
            // A node without a shard has no line for this metric.
            let sums: Vec<(&String, Option<u64>)> =
                texts.iter().map(|(node, text)| (node, metric_sum(text, name, ""))).collect();
            ensure!(sums.iter().any(|(_, sum)| sum.is_some()), "no {name} in the metrics");
            let held =
                sums.iter().filter_map(|&(node, sum)| Some((node, sum.filter(|&it| it > 0)?)));
            left.extend(held.map(|(node, sum)| (node.clone(), name, sum)));
        }
        Ok(Self(left))
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(node, name, sum)| writeln!(f, "{node}: {name} {sum}"))
    }
}

/// Memory of the nodes' processes, sampled from time to time.
#[derive(Debug, Default)]
pub struct Memory {
    /// First and last sample by node and process.
    seen: BTreeMap<(String, i32), [Look; 2]>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    kib: u64,
}

impl Memory {
    /// Samples all running nodes.
    ///
    /// # Errors
    /// When a node was never started.
    pub fn look(&mut self, lab: &ClusterLab) -> Result<()> {
        for node in &lab.nodes {
            let process = node.weir.process()?.id();
            // A process that has just ended has no resident memory.
            let Some(kib) = resident_kib(process) else { continue };
            self.add(node, process, Look { at: Instant::now(), kib });
        }
        Ok(())
    }

    fn add(&mut self, node: &ClusterNode, process: i32, look: Look) {
        self.seen.entry((node.name(), process)).or_insert([look; 2])[1] = look;
    }

    /// Returns one line for each process that has grown.
    pub fn grown(&self) -> Vec<String> {
        let grown = self.seen.iter().filter(|(_, [first, last])| {
            last.at - first.at >= LIFE_MIN
                && last.kib > first.kib + (first.kib / SLACK_PART).max(SLACK_KIB)
        });
        let line = |((node, process), [first, last]): (&(String, i32), &[Look; 2])| {
            let minutes = (last.at - first.at).as_secs() / 60;
            let (before, after) = (first.kib >> 10, last.kib >> 10);
            format!("{node}, process {process}: {before} MiB, {after} MiB {minutes} minutes later")
        };
        grown.map(line).collect()
    }

    /// Returns the number of processes seen, and the longest time of observation of one.
    pub fn summary(&self) -> String {
        let longest = self.seen.values().map(|[first, last]| last.at - first.at).max();
        let most = self.seen.values().map(|[_, last]| last.kib >> 10).max().unwrap_or_default();
        format!(
            "{} processes, the oldest {} minutes, at most {most} MiB",
            self.seen.len(),
            longest.unwrap_or_default().as_secs() / 60
        )
    }
}

fn resident_kib(process: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Processor time that nodes at rest use.
#[derive(Debug)]
pub struct AtRest {
    began: Instant,
    /// By node: its process, and the clock ticks that it had used at the start.
    taken: Vec<(String, i32, u64)>,
}

impl AtRest {
    /// Starts the measurement.
    ///
    /// # Errors
    /// When a node was never started.
    pub fn begin(lab: &ClusterLab) -> Result<Self> {
        let began = Instant::now();
        let taken = |node: &ClusterNode| -> Result<(String, i32, u64)> {
            let process = node.weir.process()?.id();
            Ok((node.name(), process, ticks_of(process).unwrap_or_default()))
        };
        Ok(Self { began, taken: lab.nodes.iter().map(taken).collect::<Result<_>>()? })
    }

    /// Returns the use of one core since the start, in percent, for each node whose process still
    /// runs.
    pub fn summary(&self) -> String {
        let ticks = self.began.elapsed().as_secs_f64() * USER_HZ;
        let part = |(node, process, before): &(String, i32, u64)| {
            let taken = ticks_of(*process)?.saturating_sub(*before);
            Some(format!("{node} {:.1} %", 100.0 * taken as f64 / ticks))
        };
        let parts: Vec<_> = self.taken.iter().filter_map(part).collect();
        format!("{} of a core in {} s", parts.join(", "), self.began.elapsed().as_secs())
    }
}

/// Clock ticks per second in `/proc/PID/stat`, proc(5); 100 on every x86-64.
const USER_HZ: f64 = 100.0;

/// Returns the ticks of all threads of a process, kernel time included. None if there is no such
/// process.
fn ticks_of(process: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Fields after the name, which may contain spaces: utime and stime are fields 14 and 15 of the
    // line.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_memory_and_an_absent_one_has_none() {
        assert!(resident_kib(std::process::id() as i32).unwrap() > 0);
        assert_eq!(resident_kib(i32::MAX), None);
    }

    #[test]
    fn working_process_takes_processor_time() {
        let process = std::process::id() as i32;
        let (before, end) = (ticks_of(process).unwrap(), Instant::now() + Duration::from_secs(60));
        while ticks_of(process).unwrap() < before + 5 {
            assert!(Instant::now() < end, "nothing was counted in a minute");
        }
        assert_eq!(ticks_of(i32::MAX), None);
    }
}
