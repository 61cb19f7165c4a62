//! All experiments, in the order in which they run: the long ones last. Pure.

use std::time::Duration;

use super::experiment::{Experiment, Point, Probe, Scale};
use super::family_experiments::{flat_both, gre6, ipv6};
use super::load::{Access, Load, Size, count};
use super::rule_experiments::{rules, rules_linux};
use crate::attack::Attack;

/// Number and length of the measurements.
#[derive(Clone, Copy, Debug)]
struct Extent {
    is_short: bool,
    /// Counted rounds of the experiments that promises refer to.
    rounds: usize,
    /// Counted rounds of the sweeps.
    sweep_rounds: usize,
    measured: Duration,
}

const SHORT: Extent =
    Extent { is_short: true, rounds: 3, sweep_rounds: 2, measured: Duration::from_millis(1500) };
const FULL: Extent =
    Extent { is_short: false, rounds: 5, sweep_rounds: 3, measured: Duration::from_secs(2) };

pub(super) const MILLION: u32 = 1_000_000;
const FLOWS: &str = "flows";

/// Returns the experiments of a benchmark: the everyday ones, or all.
pub(super) fn experiments(is_short: bool) -> Vec<Experiment> {
    let extent = if is_short { SHORT } else { FULL };
    let mut all = vec![established(extent), new_flows(extent), linux(extent), latency(extent)];
    if !extent.is_short {
        all.extend([
            zero_loss(extent),
            sizes(extent),
            subscribers(extent),
            shards(extent),
            flows(extent),
            rules(extent.sweep_rounds, extent.measured),
            workers(extent),
            tear_down(extent),
            capacity(extent),
            flat(extent),
            large_expiry(extent),
        ]);
    }
    all
}

/// Returns the experiments that run only when they are named: they take long, or need more than the
/// two processes, or another program.
pub(super) fn on_request(is_short: bool) -> Vec<Experiment> {
    let extent = if is_short { SHORT } else { FULL };
    let rules_linux = rules_linux(extent.sweep_rounds);
    vec![
        vpp(is_short),
        rules_linux,
        session_log(is_short),
        ipv6(extent.rounds, extent.measured),
        gre6(extent.rounds, extent.measured),
        flat_both(extent.sweep_rounds, extent.measured),
        floods(is_short),
    ]
}

fn point(label: impl Into<String>, x: f64, load: Load, probe: Probe) -> Point {
    Point { label: label.into(), x, load, probe }
}

/// Returns a point labelled by its number of flows.
fn at_flows(load: Load, probe: Probe) -> Point {
    point(count(load.flows.into()), load.flows.into(), load, probe)
}

fn established(extent: Extent) -> Experiment {
    let mut points = Vec::new();
    for (mode, access) in [("GRE", Access::Gre), ("plain", Access::Plain)] {
        for flows in [10_000, MILLION] {
            let load = Load { access, ..Load::new(flows, extent.measured) };
            let label = format!("{mode}, {}", count(flows.into()));
            points.push(point(label, flows.into(), load, Probe::Flood));
        }
    }
    Experiment {
        name: "established",
        title: "Established flows",
        about: "All flows are open; half of the packets go up, half come down, the flows in another order than they were made.",
        axis: None,
        rounds: extent.rounds,
        points,
    }
}

/// New flows from 0 to 100 %. The rate while filling is that of the learning phase, where every
/// packet opens a flow.
fn new_flows(extent: Extent) -> Experiment {
    let shares: &[f64] =
        if extent.is_short { &[50.0] } else { &[0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0] };
    let measured = Duration::from_secs(1);
    let points = shares.iter().map(|&new_share| {
        // More than any device opens in warm-up and measured window.
        let new_flows = if new_share == 0.0 { 0 } else { 8 * MILLION };
        let mut load = Load { new_share, new_flows, ..Load::new(MILLION, measured) };
        load.warm_up = Duration::from_millis(200);
        point(format!("{new_share} %"), new_share, load, Probe::Flood)
    });
    Experiment {
        name: "new-flows",
        title: "Flows opened under load",
        about: "1 M flows are open, and this share of the upstream packets opens one more, until 8 M have been opened.",
        axis: Some(("new flows, % of upstream packets", Scale::Linear)),
        rounds: extent.sweep_rounds,
        points: points.collect(),
    }
}

