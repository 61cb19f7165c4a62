//! Time since the start of the laboratory.

use std::time::Instant;

/// Microseconds since a clock's start. 0 lies before every record.
pub type Micros = u64;

/// The clock that all records share; monotonic, the same on every core and in every namespace.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

/// A half-open range of times: from `start` up to, but not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First time inside the window.
    pub start: Micros,
    /// First time after the window.
    pub end: Micros,
}

impl Clock {
    /// Starts a clock.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Returns the time since the start, at least 1.
    pub fn now(&self) -> Micros {
        (self.start.elapsed().as_micros() as Micros).max(1)
    }
}

impl Window {
    /// True if `at` lies inside the window.
    pub fn contains(&self, at: Micros) -> bool {
        (self.start..self.end).contains(&at)
    }
}
