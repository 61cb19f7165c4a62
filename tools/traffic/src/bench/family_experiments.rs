//! The experiments with IPv4 and IPv6, of the flows or of the tunnels. Pure.

use std::time::Duration;

use super::catalogue::MILLION;
use super::experiment::{Experiment, Point, Probe, Scale};
use super::load::{Access, Load, count};
use super::rule_experiments::opened;
use crate::families::Families;

/// The ways in which homes reach the device.
const MODES: [(&str, Access); 2] = [("plain", Access::Plain), ("GRE", Access::Gre)];

pub(super) fn ipv6(rounds: usize, measured: Duration) -> Experiment {
    let established = Load { settles: true, ..Load::new(MILLION, measured) };
    let mut points = Vec::new();
    for (what, load) in [("1 M", established), ("new flows", opened())] {
        for (mode, access) in MODES {
            points.push(Point {
                label: format!("{mode}, {what}"),
                x: 0.0,
                load: Load { access, families: Families::Both, ..load },
                probe: Probe::FloodOfEachFamily,
            });
        }
    }
    Experiment {
        name: "ipv6",
        title: "IPv6 beside IPv4",
        about: "Three floods a round, in turn: all flows of IPv4, which are translated; all of IPv6, which are not; half of each, without any order in \
                the bursts. 1 M: established flows, both directions, measured once each flow has had an answer. New flows: each packet goes up and opens a flow, 1 M are open before. GRE over IPv4. \
                A packet of IPv6 has the payload of one of IPv4 and 20 bytes more. The columns of weir and raw forwarding are those of both families.",
        axis: None,
        rounds,
        points,
    }
}

/// Flows of homes of 1,000, as in the experiment with one family.
pub(super) fn flat_both(rounds: usize, measured: Duration) -> Experiment {
    let points = [MILLION, 60 * MILLION].into_iter().map(|flows| Point {
        label: count(flows.into()),
        x: flows.into(),
        load: Load {
            families: Families::Both,
            flows_per_subscriber: 1000,
            ..Load::new(flows, measured)
        },
        probe: Probe::Flood,
    });
    Experiment {
        name: "flat-both",
        title: "60 M flows of both families beside 1 M",
        about: "Established flows through GRE, half of IPv4 and half of IPv6 in the same tables, 1,000 a home; the rate while filling is that of all flows from an empty table.",
        axis: Some(("established flows", Scale::Logarithmic)),
        rounds,
        points: points.collect(),
    }
}

/// Established flows of IPv4 through tunnels over either family.
pub(super) fn gre6(rounds: usize, measured: Duration) -> Experiment {
    let load = Load { access: Access::GreOverIpv6, settles: true, ..Load::new(MILLION, measured) };
    Experiment {
        name: "gre6",
        title: "GRE over IPv6 beside GRE over IPv4",
        about: "Two floods a round, in turn, of the same 1 M established flows of IPv4, both directions, measured once each flow has had an answer: through GRE over IPv4, and \
                through GRE over IPv6, whose packets have 20 bytes more. The columns of weir and raw forwarding are those of GRE over IPv6.",
        axis: None,
        rounds,
        points: vec![Point {
            label: count(MILLION.into()),
            x: MILLION.into(),
            load,
            probe: Probe::FloodOfEachTunnel,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_established_and_new_flows_of_both_families() {
        let ipv6 = ipv6(3, Duration::from_secs(2));
        let labels: Vec<&str> = ipv6.points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!(labels, ["plain, 1 M", "GRE, 1 M", "plain, new flows", "GRE, new flows"]);
        for point in &ipv6.points {
            assert_eq!(point.load.families, Families::Both);
            assert_eq!(point.load.new_share > 0.0, point.label.ends_with("new flows"));
        }
    }

    #[test]
    fn tunnels_over_both_families_carry_a_million_established_flows_of_ipv4() {
        let gre6 = gre6(3, Duration::from_secs(2));
        let [point] = gre6.points.as_slice() else { panic!("{} points", gre6.points.len()) };
        assert_eq!((point.load.access, point.load.families), (Access::GreOverIpv6, Families::Ipv4));
        assert_eq!(
            (point.load.flows, point.load.new_flows, point.load.settles),
            (MILLION, 0, true)
        );
        assert!(point.probe.needs_raw());
    }
}
