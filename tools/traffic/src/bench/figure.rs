//! The figures of a round, and their median and spread over rounds. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

/// The measured figures, in the order of the columns of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    RawMpps,
    WeirMpps,
    MppsRatio,
    RawCycles,
    WeirCycles,
    WeirPacketsPerTurn,
    CyclesRatio,
    OtherBuildCycles,
    BuildsRatio,
    LinuxMpps,
    LinuxCycles,
    LinuxRatio,
    LinuxOpenCycles,
    LinuxOpenRatio,
    VppMpps,
    VppCycles,
    VppRatio,
    LossPercent,
    EstablishedMega,
    OpenedMega,
    ZeroLossMpps,
    ZeroLossShare,
    HalfLoadMpps,
    P50Us,
    P99Us,
    P999Us,
    RawP50Us,
    RawP999Us,
    BytesPerFlow,
    TearDownMega,
    TearDownSeconds,
    LongestTurnMs,
    TurnsBoundMs,
    LongTurnsPercent,
    TicksBoundMs,
    LongTicksPercent,
    CapacityFlows,
    CapacityConfigured,
    AttackMpps,
    VictimsLost,
    VictimsRefused,
    HeldBackPercent,
    HarmlessP99Us,
    P99Ratio,
    HarmlessCycles,
    AttackCycles,
    UnloggedOpenedMega,
    LoggedOpenedRatio,
    UnloggedCycles,
    LoggedCyclesRatio,
    AllLoggedMega,
    AllLoggedShare,
    BytesPerRecord,
    RecordMegabytes,
    RecordsLost,
    RecordsLostPercent,
    RecordsUncounted,
    ChangeSeconds,
    CompileSeconds,
    SwapSeconds,
    DroppedByWeir,
    UnchangedLossPercent,
    UnchangedLongestTurnMs,
    UnchangedLongTurnsPercent,
    Ipv4Mpps,
    Ipv6Mpps,
    Ipv4Cycles,
    Ipv6Cycles,
    Ipv6CyclesRatio,
    BothCyclesRatio,
    Ipv4OpenedMega,
    Ipv6OpenedMega,
    Ipv6OpenedRatio,
    OverIpv4Mpps,
    OverIpv4Cycles,
    OverIpv6CyclesRatio,
}

