//! What was seen around a fault. Pure.

use super::route_history::Departures;
use crate::load::{
    Bin, Change, ConnectionReport, FlowReport, IpVersion, Micros, Pause, StreamReport, Window,
    paused_within,
};

/// Width of a bin of [`Around`], microseconds.
pub const BIN: Micros = 10_000;

/// The packets shortly before and after a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Start of the first bin.
    pub start: Micros,
    /// Up and down, a bin each [`BIN`], all flows together.
    pub bins: [Vec<Bin>; 2],
}

/// One direction of all flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Packets sent.
    pub sent: u64,
    /// Packets of these that never arrived.
    pub lost: u64,
    /// Packets that arrived more than once.
    pub doubled: u64,
    /// Median over the flows of the longest gap of each flow.
    pub gap_median: Micros,
    /// Longest gap of all flows.
    pub gap_max: Micros,
    /// Start of that gap.
    pub gap_start: Micros,
    /// The longest pause of a sender: shorter gaps are not significant.
    pub pause: Micros,
}

/// What was seen of one address family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfVersion {
    /// The family.
    pub version: IpVersion,
    /// Home to server.
    pub up: Side,
    /// Server to home.
    pub down: Side,
    /// The TCP connections.
    pub connections: ConnectionReport,
}

/// What was seen around a fault.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Name of the act, with its node.
    pub name: String,
    /// The same without the node: equal in all runs.
    pub kind: &'static str,
    /// Whether its event was tried again afterwards: then it is shown, but does not count.
    pub is_repeated: bool,
    /// When the act began.
    pub fault: Micros,
    /// The packets from a second before until three seconds after.
    pub around: Around,
    /// How long the act took.
    pub done_after: Micros,
    /// Home to server, over all families.
    pub up: Side,
    /// Server to home, likewise.
    pub down: Side,
    /// Each family by itself, if homes have both.
    pub versions: Vec<OfVersion>,
    /// Changes of a public endpoint.
    pub moved_endpoints: Vec<Change>,
    /// The TCP connections, over all families.
    pub connections: ConnectionReport,
    /// For how long the idle connections had been idle when they were called.
    pub idle_for: Micros,
    /// Whether all connections answered the call or broke in time.
    pub is_answered: bool,
    /// Changes of a shard's primary since the fault, all shards together.
    pub moves: usize,
    /// The most moves of one shard to the affected node or away from it.
    pub moves_of_one: usize,
    /// Allowed number of such moves. None: without a limit.
    pub moves_max: Option<usize>,
    /// Routes of both switches to the affected node, and when they moved elsewhere. None: not
    /// observed.
    pub routes: Option<Departures>,
    /// Time from the fault until every shard had all its copies: 0 if it always had, None if it
    /// never had again.
    pub whole_after: Option<Micros>,
    /// Whether the copies were waited for: while etcd is gone they can neither come nor be
    /// observed.
    pub has_waited: bool,
    /// When the lost packets were sent, up and down.
    pub lost_at: Vec<Micros>,
    /// Pauses of the machine, of senders and of workers.
    pub pauses: Vec<Pause>,
    /// The longest silence of a home that is promised, apart from pauses. None: without a limit.
    pub silence_max: Option<Micros>,
}

impl Observation {
    /// Returns the number of lost packets that no pause explains: all of them, if the times of some
    /// are unknown.
    pub fn unexplained_losses(&self) -> u64 {
        let lost = self.up.lost + self.down.lost;
        let is_explained = |&&at: &&Micros| self.pauses.iter().any(|pause| pause.explains_loss(at));
        lost.saturating_sub(self.lost_at.iter().filter(is_explained).count() as u64)
    }

    /// Returns the longest silence of a home, less the pauses that lie in it.
    pub fn silence(&self) -> Micros {
        let silence = |side: &Side| {
            let gap = Window { start: side.gap_start, end: side.gap_start + side.gap_max };
            side.gap_max - paused_within(&self.pauses, gap)
        };
        silence(&self.up).max(silence(&self.down))
    }

    /// Returns the longest time in which a sender of probes, which should send all the time, sent
    /// nothing.
    pub fn sender_pause(&self) -> Micros {
        self.up.pause.max(self.down.pause)
    }

