//! The picture of a run as shapes on a sheet: a panel for each event, and below them which node
//! served the shards. Pure.
//!
//! ```text
//!   | legend, over the whole width          |
//!   | panel 1     | panel 2     | panel 3   |   a panel: words, then a strip up and one down,
//!   | panel 4     | ...                     |   a second before the event until three after it
//!   | shards over time, events by number    |
//! ```
//!
//! Every label has its own space: the words of a panel are wrapped, and a row of panels is as high
//! as its longest words.

mod map;

use super::observation::{BIN, Observation, Side};
use super::promise::Promise;
use super::table::verdict;
use super::timeline::Timeline;
use crate::load::Bin;

type Row = (Promise, Observation);

/// Panels side by side, their width, and the space around them.
const ACROSS: usize = 3;
const PANEL: i32 = 460;
const MARGIN: i32 = 10;
const WIDTH: i32 = ACROSS as i32 * PANEL + (ACROSS as i32 + 1) * MARGIN;
/// From the border of a panel to its content.
const PAD: i32 = 8;
/// Space for the numbers left of a strip or of the map.
const AXIS: i32 = 54;
const STRIP: i32 = 64;
/// Space between two strips, and between a strip and its times.
const BETWEEN: i32 = 12;
/// The top of a strip, in percent of the sent packets: after a silence more packets arrive than are
/// sent.
const TOP: f64 = 150.0;
const TITLE: i32 = 16;
const WORDS: i32 = 13;
/// Seconds that a panel shows, before and after the event.
const SECONDS: [i32; 2] = [-1, 3];

/// The colours of a picture; every meaning is also given in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Black,
    Grey,
    Light,
    Red,
    Up,
    Down,
    /// The node at this position.
    Node(usize),
}

/// The side of its position on which a label stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
}

/// Words at a position; `y` is their top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) size: i32,
    pub(super) anchor: Anchor,
    pub(super) colour: Colour,
    pub(super) words: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Label(Label),
    /// Corners, colour, width of the stroke.
    Line(Vec<(i32, i32)>, Colour, u32),
    /// Two corners, filled.
    Bar((i32, i32), (i32, i32), Colour),
}

/// A drawing: width, height, and shapes in drawing order.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) shapes: Vec<Shape>,
}

/// Estimates the width of a number of letters, rather too large than too small: letters of a
/// sans-serif font take about half of its size on average.
fn width_of(letters: usize, size: i32) -> i32 {
    letters as i32 * size * 3 / 5
}

fn line_height(size: i32) -> i32 {
    size * 4 / 3
}

