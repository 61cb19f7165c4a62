//! The clock of workers with a core to themselves: it advances only while their code runs.

use std::time::Instant;

const START_US: u64 = 1_000_000_000;
/// Longer pieces of work are due to the machine, which ran something else on the core: a worker
/// would take them for a stall.
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

    /// Advances the clock, by 10 ms at most.
    pub(crate) fn pass(&mut self, nanoseconds: u64) {
        self.spent_ns += nanoseconds.min(PIECE_MAX_NS);
    }

    /// Returns the nanoseconds that a piece of work takes, without advancing the clock.
    pub(crate) fn measure(work: impl FnOnce()) -> u64 {
        let began = Instant::now();
        work();
        began.elapsed().as_nanos() as u64
    }

    /// Runs a piece of a worker's work, which gets the time; returns the nanoseconds that it took.
    pub(crate) fn time(&mut self, work: impl FnOnce(u64)) -> u64 {
        let now_us = self.now_us();
        let began = Instant::now();
        work(now_us);
        let took_ns = began.elapsed().as_nanos() as u64;
        self.pass(took_ns);
        took_ns
    }
}
