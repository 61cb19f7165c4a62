//! The limit of moves per minute.

use std::collections::VecDeque;

use super::time::ControllerTime;
use crate::records::{EVENTS_MAX, EventRecord};

const MINUTE_MS: u64 = 60_000;

/// Remembers the moves of the last minute; at most `max` may begin in any sixty seconds.
#[derive(Clone, Debug)]
pub(super) struct MovePace {
    max: usize,
    begun_ms: VecDeque<u64>,
}

impl MovePace {
    pub(super) fn new(max: usize) -> Self {
        Self { max, begun_ms: VecDeque::new() }
    }

    /// Number of moves that may still begin.
    pub(super) fn left(&mut self, now: ControllerTime) -> usize {
        while self.begun_ms.front().is_some_and(|&begun| now.since(begun) >= MINUTE_MS) {
            self.begun_ms.pop_front();
        }
        self.max.saturating_sub(self.begun_ms.len())
    }

    pub(super) fn begin(&mut self, now: ControllerTime) {
        self.begun_ms.push_back(now.monotonic_ms);
    }

    /// Counts the moves that earlier leaders began within the last minute as begun now. If so many
    /// events came within the minute that older ones are overwritten, the whole minute's moves are
    /// used up.
    pub(super) fn inherit<'e>(
        &mut self,
        events: impl Iterator<Item = &'e EventRecord>,
        now: ControllerTime,
    ) {
        let mut moves = 0;
        let mut recent = 0;
        for event in events.filter(|event| event.at_ms.saturating_add(MINUTE_MS) > now.unix_ms) {
            recent += 1;
            moves += usize::from(event.is_move);
        }
        let moves = if recent >= EVENTS_MAX { self.max } else { moves };
        self.begun_ms.clear();
        self.begun_ms.extend(std::iter::repeat_n(now.monotonic_ms, moves));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> ControllerTime {
        ControllerTime { monotonic_ms: ms, unix_ms: 1_000_000 + ms }
    }

    #[test]
    fn a_move_counts_for_a_minute() {
        let mut pace = MovePace::new(2);
        pace.begin(at(0));
        pace.begin(at(10_000));
        assert_eq!(pace.left(at(59_999)), 0);
        assert_eq!(pace.left(at(60_000)), 1);
        assert_eq!(pace.left(at(70_000)), 2);
    }

    #[test]
    fn a_new_leader_counts_the_moves_of_its_predecessor() {
        let event = |at_ms, is_move| EventRecord {
            number: 1,
            at_ms,
            by: String::new(),
            node: None,
            shard: None,
            what: String::new(),
            why: String::new(),
            is_move,
        };
        let events = [event(900_000, true), event(990_000, true), event(995_000, false)];
        let mut pace = MovePace::new(2);
        pace.inherit(events.iter(), at(0));
        assert_eq!((pace.left(at(0)), pace.left(at(60_000))), (1, 2));
    }
}