/// Wraps words into lines of a width. A longer word gets a line of its own, uncut.
fn wrap(words: &str, width: i32, size: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line)
                if width_of(line.chars().count() + 1 + word.chars().count(), size) <= width =>
            {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

impl Sheet {
    /// Lays out the rows, and the map of the cluster of the first rows, whose events are its marks.
    pub(super) fn of(rows: &[Row], timeline: &Timeline) -> Self {
        let mut sheet = Self { width: WIDTH, height: MARGIN, shapes: Vec::new() };
        sheet.legend();
        let numbered: Vec<(usize, &Row)> = (1..).zip(rows).collect();
        for panels in numbered.chunks(ACROSS) {
            sheet.row_of_panels(panels);
        }
        sheet.map(timeline);
        sheet.height += MARGIN;
        sheet
    }

    fn label(&mut self, at: (i32, i32), size: i32, anchor: Anchor, colour: Colour, words: &str) {
        let (x, y) = at;
        self.shapes.push(Shape::Label(Label { x, y, size, anchor, colour, words: words.into() }));
    }

    /// Draws lines from a position down. Returns where they end.
    fn lines(&mut self, at: (i32, i32), size: i32, colour: Colour, lines: &[String]) -> i32 {
        let mut y = at.1;
        for line in lines {
            self.label((at.0, y), size, Anchor::Left, colour, line);
            y += line_height(size);
        }
        y
    }

    fn legend(&mut self) {
        let words = "Each panel is one event, from a second before it until three seconds after it, in bins of 10 ms. \
                     Coloured line: packets of the homes' echo that arrived, up at the server, down at the homes; 100 % is \
                     what a bin of the sender usually has. Grey line: packets sent, so a dent in it is a pause of the sender. \
                     Black bar at the foot: the longest gap of one home, where it lies in the panel.";
        let lines = wrap(words, WIDTH - 2 * MARGIN, WORDS);
        self.height = self.lines((MARGIN, self.height), WORDS, Colour::Black, &lines) + MARGIN;
    }

    fn row_of_panels(&mut self, panels: &[(usize, &Row)]) {
        let top = self.height;
        let words: Vec<PanelWords> =
            panels.iter().map(|(number, row)| PanelWords::of(*number, row)).collect();
        let highest = words.iter().map(PanelWords::height).max().unwrap_or_default();
        let strips = top + PAD + highest + BETWEEN;
        let foot = strips + 2 * STRIP + 2 * BETWEEN + line_height(WORDS);
        for (position, (words, (_, row))) in words.iter().zip(panels).enumerate() {
            let left = MARGIN + position as i32 * (PANEL + MARGIN);
            let (colour, stroke) =
                if words.is_missed { (Colour::Red, 3) } else { (Colour::Grey, 1) };
            let right = left + PANEL;
            let frame = [(left, top), (right, top), (right, foot), (left, foot), (left, top)];
            self.shapes.push(Shape::Line(frame.into(), colour, stroke));
            let inside = (left + PAD, top + PAD);
            let y = self.lines(inside, TITLE, Colour::Black, &words.title);
            let y = self.lines((inside.0, y), WORDS, Colour::Black, &words.numbers);
            let colour = if words.is_missed { Colour::Red } else { Colour::Black };
            self.lines((inside.0, y), WORDS, colour, &words.verdict);
            self.strips((left, strips), &row.1);
        }
        self.height = foot + MARGIN;
    }

    /// Draws the strips up and down, and the times below.
    fn strips(&mut self, (left, top): (i32, i32), seen: &Observation) {
        let area = Strip { left: left + AXIS, top, width: PANEL - AXIS - 2 * PAD };
        let down = Strip { top: top + STRIP + BETWEEN, ..area };
        let [of_up, of_down] = &seen.around.bins;
        for (strip, name, bins, side, colour) in [
            (area, "up", of_up, &seen.up, Colour::Up),
            (down, "down", of_down, &seen.down, Colour::Down),
        ] {
            self.strip(strip, bins, seen, side, colour);
            let beside = left + AXIS - 4;
            let half = WORDS / 2;
            for (y, words) in
                [(strip.y(100.0), "100 %"), (strip.y(50.0), name), (strip.y(0.0), "0")]
            {
                self.label((beside, y - half), WORDS, Anchor::Right, Colour::Black, words);
            }
        }
        for second in SECONDS[0]..=SECONDS[1] {
            let x = area.x(i64::from(second) * 1_000_000);
            let at = (x, down.top + STRIP + BETWEEN);
            self.label(at, WORDS, Anchor::Middle, Colour::Black, &format!("{second} s"));
        }
    }

    fn strip(&mut self, strip: Strip, bins: &[Bin], seen: &Observation, side: &Side, of: Colour) {
        let (foot, right) = (strip.y(0.0), strip.left + strip.width);
        for percent in [0.0, 100.0] {
            let y = strip.y(percent);
            self.shapes.push(Shape::Line(vec![(strip.left, y), (right, y)], Colour::Light, 1));
        }
        let x = strip.x(0);
        self.shapes.push(Shape::Line(vec![(x, strip.top), (x, foot)], Colour::Black, 1));
        let usual = usual(bins);
        let offset = seen.around.start as i64 - seen.fault as i64;
        let curve = |count: fn(&Bin) -> u64| {
            let point = |(position, bin): (i64, &Bin)| {
                let middle = offset + position * BIN as i64 + BIN as i64 / 2;
                (strip.x(middle), strip.y(100.0 * count(bin) as f64 / usual))
            };
            (0..).zip(bins).map(point).collect::<Vec<_>>()
        };
        let curves = [(curve(|bin| bin.sent), Colour::Grey), (curve(|bin| bin.arrived), of)];
        for (points, colour) in curves.into_iter().filter(|(points, _)| points.len() > 1) {
            self.shapes.push(Shape::Line(corners(&points), colour, 1));
        }
        let begin = side.gap_start as i64 - seen.fault as i64;
        let (from, to) = (strip.x(begin), strip.x(begin + side.gap_max as i64));
        if side.gap_max > 0 && from < right && to > strip.left {
            self.shapes.push(Shape::Bar((from, foot - 4), (to.max(from + 1), foot), Colour::Black));
        }
    }
}

/// The area of one direction in a panel.
#[derive(Clone, Copy, Debug)]
struct Strip {
    left: i32,
    top: i32,
    width: i32,
}

impl Strip {
    /// Returns the x of a time since the event, clamped to the strip.
    fn x(self, from_fault: i64) -> i32 {
        let [first, last] = SECONDS.map(|second| f64::from(second) * 1e6);
        let part = (from_fault as f64 - first) / (last - first);
        self.left + (part.clamp(0.0, 1.0) * f64::from(self.width)) as i32
    }

    fn y(self, percent: f64) -> i32 {
        self.top + STRIP - (percent.min(TOP) / TOP * f64::from(STRIP)) as i32
    }
}

/// The words of a panel, in lines.
#[derive(Debug)]
struct PanelWords {
    title: Vec<String>,
    numbers: Vec<String>,
    verdict: Vec<String>,
    is_missed: bool,
}

impl PanelWords {
    fn of(number: usize, (promise, seen): &Row) -> Self {
        let width = PANEL - 2 * PAD;
        let gap = |side: &Side| {
            // In hundredths of a second; adding 0.0 removes the sign of a zero.
            let at = ((side.gap_start as f64 - seen.fault as f64) / 1e4).round() / 1e2 + 0.0;
            format!("{:.0} ms at {at:+.2} s", side.gap_max as f64 / 1e3)
        };
        let connections = &seen.connections;
        let numbers = [
            format!("longest gap: up {}, down {}", gap(&seen.up), gap(&seen.down)),
            format!("lost: {} up, {} down of {}", seen.up.lost, seen.down.lost, sent(seen)),
            format!(
                "broken: {} of {} connections",
                connections.broken + connections.broken_before,
                connections.established
            ),
        ];
        let complaints = promise.complaints(seen);
        let is_missed = !complaints.is_empty();
        let mut words = verdict(*promise, seen);
        if is_missed {
            words = format!("{words}: {}", complaints.join("; "));
        }
        Self {
            title: wrap(&format!("{number}. {}", seen.name), width, TITLE),
            numbers: numbers.iter().flat_map(|words| wrap(words, width, WORDS)).collect(),
            verdict: wrap(&words, width, WORDS),
            is_missed,
        }
    }

    fn height(&self) -> i32 {
        let words = self.numbers.len() + self.verdict.len();
        self.title.len() as i32 * line_height(TITLE) + words as i32 * line_height(WORDS)
    }
}

fn sent(seen: &Observation) -> u64 {
    seen.up.sent + seen.down.sent
}

/// Returns the usual number of sent packets in a bin: the median, at least one.
fn usual(bins: &[Bin]) -> f64 {
    let mut counts: Vec<u64> = bins.iter().map(|bin| bin.sent).collect();
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or_default().max(1) as f64
}

/// Removes the points between two others of the same height.
fn corners(points: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let is_corner = |at: usize| {
        at == 0
            || at + 1 == points.len()
            || points[at - 1].1 != points[at].1
            || points[at + 1].1 != points[at].1
    };
    (0..points.len()).filter(|&at| is_corner(at)).map(|at| points[at]).collect()
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
