//! SVG plots of an experiment: medians with their spread over an axis, or bars. Pure.

use std::ops::Range;

use plotters::coord::ranged1d::{AsRangedCoord, DefaultFormatting, KeyPointHint, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::BenchError;
use super::experiment::Scale;
use super::figure::{Figure, Spread};
use super::load::{Size, count};
use super::report::ExperimentResult;

const SIZE: (u32, u32) = (720, 420);
const FONT: &str = "sans-serif";

/// The series of the plots: a line or a colour of bars each.
const SERIES: [(Kind, Figure, &str, RGBColor); 8] = [
    (Kind::Mpps, Figure::RawMpps, "raw", RGBColor(120, 120, 120)),
    (Kind::Mpps, Figure::WeirMpps, "weir", RGBColor(20, 90, 190)),
    (Kind::Mpps, Figure::LinuxMpps, "Linux nft", RGBColor(200, 80, 20)),
    (Kind::Mpps, Figure::VppMpps, "VPP", RGBColor(40, 140, 60)),
    (Kind::Cycles, Figure::RawCycles, "raw", RGBColor(120, 120, 120)),
    (Kind::Cycles, Figure::WeirCycles, "weir", RGBColor(20, 90, 190)),
    (Kind::Cycles, Figure::VppCycles, "VPP", RGBColor(40, 140, 60)),
    (Kind::Opened, Figure::OpenedMega, "weir", RGBColor(20, 90, 190)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mpps,
    Cycles,
    Opened,
}

/// A series of a plot: (x, spread) of every point that has the figure, in the order of the axis.
struct Curve {
    name: &'static str,
    colour: RGBColor,
    values: Vec<(f64, Spread)>,
    /// Spread of a mix of sizes, which has no position on the axis.
    mix: Option<Spread>,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Mpps, Kind::Cycles, Kind::Opened];

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Kind::Mpps => ("mpps", "million packets per second"),
            Kind::Cycles => ("cycles", "busy cycles per packet"),
            Kind::Opened => ("opened", "million new flows per second"),
        }
    }
}

/// Returns file names and contents. An experiment without an axis has bars.
pub(super) fn of(experiment: &ExperimentResult) -> Result<Vec<(String, String)>, BenchError> {
    let mut files = Vec::new();
    for kind in Kind::ALL {
        let curves = curves(experiment, kind);
        if curves.is_empty() {
            continue;
        }
        let file = format!("{}-{}.svg", experiment.name, kind.names().0);
        let svg = draw(experiment, kind, &curves)
            .map_err(|reason| BenchError::Plot { file: file.clone(), reason })?;
        files.push((file, svg));
    }
    Ok(files)
}

fn curves(experiment: &ExperimentResult, kind: Kind) -> Vec<Curve> {
    let series = SERIES.iter().filter(|(of, ..)| *of == kind);
    let curve = |&(_, figure, name, colour): &(Kind, Figure, &'static str, RGBColor)| {
        let has_axis = experiment.axis.is_some();
        let mut curve = Curve { name, colour, values: Vec::new(), mix: None };
        for (position, point) in experiment.points.iter().enumerate() {
            let Some(&spread) = point.figures.get(&figure) else { continue };
            match point.point.load.size {
                Size::Imix if has_axis => curve.mix = Some(spread),
                _ if has_axis => curve.values.push((point.point.x, spread)),
                _ => curve.values.push((position as f64, spread)),
            }
        }
        curve.values.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        curve
    };
    series.map(curve).filter(|curve| !curve.values.is_empty()).collect()
}

