//! Tests of the picture's layout: positions of labels, curves, marks.

use super::map::tick_step;
use super::*;
use crate::failover::MapSample;
use crate::load::{ConnectionReport, Micros};

const FAULT: Micros = 20_000_000;

/// An event after which nothing arrives for 50 ms; a sender has 80 packets in a bin.
fn row(name: &str, promise: Promise) -> Row {
    let bin =
        |position| Bin { sent: 80, arrived: if (100..105).contains(&position) { 0 } else { 80 } };
    let bins: Vec<Bin> = (0..400).map(bin).collect();
    let side = Side {
        sent: 240_000,
        lost: 400,
        gap_max: 51_000,
        // The last packet before the gap arrived a moment before the fault.
        gap_start: FAULT - 300,
        pause: 61_000,
        ..Side::default()
    };
    let observation = Observation {
        name: name.into(),
        fault: FAULT,
        around: crate::failover::Around { start: FAULT - 1_000_000, bins: [bins.clone(), bins] },
        up: side,
        down: side,
        connections: ConnectionReport { established: 1_000, ..ConnectionReport::default() },
        is_answered: true,
        ..Observation::default()
    };
    (promise, observation)
}

fn timeline(marks: Vec<Micros>, nodes: usize) -> Timeline {
    let sample = |slice: Micros| MapSample {
        at: slice * 1_000_000,
        primaries: (1..=nodes).map(|node| (format!("node{node}"), node)).collect(),
        whole: 3,
        ..MapSample::default()
    };
    Timeline { marks, samples: (0..900).map(sample).collect() }
}

fn labels(sheet: &Sheet) -> Vec<&Label> {
    let mut labels = Vec::new();
    for shape in &sheet.shapes {
        if let Shape::Label(label) = shape {
            labels.push(label);
        }
    }
    labels
}

/// Returns left, top, right, bottom.
fn extent(label: &Label) -> [i32; 4] {
    let width = width_of(label.words.chars().count(), label.size);
    let left = match label.anchor {
        Anchor::Left => label.x,
        Anchor::Middle => label.x - width / 2,
        Anchor::Right => label.x - width,
    };
    [left, label.y, left + width, label.y + label.size]
}

fn assert_readable(sheet: &Sheet) {
    let labels = labels(sheet);
    for (position, label) in labels.iter().enumerate() {
        let [left, top, right, bottom] = extent(label);
        let is_inside = left >= 0 && top >= 0 && right <= sheet.width && bottom <= sheet.height;
        assert!(is_inside, "{label:?} is outside of {} x {}", sheet.width, sheet.height);
        for other in &labels[position + 1..] {
            let [l, t, r, b] = extent(other);
            let is_apart = r <= left || right <= l || b <= top || bottom <= t;
            assert!(is_apart, "{label:?} lies over {other:?}");
        }
    }
}

#[test]
fn no_label_lies_over_another() {
    let names = [
        "nothing",
        "nothing from node2 on internet",
        "node1 and the next node stop in turn, \
                 and a name that is much longer than any event has one so far in this laboratory",
    ];
    let mut rows: Vec<Row> = Vec::new();
    for number in 0..23 {
        let promise = [Promise::NothingLost, Promise::NothingBroken][number % 2];
        let mut row = row(names[number % 3], promise);
        row.1.is_repeated = number % 5 == 0;
        row.1.silence_max = (number % 4 == 0).then_some(50);
        rows.push(row);
    }
    // Some events begin at nearly the same time.
    let marks = (0..23).map(|number| 3_000_000 * number * (number % 7)).collect();
    assert_readable(&Sheet::of(&rows, &timeline(marks, 9)));
    assert_readable(&Sheet::of(&[], &Timeline::default()));
}

#[test]
fn a_panel_shows_its_bins_and_the_longest_gap() {
    let sheet = Sheet::of(&[row("kill -9 node1", Promise::NothingBroken)], &Timeline::default());
    let words: Vec<&str> = labels(&sheet).iter().map(|label| label.words.as_str()).collect();
    assert!(words.contains(&"1. kill -9 node1"), "{words:?}");
    let all = words.join(" ");
    for expected in [
        "longest gap: up 51 ms at +0.00 s, down 51 ms at +0.00 s",
        "lost: 400 up, 400 down of 480000",
        "broken: 0 of 1000 connections",
        "-1 s",
        "3 s",
        "ok: nothing broken",
    ] {
        assert!(all.contains(expected), "{expected}: {all}");
    }
    assert!(!all.contains("MISSED"), "{all}");
    let mut curves = sheet.shapes.iter().filter_map(|shape| match shape {
        Shape::Line(points, Colour::Up, _) => Some(points),
        _ => None,
    });
    let curve = curves.next().unwrap();
    let [full, empty] = [curve[0].1, curve.iter().map(|point| point.1).max().unwrap()];
    // A third of the strip is above 100 %; the gap reaches its foot.
    assert_eq!(empty - full, STRIP * 2 / 3);
    let hole: Vec<i32> =
        curve.iter().filter(|point| point.1 == empty).map(|point| point.0).collect();
    let fault = MARGIN + AXIS + (PANEL - AXIS - 2 * PAD) / 4;
    assert!(hole.iter().all(|x| (fault..fault + 8).contains(x)), "{hole:?}, fault at {fault}");
    let bars = sheet.shapes.iter().filter(|shape| matches!(shape, Shape::Bar(..))).count();
    assert_eq!(bars, 2);
}

#[test]
fn a_missed_promise_is_marked_in_words_and_a_gap_elsewhere_has_no_bar() {
    let mut missed = row("drain node1", Promise::NothingLost);
    (missed.1.up.gap_start, missed.1.down.gap_start) = (FAULT + 9_000_000, FAULT + 9_000_000);
    let all = |row: &Row| {
        let sheet = Sheet::of(std::slice::from_ref(row), &Timeline::default());
        let words: Vec<String> = labels(&sheet).iter().map(|label| label.words.clone()).collect();
        let bars = sheet.shapes.iter().filter(|shape| matches!(shape, Shape::Bar(..))).count();
        (words.join(" "), bars)
    };
    let (words, bars) = all(&missed);
    assert!(words.contains("MISSED: 400 packets lost from the homes;"), "{words}");
    assert!(words.contains("the sender itself paused for up to 61 ms"), "{words}");
    assert!(words.contains("51 ms at +9.00 s") && bars == 0, "{words}, {bars}");
    missed.1.is_repeated = true;
    assert!(all(&missed).0.contains("repeated, does not count: MISSED: 400 packets"));
}

#[test]
fn words_are_wrapped_and_never_cut() {
    let words = "a public endpoint changed: 198.18.0.1:2000, 198.18.0.1:3000 at 1.000 s";
    for width in [60, 120, 240, 1_000] {
        assert_eq!(wrap(words, width, WORDS).join(" "), words);
    }
    assert!(wrap(words, 240, WORDS).iter().all(|line| width_of(line.len(), WORDS) <= 240));
    assert_eq!(wrap("198.18.0.1:2000", 20, WORDS), ["198.18.0.1:2000"]);
}

#[test]
fn numbers_below_the_map_are_round_and_few() {
    let seconds = |end: Micros| tick_step(end * 1_000_000) / 1_000_000;
    assert_eq!([1, 15, 60, 700, 1_800].map(seconds), [1, 2, 5, 50, 200]);
}
