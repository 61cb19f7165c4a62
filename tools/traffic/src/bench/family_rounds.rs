//! Rounds of several floods of weir, which show what a packet of one kind costs beside one of
//! another: of each address family and of both, and of tunnels over each family.

use super::BenchError;
use super::context::BenchContext;
use super::figure::{Figure, Figures};
use super::load::{Access, Load};
use super::probe::WeirRun;
use super::rounds::Round;
use crate::families::Families;

const EACH: [Families; 3] = [Families::Ipv4, Families::Ipv6, Families::Both];
const TUNNELS: [Access; 2] = [Access::Gre, Access::GreOverIpv6];

impl BenchContext<'_> {
    /// Floods weir with the load of each family and of both, each round in another order. The
    /// figures of a flood alone are those of both.
    pub(super) fn each_family(&self, load: &Load, number: usize) -> Result<Round, BenchError> {
        let loads = EACH.map(|families| Load { families, ..*load });
        let [ipv4, ipv6, both] = self.in_turn(loads, number)?;
        let wrong = [&ipv4, &ipv6, &both].iter().map(|run| run.flooded.wrong).sum();
        let mut round = Round { figures: both.figures, wrong, ..Round::default() };
        compare(&ipv4.figures, &ipv6.figures, &mut round.figures);
        Ok(round)
    }

    /// Floods weir with the load through tunnels over IPv4 and over IPv6, each round in the other
    /// order. The figures of a flood alone are those over IPv6.
    pub(super) fn each_tunnel(&self, load: &Load, number: usize) -> Result<Round, BenchError> {
        let loads = TUNNELS.map(|access| Load { access, ..*load });
        let [over_ipv4, over_ipv6] = self.in_turn(loads, number)?;
        let wrong = over_ipv4.flooded.wrong + over_ipv6.flooded.wrong;
        let mut round = Round { figures: over_ipv6.figures, wrong, ..Round::default() };
        compare_tunnels(&over_ipv4.figures, &mut round.figures);
        Ok(round)
    }

    /// Floods weir with each of the loads, the rounds in different orders.
    fn in_turn<const N: usize>(
        &self,
        loads: [Load; N],
        number: usize,
    ) -> Result<[WeirRun; N], BenchError> {
        let mut runs = [const { None }; N];
        for position in order::<N>(number) {
            runs[position] = Some(self.weir_flood(&loads[position])?);
        }
        Ok(runs.map(|run| {
            let Some(run) = run else { unreachable!("a round has a flood of each load") };
            run
        }))
    }
}

/// Returns the order of the floods of a round, as positions.
fn order<const N: usize>(number: usize) -> impl Iterator<Item = usize> {
    (0..N).map(move |turn| (number + turn) % N)
}

/// Enters the figures of tunnels over IPv4 beside those over IPv6, and the ratio.
fn compare_tunnels(over_ipv4: &Figures, over_ipv6: &mut Figures) {
    over_ipv6.set(Figure::OverIpv4Mpps, over_ipv4.get(Figure::WeirMpps));
    over_ipv6.set(Figure::OverIpv4Cycles, over_ipv4.get(Figure::WeirCycles));
    let cycles = over_ipv6.get(Figure::WeirCycles).zip(over_ipv4.get(Figure::WeirCycles));
    over_ipv6.set(Figure::OverIpv6CyclesRatio, cycles.map(|(ipv6, ipv4)| ipv6 / ipv4));
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
    fn cycles_through_tunnels_over_ipv6_are_divided_by_those_over_ipv4() {
        let mut over_ipv6 = figures(120.0, None);
        compare_tunnels(&figures(100.0, None), &mut over_ipv6);
        assert_eq!(over_ipv6.get(Figure::OverIpv6CyclesRatio), Some(1.2));
        assert_eq!(over_ipv6.get(Figure::OverIpv4Cycles), Some(100.0));
        assert_eq!(over_ipv6.get(Figure::WeirCycles), Some(120.0));
        let mut unmeasured = figures(120.0, None);
        compare_tunnels(&Figures::default(), &mut unmeasured);
        assert_eq!(unmeasured.get(Figure::OverIpv6CyclesRatio), None);
    }

    #[test]
    fn each_flood_of_a_round_has_every_place_in_turn() {
        let orders = [0, 1, 2].map(|number| order::<2>(number).collect::<Vec<_>>());
        assert_eq!(orders, [[0, 1], [1, 0], [0, 1]]);
        let first = [0, 1, 2].map(|number| order::<3>(number).next());
        assert_eq!(first, [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn established_flows_have_no_figure_of_new_ones() {
        let mut both = figures(110.0, None);
        compare(&figures(100.0, None), &figures(120.0, None), &mut both);
        assert_eq!(both.get(Figure::BothCyclesRatio), Some(1.0));
        assert_eq!(both.get(Figure::Ipv6OpenedRatio), None);
    }
}
