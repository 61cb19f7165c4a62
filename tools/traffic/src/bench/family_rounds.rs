//! A round of floods of each address family and of both, which show what a packet of one costs
//! beside one of the other.

use super::BenchError;
use super::context::BenchContext;
use super::figure::{Figure, Figures};
use super::load::Load;
use super::probe::WeirRun;
use super::rounds::Round;
use crate::families::Families;

const EACH: [Families; 3] = [Families::Ipv4, Families::Ipv6, Families::Both];

impl BenchContext<'_> {
    /// Floods weir with the load of each family and of both, each round in another order. The
    /// figures of a flood alone are those of both.
    pub(super) fn each_family(&self, load: &Load, number: usize) -> Result<Round, BenchError> {
        let mut runs: [Option<WeirRun>; 3] = [const { None }; 3];
        for turn in 0..EACH.len() {
            let position = (number + turn) % EACH.len();
            runs[position] = Some(self.weir_flood(&Load { families: EACH[position], ..*load })?);
        }
        let [Some(ipv4), Some(ipv6), Some(both)] = runs else {
            unreachable!("a round has a flood of each")
        };
        let wrong = [&ipv4, &ipv6, &both].iter().map(|run| run.flooded.wrong).sum();
        let mut round = Round { figures: both.figures, wrong, ..Round::default() };
        compare(&ipv4.figures, &ipv6.figures, &mut round.figures);
        Ok(round)
    }
}

/// Enters the figures of each family beside those of both, and the ratios.
fn compare(ipv4: &Figures, ipv6: &Figures, both: &mut Figures) {
    let pairs = [
        (Figure::WeirMpps, Figure::Ipv4Mpps, Figure::Ipv6Mpps),
        (Figure::WeirCycles, Figure::Ipv4Cycles, Figure::Ipv6Cycles),
        (Figure::OpenedMega, Figure::Ipv4OpenedMega, Figure::Ipv6OpenedMega),
    ];
    for (figure, of_ipv4, of_ipv6) in pairs {
        both.set(of_ipv4, ipv4.get(figure));
        both.set(of_ipv6, ipv6.get(figure));
    }
    let of = |figures: &Figures, figure| figures.get(figure).unwrap_or(f64::NAN);
    let [cycles4, cycles6] = [ipv4, ipv6].map(|figures| of(figures, Figure::WeirCycles));
    both.set(Figure::Ipv6CyclesRatio, cycles6 / cycles4);
    let mean = f64::midpoint(cycles4, cycles6);
    both.set(Figure::BothCyclesRatio, of(both, Figure::WeirCycles) / mean);
    let [opened4, opened6] = [ipv4, ipv6].map(|figures| of(figures, Figure::OpenedMega));
    both.set(Figure::Ipv6OpenedRatio, opened6 / opened4);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(cycles: f64, opened: Option<f64>) -> Figures {
        let mut figures = Figures::default();
        figures.set(Figure::WeirCycles, cycles);
        figures.set(Figure::OpenedMega, opened);
        figures
    }

    #[test]
    fn both_families_are_compared_with_the_mean_of_each() {
        let mut both = figures(165.0, Some(3.0));
        compare(&figures(100.0, Some(2.0)), &figures(120.0, Some(3.0)), &mut both);
        assert_eq!(both.get(Figure::Ipv6CyclesRatio), Some(1.2));
        assert_eq!(both.get(Figure::BothCyclesRatio), Some(1.5));
        assert_eq!(both.get(Figure::Ipv6OpenedRatio), Some(1.5));
        assert_eq!(both.get(Figure::Ipv4Cycles), Some(100.0));
    }

    #[test]
    fn established_flows_have_no_figure_of_new_ones() {
        let mut both = figures(110.0, None);
        compare(&figures(100.0, None), &figures(120.0, None), &mut both);
        assert_eq!(both.get(Figure::BothCyclesRatio), Some(1.0));
        assert_eq!(both.get(Figure::Ipv6OpenedRatio), None);
    }
}
