//! The node that served each shard over time, and the times of the events. Pure.

use std::collections::BTreeMap;

use crate::cluster::Move;
use crate::load::{Micros, Window};

/// The primaries of the shards at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSample {
    /// Time of the sample.
    pub at: Micros,
    /// Number of shards whose primary is on each node, by the node's name: all registered nodes,
    /// and nodes that are gone but still named in entries.
    pub primaries: BTreeMap<String, usize>,
    /// Shards with all their copies.
    pub whole: usize,
    /// Whether all shards have all their copies.
    pub is_whole: bool,
    /// Shards whose primary differs from that in the previous sample.
    pub moves: Vec<Move>,
}

/// The map over the whole run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Start of each event.
    pub marks: Vec<Micros>,
    /// Samples in order of time.
    pub samples: Vec<MapSample>,
}

/// Returns the largest number of times that one shard's primary moved to `node` or away from it.
pub(super) fn most_moves(moves: &[Move], node: &str) -> usize {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for Move { shard, .. } in moves.iter().filter(|it| it.from == node || it.to == node) {
        *counts.entry(*shard).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}

impl Timeline {
    /// Returns all changes of a shard's primary within the window.
    pub fn moves(&self, window: Window) -> Vec<Move> {
        self.inside(window).flat_map(|sample| sample.moves.clone()).collect()
    }

    /// Returns the time from a fault until every shard had all its copies and kept them; 0 if they
    /// had them all the time, None if they do not have them at the end of the window.
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

    fn timeline(samples: &[(Micros, bool)]) -> Timeline {
        let sample =
            |&(at, is_whole)| MapSample { at: at * SECOND, is_whole, ..MapSample::default() };
        Timeline { samples: samples.iter().map(sample).collect(), ..Timeline::default() }
    }

    fn whole_after(samples: &[(Micros, bool)]) -> Option<Micros> {
        let window = Window { start: 0, end: 20 * SECOND };
        timeline(samples).whole_after(window, 5 * SECOND)
    }

    #[test]
    fn redundancy_is_restored_when_it_lasts() {
        let flickers = [(4, false), (5, true), (7, false), (8, true), (9, false), (11, true)];
        assert_eq!(whole_after(&flickers), Some(6 * SECOND));
        assert_eq!(whole_after(&[(4, false), (6, true), (19, true)]), Some(0));
        assert_eq!(whole_after(&[(6, true), (19, false), (20, true)]), None);
        assert_eq!(whole_after(&[]), None);
    }

    #[test]
    fn moves_of_the_window_are_counted_by_shard_and_node() {
        let a_move = |shard, from: &str, to: &str| Move { shard, from: from.into(), to: to.into() };
        let mut timeline = timeline(&[(1, true), (6, true), (8, true), (12, true)]);
        timeline.samples[0].moves = vec![a_move(1, "a", "b")];
        timeline.samples[1].moves = vec![a_move(1, "b", "a"), a_move(2, "a", "b")];
        timeline.samples[2].moves = vec![a_move(2, "b", "c"), a_move(2, "c", "b")];
        timeline.samples[3].moves = vec![a_move(1, "a", "b")];
        let moves = timeline.moves(Window { start: 2 * SECOND, end: 10 * SECOND });
        assert_eq!(moves.len(), 4);
        let most = |node| most_moves(&moves, node);
        assert_eq!((most("a"), most("b"), most("c"), most("d")), (1, 3, 2, 0));
    }
}
