//! The promises about speed and size, and the measured figures. Pure.

use serde::Serialize;

use super::figure::Figure;
use super::report::Results;

/// Source of the measured figure; all are medians except `Greatest`.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A figure of a point of an experiment.
    Point(&'static str, &'static str, Figure),
    /// The same figure of two points of one experiment, the first divided by the second.
    Quotient(&'static str, &'static str, &'static str, Figure),
    /// The same, the first minus the second.
    Difference(&'static str, &'static str, &'static str, Figure),
    /// The greatest median of all points of an experiment.
    GreatestMedian(&'static str, Figure),
    /// The greatest value of any round that counts, over all points of an experiment.
    Greatest(&'static str, Figure),
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing is promised; the figure is only reported.
    Figure,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    what: &'static str,
    wanted: Wanted,
    source: Source,
    digits: usize,
}

/// A line of the report's first table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) what: String,
    pub(super) wanted: String,
    pub(super) measured: String,
    /// `yes`, `no`, `-` if nothing is promised, or `not measured`.
    pub(super) kept: &'static str,
}

const fn promise(what: &'static str, wanted: Wanted, digits: usize, source: Source) -> Promise {
    Promise { what, wanted, source, digits }
}

use Source::{Difference, Greatest, GreatestMedian, Point, Quotient};
use Wanted::{AtLeast, AtMost};

#[rustfmt::skip]
const PROMISES: &[Promise] = &[
    promise("busy cycles, weir / raw, GRE, 10 k flows", AtMost(2.6), 2, Point("established", "GRE, 10 k", Figure::CyclesRatio)),
    promise("busy cycles, weir / raw, GRE, 1 M flows", AtMost(2.6), 2, Point("established", "GRE, 1 M", Figure::CyclesRatio)),
    promise("busy cycles, weir / raw, plain, 10 k flows", AtMost(2.6), 2, Point("established", "plain, 10 k", Figure::CyclesRatio)),
    promise("busy cycles, weir / raw, plain, 1 M flows", AtMost(2.6), 2, Point("established", "plain, 1 M", Figure::CyclesRatio)),
    promise("Mpps, weir / raw, GRE, 10 k flows", AtLeast(0.65), 3, Point("established", "GRE, 10 k", Figure::MppsRatio)),
    promise("Mpps, weir / raw, GRE, 1 M flows", AtLeast(0.65), 3, Point("established", "GRE, 1 M", Figure::MppsRatio)),
    promise("Mpps, weir / raw, plain, 10 k flows", AtLeast(0.65), 3, Point("established", "plain, 10 k", Figure::MppsRatio)),
    promise("Mpps, weir / raw, plain, 1 M flows", AtLeast(0.65), 3, Point("established", "plain, 1 M", Figure::MppsRatio)),
    promise("Mpps the generator and raw forwarding move, 1 M flows", AtLeast(20.0), 1, Point("established", "GRE, 1 M", Figure::RawMpps)),
    promise("Mpps, weir / Linux nft, 1 k flows", AtLeast(20.0), 1, Point("linux", "1 k", Figure::LinuxRatio)),
    promise("Mpps, weir / Linux nft, 60 k flows", AtLeast(20.0), 1, Point("linux", "60 k", Figure::LinuxRatio)),
    promise("zero-loss rate / own flood rate, 1 M flows", AtLeast(0.9), 3, Point("zero-loss", "1 M", Figure::ZeroLossShare)),
    promise("p99.9 latency at half load, 1 M flows, µs", Wanted::Figure, 1, Point("latency", "1 M", Figure::P999Us)),
    promise("M new flows/s, filling 1 M", AtLeast(4.0), 2, Point("established", "GRE, 1 M", Figure::EstablishedMega)),
    promise("M new flows/s, filling 60 M", AtLeast(2.5), 2, Point("flat", "60 M", Figure::EstablishedMega)),
    promise("Mpps at 60 M flows", AtLeast(8.0), 2, Point("flat", "60 M", Figure::WeirMpps)),
    promise("busy cycles at 60 M flows, more than at 1 M", AtMost(160.0), 0, Difference("flat", "60 M", "1 M", Figure::WeirCycles)),
    promise("bytes a flow, 60 M flows", AtMost(100.0), 1, Point("flat", "60 M", Figure::BytesPerFlow)),
    promise("longest turn while 60 M flows expire, ms", AtMost(1.0), 3, Point("expiry-60m", "60 M", Figure::LongestTurnMs)),
    promise("99.99 % of the turns meanwhile take at most, ms", AtMost(1.0), 3, Point("expiry-60m", "60 M", Figure::TurnsBoundMs)),
    promise("99.99 % of the ticks meanwhile take at most, ms", AtMost(1.0), 3, Point("expiry-60m", "60 M", Figure::TicksBoundMs)),
    promise("turns beyond 1 ms meanwhile, %", Wanted::Figure, 4, Point("expiry-60m", "60 M", Figure::LongTurnsPercent)),
    promise("ticks beyond 1 ms meanwhile, %", Wanted::Figure, 4, Point("expiry-60m", "60 M", Figure::LongTicksPercent)),
    promise("Mpps, 1,000 shards / 63 shards", AtLeast(0.95), 3, Quotient("shards", "1 k", "63", Figure::WeirMpps)),
    promise("Mpps, weir / raw, 1518 bytes", AtLeast(0.65), 3, Point("sizes", "1518", Figure::MppsRatio)),
    promise("Mpps, weir / raw, IMIX", AtLeast(0.65), 3, Point("sizes", "IMIX", Figure::MppsRatio)),
    promise("busy cycles, IPv6 / IPv4, plain, 1 M flows", AtMost(1.15), 3, Point("ipv6", "plain, 1 M", Figure::Ipv6CyclesRatio)),
    promise("busy cycles, IPv6 / IPv4, GRE, 1 M flows", Wanted::Figure, 3, Point("ipv6", "GRE, 1 M", Figure::Ipv6CyclesRatio)),
    promise("busy cycles, both families in one burst / mean of each, plain", AtMost(1.05), 3, Point("ipv6", "plain, 1 M", Figure::BothCyclesRatio)),
    promise("busy cycles, both families in one burst / mean of each, GRE", AtMost(1.05), 3, Point("ipv6", "GRE, 1 M", Figure::BothCyclesRatio)),
    promise("new flows/s, IPv6 / IPv4, plain", AtLeast(1.1), 3, Point("ipv6", "plain, new flows", Figure::Ipv6OpenedRatio)),
    promise("new flows/s, IPv6 / IPv4, GRE", Wanted::Figure, 3, Point("ipv6", "GRE, new flows", Figure::Ipv6OpenedRatio)),
    promise("busy cycles, GRE over IPv6 / GRE over IPv4, 1 M flows", AtMost(1.25), 3, Point("gre6", "1 M", Figure::OverIpv6CyclesRatio)),
    promise("bytes a flow, 60 M flows of both families", AtMost(100.0), 1, Point("flat-both", "60 M", Figure::BytesPerFlow)),
    promise("homes beside floods: packets lost, worst round", AtMost(0.0), 0, Greatest("floods", Figure::VictimsLost)),
    promise("homes beside floods: new flows refused, worst round", AtMost(0.0), 0, Greatest("floods", Figure::VictimsRefused)),
    promise("homes beside floods: packets held back, worst flood, %", AtMost(5.0), 2, GreatestMedian("floods", Figure::HeldBackPercent)),
    promise("homes beside floods: p99, flood / harmless, worst flood", AtMost(1.5), 2, GreatestMedian("floods", Figure::P99Ratio)),
    promise("busy cycles of a packet of the dearest flood", Wanted::Figure, 0, GreatestMedian("floods", Figure::AttackCycles)),
    promise("M new flows/s, each with its record at the collector", Wanted::Figure, 2, Point("session-log", "no record lost", Figure::AllLoggedMega)),
    promise("new flows beyond that, with / without a session log", Wanted::Figure, 3, Point("session-log", "flood", Figure::LoggedOpenedRatio)),
    promise("busy cycles beyond that, with / without a session log", Wanted::Figure, 3, Point("session-log", "flood", Figure::LoggedCyclesRatio)),
    promise("records that a collector misses and weir does not count as lost, worst round", AtMost(0.0), 0, Greatest("session-log", Figure::RecordsUncounted)),
    promise("M flows/s torn down, flush", Wanted::Figure, 2, Point("tear-down", "flush, 1 M", Figure::TearDownMega)),
    promise("M flows/s torn down, expiry", Wanted::Figure, 2, Point("tear-down", "expiry, 4 M", Figure::TearDownMega)),
];

/// Returns all promises with these results.
pub(super) fn lines(results: &Results) -> Vec<Line> {
    PROMISES.iter().map(|promise| promise.line(results)).collect()
}

impl Promise {
    fn line(&self, results: &Results) -> Line {
        let digits = self.digits;
        let wanted = match self.wanted {
            AtLeast(limit) => format!("at least {limit}"),
            AtMost(limit) => format!("at most {limit}"),
            Wanted::Figure => "a figure".into(),
        };
        let measured = self.source.find(results);
        let kept = match (self.wanted, measured) {
            (_, None) => "not measured",
            (AtLeast(limit), Some(value)) => yes_no(value >= limit),
            (AtMost(limit), Some(value)) => yes_no(value <= limit),
            (Wanted::Figure, Some(_)) => "-",
        };
        let measured = measured.map_or("-".into(), |value| format!("{value:.digits$}"));
        Line { what: self.what.into(), wanted, measured, kept }
    }
}

fn yes_no(kept: bool) -> &'static str {
    if kept { "yes" } else { "no" }
}

impl Source {
    fn find(self, results: &Results) -> Option<f64> {
        match self {
            Point(experiment, label, figure) => results.median(experiment, label, figure),
            Quotient(experiment, first, second, figure) => {
                let first = results.median(experiment, first, figure)?;
                Some(first / results.median(experiment, second, figure)?)
            }
            Difference(experiment, first, second, figure) => {
                let first = results.median(experiment, first, figure)?;
                Some(first - results.median(experiment, second, figure)?)
            }
            GreatestMedian(experiment, figure) => {
                results.greatest(experiment, figure, |spread| spread.median)
            }
            Greatest(experiment, figure) => {
                results.greatest(experiment, figure, |spread| spread.max)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::catalogue;
    use crate::bench::report::tests::results;

    #[test]
    fn every_promise_is_about_a_point_that_is_measured() {
        let mut all = catalogue::experiments(false);
        all.extend(catalogue::on_request(false));
        let has = |name: &str, label: &str| {
            all.iter()
                .filter(|experiment| experiment.name == name)
                .any(|experiment| experiment.points.iter().any(|point| point.label == label))
        };
        for promise in PROMISES {
            let found = match promise.source {
                Point(name, label, _) => has(name, label),
                Quotient(name, first, second, _) | Difference(name, first, second, _) => {
                    has(name, first) && has(name, second)
                }
                GreatestMedian(name, _) | Greatest(name, _) => {
                    all.iter().any(|experiment| experiment.name == name)
                }
            };
            assert!(found, "{}", promise.what);
        }
    }

    fn verdict_on(wanted: Wanted, source: Source) -> &'static str {
        promise("x", wanted, 1, source).line(&results(&[("p", 30.0), ("q", 10.0)])).kept
    }

    #[test]
    fn a_promise_is_kept_broken_or_not_measured() {
        let point = Point("sample", "p", Figure::WeirMpps);
        assert_eq!(verdict_on(AtLeast(20.0), point), "yes");
        assert_eq!(verdict_on(AtLeast(31.0), point), "no");
        assert_eq!(verdict_on(AtMost(31.0), point), "yes");
        assert_eq!(verdict_on(AtMost(3.0), Quotient("sample", "p", "q", Figure::WeirMpps)), "yes");
        assert_eq!(verdict_on(AtMost(2.9), Quotient("sample", "p", "q", Figure::WeirMpps)), "no");
        assert_eq!(
            verdict_on(AtMost(20.0), Difference("sample", "p", "q", Figure::WeirMpps)),
            "yes"
        );
        assert_eq!(
            verdict_on(AtMost(19.0), Difference("sample", "p", "q", Figure::WeirMpps)),
            "no"
        );
        assert_eq!(verdict_on(AtMost(30.0), Greatest("sample", Figure::WeirMpps)), "yes");
        assert_eq!(verdict_on(AtMost(29.0), Greatest("sample", Figure::WeirMpps)), "no");
        assert_eq!(verdict_on(AtMost(29.0), GreatestMedian("sample", Figure::WeirMpps)), "no");
        assert_eq!(
            verdict_on(AtMost(1.0), GreatestMedian("sample", Figure::P50Us)),
            "not measured"
        );
        assert_eq!(verdict_on(Wanted::Figure, point), "-");
        assert_eq!(
            verdict_on(AtLeast(1.0), Point("sample", "r", Figure::WeirMpps)),
            "not measured"
        );
        assert_eq!(verdict_on(AtLeast(1.0), Point("sample", "p", Figure::P50Us)), "not measured");
    }
}
