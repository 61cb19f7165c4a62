//! What was seen around a fault. Pure.

use super::route_history::Departures;
use crate::load::{Change, ConnectionReport, FlowReport, Micros, StreamReport};

/// One direction of all flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Packets sent.
    pub sent: u64,
    /// Of these, packets that never arrived.
    pub lost: u64,
    /// Packets that arrived more than once.
    pub doubled: u64,
    /// The longest gap of each flow: the median of the flows, and the most.
    pub gap_median: Micros,
    /// See [`gap_median`](Self::gap_median).
    pub gap_max: Micros,
    /// The longest pause of a sender: gaps below it say nothing.
    pub pause: Micros,
}

/// What was seen around a fault.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// What happened.
    pub name: String,
    /// The same without the node: equal in all runs.
    pub kind: &'static str,
    /// Home to server.
    pub up: Side,
    /// Server to home.
    pub down: Side,
    /// Changes of a public endpoint.
    pub moved_endpoints: Vec<Change>,
    /// The TCP connections.
    pub connections: ConnectionReport,
    /// For how long the idle ones had been idle when they were called.
    pub idle_for: Micros,
    /// Whether all connections answered the call or broke in time.
    pub is_answered: bool,
    /// Shards that got another primary since the fault, each as often as it did.
    pub moves: usize,
    /// How often one shard came to the node it was done to or left it, at most.
    pub moves_of_one: usize,
    /// How often it may; none: as often as it takes.
    pub moves_max: Option<usize>,
    /// Routes of both switches to the node it was done to, and when they went elsewhere; none: nobody looked.
    pub routes: Option<Departures>,
    /// From the fault until every shard had all its copies: 0 if that never changed, none if it never was so again.
    pub whole_after: Option<Micros>,
    /// Whether the copies were waited for: they cannot come while etcd is gone, nor be looked at.
    pub has_waited: bool,
}

impl Side {
    /// Sums up one direction of all flows.
    pub fn of(flows: &[FlowReport], direction: impl Fn(&FlowReport) -> StreamReport) -> Self {
        let reports: Vec<StreamReport> = flows.iter().map(direction).collect();
        let sum = |count: fn(&StreamReport) -> u64| reports.iter().map(count).sum();
        let mut gaps: Vec<Micros> = reports.iter().map(|report| report.gap).collect();
        gaps.sort_unstable();
        Self {
            sent: sum(|report| report.sent),
            lost: sum(|report| report.lost),
            doubled: sum(|report| report.doubled),
            gap_median: median(&gaps),
            gap_max: gaps.last().copied().unwrap_or_default(),
            pause: reports.iter().map(|report| report.pause).max().unwrap_or_default(),
        }
    }
}

/// The middle of values in order; of two middles the larger. 0 of none.
pub(super) fn median(values: &[Micros]) -> Micros {
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_the_sum_of_its_flows_and_the_middle_of_their_gaps() {
        let flow = |sent, lost, gap| FlowReport {
            up: StreamReport { sent, lost, gap, pause: gap / 2, ..StreamReport::default() },
            ..FlowReport::default()
        };
        let flows = [flow(10, 1, 4_000), flow(10, 0, 1_000), flow(11, 2, 2_000)];
        let side = Side::of(&flows, |flow| flow.up);
        let expected =
            Side { sent: 31, lost: 3, doubled: 0, gap_median: 2_000, gap_max: 4_000, pause: 2_000 };
        assert_eq!(side, expected);
        assert_eq!(Side::of(&flows, |flow| flow.down), Side::default());
        assert_eq!(Side::of(&[], |flow| flow.up), Side::default());
    }
}
