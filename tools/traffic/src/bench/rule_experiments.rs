//! The experiments with rules. Pure.

use std::time::Duration;

use super::experiment::{Experiment, Point, Probe};
use super::load::{Access, Load, count};
use super::rules::LoadRules;

const MILLION: u32 = 1_000_000;
/// Time of a flood in which a rule is changed: the compilation has a small share of a core.
const CHANGE_TIME: Duration = Duration::from_secs(20);
/// Time of a flood of first packets, which has to have flows enough to its end: packets of flows
/// that are open by then would make a first packet seem cheaper.
const OPENING_TIME: Duration = Duration::from_secs(1);
const REFUSED_TIME: Duration = Duration::from_millis(500);
/// More new flows in a second than a worker opens, and than it refuses.
const OPENED_PER_SEC_MAX: f64 = 8e6;
const REFUSED_PER_SEC_MAX: f64 = 20e6;
const COUNTS: [u32; 5] = [0, 1_000, 10_000, 100_000, MILLION];

/// Returns a load of first packets beside 1 M open flows.
pub(super) fn opened() -> Load {
    let load = Load::opening(OPENING_TIME);
    Load { flows: MILLION, opens_per_sec_max: OPENED_PER_SEC_MAX, ..load }.lasting(OPENING_TIME)
}

/// Returns a load of first packets of homes beyond the first shard, whose homes have open flows.
fn refused() -> Load {
    let load = Load::opening(REFUSED_TIME);
    Load { flows: 16_384, opens_per_sec_max: REFUSED_PER_SEC_MAX, ..load }.lasting(REFUSED_TIME)
}

pub(super) fn rules(rounds: usize, measured: Duration) -> Experiment {
    let established = Load::new(MILLION, measured);
    let mut points = Vec::new();
    for (label, load, refuses_new) in [
        ("established", established, false),
        ("opened", opened(), false),
        ("refused", refused(), true),
    ] {
        for count in COUNTS {
            let rules = LoadRules { count, refuses_new };
            let label = format!("{label}, {} rules", self::count(count.into()));
            let load = Load { rules, ..load };
            points.push(Point { label, x: count.into(), load, probe: Probe::Flood });
        }
    }
    let rules = LoadRules { count: 100_000, refuses_new: false };
    let load = Load { rules, ..Load::new(MILLION, CHANGE_TIME) }.at(4e6);
    let label = "one of 100 k rules changed, 4 Mpps".to_owned();
    points.push(Point { label, x: 100_000.0, load, probe: Probe::RuleChange });
    Experiment {
        name: "rules",
        title: "Rules",
        about: "Rules of an ISP's mix, of which none fits: 70 % about prefixes of remotes, 29 % of homes, 1 % about ports. Established: 1 M flows, \
                both directions. Opened: each packet goes up and opens a flow, 1 M are open before. Refused: each packet goes up and \
                would open a flow, and one more rule drops it. Changed: the action of one rule, by a reload; the generator and the thread that compiles share a core.",
        axis: None,
        rounds,
        points,
    }
}

/// Plain access, as the kernel has no tunnel to remove either.
pub(super) fn rules_linux(rounds: usize) -> Experiment {
    let points = [(0, false), (1_000, false), (10_000, false), (1_000, true), (100_000, true)];
    let points = points.into_iter().map(|(count, are_sets)| {
        let rules = LoadRules { count, refuses_new: false };
        let form = if are_sets { "sets" } else { "list" };
        Point {
            label: format!("{} rules, {form}", self::count(count.into())),
            x: count.into(),
            load: Load { access: Access::Plain, rules, ..opened() },
            probe: Probe::FloodBesideLinuxRules { are_sets },
        }
    });
    Experiment {
        name: "rules-linux",
        title: "Rules beside the kernel's",
        about: "Plain access, packets that open a flow, behind rules of an ISP's mix of which none fits. weir: each packet goes up and opens a flow, 1 M are open before. \
                Linux: nftables source NAT on one core; the rules stand behind the one that accepts packets of live flows, one by one (list) or as elements of three interval sets \
                (sets); its figure is that of opening 200,000 flows (20,000 in a list of 10 k) in an empty table, and making and counting the frames is included.",
        axis: None,
        rounds,
        points: points.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_packet_meets_up_to_a_million_rules() {
        let rules = rules(3, Duration::from_secs(2));
        for kind in ["established", "opened", "refused"] {
            let points = rules.points.iter().filter(|point| point.label.starts_with(kind));
            let counts: Vec<u32> = points.map(|point| point.load.rules.count).collect();
            assert_eq!(counts, COUNTS, "{kind}");
        }
        let opened = rules.points.iter().find(|point| point.label == "opened, 1 M rules").unwrap();
        assert_eq!(opened.load.new_flows, 9_600_000);
        assert_eq!(opened.load.lasting(2 * OPENING_TIME).new_flows, 17_600_000);
    }

    #[test]
    fn weir_has_as_many_rules_as_the_kernel_beside_it() {
        for point in rules_linux(3).points {
            let rules = format!("{} rules, ", count(point.load.rules.count.into()));
            let form = point.label.strip_prefix(&rules).unwrap();
            let are_sets = form == "sets";
            assert_eq!(point.probe, Probe::FloodBesideLinuxRules { are_sets });
            assert!(point.load.access == Access::Plain && point.load.up_share == 100.0);
        }
    }
}
