//! Time since the laboratory began.

use std::time::Instant;

/// Microseconds since a clock's start. 0 is before everything that is recorded.
pub type Micros = u64;

/// The clock that all records share; monotonic, the same on every core and in every namespace.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

/// Times from `start` up to, but not, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First time inside.
    pub start: Micros,
    /// First time behind.
    pub end: Micros,
}

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The time now, at least 1.
    pub fn now(&self) -> Micros {
        (self.start.elapsed().as_micros() as Micros).max(1)
    }
}

impl Window {
    /// Whether `at` lies inside.
    pub fn contains(&self, at: Micros) -> bool {
        (self.start..self.end).contains(&at)
    }
}