fn draw(experiment: &ExperimentResult, kind: Kind, curves: &[Curve]) -> Result<String, String> {
    let all = || curves.iter().flat_map(|curve| &curve.values);
    let mixes = || curves.iter().filter_map(|curve| curve.mix);
    let spreads = all().map(|(_, spread)| *spread).chain(mixes());
    let top = 1.1 * spreads.map(|spread| spread.max).fold(0.0, f64::max).max(1e-9);
    let least = all().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
    let most = all().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
    match experiment.axis {
        // Every size has its number on the axis, and the mix a position after them.
        Some(_) if mixes().next().is_some() => {
            let width = (most - least).max(1.0);
            let mix = most + MIX_APART * width;
            let mut ticks: Vec<f64> = all().map(|(x, _)| *x).chain([mix]).collect();
            ticks.sort_by(f64::total_cmp);
            ticks.dedup();
            let range = (least - 0.04 * width..mix + 0.06 * width).into();
            let axis = SizeAxis { range, ticks };
            lines(experiment, kind, curves, axis, (top, Some(mix)))
        }
        Some((_, Scale::Logarithmic)) if least > 0.0 => {
            let axis = (least / 1.5..most * 1.5).log_scale();
            lines(experiment, kind, curves, axis, (top, None))
        }
        Some(_) => {
            let edge = 0.04 * (most - least).max(1.0);
            lines(experiment, kind, curves, least - edge..most + edge, (top, None))
        }
        None => bars(experiment, kind, curves, top),
    }
}

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

/// An axis with a number at each measured size, and nowhere else.
struct SizeAxis {
    range: RangedCoordf64,
    ticks: Vec<f64>,
}

impl Ranged for SizeAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.range()
    }
}

/// Distance of a mix from the largest size, as a part of the axis.
const MIX_APART: f64 = 0.14;
const MIX: &str = "IMIX";

/// Draws medians joined by lines, with a stroke from the least to the greatest; a mix apart from
/// them, if it has a position.
fn lines<X>(
    experiment: &ExperimentResult,
    kind: Kind,
    curves: &[Curve],
    axis: X,
    (top, mix_x): (f64, Option<f64>),
) -> Result<String, String>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(text)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(experiment.title, (FONT, 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(axis, 0.0..top)
            .map_err(text)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_label_formatter(&|x| match mix_x {
                Some(mix) if *x == mix => MIX.into(),
                _ => count(x.round() as u64),
            })
            .x_desc(experiment.axis.map_or("", |(title, _)| title))
            .y_desc(kind.names().1)
            .label_style((FONT, 13))
            .draw()
            .map_err(text)?;
        for &Curve { name, colour, ref values, mix } in curves {
            let medians = values.iter().map(|(x, spread)| (*x, spread.median));
            chart
                .draw_series(LineSeries::new(medians.clone(), colour.stroke_width(2)))
                .map_err(text)?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                });
            let dots = medians.map(|at| Circle::new(at, 3, colour.filled()));
            chart.draw_series(dots).map_err(text)?;
            let strokes = values.iter().map(|(x, spread)| {
                PathElement::new([(*x, spread.min), (*x, spread.max)], colour.stroke_width(1))
            });
            chart.draw_series(strokes).map_err(text)?;
            if let (Some(x), Some(spread)) = (mix_x, mix) {
                let stroke = [(x, spread.min), (x, spread.max)];
                let stroke = PathElement::new(stroke, colour.stroke_width(1));
                chart.draw_series([stroke]).map_err(text)?;
                let mark = TriangleMarker::new((x, spread.median), 6, colour.filled());
                chart.draw_series([mark]).map_err(text)?;
            }
        }
        legend(&mut chart)?;
        area.present().map_err(text)?;
    }
    Ok(svg)
}

/// Length of the axis for the bars of a point.
const SLOT: i32 = 1000;

