//! Reports what happens while it happens: what is done next, how far the run is and how long the
//! rest takes, then its row of the table. The lines are pure.

use std::time::{Duration, Instant};

use weir_lab::failover::{Observation, Promise, RunProgress, head, row};

/// The head of the table is printed again after this many rows.
const ROWS_PER_HEAD: usize = 10;

pub(crate) type Rows = Vec<(Promise, Observation)>;

/// Prints the reports, and keeps the rows.
#[derive(Debug)]
pub(crate) struct Display {
    begun: Instant,
    row_begun: Instant,
    progress: Progress,
    pub(crate) rows: Rows,
}

impl Display {
    /// Makes a display from the estimated time of each row.
    pub(crate) fn new(estimates: Vec<Duration>) -> Self {
        let now = Instant::now();
        Self { begun: now, row_begun: now, progress: Progress::new(estimates), rows: Rows::new() }
    }

    /// Prints a line with the time since the start.
    pub(crate) fn print(&self, text: &str) {
        println!("[{:5.1} s] {text}", self.begun.elapsed().as_secs_f32());
    }

    pub(crate) fn show(&mut self, progress: RunProgress<'_>) {
        match progress {
            RunProgress::Begins(what) => {
                self.row_begun = Instant::now();
                self.print(&self.progress.line(what));
            }
            RunProgress::Seen(promise, seen) => {
                self.progress.enter(self.row_begun.elapsed());
                let shows_head = self.rows.len().is_multiple_of(ROWS_PER_HEAD);
                lines(promise, seen, shows_head).iter().for_each(|line| println!("{line}"));
                self.rows.push((promise, seen.clone()));
            }
            RunProgress::Again(count, reason) => {
                self.progress.repeat(count);
                repeat(&mut self.rows, count);
                self.print(&format!("again, both are shown: {reason}"));
            }
        }
    }
}

/// Returns the row of an observation, and its missed promises.
fn lines(promise: Promise, seen: &Observation, shows_head: bool) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(shows_head.then(head));
    lines.push(row(promise, seen));
    let complaints = promise.complaints(seen);
    if !complaints.is_empty() {
        lines.push(format!("  MISSED: {}", complaints.join("; ")));
    }
    lines
}

/// Marks the last rows as repeated: they do not count, since their event is tried again.
fn repeat(rows: &mut Rows, count: usize) {
    rows.iter_mut().rev().take(count).for_each(|(_, seen)| seen.is_repeated = true);
}

/// How far the run is, and how long the rest takes: the estimate, corrected by the time that the
/// rows so far took.
#[derive(Debug)]
struct Progress {
    estimates: Vec<Duration>,
    /// Number of rows that count.
    done: usize,
    /// Time that all rows took so far, and their estimate, repeated rows included.
    took: Duration,
    estimated: Duration,
}

impl Progress {
    fn new(estimates: Vec<Duration>) -> Self {
        Self { estimates, done: 0, took: Duration::ZERO, estimated: Duration::ZERO }
    }

    fn enter(&mut self, took: Duration) {
        self.took += took;
        self.estimated += self.estimates.get(self.done).copied().unwrap_or_default();
        self.done += 1;
    }

    fn repeat(&mut self, count: usize) {
        self.done = self.done.saturating_sub(count);
    }

    fn left(&self) -> Duration {
        let left: Duration = self.estimates.iter().skip(self.done).sum();
        if self.estimated.is_zero() {
            return left;
        }
        left.mul_f64(self.took.as_secs_f64() / self.estimated.as_secs_f64())
    }

    fn line(&self, what: &str) -> String {
        let (number, all) = (self.done + 1, self.estimates.len());
        format!("{number} of {all}, {} to go: {what}", about(self.left()))
    }
}

fn about(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..90 => format!("about {seconds} s"),
        seconds => format!("about {} min", (seconds + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::failover::Side;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn remaining_time_is_the_estimate_corrected_by_the_elapsed_time() {
        let mut progress = Progress::new(vec![seconds(30), seconds(60), seconds(30)]);
        assert_eq!(progress.line("nothing"), "1 of 3, about 2 min to go: nothing");
        progress.enter(seconds(45));
        assert_eq!(progress.left(), seconds(135));
        progress.enter(seconds(45));
        assert_eq!(progress.line("kill -9 node1"), "3 of 3, about 30 s to go: kill -9 node1");
        progress.enter(seconds(30));
        assert_eq!(progress.left(), Duration::ZERO);
    }

    #[test]
    fn a_repeated_row_has_its_number_again() {
        let mut progress = Progress::new(vec![seconds(30); 4]);
        (0..3).for_each(|_| progress.enter(seconds(30)));
        progress.repeat(2);
        assert_eq!(progress.line("drain node1"), "2 of 4, about 2 min to go: drain node1");
        (0..2).for_each(|_| progress.enter(seconds(30)));
        assert_eq!(progress.left(), seconds(30));
    }

    #[test]
    fn a_row_that_missed_its_promise_says_why_and_how_long_the_sender_paused() {
        let side = Side { sent: 1_000, lost: 3, pause: 83_000, ..Side::default() };
        let seen = Observation {
            name: "drain node2".into(),
            up: side,
            down: Side { lost: 0, ..side },
            is_answered: true,
            ..Observation::default()
        };
        let lines = lines(Promise::NothingLost, &seen, true);
        assert!(
            lines[0].starts_with("event ") && lines[1].starts_with("drain node2 "),
            "{lines:?}"
        );
        assert!(lines[1].contains("3, 0 of 2000") && lines[1].ends_with("MISSED"), "{lines:?}");
        assert_eq!(lines.len(), 3);
        assert!(lines[2].starts_with("  MISSED: 3 packets lost from the homes; "), "{lines:?}");
        assert!(lines[2].ends_with("; the sender itself paused for up to 83 ms"), "{lines:?}");
    }

    #[test]
    fn only_the_last_rows_are_repeated() {
        let mut rows: Rows =
            (0..3).map(|_| (Promise::NothingLost, Observation::default())).collect();
        repeat(&mut rows, 2);
        let repeated: Vec<bool> = rows.iter().map(|(_, seen)| seen.is_repeated).collect();
        assert_eq!(repeated, [false, true, true]);
    }
}
