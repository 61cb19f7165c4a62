//! The timeline as SVG: packets that came through, and below it who served the shards. Pure.

use std::collections::{BTreeMap, BTreeSet};

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::timeline::Timeline;
use crate::load::{Bin, Micros};

const SIZE: (u32, u32) = (1400, 640);
/// Height of the upper drawing, which has the words of the events.
const UPPER: u32 = 360;
const FONT: &str = "sans-serif";
const UP: RGBColor = RGBColor(20, 90, 190);
const DOWN: RGBColor = RGBColor(200, 80, 20);
const WHOLE: RGBColor = RGBColor(120, 120, 120);
/// Colours of the nodes, in the order of their names.
const NODES: [RGBColor; 4] =
    [RGBColor(20, 90, 190), RGBColor(200, 80, 20), RGBColor(40, 140, 60), RGBColor(140, 60, 160)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl Timeline {
    /// The drawing.
    ///
    /// # Errors
    /// What plotters says.
    pub fn svg(&self) -> Result<String, String> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE).map_err(text)?;
            let (upper, lower) = area.split_vertically(UPPER);
            let end = self.end();
            self.draw_packets(&upper, end)?;
            self.draw_map(&lower, end)?;
            area.present().map_err(text)?;
        }
        Ok(svg)
    }

    fn end(&self) -> f64 {
        let slices = self.slices.iter().map(|(at, _)| *at);
        let samples = self.samples.iter().map(|sample| sample.at);
        seconds(slices.chain(samples).max().unwrap_or_default()).max(1.0)
    }

    fn draw_packets(&self, area: &Area<'_>, end: f64) -> Result<(), String> {
        let mut chart = ChartBuilder::on(area)
            .caption("probes that arrived, of those sent in each tenth of a second", (FONT, 16))
            .margin(10)
            .x_label_area_size(20)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..end, 0.0..160.0)
            .map_err(text)?;
        mesh(&mut chart, "percent", |y| if y > 100.0 { String::new() } else { format!("{y:.0}") })?;
        for (position, name, colour) in [(0, "from the homes", UP), (1, "to the homes", DOWN)] {
            let points = self.slices.iter().filter_map(|(at, bins)| {
                let Bin { sent, arrived } = bins[position];
                (sent > 0).then(|| (seconds(*at), 100.0 * arrived as f64 / sent as f64))
            });
            line(&mut chart, points, name, colour)?;
        }
        for (at, words) in &self.marks {
            let at = seconds(*at);
            let stroke = PathElement::new([(at, 0.0), (at, 160.0)], WHOLE.stroke_width(1));
            chart.draw_series([stroke]).map_err(text)?;
            let style = (FONT, 12).into_font().transform(FontTransform::Rotate270).color(&BLACK);
            chart.draw_series([Text::new(words.clone(), (at, 104.0), style)]).map_err(text)?;
        }
        legend(&mut chart)
    }

    fn draw_map(&self, area: &Area<'_>, end: f64) -> Result<(), String> {
        let most = self.samples.iter().map(|sample| sample.primaries.values().sum::<usize>());
        let top = most.max().unwrap_or_default().max(1) as f64 + 0.5;
        let mut chart = ChartBuilder::on(area)
            .caption("shards with all copies, and shards of which each node is primary", (FONT, 16))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..end, 0.0..top)
            .map_err(text)?;
        mesh(&mut chart, "shards", |y| format!("{y:.0}"))?;
        let whole = self.samples.iter().map(|sample| (seconds(sample.at), sample.whole as f64));
        line(&mut chart, whole, "with all copies", WHOLE)?;
        let names: BTreeSet<&String> =
            self.samples.iter().flat_map(|sample| sample.primaries.keys()).collect();
        let colours: BTreeMap<&String, RGBColor> =
            names.into_iter().zip(NODES.into_iter().cycle()).collect();
        for (name, colour) in colours {
            let points = self.samples.iter().map(|sample| {
                let count = sample.primaries.get(name).copied().unwrap_or_default();
                (seconds(sample.at), count as f64)
            });
            line(&mut chart, points, name, colour)?;
        }
        legend(&mut chart)
    }
}

fn seconds(time: Micros) -> f64 {
    time as f64 / 1e6
}

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

fn mesh(chart: &mut Chart<'_>, unit: &str, label: impl Fn(f64) -> String) -> Result<(), String> {
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|x| format!("{x:.0} s"))
        .y_label_formatter(&|y| label(*y))
        .y_desc(unit)
        .label_style((FONT, 12))
        .draw()
        .map_err(text)
}

fn line(
    chart: &mut Chart<'_>,
    points: impl Iterator<Item = (f64, f64)>,
    name: &str,
    colour: RGBColor,
) -> Result<(), String> {
    // A point between two equal ones is no corner.
    let points: Vec<(f64, f64)> = points.collect();
    let is_corner = |at: usize| {
        at == 0
            || at + 1 == points.len()
            || points[at - 1].1 != points[at].1
            || points[at + 1].1 != points[at].1
    };
    let corners = (0..points.len()).filter(|&at| is_corner(at)).map(|at| points[at]);
    chart
        .draw_series(LineSeries::new(corners, colour.stroke_width(1)))
        .map_err(text)?
        .label(name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    Ok(())
}

fn legend(chart: &mut Chart<'_>) -> Result<(), String> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 12))
        .draw()
        .map_err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::MapSample;

    #[test]
    fn events_packets_and_nodes_are_drawn() {
        let bin = |arrived| Bin { sent: 100, arrived };
        let samples = (0..50).map(|slice| MapSample {
            at: slice * 100_000,
            primaries: [("node1".to_owned(), 3), ("node2".to_owned(), 5)].into(),
            whole: 8,
            ..MapSample::default()
        });
        let timeline = Timeline {
            marks: vec![(2_000_000, "kill -9 node1".into())],
            slices: (0..50).map(|slice| (slice * 100_000, [bin(slice), bin(100)])).collect(),
            samples: samples.collect(),
        };
        let svg = timeline.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for words in ["kill -9 node1", "from the homes", "to the homes", "node2", "all copies"] {
            assert!(svg.contains(words), "{words}");
        }
    }

    #[test]
    fn nothing_seen_is_drawn_too() {
        assert!(Timeline::default().svg().unwrap().contains("</svg>"));
    }
}