    /// Returns whether there was nothing to measure: no traffic, or none of one of two families.
    pub fn is_without_traffic(&self) -> bool {
        let is_silent = |up: &Side, down: &Side, connections: &ConnectionReport| {
            connections.established == 0 || up.sent == 0 || down.sent == 0
        };
        is_silent(&self.up, &self.down, &self.connections)
            || self.versions.iter().any(|it| is_silent(&it.up, &it.down, &it.connections))
    }

    /// Returns the longest pause.
    pub fn longest_pause(&self) -> Option<&Pause> {
        self.pauses.iter().max_by_key(|pause| pause.length())
    }
}

impl Side {
    /// Sums up one direction of all flows.
    pub fn of(flows: &[FlowReport], direction: impl Fn(&FlowReport) -> StreamReport) -> Self {
        let reports: Vec<StreamReport> = flows.iter().map(direction).collect();
        let sum = |count: fn(&StreamReport) -> u64| reports.iter().map(count).sum();
        let mut gaps: Vec<Micros> = reports.iter().map(|report| report.gap).collect();
        gaps.sort_unstable();
        let longest = reports.iter().max_by_key(|report| report.gap);
        Self {
            sent: sum(|report| report.sent),
            lost: sum(|report| report.lost),
            doubled: sum(|report| report.doubled),
            gap_median: median(&gaps),
            gap_max: gaps.last().copied().unwrap_or_default(),
            gap_start: longest.map(|report| report.gap_start).unwrap_or_default(),
            pause: reports.iter().map(|report| report.pause).max().unwrap_or_default(),
        }
    }
}

/// Returns the middle of sorted values; of two middles the larger. 0 if there are none.
pub(super) fn median(values: &[Micros]) -> Micros {
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_the_sum_of_its_flows_and_the_middle_of_their_gaps() {
        let flow = |sent, lost, gap| FlowReport {
            up: StreamReport {
                sent,
                lost,
                gap,
                gap_start: gap + 1,
                pause: gap / 2,
                ..StreamReport::default()
            },
            ..FlowReport::default()
        };
        let flows = [flow(10, 1, 4_000), flow(10, 0, 1_000), flow(11, 2, 2_000)];
        let side = Side::of(&flows, |flow| flow.up);
        let expected = Side {
            sent: 31,
            lost: 3,
            doubled: 0,
            gap_median: 2_000,
            gap_max: 4_000,
            gap_start: 4_001,
            pause: 2_000,
        };
        assert_eq!(side, expected);
        assert_eq!(Side::of(&flows, |flow| flow.down), Side::default());
        assert_eq!(Side::of(&[], |flow| flow.up), Side::default());
    }

    fn pause(start: Micros, end: Micros) -> Pause {
        Pause { window: Window { start, end }, of: "core 0".into() }
    }

    #[test]
    fn a_loss_is_explained_only_by_a_pause_near_it_that_is_long_enough() {
        let lost = |pauses| Observation {
            up: Side { lost: 2, ..Side::default() },
            down: Side { lost: 1, ..Side::default() },
            lost_at: vec![1_000_000, 1_001_000, 1_002_000],
            pauses,
            ..Observation::default()
        };
        assert_eq!(lost(vec![]).unexplained_losses(), 3);
        assert_eq!(lost(vec![pause(990_000, 1_050_000)]).unexplained_losses(), 0);
        assert_eq!(lost(vec![pause(990_000, 1_020_000)]).unexplained_losses(), 3, "too short");
        assert_eq!(lost(vec![pause(1_021_500, 1_090_000)]).unexplained_losses(), 2);
        let unknown = Observation { lost_at: vec![], ..lost(vec![pause(990_000, 1_050_000)]) };
        assert_eq!(unknown.unexplained_losses(), 3);
    }

    #[test]
    fn a_silence_is_the_longest_gap_less_the_pauses_in_it() {
        let side = |gap_start, gap_max| Side { gap_start, gap_max, ..Side::default() };
        let seen = Observation {
            up: side(1_000_000, 80_000),
            down: side(2_000_000, 60_000),
            pauses: vec![pause(990_000, 1_050_000), pause(3_000_000, 4_000_000)],
            ..Observation::default()
        };
        assert_eq!(seen.silence(), 60_000);
        assert_eq!(seen.longest_pause().unwrap().length(), 1_000_000);
    }
}