/// Draws a group of bars for each point, with a bar for each series.
fn bars(
    experiment: &ExperimentResult,
    kind: Kind,
    curves: &[Curve],
    top: f64,
) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(text)?;
        let points = experiment.points.len() as i32;
        let middles: Vec<i32> = (0..points).map(|point| point * SLOT + SLOT / 2).collect();
        let mut chart = ChartBuilder::on(&area)
            .caption(experiment.title, (FONT, 18))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d((0..points * SLOT).with_key_points(middles), 0.0..top)
            .map_err(text)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_label_formatter(&|x| experiment.points[(x / SLOT) as usize].point.label.clone())
            .y_desc(kind.names().1)
            .label_style((FONT, 13))
            .draw()
            .map_err(text)?;
        let width = SLOT * 8 / 10 / curves.len() as i32;
        for (position, &Curve { name, colour, ref values, .. }) in curves.iter().enumerate() {
            let left = |x: f64| x as i32 * SLOT + SLOT / 10 + width * position as i32;
            let bars = values.iter().map(|&(x, spread)| {
                let corners = [(left(x), 0.0), (left(x) + width * 9 / 10, spread.median)];
                Rectangle::new(corners, colour.filled())
            });
            chart.draw_series(bars).map_err(text)?.label(name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
            });
            let strokes = values.iter().map(|&(x, spread)| {
                let middle = left(x) + width * 45 / 100;
                PathElement::new(
                    [(middle, spread.min), (middle, spread.max)],
                    BLACK.stroke_width(1),
                )
            });
            chart.draw_series(strokes).map_err(text)?;
        }
        legend(&mut chart)?;
        area.present().map_err(text)?;
    }
    Ok(svg)
}

fn legend<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> Result<(), String>
where
    X: Ranged,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 13))
        .draw()
        .map_err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::results;

    fn sample(axis: Option<(&'static str, Scale)>) -> Vec<(String, String)> {
        let mut experiment = results(&[("first", 5.0), ("second", 4.0)]).0.remove(0);
        experiment.axis = axis;
        of(&experiment).unwrap()
    }

    #[test]
    fn a_sweep_has_a_plot_of_each_kind_with_both_lines() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let files = sample(Some(("flows", scale)));
            let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["sample-mpps.svg", "sample-cycles.svg"]);
            for (_, svg) in files {
                assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
                assert_eq!(svg.matches("<circle").count(), 4);
                assert!(svg.contains("weir") && svg.contains("raw") && svg.contains("flows"));
            }
        }
    }

    /// Returns the x of the text element with these words.
    fn position_of(svg: &str, words: &str) -> Option<i32> {
        let (before, _) = svg.split_once(&format!("\n{words}\n</text>"))?;
        let element = &before[before.rfind("<text ")?..];
        let (_, behind) = element.split_once(" x=\"")?;
        behind.split_once('"')?.0.parse().ok()
    }

    #[test]
    fn sizes_stand_in_the_order_of_their_numbers_and_the_mix_apart() {
        let labels = ["1024", "64", "IMIX", "512"];
        let mut experiment = results(&labels.map(|label| (label, 5.0))).0.remove(0);
        experiment.axis = Some(("bytes of the plain frame", Scale::Linear));
        for (point, x) in experiment.points.iter_mut().zip([1024.0, 64.0, 361.8, 512.0]) {
            point.point.x = x;
        }
        experiment.points[2].point.load.size = Size::Imix;
        for curve in curves(&experiment, Kind::Mpps) {
            let positions: Vec<f64> = curve.values.iter().map(|(x, _)| *x).collect();
            assert_eq!(positions, [64.0, 512.0, 1024.0]);
            assert!(curve.mix.is_some());
        }
        let svg = &of(&experiment).unwrap()[0].1;
        let positions =
            ["64", "512", "1,024", "IMIX"].map(|words| position_of(svg, words).unwrap());
        assert!(positions.is_sorted() && positions[3] - positions[2] > 40, "{positions:?}");
        // Two lines of three dots with their keys in the legend, and two marks that no line joins.
        assert_eq!(svg.matches("<circle").count(), 6);
        let is_line = |line: &&str| line.contains("<polyline") && line.contains("width=\"2\"");
        assert_eq!(svg.lines().filter(is_line).count(), 4);
    }

    #[test]
    fn points_without_an_axis_are_bars_under_their_labels() {
        let files = sample(None);
        let svg = &files[0].1;
        assert!(svg.contains("first") && svg.contains("second"));
        assert_eq!(svg.matches("<circle").count(), 0);
    }

    #[test]
    fn experiment_without_figures_has_no_plot() {
        let mut experiment = results(&[("first", 5.0)]).0.remove(0);
        experiment.points[0].figures.clear();
        assert!(of(&experiment).unwrap().is_empty());
    }
}
