//! What happened over time: packets that came through, who served, what was done. Pure.

use std::collections::BTreeMap;

use crate::load::{Bin, Micros, Window};

/// Width of a slice of time.
pub(super) const SLICE: Micros = 100_000;

/// Who served the shards at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSample {
    /// When.
    pub at: Micros,
    /// Shards of which each registered node is primary, by the node's name; nodes that are gone but still named, too.
    pub primaries: BTreeMap<String, usize>,
    /// Shards with all their copies.
    pub whole: usize,
    /// Whether that is all shards.
    pub is_whole: bool,
    /// Shards that have another primary than at the sample before.
    pub moves: usize,
}

/// Everything that is drawn.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Time and words of each event.
    pub marks: Vec<(Micros, String)>,
    /// Start of each slice of time with packets up and down.
    pub slices: Vec<(Micros, [Bin; 2])>,
    /// In order.
    pub samples: Vec<MapSample>,
}

impl Timeline {
    /// Adds the slices of a window, which begins where the last one ended.
    pub fn add_slices(&mut self, window: Window, [up, down]: [Vec<Bin>; 2]) {
        let starts = (0..).map(|position| window.start + position * SLICE);
        self.slices.extend(starts.zip(up.into_iter().zip(down).map(|(up, down)| [up, down])));
    }

    /// Shards that got another primary within the window.
    pub fn moves(&self, window: Window) -> usize {
        self.inside(window).map(|sample| sample.moves).sum()
    }

    /// Time from a fault until every shard had all its copies for good; 0 if they had them all the time, none if they
    /// have not at the end of the window.
    pub fn whole_after(&self, window: Window, fault: Micros) -> Option<Micros> {
        let after = Window { start: fault, end: window.end };
        let mut whole_since = None;
        let mut was_broken = false;
        for sample in self.inside(after) {
            if !sample.is_whole {
                was_broken = true;
                whole_since = None;
            } else if whole_since.is_none() {
                whole_since = Some(sample.at);
            }
        }
        whole_since.map(|at| if was_broken { at - fault } else { 0 })
    }

    fn inside(&self, window: Window) -> impl Iterator<Item = &MapSample> {
        self.samples.iter().filter(move |sample| window.contains(sample.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn timeline(samples: &[(Micros, bool, usize)]) -> Timeline {
        let sample = |&(at, is_whole, moves)| MapSample {
            at: at * SECOND,
            is_whole,
            moves,
            ..MapSample::default()
        };
        Timeline { samples: samples.iter().map(sample).collect(), ..Timeline::default() }
    }

    fn whole_after(samples: &[(Micros, bool, usize)]) -> Option<Micros> {
        let window = Window { start: 0, end: 20 * SECOND };
        timeline(samples).whole_after(window, 5 * SECOND)
    }

    #[test]
    fn redundancy_is_back_when_it_stays_back() {
        let flickers = [
            (4, false, 0),
            (5, true, 0),
            (7, false, 0),
            (8, true, 0),
            (9, false, 0),
            (11, true, 0),
        ];
        assert_eq!(whole_after(&flickers), Some(6 * SECOND));
        assert_eq!(whole_after(&[(4, false, 0), (6, true, 0), (19, true, 0)]), Some(0));
        assert_eq!(whole_after(&[(6, true, 0), (19, false, 0), (20, true, 0)]), None);
        assert_eq!(whole_after(&[]), None);
    }

    #[test]
    fn moves_of_the_window_are_counted() {
        let timeline = timeline(&[(1, true, 3), (6, true, 2), (8, true, 1), (12, true, 4)]);
        assert_eq!(timeline.moves(Window { start: 2 * SECOND, end: 10 * SECOND }), 3);
    }

    #[test]
    fn slices_carry_their_times() {
        let mut timeline = Timeline::default();
        let bins = |count| vec![Bin { sent: 1, arrived: 1 }; count];
        let window = Window { start: SECOND, end: SECOND + 2 * SLICE };
        timeline.add_slices(window, [bins(2), bins(2)]);
        let starts: Vec<Micros> = timeline.slices.iter().map(|(at, _)| *at).collect();
        assert_eq!(starts, [SECOND, SECOND + SLICE]);
    }
}