/// Plain access: the kernel has no tunnel to remove either.
fn linux(extent: Extent) -> Experiment {
    let flows: &[u32] = if extent.is_short { &[60_000] } else { &[1_000, 60_000] };
    let points = flows.iter().map(|&flows| {
        let load = Load { access: Access::Plain, ..Load::new(flows, extent.measured) };
        at_flows(load, Probe::FloodBesideLinux)
    });
    Experiment {
        name: "linux",
        title: "Beside the kernel's NAT",
        about: "Plain access. Linux: nftables source NAT with connection tracking on one core, fed inside the kernel by an XDP \
                program, the same number of flows, small UDP packets, one direction.",
        axis: None,
        rounds: extent.rounds,
        points: points.collect(),
    }
}

/// Plain access, as for Linux.
fn vpp(is_short: bool) -> Experiment {
    let extent = if is_short { SHORT } else { FULL };
    let points = [10_000, MILLION].into_iter().map(|flows| {
        let load = Load { access: Access::Plain, ..Load::new(flows, extent.measured) };
        at_flows(load, Probe::FloodBesideVpp)
    });
    Experiment {
        name: "vpp",
        title: "Beside VPP's nat44-ed",
        about: "Plain access, established flows. VPP: one thread on the device's core, the plugin nat44-ed between two memif interfaces, \
                zero-copy as weir's, with the public addresses that weir has. VPP cycles: clocks of all nodes of its graph by the packets \
                received (show runtime), polls without packets included, from the last flow established to the middle of the flood.",
        axis: None,
        rounds: extent.rounds,
        points: points.collect(),
    }
}

fn latency(extent: Extent) -> Experiment {
    let flows: &[u32] = if extent.is_short { &[MILLION] } else { &[10_000, MILLION] };
    Experiment {
        name: "latency",
        title: "Latency at half load",
        about: "weir is flooded to know its rate, then half of that is offered to it and to raw forwarding. From the generator's \
                send to its receive, memif and bursts included.",
        axis: None,
        rounds: extent.rounds,
        points: flows
            .iter()
            .map(|&flows| at_flows(Load::new(flows, extent.measured), Probe::HalfLoad))
            .collect(),
    }
}

fn zero_loss(extent: Extent) -> Experiment {
    Experiment {
        name: "zero-loss",
        title: "Zero-loss rate",
        about: "The highest paced rate at which no packet is lost (RFC 2544; RFC 9693, test phase 2), by halving, beside the rate of \
                weir's own flood. A rate passes if one of three trials loses nothing.",
        axis: None,
        rounds: 1,
        points: vec![at_flows(Load::new(MILLION, extent.measured), Probe::ZeroLoss)],
    }
}

fn sizes(extent: Extent) -> Experiment {
    let mut points: Vec<Point> = [64, 128, 256, 512, 1024, 1518]
        .into_iter()
        .map(|bytes| {
            let load = Load { size: Size::Bytes(bytes), ..Load::new(MILLION, extent.measured) };
            point(bytes.to_string(), bytes.into(), load, Probe::Flood)
        })
        .collect();
    let imix = Load { size: Size::Imix, ..Load::new(MILLION, extent.measured) };
    // Mean size of the mix: (7 x 64 + 4 x 594 + 1518) / 12.
    points.push(point("IMIX", 361.8, imix, Probe::Flood));
    Experiment {
        name: "sizes",
        title: "Packet size",
        about: "1 M established flows through GRE. The size is that of the plain Ethernet frame with FCS; IMIX is drawn apart from the sizes.",
        axis: Some(("bytes of the plain frame", Scale::Linear)),
        rounds: extent.sweep_rounds,
        points,
    }
}

fn subscribers(extent: Extent) -> Experiment {
    let points = [1_000, 4_000, 16_000, 64_000].into_iter().map(|subscribers: u32| {
        let flows_per_subscriber = MILLION.div_ceil(subscribers);
        // So that the number of homes is exact, and 1,000 flows of a home fit its shard's ports.
        let flows = flows_per_subscriber * subscribers;
        let subscribers_per_shard = if subscribers == 1_000 { 128 } else { 256 };
        let load = Load {
            flows_per_subscriber,
            subscribers_per_shard,
            ..Load::new(flows, extent.measured)
        };
        point(count(subscribers.into()), subscribers.into(), load, Probe::Flood)
    });
    Experiment {
        name: "subscribers",
        title: "Subscribers",
        about: "About 1 M established flows, spread over this many homes.",
        axis: Some(("subscribers", Scale::Logarithmic)),
        rounds: extent.sweep_rounds,
        points: points.collect(),
    }
}

fn shards(extent: Extent) -> Experiment {
    let points = [1024, 256, 64, 16].into_iter().map(|subscribers_per_shard| {
        let load = Load {
            flows_per_subscriber: 62,
            subscribers_per_shard,
            ..Load::new(16_000 * 62, extent.measured)
        };
        point(count(load.shards().into()), load.shards().into(), load, Probe::Flood)
    });
    Experiment {
        name: "shards",
        title: "Shards",
        about: "992,000 established flows of 16,000 homes, cut into this many shards.",
        axis: Some(("shards", Scale::Logarithmic)),
        rounds: extent.sweep_rounds,
        points: points.collect(),
    }
}

