//! The events: a ring of small keys in etcd.
//!
//! They are kept in etcd and not in the process because they are read when a controller has just
//! died. The event of a decision is written in the same transaction; an observation is written with
//! the next write, or alone.

use std::collections::VecDeque;

use weir_etcd::{Key, Swap, SwapChange};
use weir_map::{NodeId, ShardId};

use super::log_lines::DecisionLine;
use super::time::ControllerTime;
use super::view::View;
use crate::records::{EVENTS_MAX, EventRecord};

/// Most events that wait to be written; further ones are dropped.
const WAITING_MAX: usize = 64;
/// Most waiting events that go along with one write.
pub(super) const ALONG_MAX: usize = 8;
/// Highest number of an event.
const NUMBER_MAX: u64 = 1 << 63;

/// An event that has no number yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingEvent {
    pub(super) node: Option<NodeId>,
    pub(super) shard: Option<ShardId>,
    pub(super) what: String,
    pub(super) why: String,
    pub(super) is_move: bool,
    /// Its line in the operational log.
    pub(super) line: DecisionLine,
}

#[derive(Clone, Debug, Default)]
pub(super) struct EventJournal {
    waiting: VecDeque<PendingEvent>,
}

impl EventJournal {
    pub(super) fn append(
        &mut self,
        line: DecisionLine,
        node: Option<&NodeId>,
        what: &str,
        why: &str,
    ) {
        if self.waiting.len() == WAITING_MAX {
            return;
        }
        let (what, why) = (what.to_owned(), why.to_owned());
        let node = node.cloned();
        self.waiting.push_back(PendingEvent { node, shard: None, what, why, is_move: false, line });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns the writes of some waiting events and of the decisions' events, and the number of
    /// the former.
    pub(super) fn swaps(
        &self,
        decided: &[PendingEvent],
        view: &View,
        by: &str,
        now: ControllerTime,
    ) -> (Vec<Swap>, usize) {
        let readable = view.events.values().filter_map(|held| held.value.as_ref());
        // No controller writes a higher number, and continuing from one would exhaust the numbers.
        let numbers = readable.map(|event| event.number).filter(|number| *number <= NUMBER_MAX);
        let last = numbers.max().unwrap_or(0);
        let along = self.waiting.iter().take(ALONG_MAX);
        let swaps = along.chain(decided).cloned().zip(last + 1..).map(|(pending, number)| {
            let key = Key::Event((number % u64::from(EVENTS_MAX)) as u32);
            let event = EventRecord {
                number,
                at_ms: now.unix_ms,
                by: by.to_owned(),
                node: pending.node.map(|node| node.to_string()),
                shard: pending.shard.map(|shard| shard.0),
                what: pending.what,
                why: pending.why,
                is_move: pending.is_move,
            };
            let value = serde_json::to_vec(&event).expect("texts and numbers serialize to JSON");
            Swap { expected: view.revision(&key), key, change: SwapChange::Put(value) }
        });
        let swaps: Vec<Swap> = swaps.collect();
        (swaps, self.waiting.len().min(ALONG_MAX))
    }

    /// Takes the first `count` waiting events: they are written.
    pub(super) fn written(&mut self, count: usize) -> impl Iterator<Item = PendingEvent> + '_ {
        self.waiting.drain(..count.min(self.waiting.len()))
    }
}
