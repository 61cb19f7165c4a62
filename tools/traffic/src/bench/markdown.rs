//! The report for people. Pure.

use std::fmt::Write;

use super::figure::Figure;
use super::promises::Line;
use super::report::{ExperimentResult, Report};
use super::rounds::{Measured, State};

/// Returns the whole report; `plots` holds names of experiments and the files of their plots.
pub(super) fn report(report: &Report, plots: &[(&str, String)]) -> String {
    let mut text = String::from("# weir beside raw packet I/O\n\n## Promises\n\n");
    text.push_str(&report.summary());
    text.push_str(&conditions(report));
    for experiment in &report.results.0 {
        text.push_str(&chapter(experiment));
        for (_, file) in plots.iter().filter(|(name, _)| *name == experiment.name) {
            let _ = writeln!(text, "\n![{}]({file})", experiment.title);
        }
    }
    text
}

pub(super) fn promises(lines: &[Line]) -> String {
    let mut text = String::from("| promise | wanted | measured | kept |\n|---|--:|--:|---|\n");
    for Line { what, wanted, measured, kept } in lines {
        let _ = writeln!(text, "| {what} | {wanted} | {measured} | {kept} |");
    }
    text
}

/// Ratios of alternating measurements: two builds, or weir with and without a session log.
const COMPARISONS: [Figure; 3] =
    [Figure::BuildsRatio, Figure::LoggedOpenedRatio, Figure::LoggedCyclesRatio];

/// Returns how weir compares with another build, or with itself: a line for each point and ratio.
pub(super) fn comparisons<'a>(points: impl Iterator<Item = &'a Measured>) -> String {
    let mut text = String::new();
    for (point, figure) in points.flat_map(|point| COMPARISONS.map(|figure| (point, figure))) {
        let Some(spread) = point.figures.get(&figure) else { continue };
        let (label, title, digits) = (&point.point.label, figure.title(), figure.digits());
        let _ = write!(text, "\n{label}: {title}: {}", spread.text(digits));
        let _ = match spread.interval {
            Some([low, high]) => {
                write!(text, ", 95 % interval of the median {low:.digits$}..{high:.digits$}")
            }
            None => write!(text, ", too few rounds for an interval (six at least)"),
        };
        let _ = writeln!(text, ", rounds: {}.", spread.of);
    }
    text
}

fn conditions(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "\n## Conditions\n\n\
         - Machine: {}, {} cores, TSC {:.0} MHz, {:.0} GB of memory, Linux {}; generator on core {}, device on core {}; load \
         before: {:.2}.\n\
         - Repeat with `{}`; one experiment with `--only NAME`; the names are in the headings.\n\
         - Median [least..most] of the rounds that count: those between two raw rounds whose rates differ by at most 20 %. Raw \
         figures are the mean of the rounds before and after; ratios are those of one round.\n\
         - Rate: packets of both directions that came back right (as learned, to the right home, checksums verified). Lost and \
         wrong packets do not count.\n\
         - Raw: dpdk-testpmd in io mode between the same memif ports, the same packets unchanged. Where its core is not busy all \
         the time, the generator is the limit of the raw rate, and the ratio of rates flatters weir; that of cycles does not.\n\
         - Cycles: TSC cycles of the device's core in polls that brought packets, per packet received, I/O included, of the flood \
         alone.\n\
         - memif without a copy on the device's side: the generator, which listens, reads and writes the device's packet memory.\n",
        machine.cpu,
        machine.cores,
        machine.tsc_mhz,
        machine.memory_gb,
        machine.kernel,
        report.generator_core,
        report.device_core,
        machine.load,
        report.command,
    )
}