fn flows(extent: Extent) -> Experiment {
    let flows = [1_000, 10_000, 100_000, MILLION, 4 * MILLION, 16 * MILLION];
    Experiment {
        name: FLOWS,
        title: "Number of flows",
        about: "Established flows through GRE, 64 a home.",
        axis: Some(("established flows", Scale::Logarithmic)),
        rounds: extent.sweep_rounds,
        points: flows
            .into_iter()
            .map(|flows| at_flows(Load::new(flows, extent.measured), Probe::Flood))
            .collect(),
    }
}

fn workers(extent: Extent) -> Experiment {
    let points = [1, 2].into_iter().map(|workers| {
        let load = Load { workers, is_zero_copy: false, ..Load::new(MILLION, extent.measured) };
        point(workers.to_string(), workers as f64, load, Probe::Flood)
    });
    Experiment {
        name: "workers",
        title: "Workers",
        about: "1 M established flows for each worker. Every worker has a pair of memif ports and a generator on a core of its own. \
                Packets are copied by the device, unlike in the other experiments.",
        axis: None,
        rounds: extent.sweep_rounds,
        points: points.collect(),
    }
}

/// Returns a load that fills the tables, sends for the shortest time of a flood, and is silent
/// afterwards.
fn silent(flows: u32) -> Load {
    Load { warm_up: Duration::ZERO, ..Load::new(flows, Duration::from_millis(1)) }
}

fn tear_down(_: Extent) -> Experiment {
    let points = vec![
        point("flush, 1 M", 1.0, silent(MILLION), Probe::Flush),
        point("expiry, 4 M", 4.0, silent(4 * MILLION), Probe::Expiry),
    ];
    Experiment {
        name: "tear-down",
        title: "Connection tear-down",
        about: "Connection tear-down rate (RFC 9693): flows by the time from a full table to an empty one. Flush: one request a home on the admin \
                socket, one after the other. Expiry: all idle timers run out; they were started while filling, so that the \
                sweep cannot be faster than the filling was.",
        axis: None,
        rounds: 3,
        points,
    }
}

fn capacity(_: Extent) -> Experiment {
    Experiment {
        name: "capacity",
        title: "Connection table capacity",
        about: "Connection tracking table capacity (RFC 9693): doubled from a quarter of flows_max while all flows can be established at 0.2 of the former rate \
                at least, then halved to within 1 %.",
        axis: None,
        rounds: 1,
        points: vec![at_flows(silent(2 * MILLION), Probe::Capacity)],
    }
}

fn flat(extent: Extent) -> Experiment {
    Experiment {
        name: "flat",
        title: "60 M flows beside 1 M",
        about: "Established flows through GRE, 1,000 a home; the rate while filling is that of all flows from an empty table.",
        axis: Some(("established flows", Scale::Logarithmic)),
        rounds: extent.sweep_rounds,
        points: [MILLION, 60 * MILLION]
            .into_iter()
            .map(|flows| at_flows(of_busy_homes(Load::new(flows, extent.measured)), Probe::Flood))
            .collect(),
    }
}

/// Raises the flows of a home to 1,000: with 64 flows, sixty million flows would need a million
/// homes, in 4,000 shards.
fn of_busy_homes(load: Load) -> Load {
    Load { flows_per_subscriber: 1000, ..load }
}

fn large_expiry(_: Extent) -> Experiment {
    Experiment {
        name: "expiry-60m",
        title: "Expiry of 60 M flows",
        about: "As in the tear-down by expiry. Turns are those of the worker's loop with work in them, ticks the housekeeping within, \
                from the full table to the empty one; p99.99 is the upper bound of its bucket. A machine that takes the core away \
                makes a turn long, too.",
        axis: None,
        rounds: 1,
        points: vec![at_flows(of_busy_homes(silent(60 * MILLION)), Probe::Expiry)],
    }
}

