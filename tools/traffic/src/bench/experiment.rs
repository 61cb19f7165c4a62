//! An experiment: points that differ in one parameter, each measured in alternating rounds. Pure.

use std::time::Duration;

use serde::Serialize;

use super::load::{ATTACKED_FLOWS_MAX, Access, Load};
use super::vpp;
use crate::attack::Attack;

/// Largest number of weir rounds between two raw ones: with more, the machine could change its
/// speed in between.
const SHARED_RAW_MAX: usize = 3;

/// Bytes of one flow in weir's tables and everything else that weir holds. Used to decide whether a
/// point fits the machine.
const WEIR_BYTES_PER_FLOW: u64 = 110;
/// Bytes of one flow in the generator.
const GENERATOR_BYTES_PER_FLOW: u64 = 40;
/// Bytes of one rule in weir, while it reads and compiles them.
const WEIR_BYTES_PER_RULE: u64 = 4_000;
/// Rules that weir reads and compiles in a second when it starts.
const RULES_PER_SEC: f64 = 25_000.0;
/// Packet buffers and programs of both processes.
const BASE_BYTES: u64 = 1 << 30;
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Shorter floods only keep the tables filled.
const SHORTEST_FLOOD: Duration = Duration::from_millis(100);

/// The method by which a point is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Probe {
    /// Flood: rate and busy cycles, beside raw forwarding.
    Flood,
    /// The same, with Linux nftables in the same rounds.
    FloodBesideLinux,
    /// A flood of first packets behind rules, with Linux nftables behind as many, each a rule of a
    /// list or an element of a set.
    FloodBesideLinuxRules { are_sets: bool },
    /// A flood, with VPP in the same rounds.
    FloodBesideVpp,
    /// Three floods: of IPv4, of IPv6 and of both in the same bursts, in turn.
    FloodOfEachFamily,
    /// Two floods: through GRE over IPv4 and over IPv6, in turn.
    FloodOfEachTunnel,
    /// Latency at half of the rate of weir's own flood, and of raw forwarding at the same rate.
    HalfLoad,
    /// The highest rate without a loss, beside weir's own flood.
    ZeroLoss,
    /// From full to empty when all timers run out (RFC 9693, connection tear-down rate, by the
    /// expiry sweep).
    Expiry,
    /// From full to empty by flushing every home, one request each (the same rate, by flush).
    Flush,
    /// Number of flows that fit the tables (RFC 9693, connection tracking table capacity).
    Capacity,
    /// The highest rate of new flows at which a collector gets every record.
    SessionLogRate,
    /// New flows with a session log, alternating with new flows without one.
    SessionLogCost,
    /// One of many rules changed while packets flow, alternating with no change.
    RuleChange,
    /// Effect on homes beside an attacker, alternating with harmless packets at the attacker's
    /// rate.
    Attack(Attack),
}

impl Probe {
    pub(super) fn needs_raw(self) -> bool {
        match self {
            Probe::Flood | Probe::FloodBesideLinux | Probe::FloodBesideVpp => true,
            Probe::FloodBesideLinuxRules { .. } => true,
            Probe::FloodOfEachFamily | Probe::FloodOfEachTunnel => true,
            Probe::HalfLoad | Probe::ZeroLoss => true,
            Probe::Expiry | Probe::Flush | Probe::Capacity => false,
            Probe::SessionLogRate | Probe::SessionLogCost | Probe::RuleChange => false,
            Probe::Attack(_) => false,
        }
    }

    /// Whether its rounds measure two builds if another build is given.
    pub(super) fn compares_builds(self) -> bool {
        let is_flood = matches!(self, Probe::Flood | Probe::FloodBesideLinuxRules { .. });
        is_flood || matches!(self, Probe::FloodBesideLinux | Probe::FloodBesideVpp)
    }