fn chapter(experiment: &ExperimentResult) -> String {
    let ExperimentResult { name, title, about, huge_pages, .. } = experiment;
    let mut text = format!("\n## {title} (`{name}`)\n\n{about} Huge pages: {huge_pages}.\n\n");
    let figures = experiment.figures();
    let heads: String = figures.iter().map(|figure| format!(" {} |", figure.title())).collect();
    let _ = writeln!(text, "| |{heads} wrong | rounds |");
    let _ = writeln!(text, "|---|{}--:|--:|", "--:|".repeat(figures.len()));
    for point in &experiment.points {
        text.push_str(&row(point, &figures));
    }
    for point in &experiment.points {
        let label = &point.point.label;
        match &point.state {
            State::Skipped(why) => _ = writeln!(text, "\n{label}: skipped, {why}."),
            State::Failed(why) => _ = writeln!(text, "\n{label}: failed.\n\n```text\n{why}\n```"),
            State::Measured => {}
        }
        for note in &point.notes {
            let _ = writeln!(text, "\n{label}: {note}.");
        }
    }
    text
}

fn row(point: &Measured, figures: &[Figure]) -> String {
    let cells: String = figures
        .iter()
        .map(|figure| match point.figures.get(figure) {
            Some(spread) => format!(" {} |", spread.text(figure.digits())),
            None => " - |".into(),
        })
        .collect();
    let rounds = match point.state {
        State::Skipped(_) => "skipped".into(),
        _ => format!("{} of {}", point.kept(), point.rounds.len()),
    };
    format!("| {} |{cells} {} | {rounds} |\n", point.point.label, point.wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report as sample;

    #[test]
    fn every_row_has_as_many_cells_as_the_head() {
        let text = report(&sample(&[("p", 1.0), ("q", 2.0)]), &[]);
        let mut cells = 0;
        for line in text.lines() {
            let count = line.matches('|').count();
            if count == 0 {
                cells = 0;
            } else if cells == 0 {
                cells = count;
            } else {
                assert_eq!(count, cells, "{line}");
            }
        }
        assert!(text.contains("| q | 20.00 | 2.00 | 0.100 |"), "{text}");
    }

    #[test]
    fn another_build_is_compared_in_a_line_with_its_interval() {
        let mut sample = sample(&[("p", 1.0), ("q", 1.0)]);
        assert_eq!(comparisons(sample.results.0[0].points.iter()), "");
        let point = &mut sample.results.0[0].points[0];
        let round = point.rounds[0].clone();
        for other in [200.0, 160.0, 250.0, 200.0, 200.0, 200.0] {
            let mut round = round.clone();
            round.figures.enter_other_build(Some(other));
            point.enter(round);
        }
        assert_eq!(
            comparisons(sample.results.0[0].points.iter()),
            "\np: weir / other build, cycles: 1.000 [0.800..1.250], 95 % interval of the median 0.800..1.250, rounds: 6.\n"
        );
    }

    #[test]
    fn a_session_log_is_compared_by_new_flows_and_by_cycles() {
        let mut sample = sample(&[("p", 1.0)]);
        let point = &mut sample.results.0[0].points[0];
        let mut round = point.rounds[0].clone();
        round.figures.set(Figure::LoggedOpenedRatio, 0.9);
        round.figures.set(Figure::LoggedCyclesRatio, 1.1);
        point.enter(round);
        let text = comparisons(sample.results.0[0].points.iter());
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        let [flows, cycles] = lines.as_slice() else { panic!("two lines: {text}") };
        assert!(flows.starts_with("p: new flows, with / without log: 0.900,"), "{flows}");
        assert!(cycles.starts_with("p: cycles, with / without log: 1.100,"), "{cycles}");
    }

    #[test]
    fn skipped_measurements_are_listed_with_their_reasons() {
        let mut sample = sample(&[("p", 1.0)]);
        sample.results.0[0].points[0].state = State::Skipped("needs 4 cores".into());
        sample.results.0[0].points[0].note("Linux nft skipped: no nft".into());
        let text = report(&sample, &[("sample", "x.svg".into())]);
        assert!(text.contains("p: skipped, needs 4 cores."));
        assert!(text.contains("p: Linux nft skipped: no nft."));
        assert!(text.contains("![Sample](x.svg)"));
    }
}