/// Ten rounds, six in the short form: enough for a confidence interval.
fn session_log(is_short: bool) -> Experiment {
    let (rounds, seconds) = if is_short { (6, 1) } else { (10, 5) };
    let rate = Load::opening(Duration::from_secs(seconds));
    let flood = Load { flows: MILLION, up_share: 50.0, ..Load::opening(Duration::from_secs(1)) };
    Experiment {
        name: "session-log",
        title: "New flows with a session log",
        about: "session_log = \"mappings\", and a collector of the benchmark over TCP on the loopback address (IPFIX, no spool). No record lost: the highest \
                paced rate at which every packet opens a flow, none is lost, weir counts no record as lost, and the collector has a begun record of every flow, by \
                halving from the rate without a log; one of three trials has to pass. The rate is that of the flows that came through. weir's memory \
                holds 327,680 records, which a trial may end with. Flood: 1 M flows are open, every upstream packet opens one more, half of all go up; \
                in turn with a session log and without. Generator and worker have a core each, and weir's thread of the collector and the collector share the generator's: \
                what they take, the generator lacks, so that the rates with a log are those of a machine short of a core. Busy cycles, of the worker's core, are not.",
        axis: None,
        rounds,
        points: vec![
            point("no record lost", 0.0, rate, Probe::SessionLogRate),
            point("flood", 1.0, flood, Probe::SessionLogCost),
        ],
    }
}

/// Flows of the attacked homes: the last of four shards has room for the attacker's home.
const VICTIMS_FLOWS: u32 = 64_000;

fn floods(is_short: bool) -> Experiment {
    let (rounds, seconds) = if is_short { (3, 5) } else { (10, 60) };
    let points = Attack::ALL.into_iter().filter(|&attack| attack != Attack::Harmless).enumerate();
    let points = points.map(|(x, attack)| {
        let load = Load::beside(attack, VICTIMS_FLOWS, Duration::from_secs(seconds));
        point(attack.name(), x as f64, load, Probe::Attack(attack))
    });
    Experiment {
        name: "floods",
        title: "Floods of one home or station",
        about: "1,000 homes exchange 1 Mpps through 64,000 established flows and open 1,000 flows a second, under the default limits. Beside \
                them one home, or one station on a link, floods, in turn with harmless packets of an established home at the same \
                rate: the highest of 80, 65, 50, 35 and 20 % of what weir takes of them at which nobody loses a packet. Lost, refused \
                and held back is what the homes had; a round counts where the harmless phases around it cost nobody a packet, pauses of the generator apart, and have \
                p99 within a factor of 1.5, and where no loss stands beside a pause of the generator in which a ring overflows.",
        axis: None,
        rounds,
        points: points.collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_labels_are_unique() {
        let mut all = experiments(false);
        all.extend(on_request(false));
        let names: HashSet<_> = all.iter().map(|experiment| experiment.name).collect();
        assert_eq!(names.len(), all.len());
        for experiment in &all {
            let labels: HashSet<_> = experiment.points.iter().map(|point| &point.label).collect();
            assert_eq!(labels.len(), experiment.points.len(), "{}", experiment.name);
        }
    }

    #[test]
    fn the_short_benchmark_is_estimated_under_five_minutes_and_the_full_one_under_an_hour() {
        let total = |is_short| experiments(is_short).iter().map(Experiment::seconds).sum::<f64>();
        assert!(total(true) < 300.0, "{}", total(true));
        assert!(total(false) < 3600.0, "{}", total(false));
    }

    #[test]
    fn floods_have_every_attack_and_a_home_for_the_attacker_and_run_ten_rounds_of_a_minute() {
        let all = on_request(false);
        let floods = all.iter().find(|experiment| experiment.name == "floods").unwrap();
        assert_eq!((floods.rounds, floods.points.len()), (10, Attack::ALL.len() - 1));
        for point in &floods.points {
            assert_eq!(point.load.measured, Duration::from_secs(60));
            assert!(point.load.scenario(0).unwrap().spare_home().is_some());
        }
    }

    #[test]
    fn points_compared_with_several_workers_use_no_zero_copy_either() {
        let all = experiments(false);
        for experiment in &all {
            let has_several = experiment.points.iter().any(|point| point.load.workers > 1);
            let copies = experiment.points.iter().all(|point| !point.load.is_zero_copy);
            assert!(!has_several || copies, "{}", experiment.name);
        }
    }

    #[test]
    fn sweeps_reach_their_documented_sizes() {
        let all = experiments(false);
        let points =
            |name: &str| &all.iter().find(|experiment| experiment.name == name).unwrap().points;
        assert!(points("shards").iter().any(|point| point.load.shards() == 1000));
        assert!(points("subscribers").iter().any(|point| point.load.subscribers() == 16_000));
        assert_eq!(points("flat")[1].load.flows, 60_000_000);
        assert!(points("rules").iter().any(|point| point.load.rules.count == MILLION));
        let shares: Vec<f64> = points("new-flows").iter().map(|point| point.x).collect();
        assert_eq!((shares[0], *shares.last().unwrap()), (0.0, 100.0));
    }
}
