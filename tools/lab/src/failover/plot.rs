//! Writes a sheet of shapes as SVG. Pure.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::observation::Observation;
use super::picture::{Anchor, Colour, Label, Shape, Sheet};
use super::promise::Promise;
use super::timeline::Timeline;

const FONT: &str = "sans-serif";
/// plotters divides the size of a font by this factor.
const FONT_SCALE: f64 = 1.24;
/// Colours of the nodes, in the order of their names.
const NODES: [RGBColor; 5] = [
    RGBColor(20, 90, 190),
    RGBColor(200, 80, 20),
    RGBColor(40, 140, 60),
    RGBColor(140, 60, 160),
    RGBColor(0, 140, 150),
];

/// Returns the picture of a run as SVG: the observation of each event, and the map over time.
///
/// # Errors
/// The error of plotters.
pub fn picture(rows: &[(Promise, Observation)], timeline: &Timeline) -> Result<String, String> {
    let sheet = Sheet::of(rows, timeline);
    let mut svg = String::new();
    {
        let size = (sheet.width.unsigned_abs(), sheet.height.unsigned_abs());
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(text)?;
        for shape in &sheet.shapes {
            draw(&area, shape)?;
        }
        area.present().map_err(text)?;
    }
    Ok(svg)
}

fn draw(area: &DrawingArea<SVGBackend<'_>, Shift>, shape: &Shape) -> Result<(), String> {
    match shape {
        Shape::Label(Label { x, y, size, anchor, colour, words }) => {
            let side = match anchor {
                Anchor::Left => HPos::Left,
                Anchor::Middle => HPos::Center,
                Anchor::Right => HPos::Right,
            };
            let font = (FONT, f64::from(*size) * FONT_SCALE).into_font().color(&rgb(*colour));
            let style = font.pos(Pos::new(side, VPos::Top));
            area.draw(&Text::new(words.as_str(), (*x, *y), style))
        }
        Shape::Line(points, colour, width) => {
            area.draw(&PathElement::new(points.as_slice(), rgb(*colour).stroke_width(*width)))
        }
        Shape::Bar(from, to, colour) => {
            area.draw(&Rectangle::new([*from, *to], rgb(*colour).filled()))
        }
    }
    .map_err(text)
}

fn rgb(colour: Colour) -> RGBColor {
    match colour {
        Colour::Black => BLACK,
        Colour::Grey => RGBColor(130, 130, 130),
        Colour::Light => RGBColor(215, 215, 215),
        Colour::Red => RGBColor(190, 0, 0),
        Colour::Up => NODES[0],
        Colour::Down => NODES[1],
        Colour::Node(position) => NODES[position % NODES.len()],
    }
}

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::MapSample;

    #[test]
    fn events_and_nodes_are_drawn() {
        let samples = (0..50).map(|slice| MapSample {
            at: slice * 100_000,
            primaries: [("node1".to_owned(), 3), ("node2".to_owned(), 5)].into(),
            whole: 8,
            ..MapSample::default()
        });
        let timeline = Timeline { marks: vec![2_000_000], samples: samples.collect() };
        let seen = Observation { name: "kill -9 node1".into(), ..Observation::default() };
        let svg = picture(&[(Promise::NothingBroken, seen)], &timeline).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for words in
            ["1. kill -9 node1", "node2", "with all copies", "MISSED: there was no traffic"]
        {
            assert!(svg.contains(words), "{words}");
        }
    }

    #[test]
    fn empty_run_is_drawn_too() {
        assert!(picture(&[], &Timeline::default()).unwrap().contains("</svg>"));
    }
}
