//! The scrub: sums of extents, compared one after the other over all copies that are synced.
//!
//! A sum travels in the stream, so the receiver compares it when it has applied exactly what the
//! owner had written: changes on their way do not count. A difference is checked a second time
//! after a pause before the extent is copied again.
//!
//! ```text
//!   pausing --> comparing --equal--> pausing, next extent
//!                  |  ^
//!           differs|  |after settle_us
//!                  v  |
//!               settling --differs again--> repairing --> pausing, next extent
//! ```

use std::ops::Range;

use weir_ids::{Lane, ShardId};

use crate::identity::PeerIndex;
use crate::options::StreamOptions;

/// Slots that one sum covers: an extent of a slab.
pub(crate) const SLOTS: u32 = 1024;

/// A verdict that has not come after this time, in microseconds, is given up.
const VERDICT_US: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Pausing,
    Comparing {
        is_again: bool,
    },
    Settling,
    /// Next slot to copy; None: not begun.
    Repairing {
        cursor: Option<u32>,
    },
}

/// The slots that are compared.
#[derive(Clone, Debug)]
pub(crate) struct ScrubTarget {
    pub(crate) peer: PeerIndex,
    pub(crate) lane: Lane,
    pub(crate) shard: ShardId,
    pub(crate) slots: Range<u32>,
}

#[derive(Debug)]
pub(crate) struct Scrub {
    /// Index of the copy that has its turn, and the extent of it.
    pub(crate) copy: u32,
    extent: u32,
    pub(crate) stage: Stage,
    pub(crate) due_us: u64,
    /// Number of the last sum.
    number: u32,
    stream: (PeerIndex, Lane),
}

impl Default for Scrub {
    fn default() -> Self {
        Self {
            copy: 0,
            extent: 0,
            stage: Stage::Pausing,
            due_us: 0,
            number: 0,
            stream: (PeerIndex(0), Lane::ALL[0]),
        }
    }
}

impl Scrub {
    /// Returns the slots of the extent that has its turn; after the last one, all slots that the
    /// owner does not have. None if the turn is over.
    pub(crate) fn slots(&self, total: u32) -> Option<Range<u32>> {
        let extents = total.div_ceil(SLOTS);
        let start = self.extent.checked_mul(SLOTS)?;
        match self.extent.cmp(&extents) {
            std::cmp::Ordering::Less => Some(start..start.saturating_add(SLOTS)),
            std::cmp::Ordering::Equal => Some(start..u32::MAX),
            std::cmp::Ordering::Greater => None,
        }
    }

    pub(crate) fn pause(&mut self, now_us: u64, options: &StreamOptions) {
        self.stage = Stage::Pausing;
        self.due_us = now_us + options.scrub_us;
    }

    pub(crate) fn next_extent(&mut self, now_us: u64, options: &StreamOptions) {
        self.extent += 1;
        self.pause(now_us, options);
    }

    pub(crate) fn next_copy(&mut self, copies: usize) {
        self.extent = 0;
        self.copy = (self.copy + 1) % (copies as u32).max(1);
    }

    /// Notes that a sum is sent; returns its number.
    pub(crate) fn compare(
        &mut self,
        peer: PeerIndex,
        lane: Lane,
        is_again: bool,
        now_us: u64,
    ) -> u32 {
        self.number = self.number.wrapping_add(1).max(1);
        self.stream = (peer, lane);
        self.stage = Stage::Comparing { is_again };
        self.due_us = now_us + VERDICT_US;
        self.number
    }

    /// Takes a receiver's last comparison.
    pub(crate) fn verdict(
        &mut self,
        peer: PeerIndex,
        lane: Lane,
        number: u32,
        differs: bool,
        now_us: u64,
        options: &StreamOptions,
    ) {
        let Stage::Comparing { is_again } = self.stage else { return };
        if number != self.number || self.stream != (peer, lane) {
            return;
        }
        match (differs, is_again) {
            (false, _) => self.next_extent(now_us, options),
            (true, false) => {
                self.stage = Stage::Settling;
                self.due_us = now_us + options.settle_us;
            }
            (true, true) => {
                self.stage = Stage::Repairing { cursor: None };
                self.due_us = now_us;
            }
        }
    }
}
