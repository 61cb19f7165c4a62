//! The remaining time of a benchmark: the estimate, corrected by the time that the past took.

use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    start: Instant,
    /// Estimated seconds of everything, and of the finished part.
    estimated: f64,
    done: f64,
}

impl Progress {
    pub(super) fn new(estimated: f64) -> Self {
        Progress { start: Instant::now(), estimated, done: 0.0 }
    }

    /// Marks work as finished that was estimated at this many seconds.
    pub(super) fn enter(&mut self, estimated: f64) {
        self.done += estimated;
    }

    pub(super) fn left(&self) -> String {
        let left = left(self.estimated, self.done, self.start.elapsed().as_secs_f64());
        format!("about {} left", minutes(left))
    }
}

/// Returns the seconds left, given an estimate of which the part `done` took `elapsed`.
fn left(estimated: f64, done: f64, elapsed: f64) -> f64 {
    let pace = if done > 0.0 { elapsed / done } else { 1.0 };
    (estimated - done).max(0.0) * pace
}

fn minutes(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_corrects_the_estimate() {
        assert_eq!(left(100.0, 0.0, 0.0), 100.0);
        assert_eq!(left(100.0, 50.0, 100.0), 100.0);
        assert_eq!(left(100.0, 120.0, 100.0), 0.0);
        assert_eq!((minutes(42.4), minutes(150.0)), ("42 s".into(), "2 min".into()));
    }
}