impl Figure {
    /// Returns the head of its column, and the number of digits after the point.
    fn head(self) -> (&'static str, usize) {
        match self {
            Figure::RawMpps => ("raw Mpps", 2),
            Figure::WeirMpps => ("weir Mpps", 2),
            Figure::MppsRatio => ("weir / raw Mpps", 3),
            Figure::RawCycles => ("raw cycles/packet", 0),
            Figure::WeirCycles => ("weir cycles/packet", 0),
            Figure::WeirPacketsPerTurn => ("weir packets/turn", 1),
            Figure::CyclesRatio => ("weir / raw cycles", 2),
            Figure::OtherBuildCycles => ("other build's cycles/packet", 0),
            Figure::BuildsRatio => ("weir / other build, cycles", 3),
            Figure::LinuxMpps => ("Linux nft Mpps", 3),
            Figure::LinuxCycles => ("Linux nft cycles/packet", 0),
            Figure::LinuxRatio => ("weir / Linux nft Mpps", 1),
            Figure::LinuxOpenCycles => ("Linux nft cycles/first packet", 0),
            Figure::LinuxOpenRatio => ("Linux nft / weir, first packets", 1),
            Figure::VppMpps => ("VPP Mpps", 2),
            Figure::VppCycles => ("VPP cycles/packet", 0),
            Figure::VppRatio => ("weir / VPP Mpps", 2),
            Figure::LossPercent => ("lost %", 3),
            Figure::EstablishedMega => ("M flows/s while filling", 2),
            Figure::OpenedMega => ("M new flows/s under load", 2),
            Figure::ZeroLossMpps => ("zero-loss Mpps", 2),
            Figure::ZeroLossShare => ("zero-loss / own flood", 3),
            Figure::HalfLoadMpps => ("offered Mpps", 2),
            Figure::P50Us => ("p50 µs", 1),
            Figure::P99Us => ("p99 µs", 1),
            Figure::P999Us => ("p99.9 µs", 1),
            Figure::RawP50Us => ("raw p50 µs", 1),
            Figure::RawP999Us => ("raw p99.9 µs", 1),
            Figure::BytesPerFlow => ("bytes/flow", 1),
            Figure::TearDownMega => ("M flows/s torn down", 2),
            Figure::TearDownSeconds => ("tear-down s", 2),
            Figure::LongestTurnMs => ("longest turn ms", 3),
            Figure::TurnsBoundMs => ("p99.99 of turns, at most ms", 3),
            Figure::LongTurnsPercent => ("turns > 1 ms, %", 4),
            Figure::TicksBoundMs => ("p99.99 of ticks, at most ms", 3),
            Figure::LongTicksPercent => ("ticks > 1 ms, %", 4),
            Figure::CapacityFlows => ("flows held", 0),
            Figure::CapacityConfigured => ("flows_max", 0),
            Figure::AttackMpps => ("attack Mpps", 2),
            Figure::VictimsLost => ("victims' packets lost", 0),
            Figure::VictimsRefused => ("victims' flows refused", 0),
            Figure::HeldBackPercent => ("victims' packets held back %", 2),
            Figure::HarmlessP99Us => ("harmless p99 µs", 1),
            Figure::P99Ratio => ("p99, attack / harmless", 2),
            Figure::HarmlessCycles => ("harmless cycles/packet", 0),
            Figure::AttackCycles => ("cycles/attack packet", 0),
            Figure::UnloggedOpenedMega => ("M new flows/s without log", 2),
            Figure::LoggedOpenedRatio => ("new flows, with / without log", 3),
            Figure::UnloggedCycles => ("cycles/packet without log", 0),
            Figure::LoggedCyclesRatio => ("cycles, with / without log", 3),
            Figure::AllLoggedMega => ("M new flows/s, all recorded", 3),
            Figure::AllLoggedShare => ("all recorded / without log", 3),
            Figure::BytesPerRecord => ("bytes/begun record", 1),
            Figure::RecordMegabytes => ("MB/s to the collector", 1),
            Figure::RecordsLost => ("records lost", 0),
            Figure::RecordsLostPercent => ("records lost %", 2),
            Figure::RecordsUncounted => ("missing, not counted as lost", 0),
            Figure::ChangeSeconds => ("change in force after s", 2),
            Figure::CompileSeconds => ("of it compiling s", 2),
            Figure::SwapSeconds => ("compiled to in force s", 4),
            Figure::DroppedByWeir => ("dropped by weir", 0),
            Figure::UnchangedLossPercent => ("lost % without change", 3),
            Figure::UnchangedLongestTurnMs => ("longest turn ms without change", 3),
            Figure::UnchangedLongTurnsPercent => ("turns > 1 ms without change, %", 4),
            Figure::Ipv4Mpps => ("IPv4 Mpps", 2),
            Figure::Ipv6Mpps => ("IPv6 Mpps", 2),
            Figure::Ipv4Cycles => ("IPv4 cycles/packet", 0),
            Figure::Ipv6Cycles => ("IPv6 cycles/packet", 0),
            Figure::Ipv6CyclesRatio => ("IPv6 / IPv4 cycles", 3),
            Figure::BothCyclesRatio => ("both / mean of IPv4 and IPv6, cycles", 3),
            Figure::Ipv4OpenedMega => ("IPv4 M new flows/s", 2),
            Figure::Ipv6OpenedMega => ("IPv6 M new flows/s", 2),
            Figure::Ipv6OpenedRatio => ("new flows, IPv6 / IPv4", 3),
            Figure::OverIpv4Mpps => ("GRE over IPv4 Mpps", 2),
            Figure::OverIpv4Cycles => ("GRE over IPv4 cycles/packet", 0),
            Figure::OverIpv6CyclesRatio => ("GRE over IPv6 / over IPv4 cycles", 3),
        }
    }

    pub fn title(self) -> &'static str {
        self.head().0
    }

    pub fn digits(self) -> usize {
        self.head().1
    }
}

