//! The part below the panels: the shards over time, with the events by their numbers.

use std::collections::BTreeSet;

use super::{AXIS, Anchor, BETWEEN, Colour, MARGIN, PAD, Shape, Sheet, WIDTH, WORDS};
use super::{corners, line_height, width_of};
use crate::failover::{MapSample, Timeline};
use crate::load::Micros;

const MAP: i32 = 180;
/// Largest number of times below the map.
const TICKS_MAX: Micros = 14;

impl Sheet {
    pub(super) fn map(&mut self, timeline: &Timeline) {
        let words = "Shards with all copies, and shards of which each node is primary, over time; the numbers on top are \
                     those of the panels.";
        let y = self.lines((MARGIN, self.height), WORDS, Colour::Black, &[words.into()]);
        let names: BTreeSet<&String> =
            timeline.samples.iter().flat_map(|sample| sample.primaries.keys()).collect();
        let colours = (0..).map(Colour::Node);
        let mut series = vec![("with all copies", Colour::Grey)];
        series.extend(names.iter().map(|name| name.as_str()).zip(colours));
        let mut at = (MARGIN, y);
        for &(name, colour) in &series {
            let width = 24 + width_of(name.chars().count() + 2, WORDS);
            if at.0 + width > WIDTH - MARGIN {
                at = (MARGIN, at.1 + line_height(WORDS));
            }
            let middle = at.1 + WORDS / 2;
            self.shapes.push(Shape::Line(vec![(at.0, middle), (at.0 + 18, middle)], colour, 2));
            self.label((at.0 + 24, at.1), WORDS, Anchor::Left, Colour::Black, name);
            at.0 += width;
        }
        self.height = at.1 + line_height(WORDS) + PAD;
        let end =
            timeline.samples.iter().map(|sample| sample.at).chain(timeline.marks.clone()).max();
        let end = end.unwrap_or_default().max(1_000_000);
        let (left, width) = (MARGIN + AXIS, WIDTH - 3 * MARGIN - AXIS);
        let x = |at: Micros| left + (at as f64 / end as f64 * f64::from(width)) as i32;
        let top = self.marks(&timeline.marks, x);
        self.curves(timeline, &series, (left, top), x);
        let foot = top + MAP;
        let step = tick_step(end);
        for at in (0..=end).step_by(step as usize) {
            let words = format!("{} s", at / 1_000_000);
            self.label((x(at), foot + BETWEEN), WORDS, Anchor::Middle, Colour::Black, &words);
        }
        self.height = foot + BETWEEN + line_height(WORDS);
    }

    /// Draws the numbers of the events, in as many lines as they need. Returns the top of the space
    /// below.
    fn marks(&mut self, marks: &[Micros], x: impl Fn(Micros) -> i32) -> i32 {
        let widest = width_of(marks.len().to_string().len() + 1, WORDS);
        let mut ends: Vec<i32> = Vec::new();
        let mut labels = Vec::new();
        for &mark in marks {
            let left = x(mark) - widest / 2;
            let free = ends.iter().position(|&end| end <= left).unwrap_or(ends.len());
            ends.resize(ends.len().max(free + 1), i32::MIN);
            ends[free] = left + widest;
            labels.push((x(mark), free as i32));
        }
        let top = self.height + ends.len() as i32 * line_height(WORDS) + 4;
        for (number, (x, line)) in (1..).zip(labels) {
            let y = self.height + line * line_height(WORDS);
            self.label((x, y), WORDS, Anchor::Middle, Colour::Black, &format!("{number}"));
            self.shapes.push(Shape::Line(vec![(x, top), (x, top + MAP)], Colour::Light, 1));
        }
        top
    }

    fn curves(
        &mut self,
        timeline: &Timeline,
        series: &[(&str, Colour)],
        (left, top): (i32, i32),
        x: impl Fn(Micros) -> i32,
    ) {
        let samples = &timeline.samples;
        let most =
            samples.iter().map(|it| it.primaries.values().sum::<usize>().max(it.whole)).max();
        let most = most.unwrap_or_default().max(1);
        let y =
            |count: usize| top + MAP - (count as f64 / most as f64 * f64::from(MAP - 10)) as i32;
        for count in [0, most] {
            let at = (left - 4, y(count) - WORDS / 2);
            self.label(at, WORDS, Anchor::Right, Colour::Black, &count.to_string());
            let ends = vec![(left, y(count)), (WIDTH - 2 * MARGIN, y(count))];
            self.shapes.push(Shape::Line(ends, Colour::Light, 1));
        }
        for (row, &(name, colour)) in (0..).zip(series) {
            let count = |sample: &MapSample| match colour {
                Colour::Node(_) => sample.primaries.get(name).copied().unwrap_or_default(),
                _ => sample.whole,
            };
            // Two pixels apart, so that curves of equal numbers do not coincide.
            let point = |it: &MapSample| (x(it.at), y(count(it)) - 2 * row);
            let points: Vec<_> = samples.iter().map(point).collect();
            if points.len() > 1 {
                self.shapes.push(Shape::Line(corners(&points), colour, 2));
            }
        }
    }
}

/// Returns the time between two numbers below the map: 1, 2 or 5 times a power of ten seconds.
pub(super) fn tick_step(end: Micros) -> Micros {
    let steps =
        (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power) * 1_000_000));
    steps.into_iter().find(|step| end / step <= TICKS_MAX).unwrap_or(end)
}
