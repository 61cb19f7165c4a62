//! The clock of workers that have a core to themselves: it stands still while nothing of theirs runs.

use std::time::Instant;

const START_US: u64 = 1_000_000_000;
/// Longer pieces of work are the machine's, which gave the core to others: a worker would take them for a standstill.
const PIECE_MAX_NS: u64 = 10_000_000;

#[derive(Default)]
pub(crate) struct Clock {
    spent_ns: u64,
}

impl Clock {
    pub(crate) fn now_us(&self) -> u64 {
        START_US + self.spent_ns / 1000
    }

    pub(crate) fn now_ns(&self) -> u64 {
        1000 * START_US + self.spent_ns
    }

    /// Time passes, 10 ms at most.
    pub(crate) fn pass(&mut self, nanoseconds: u64) {
        self.spent_ns += nanoseconds.min(PIECE_MAX_NS);
    }

    /// Nanoseconds that a piece of work takes, apart from the clock.
    pub(crate) fn measure(work: impl FnOnce()) -> u64 {
        let began = Instant::now();
        work();
        began.elapsed().as_nanos() as u64
    }

    /// Does a piece of a worker's work, which is told the time; returns the nanoseconds that it took.
    pub(crate) fn time(&mut self, work: impl FnOnce(u64)) -> u64 {
        let now_us = self.now_us();
        let began = Instant::now();
        work(now_us);
        let took_ns = began.elapsed().as_nanos() as u64;
        self.pass(took_ns);
        took_ns
    }
}