/// The figures of one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Figures(pub(super) BTreeMap<Figure, f64>);

impl Figures {
    /// Sets a figure. Values that are not finite, or were not measured, are not entered.
    pub(super) fn set(&mut self, figure: Figure, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.0.insert(figure, value);
        }
    }

    pub(super) fn get(&self, figure: Figure) -> Option<f64> {
        self.0.get(&figure).copied()
    }

    /// Enters the busy cycles per packet of another build of weir in the same round.
    pub(super) fn enter_other_build(&mut self, other: Option<f64>) {
        let own = self.get(Figure::WeirCycles);
        self.set(Figure::OtherBuildCycles, other);
        self.set(Figure::BuildsRatio, own.zip(other).map(|(own, other)| own / other));
    }
}

/// Median, extremes and confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Number of rounds.
    pub of: usize,
    /// Interval that contains the median of all possible rounds with a confidence of 95 %. None
    /// with fewer than six rounds.
    pub interval: Option<[f64; 2]>,
}

impl Spread {
    /// Computes the spread of values. `None` without values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        let interval = interval_of_median(&sorted);
        Some(Spread { median, min, max, of: sorted.len(), interval })
    }

    /// Returns a text like `4.62 [4.50..4.71]`; without the extremes if there was one round.
    pub fn text(&self, digits: usize) -> String {
        let Spread { median, min, max, of, .. } = self;
        if *of == 1 {
            return format!("{median:.digits$}");
        }
        format!("{median:.digits$} [{min:.digits$}..{max:.digits$}]")
    }
}

/// Returns the order statistics that enclose the median with a confidence of 95 %, whatever the
/// distribution: the probability that fewer than k values lie below the median is that of fewer
/// than k heads in as many coin tosses.
fn interval_of_median(sorted: &[f64]) -> Option<[f64; 2]> {
    let throws = sorted.len();
    let (mut of_heads, mut below, mut k) = (0.5_f64.powi(throws as i32), 0.0, 0);
    while below + of_heads <= 0.025 {
        below += of_heads;
        of_heads *= (throws - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    let lowest = k.checked_sub(1)?;
    Some([sorted[lowest], sorted[throws - 1 - lowest]])
}

/// Returns the spread of every figure over several rounds.
pub(super) fn summary<'a>(
    rounds: impl IntoIterator<Item = &'a Figures>,
) -> BTreeMap<Figure, Spread> {
    let mut values: BTreeMap<Figure, Vec<f64>> = BTreeMap::new();
    for (&figure, &value) in rounds.into_iter().flat_map(|figures| &figures.0) {
        values.entry(figure).or_default().push(value);
    }
    values.into_iter().filter_map(|(figure, values)| Some((figure, Spread::of(values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max, spread.of), (2.0, 1.0, 3.0, 3));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn the_interval_of_a_median_needs_six_rounds_and_narrows_with_more() {
        let spread = |rounds: u32| Spread::of((1..=rounds).map(f64::from)).unwrap().interval;
        // From tables of the sign test: no rank of 5, ranks 1 of 6, 2 of 10, 6 of 20, 40 of 100.
        assert_eq!([spread(1), spread(5)], [None; 2]);
        assert_eq!(spread(6), Some([1.0, 6.0]));
        assert_eq!(spread(10), Some([2.0, 9.0]));
        assert_eq!(spread(20), Some([6.0, 15.0]));
        assert_eq!(spread(100), Some([40.0, 61.0]));
    }

    #[test]
    fn a_single_round_has_no_spread() {
        assert_eq!(Spread::of([1.0]).unwrap().text(1), "1.0");
        assert_eq!(Spread::of([1.0, 2.0, 4.0]).unwrap().text(1), "2.0 [1.0..4.0]");
    }

    #[test]
    fn values_that_are_not_finite_are_no_figures() {
        let mut figures = Figures::default();
        figures.set(Figure::WeirMpps, f64::NAN);
        figures.set(Figure::RawMpps, None);
        figures.set(Figure::P50Us, 2.0);
        assert_eq!(figures.0.len(), 1);
        assert_eq!(summary([&figures, &figures])[&Figure::P50Us].of, 2);
    }
}