    /// Number of rounds of weir, raw, Linux and VPP within one round of this probe, without the
    /// enclosing raw ones. Used to estimate the remaining time.
    fn floods(self) -> f64 {
        match self {
            Probe::Flood | Probe::Flush => 1.0,
            Probe::FloodBesideLinux | Probe::Expiry | Probe::Attack(_) => 2.0,
            Probe::FloodBesideLinuxRules { .. } | Probe::FloodOfEachTunnel => 2.0,
            Probe::FloodBesideVpp | Probe::SessionLogCost | Probe::RuleChange => 2.0,
            Probe::HalfLoad | Probe::FloodOfEachFamily => 3.0,
            Probe::ZeroLoss | Probe::Capacity => 8.0,
            // Rates that fail are tried three times.
            Probe::SessionLogRate => 12.0,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) label: String,
    /// Position on the axis of a plot.
    pub(super) x: f64,
    pub(super) load: Load,
    pub(super) probe: Probe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

#[derive(Clone, Debug)]
pub(super) struct Experiment {
    /// Name for `--only`, file names and the promises.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Description of the method in a sentence or two.
    pub(super) about: &'static str,
    /// Meaning of `x`. None: no plot.
    pub(super) axis: Option<(&'static str, Scale)>,
    /// Number of rounds of each point that must count.
    pub(super) rounds: usize,
    pub(super) points: Vec<Point>,
}

impl Experiment {
    /// Returns the experiment with other numbers of rounds and other lengths of floods; None leaves
    /// a value unchanged. Floods that only keep a table filled do not change, and the flood of a
    /// changed rule, which has to be in force before its end, does not become shorter.
    pub(super) fn with(mut self, rounds: Option<usize>, measured: Option<Duration>) -> Self {
        self.rounds = rounds.unwrap_or(self.rounds);
        for Point { load, probe, .. } in &mut self.points {
            let shortest = match probe {
                Probe::RuleChange => load.measured,
                _ => Duration::ZERO,
            };
            if let Some(measured) = measured.filter(|_| load.measured >= SHORTEST_FLOOD) {
                *load = load.lasting(measured.max(shortest));
            }
        }
        self
    }

    /// Returns neighbouring points that share their raw rounds, as ranges of positions.
    pub(super) fn groups(&self) -> Vec<std::ops::Range<usize>> {
        let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
        for (position, point) in self.points.iter().enumerate() {
            match groups.last_mut() {
                Some(group)
                    if group.len() < SHARED_RAW_MAX
                        && point.shares_raw_with(&self.points[group.start]) =>
                {
                    group.end += 1;
                }
                _ => groups.push(position..position + 1),
            }
        }
        groups
    }

    /// Estimates the duration in seconds. Only proportions matter once the benchmark runs.
    pub(super) fn seconds(&self) -> f64 {
        self.groups().into_iter().map(|group| self.group_seconds(&group)).sum()
    }

    pub(super) fn group_seconds(&self, group: &std::ops::Range<usize>) -> f64 {
        let points = &self.points[group.clone()];
        let Some(first) = points.first() else { return 0.0 };
        let raw = if first.probe.needs_raw() { first.load.round_seconds() } else { 0.0 };
        let weir: f64 =
            points.iter().map(|point| point.probe.floods() * point.load.round_seconds()).sum();
        self.rounds as f64 * (raw + weir) + raw
    }
}

impl Point {
    fn shares_raw_with(&self, other: &Point) -> bool {
        self.probe.needs_raw()
            && other.probe.needs_raw()
            && self.load.has_raw_packets_of(&other.load)
    }

    /// Returns why this machine cannot measure the point; `None` if it can. `available` is in
    /// bytes.
    pub(super) fn why_not(&self, cores: usize, available: u64) -> Option<String> {
        let load = &self.load;
        if 2 * load.workers > cores {
            return Some(format!(
                "{} workers and as many generators need {} cores, this machine has {cores}",
                load.workers,
                2 * load.workers
            ));
        }
        let flows = load.workers as u64 * (load.weir_bytes() + load.generator_bytes());
        let needed = flows + u64::from(load.rules.count) * WEIR_BYTES_PER_RULE + BASE_BYTES;
        (needed > available).then(|| {
            let gb = |bytes: u64| bytes as f64 / 1e9;
            format!("needs {:.1} GB, this machine has {:.1} GB free", gb(needed), gb(available))
        })
    }

    /// Returns the number of 2 MiB huge pages for the tables and the packet memory of the devices
    /// and the generator.
    pub(super) fn huge_pages(&self) -> u64 {
        let of_vpp = match self.probe {
            Probe::FloodBesideVpp => vpp::bytes(&self.load).div_ceil(HUGE_PAGE_BYTES),
            _ => 0,
        };
        self.load.huge_pages() + of_vpp
    }
}

impl Load {
    fn weir_bytes(&self) -> u64 {
        u64::from(self.flows_max()) * WEIR_BYTES_PER_FLOW
    }

    fn generator_bytes(&self) -> u64 {
        u64::from(self.flows_at_end()) * GENERATOR_BYTES_PER_FLOW
    }

    /// Returns weir's `flows_max`: more than is used, so that the table is full but not at its
    /// limit.
    pub(super) fn flows_max(&self) -> u32 {
        if self.attacked.is_some() {
            return self.flows_at_end().max(ATTACKED_FLOWS_MAX);
        }
        let flows = self.flows_at_end();
        let spare = if flows > 8_000_000 { flows / 200 } else { flows / 4 };
        (flows + spare).max(65_536)
    }

    /// Returns the number of 2 MiB huge pages for weir's tables and the packet memory of both
    /// processes.
    fn huge_pages(&self) -> u64 {
        let packets = 768 << 20;
        (self.workers as u64 * (self.weir_bytes() + packets)).div_ceil(HUGE_PAGE_BYTES)
    }

    /// Estimates a round: two processes start, the flows are established, the flood runs.
    fn round_seconds(&self) -> f64 {
        let tables = f64::from(self.flows_max()) / 4e6;
        let learn = f64::from(self.flows) / 2e6;
        let tunnel = if self.access == Access::Plain { 0.0 } else { 0.1 };
        let rules = f64::from(self.rules.count) / RULES_PER_SEC;
        2.5 + tunnel + tables + learn + rules + (self.warm_up + self.measured).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(flows: u32, probe: Probe) -> Point {
        let load = Load::new(flows, Duration::from_secs(1));
        Point { label: String::new(), x: 0.0, load, probe }
    }

    fn experiment(points: Vec<Point>) -> Experiment {
        Experiment { name: "x", title: "", about: "", axis: None, rounds: 3, points }
    }

    #[test]
    fn neighbours_share_raw_rounds_where_the_packets_are_the_same() {
        let points = [10, 10, 10, 10, 20].map(|flows| point(flows, Probe::Flood)).to_vec();
        assert_eq!(experiment(points).groups(), [0..3, 3..4, 4..5]);
    }

    #[test]
    fn probe_without_raw_rounds_stands_alone() {
        let points =
            vec![point(10, Probe::Flood), point(10, Probe::Expiry), point(10, Probe::Flush)];
        assert_eq!(experiment(points).groups(), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn requested_rounds_and_seconds_apply_and_silent_loads_stay_silent() {
        let mut silent = point(10, Probe::Expiry);
        silent.load.measured = Duration::from_millis(1);
        let asked = experiment(vec![point(10, Probe::Flood), silent])
            .with(Some(7), Some(Duration::from_secs(9)));
        let measured: Vec<u128> =
            asked.points.iter().map(|point| point.load.measured.as_millis()).collect();
        assert_eq!((asked.rounds, measured), (7, vec![9000, 1]));
        let changed = experiment(vec![point(10, Probe::RuleChange)]);
        let of = |asked: Experiment| asked.points[0].load.measured;
        assert_eq!(of(changed.clone().with(None, Some(SHORTEST_FLOOD))), Duration::from_secs(1));
        assert_eq!(of(changed.with(None, Some(Duration::from_secs(9)))), Duration::from_secs(9));
        assert_eq!(experiment(Vec::new()).with(None, None).rounds, 3);
    }

    #[test]
    fn too_small_machine_gets_a_reason() {
        let large = point(60_000_000, Probe::Flood);
        assert_eq!(large.why_not(2, 24 << 30), None);
        assert!(large.why_not(2, 4 << 30).unwrap().contains("GB"));
        let mut two = point(10, Probe::Flood);
        two.load.workers = 2;
        assert!(two.why_not(2, 24 << 30).unwrap().contains("4 cores"));
        assert_eq!(two.why_not(4, 24 << 30), None);
    }
}
